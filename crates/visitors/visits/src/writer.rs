//! The writer thread: collects visits and writes them into the database every [`INTERVAL`].

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Select};

use crate::blind::Said;
use crate::clock::{Clock, Removal, unix_seconds};
use crate::error::VisitsError;
use crate::gather::Gathered;
use crate::shared::{Asked, Decisions, Shared};
use crate::store::{self, Identity, Store};
use crate::visit::Visit;

/// Interval between two writes. Visits since the last write are lost if the process is killed.
const INTERVAL: Duration = Duration::from_secs(20);
/// Interval at which the queue is read, so that [`Visits::record`](crate::Visits::record) need not wake the thread.
const GATHERING: Duration = Duration::from_millis(250);

/// State of the writer thread.
#[derive(Debug)]
pub(crate) struct Writer {
    folder: Arc<Path>,
    shared: Arc<Shared>,
    gathered: Gathered,
    store: Option<Store>,
    /// [`Identity`] of the last opened file.
    file: Option<Identity>,
    clock: Clock,
    started: Instant,
    /// Day on which the pages were read from the database; `None` before that.
    pages_of: Option<i64>,
    /// Last error of the maintenance beside writing.
    trouble: Option<String>,
    said: Said,
}

impl Writer {
    pub(crate) fn new(folder: Arc<Path>, shared: Arc<Shared>) -> Self {
        let clock = Clock::new(unix_seconds());
        let started = Instant::now();
        Self {
            folder,
            shared,
            gathered: Gathered::new(),
            store: None,
            file: None,
            clock,
            started,
            pages_of: None,
            trouble: None,
            said: Said::default(),
        }
    }

    /// Writes until all handles are dropped and all visits are written.
    pub(crate) fn run(mut self, visits: &Receiver<Visit>, questions: &Receiver<Asked>) {
        // Opens the database at the start: no connection is drawn before the decisions are read, and errors
        // are logged early.
        self.write();
        let mut due = Instant::now() + INTERVAL;
        loop {
            let mut either = Select::new();
            either.recv(visits);
            either.recv(questions);
            // Without visits, the thread sleeps until the next write. With visits, it gathers for a quarter
            // of a second, so that few visits wake it.
            let _ = either.ready_deadline(due);
            let asked = questions.recv_deadline(due.min(Instant::now() + GATHERING));
            if matches!(asked, Ok(Asked::Close(_))) {
                // Before the queue is emptied: later visits are dropped and counted.
                self.shared.is_closed.store(true, Ordering::Relaxed);
            }
            // Limited to the current length, which includes all visits recorded before the message; more may arrive
            // without end.
            for visit in visits.try_iter().take(visits.len()) {
                self.keep(visit);
            }
            match asked {
                Ok(Asked::Gather) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Asked::Defined) => {
                    self.write();
                }
                Ok(Asked::Flush(reply)) => {
                    // The send fails if the caller's timeout has passed.
                    let _ = reply.try_send(self.write());
                }
                Ok(Asked::Close(reply)) => {
                    let written = self.write();
                    self.store = None;
                    let _ = reply.try_send(written);
                    return;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.write_or_drop();
                    return;
                }
            }
            if Instant::now() >= due {
                self.write();
                due = Instant::now() + INTERVAL;
            }
        }
    }

    fn keep(&mut self, visit: Visit) {
        self.shared.figures.count(&visit, &self.shared.definitions);
        self.gathered.add(visit);
        if self.gathered.is_full() {
            self.write_or_drop();
        }
    }

    fn write_or_drop(&mut self) {
        if !self.write() {
            let lost = self.gathered.clear();
            self.shared.dropped.fetch_add(lost, Ordering::Relaxed);
        }
    }

    /// Writes [`Gathered`] visits into the database. Returns whether this succeeded.
    fn write(&mut self) -> bool {
        let result = self.try_write();
        let error = result.as_ref().err().map(ToString::to_string);
        let mut shown = self.shared.error.lock().unwrap_or_else(PoisonError::into_inner);
        match &error {
            Some(error) if shown.as_ref() != Some(error) => {
                tracing::error!(
                    "visits are not stored: {error}; brisk serves on, and tries again every 20 s"
                );
            }
            None if shown.is_some() => tracing::info!("visits are stored again"),
            _ => {}
        }
        *shown = error;
        drop(shown);
        if result.is_ok() {
            self.look_after();
        }
        result.is_ok()
    }

    fn try_write(&mut self) -> Result<(), VisitsError> {
        let result = self.write_to_store();
        if let Err(error) = &result
            && self.give_up(error)?
        {
            return self.write_to_store();
        }
        result
    }

    /// Closes the database after an error, so that the next write opens it again. Returns whether it was damaged and
    /// has been renamed.
    fn give_up(&mut self, error: &VisitsError) -> Result<bool, VisitsError> {
        // Releases the shared lock, so that another process can lock the folder exclusively.
        self.store = None;
        if !error.is_damage() {
            return Ok(false);
        }
        if let Some(moved) = Store::move_damaged(&self.folder, self.file)? {
            tracing::error!(
                "the database of visits is damaged ({error}); it is now {}, and a new one is begun",
                moved.display()
            );
        }
        Ok(true)
    }

    fn write_to_store(&mut self) -> Result<(), VisitsError> {
        // Writes to a removed file would succeed, but no reader would see them.
        if self.store.as_ref().is_some_and(|store| !store.is_current(&self.folder)) {
            tracing::warn!("the database of visits was moved or removed; a new one is begun");
            self.store = None;
        }
        let store = match &mut self.store {
            Some(store) => store,
            // Before and after the opening: a damaged file may fail to open, and a missing one is created.
            none => {
                self.file = store::identity(&self.folder.join(store::FILE));
                let opened = none.insert(Store::open(&self.folder)?);
                self.file = store::identity(&self.folder.join(store::FILE));
                opened
            }
        };
        let (now, settings) = (unix_seconds(), self.shared.settings.load());
        // Each time, because a reload may have changed the limit.
        store.limit(settings.max_bytes)?;
        if !self.gathered.is_empty() {
            let mut written = store.write(&mut self.gathered, &self.shared.definitions, now);
            if written.as_ref().is_err_and(VisitsError::is_full) {
                store.remove_too_much(settings.max_bytes)?;
                written = store.write(&mut self.gathered, &self.shared.definitions, now);
            }
            written?;
            self.gathered.clear();
        }
        Ok(())
    }

    /// Maintenance beside writing. A failed part does not prevent the others.
    fn look_after(&mut self) {
        let (now, uptime, settings) = (unix_seconds(), self.started.elapsed(), self.shared.settings.load());
        let Some(store) = &mut self.store else { return };
        let day = now / store::DAY;
        if self.pages_of != Some(day)
            && let Ok(pages) = store.pages()
        {
            // Once a day, since pages without visits are removed.
            self.shared.pages.replace(pages);
            self.pages_of = Some(day);
        }
        let before = self.shared.decisions.load();
        let decided = store.decide(&self.shared.definitions, &before, now);
        let decided = decided.map(|decided| {
            self.shared.say_what_is_blind(&decided, &mut self.said);
            self.shared.put_in_force(decided.decisions);
        });
        let rolled = store.roll_up(now, &settings);
        let clock = &mut self.clock;
        let removed = store.latest().and_then(|latest| match clock.removal(uptime, now, latest) {
            Some(Removal::ByAge) => store.remove_old(now, &settings),
            Some(Removal::BySize) => store.remove_too_much(settings.max_bytes),
            None => Ok(()),
        });
        self.shared.bytes.store(store::bytes(&self.folder), Ordering::Relaxed);
        let error = decided.and(rolled).and(removed).err();
        let shown = error.as_ref().map(ToString::to_string);
        if let Some(text) = shown.as_ref().filter(|_| shown != self.trouble) {
            tracing::error!("visits are stored, but not looked after: {text}; brisk tries again every 20 s");
        }
        self.trouble = shown;
        if let Some(Err(error)) = error.filter(VisitsError::is_damage).map(|error| self.give_up(&error)) {
            self.trouble = Some(error.to_string());
            tracing::error!("{error}");
        }
    }
}

impl Shared {
    /// Warns of each [`Blindness`](crate::blind::Blindness): experiments without data although their hosts have visitors.
    fn say_what_is_blind(&self, decided: &store::Decided, said: &mut Said) {
        let running = decided.decisions.iter().filter(|(_, decision)| decision.is_none());
        for (id, _) in running {
            let Some(experiment) = self.definitions.get(*id) else { continue };
            let (sight, by_metric) = (self.figures.sight(*id), &decided.by_metric[id]);
            let found = sight.blindness(&experiment, by_metric);
            let is_news = said.is_news(*id, found, Instant::now());
            if let Some(blindness) = found.filter(|_| is_news) {
                let words = sight.words(blindness, &experiment, by_metric);
                tracing::warn!(experiment = %experiment.name, "{words}");
            }
        }
    }

    /// Applies [`Decisions`] to new connections. Each decision is logged when it is made and at every start.
    fn put_in_force(&self, decisions: Decisions) {
        let decisions = Arc::new(decisions);
        let before = self.decisions.swap(Arc::clone(&decisions));
        for (id, decision) in decisions.iter() {
            let Some(decision) = decision.filter(|_| before.get(id).copied().flatten().is_none()) else {
                continue;
            };
            let Some(experiment) = self.definitions.get(*id) else { continue };
            let found = decision.sentence(&experiment.arms, experiment.metric);
            let advice = decision.advice(&experiment);
            tracing::info!(
                experiment = %experiment.name,
                "decided, and no connection is drawn any more: {found} {advice}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    use rusqlite::Connection;

    use crate::experiment::{Arm, Experiment};
    use crate::metric::Metric;
    use crate::{Settings, Visits};

    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    fn visit(host: &str, ms: f64) -> Visit {
        let mut visit = Visit::new(host.into(), "/".into());
        visit.measures.set(Metric::FirstByte, ms);
        visit
    }

    fn seen(folder: &Path) -> i64 {
        let connection = Connection::open(folder.join("visits.db")).unwrap();
        connection.query_row("SELECT coalesce(sum(seen), 0) FROM sample", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn what_was_recorded_is_in_the_database_after_a_flush_and_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("state/visits");
        for round in 1..=2 {
            let visits = Visits::open(&inside, Settings::default()).unwrap();
            let experiment = Experiment {
                name: "e".into(),
                arms: vec!["a".into(), "b".into()],
                advice: Vec::new(),
                metric: Metric::FirstByte,
                margin: 0.02,
                hosts: Vec::new(),
                share: 1.0,
            };
            let [id] = visits.define(&[experiment])[..] else { panic!("one id") };
            for number in 0..100 {
                let mut visit = visit(["a", "b"][number % 2], 100.0);
                visit.assigned.push(Arm { setting: id, value: number as u8 % 2 });
                visits.record(visit);
            }
            assert!(visits.flush(LONG), "{:?}", visits.status());
            assert_eq!(seen(&inside), 100 * round);
            let status = visits.status();
            assert_eq!((status.recorded, status.dropped, status.error), (100, 0, None));
            assert!(status.bytes > 0);
        }
        let connection = Connection::open(inside.join("visits.db")).unwrap();
        let arms: Vec<(u16, u8, i64)> = connection
            .prepare("SELECT experiment, arm, visits FROM arm WHERE metric = 4 ORDER BY arm")
            .unwrap()
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        assert_eq!(arms, [(1, 0, 100), (1, 1, 100)]);
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &fs::metadata(inside.join("visits.db")).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_database_is_moved_away() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("visits.db");
        fs::write(&file, vec![b'x'; 10_000]).unwrap();
        let visits = Visits::open(folder.path(), Settings::default()).unwrap();
        visits.record(visit("a", 1.0));
        assert!(visits.flush(LONG), "{:?}", visits.status());
        assert_eq!(seen(folder.path()), 1);
        drop(visits);
        assert_eq!(fs::read(folder.path().join("visits.db.damaged")).unwrap(), vec![b'x'; 10_000]);
    }

    #[test]
    fn a_database_damaged_in_the_middle_is_moved_away_when_that_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let write = |count| {
            let visits = Visits::open(folder.path(), Settings::default()).unwrap();
            for number in 0..count {
                visits.record(visit(&format!("host {number}"), 1.0));
            }
            visits.flush(LONG) && visits.status().error.is_none()
        };
        assert!(write(300));
        let connection = Connection::open(folder.path().join("visits.db")).unwrap();
        connection.pragma_update(None, "wal_checkpoint", "TRUNCATE").ok();
        drop(connection);
        let length = fs::metadata(folder.path().join("visits.db")).unwrap().len();
        let mut file = fs::OpenOptions::new().write(true).open(folder.path().join("visits.db")).unwrap();
        std::io::Seek::seek(&mut file, std::io::SeekFrom::Start(4096)).unwrap();
        file.write_all(&vec![0x5a; length as usize - 4096]).unwrap();
        drop(file);
        assert!(write(3));
        assert_eq!(seen(folder.path()), 3);
    }

    #[test]
    fn a_file_that_is_not_ours_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("visits.db");
        let other = Connection::open(&file).unwrap();
        other.execute_batch("CREATE TABLE theirs (a)").unwrap();
        let visits = Visits::open(folder.path(), Settings::default()).unwrap();
        visits.record(visit("a", 1.0));
        assert!(!visits.flush(LONG));
        let error = visits.status().error.unwrap();
        assert!(error.ends_with("visits.db: it is another program's database"), "{error}");
        assert_eq!(other.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)), Ok(1));

        let later = tempfile::tempdir().unwrap();
        assert!(Visits::open(later.path(), Settings::default()).unwrap().flush(LONG));
        let connection = Connection::open(later.path().join("visits.db")).unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
        let visits = Visits::open(later.path(), Settings::default()).unwrap();
        assert!(!visits.flush(LONG));
        let error = visits.status().error.unwrap();
        assert!(error.contains("has schema 99, and this brisk knows schema 2 at most"), "{error}");
    }

    #[test]
    fn a_folder_that_cannot_be_made_costs_visits_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let blocked = folder.path().join("file");
        fs::write(&blocked, "").unwrap();
        let visits = Visits::open(&blocked.join("visits"), Settings::default()).unwrap();
        visits.record(visit("a", 1.0));
        assert!(!visits.flush(LONG));
        assert!(visits.status().error.unwrap().starts_with("cannot make the folder "));
        // What was taken meanwhile is not lost when it goes again.
        fs::remove_file(&blocked).unwrap();
        assert!(visits.flush(LONG), "{:?}", visits.status());
        assert_eq!((seen(&blocked.join("visits")), visits.status().error), (1, None));
    }

    const KILLED: &str = "BRISK_TEST_KILLED_VISITS";

    /// The process that the next test kills.
    #[test]
    #[ignore = "runs until it is killed, by the test that starts it"]
    fn writes_until_it_is_killed() {
        let Some(folder) = std::env::var_os(KILLED) else { return };
        let visits = Visits::open(Path::new(&folder), Settings::default()).unwrap();
        for round in 1_u64.. {
            for _ in 0..100 {
                visits.record(visit("a", 1.0));
            }
            assert!(visits.flush(LONG));
            println!("\nwritten: {}", 100 * round);
        }
    }

    #[test]
    fn what_was_written_is_there_after_the_process_was_killed() {
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "writer::tests::writes_until_it_is_killed", "--nocapture"])
            .env(KILLED, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut written = 0;
        for line in lines {
            let line = line.unwrap();
            let Some(count) = line.strip_prefix("written: ") else { continue };
            written = count.parse::<i64>().unwrap();
            if written == 500 {
                // In the midst of the next rounds; what it says until then counts.
                child.kill().unwrap();
            }
        }
        child.wait().unwrap();
        assert!(written >= 500, "{written}");
        let connection = Connection::open(folder.path().join("visits.db")).unwrap();
        let check: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok");
        drop(connection);
        let visits = Visits::open(folder.path(), Settings::default()).unwrap();
        visits.record(visit("a", 1.0));
        assert!(visits.flush(LONG), "{:?}", visits.status());
        assert!(seen(folder.path()) > written);
    }

    #[test]
    fn two_processes_have_one_folder() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Visits::open(folder.path(), Settings::default()).unwrap();
        let (old, new) = (open(), open());
        for visits in [&old, &new, &old] {
            visits.record(visit("a", 1.0));
            assert!(visits.flush(LONG), "{:?}", visits.status());
        }
        assert_eq!(seen(folder.path()), 3);
        // While another has it open, a damaged database stays where it is.
        let file = folder.path().join("visits.db");
        let other = Store::open(folder.path()).unwrap();
        let error = Store::move_damaged(folder.path(), store::identity(&file)).unwrap_err().to_string();
        assert!(error.ends_with("stays where it is while another process has it open"), "{error}");
        drop(other);
        assert!(old.close(LONG) && new.close(LONG));
        let damaged = store::identity(&file);
        assert!(Store::move_damaged(folder.path(), damaged).unwrap().is_some());
        // Who comes second does not move the new one.
        drop(Store::open(folder.path()).unwrap());
        assert_eq!(Store::move_damaged(folder.path(), damaged).unwrap(), None);
        assert!(file.is_file());
    }

    #[test]
    fn a_database_that_was_removed_is_begun_anew() {
        let folder = tempfile::tempdir().unwrap();
        let inside = folder.path().join("visits");
        let visits = Visits::open(&inside, Settings::default()).unwrap();
        visits.record(visit("a", 1.0));
        assert!(visits.flush(LONG));
        fs::remove_dir_all(&inside).unwrap();
        visits.record(visit("a", 1.0));
        assert!(visits.flush(LONG), "{:?}", visits.status());
        assert_eq!(seen(&inside), 1);
    }

    #[test]
    fn what_is_recorded_is_written_when_it_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let visits = Visits::open(folder.path(), Settings::default()).unwrap();
        for _ in 0..100 {
            visits.record(visit("a", 1.0));
        }
        assert!(visits.close(LONG));
        assert_eq!(seen(folder.path()), 100);
        assert!(!folder.path().join("visits.db-wal").exists(), "the database is closed");
        visits.record(visit("a", 1.0));
        assert_eq!(visits.status().dropped, 1);
        assert!(!visits.flush(LONG));
    }

    #[test]
    fn what_cannot_be_looked_after_does_not_keep_visits_from_being_stored() {
        let folder = tempfile::tempdir().unwrap();
        let visits = Visits::open(folder.path(), Settings::default()).unwrap();
        visits.record(visit("a", 1.0));
        assert!(visits.flush(LONG));
        // Rows that no version of brisk wrote, in an hour that is over.
        let connection = Connection::open(folder.path().join("visits.db")).unwrap();
        connection.execute_batch(
            "INSERT INTO series (level, rolled, start, host, metric, histogram) VALUES (0, 0, 3600, 1, 999, x'0101');
             INSERT INTO sample (level, rolled, start, host, seen, rows) VALUES (0, 0, 3600, 1, 5, x'');
             UPDATE name SET number = 'none'",
        ).unwrap();
        drop(connection);
        visits.record(visit("a", 1.0));
        assert!(visits.flush(LONG), "{:?}", visits.status());
        assert_eq!((seen(folder.path()), visits.status().error), (7, None));
    }

    #[test]
    fn a_store_that_is_off_does_nothing() {
        let visits = Visits::off();
        visits.record(visit("a", 1.0));
        assert!(!visits.is_on() && visits.flush(LONG));
        assert_eq!(visits.status().recorded, 0);
    }
}
