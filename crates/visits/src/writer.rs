//! The thread that writes: it gathers visits, and puts them into the database a few times a minute.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, RecvTimeoutError};

use crate::error::VisitsError;
use crate::gather::Gathered;
use crate::store::Store;
use crate::visits::{Message, Shared};

/// Between two writes. What was taken since the last one is lost with the process.
const INTERVAL: Duration = Duration::from_secs(20);

/// Seconds of a day.
const DAY: i64 = 86_400;

/// The thread's part of the store.
#[derive(Debug)]
pub(crate) struct Writer {
    folder: PathBuf,
    shared: Arc<Shared>,
    gathered: Gathered,
    store: Option<Store>,
}

impl Writer {
    pub(crate) fn new(folder: PathBuf, shared: Arc<Shared>) -> Self {
        Self { folder, shared, gathered: Gathered::new(), store: None }
    }

    /// Writes until every handle is gone and everything is written.
    pub(crate) fn run(mut self, messages: &Receiver<Message>) {
        self.write();
        let mut due = Instant::now() + INTERVAL;
        loop {
            match messages.recv_deadline(due) {
                Ok(Message::Visit(visit)) => {
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
        if !self.gathered.is_empty() {
            store.write(&mut self.gathered, &self.shared.definitions, unix_seconds() / DAY)?;
            self.gathered.clear();
        }
        self.shared.bytes.store(store.bytes()?, Ordering::Relaxed);
        Ok(())
    }
}

/// Now.
fn unix_seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() as i64)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use rusqlite::Connection;

    use crate::experiment::{Arm, Experiment};
    use crate::metric::Metric;
    use crate::visit::Visit;
    use crate::visits::{Settings, Visits};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn visit(host: &str, ms: f64) -> Visit {
        let mut visit = Visit::new(host.into(), "/".into());
        visit.measures.set(Metric::FirstByte, ms);
        visit
    }

    fn seen(folder: &std::path::Path) -> i64 {
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

    #[test]
    fn a_store_that_is_off_does_nothing() {
        let visits = Visits::off();
        visits.record(visit("a", 1.0));
        assert!(!visits.is_on() && visits.flush(LONG));
        assert_eq!(visits.status().recorded, 0);
    }
}
