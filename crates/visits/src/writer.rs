//! The thread that writes: it gathers visits, and puts them into the database a few times a minute.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use crate::error::VisitsError;
use crate::gather::Gathered;
use crate::store::{self, Store};
use crate::visits::{Message, Shared};

/// Between two writes. What was taken since the last one is lost with the process.
const INTERVAL: Duration = Duration::from_secs(20);
/// Between two removals of what is too old.
const REMOVAL: Duration = Duration::from_mins(10);
/// By how much the clock may have been set in that time, in seconds: what is old by a wrong clock must not be removed.
const SET: u64 = 300;

/// The thread's part of the store.
#[derive(Debug)]
pub(crate) struct Writer {
    folder: Arc<Path>,
    shared: Arc<Shared>,
    gathered: Gathered,
    store: Option<Store>,
    clock: Clock,
}

impl Writer {
    pub(crate) fn new(folder: Arc<Path>, shared: Arc<Shared>) -> Self {
        Self { folder, shared, gathered: Gathered::new(), store: None, clock: Clock::new() }
    }

    /// Writes until every handle is gone and everything is written.
    pub(crate) fn run(mut self, messages: &Receiver<Message>) {
        self.write();
        let mut due = Instant::now() + INTERVAL;
        loop {
            // A queue that is never empty must not keep things from being written.
            let message = if Instant::now() < due {
                messages.recv_deadline(due)
            } else {
                Err(RecvTimeoutError::Timeout)
            };
            match message {
                Ok(Message::Visit(visit)) => {
                    self.shared.figures.count(&visit, &self.shared.definitions);
                    self.gathered.add(visit);
                    if self.gathered.is_full() {
                        self.write_or_drop();
                    }
                }
                Ok(Message::Flush(reply)) => {
                    // The caller may have given up.
                    let _ = reply.try_send(self.write());
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.write();
                    due = Instant::now() + INTERVAL;
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.write_or_drop();
                    return;
                }
            }
        }
    }

    fn write_or_drop(&mut self) {
        if !self.write() {
            let lost = self.gathered.clear();
            self.shared.dropped.fetch_add(lost, Ordering::Relaxed);
        }
    }

    /// Puts what was gathered into the database. Returns whether it is there.
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
        result.is_ok()
    }

    fn try_write(&mut self) -> Result<(), VisitsError> {
        let result = self.write_to_store();
        if let Err(error) = &result {
            // Whatever it is, the database is opened anew.
            self.store = None;
            if error.is_damage() {
                let moved = Store::move_damaged(&self.folder)?;
                tracing::error!(
                    "the database of visits is damaged ({error}); it is now {}, and a new one is begun",
                    moved.display()
                );
                return self.write_to_store();
            }
        }
        result
    }

    fn write_to_store(&mut self) -> Result<(), VisitsError> {
        let store = match &mut self.store {
            Some(store) => store,
            none => none.insert(Store::open(&self.folder)?),
        };
        let (now, settings) = (unix_seconds(), self.shared.settings.load());
        store.limit(settings.max_bytes)?;
        if !self.gathered.is_empty() {
            let written = store.write(&mut self.gathered, &self.shared.definitions, now);
            if written.as_ref().is_err_and(VisitsError::is_full) {
                store.remove_old(now, &settings)?;
            }
            written?;
            self.gathered.clear();
        }
        self.shared.decisions.store(Arc::new(store.decide(&self.shared.definitions, now)?));
        store.roll_up(now, &settings)?;
        if self.clock.is_removal_due(now) {
            store.remove_old(now, &settings)?;
        }
        self.shared.bytes.store(store::bytes(&self.folder), Ordering::Relaxed);
        Ok(())
    }
}

/// When things are removed.
#[derive(Debug)]
struct Clock {
    looked: Instant,
    at: i64,
}

impl Clock {
    fn new() -> Self {
        Self { looked: Instant::now(), at: unix_seconds() }
    }

    /// Whether it is time, and the clock has gone evenly since the last time.
    fn is_removal_due(&mut self, now: i64) -> bool {
        let passed = self.looked.elapsed();
        if passed < REMOVAL {
            return false;
        }
        let by_clock = now - self.at;
        *self = Self { looked: Instant::now(), at: now };
        by_clock.abs_diff(passed.as_secs() as i64) < SET
    }
}

/// Now.
pub(crate) fn unix_seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() as i64)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{BufRead, BufReader, Write};
    use std::process::{Command, Stdio};

    use rusqlite::Connection;

    use crate::experiment::{Arm, Experiment};
    use crate::metric::Metric;
    use crate::visit::Visit;
    use crate::visits::{Settings, Visits};

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
                metric: Metric::FirstByte,
                margin: 0.02,
            };
            let [id] = visits.define(&[experiment])[..] else { panic!("one id") };
            for number in 0..100 {
                let mut visit = visit(["a", "b"][number % 2], 100.0);
                visit.arms.push(Arm { experiment: id, arm: number as u8 % 2 });
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
        assert!(error.contains("has schema 99, and this brisk knows schema 1 at most"), "{error}");
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
    fn nothing_is_removed_when_the_clock_was_set() {
        let ago = |seconds: u64| {
            Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap_or_else(Instant::now)
        };
        let clock = |looked, at| Clock { looked, at };
        let long = ago(700);
        if long.elapsed() < REMOVAL {
            return; // The machine started just now.
        }
        assert!(clock(long, 1_000_000).is_removal_due(1_000_700));
        assert!(!clock(long, 1_000_000).is_removal_due(1_000_700 + 86_400), "set forward");
        assert!(!clock(long, 1_000_000).is_removal_due(1_000_000 - 86_400), "set back");
        assert!(!clock(Instant::now(), 1_000_000).is_removal_due(1_000_000), "too early");
    }

    #[test]
    fn a_store_that_is_off_does_nothing() {
        let visits = Visits::off();
        visits.record(visit("a", 1.0));
        assert!(!visits.is_on() && visits.flush(LONG));
        assert_eq!(visits.status().recorded, 0);
    }
}
