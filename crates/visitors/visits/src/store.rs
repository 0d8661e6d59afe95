//! The database: its file, schema and writes. One thread writes; readers use their own connections, which write-ahead
//! logging permits at any time.

mod decisions;
mod lock;
mod names;
mod removal;
mod roll_up;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior, params};

use self::names::Names;
use crate::error::VisitsError;
use crate::experiment::Definitions;
use crate::gather::{Gathered, SERIES, fair_share};
use crate::histogram::TimeHistogram;
use crate::row::{self, Numbers, Row};
use crate::visit::Visit;

pub(crate) use self::decisions::Decided;
pub(crate) use self::lock::{Identity, identity};
pub(crate) use self::names::Kind;
pub(crate) use self::roll_up::{DAY, HOUR, SAMPLE_HOUR, SERIES_HOUR, SERIES_TEN_MINUTES};

/// Name of the file in the folder.
pub(crate) const FILE: &str = "visits.db";
/// Name under which a damaged file is kept.
const DAMAGED: &str = "visits.db.damaged";
/// `application_id` of the file for `SQLite`: `bVis`.
const APPLICATION: i64 = 0x6256_6973;

/// Scripts that migrate a database from each schema to the next.
const MIGRATIONS: &[&str] = &[include_str!("store/schema-1.sql"), include_str!("store/schema-2.sql")];

/// Timeout for a write while another process writes.
const BUSY: Duration = Duration::from_secs(5);
/// Size to which the write-ahead log is truncated after a checkpoint, in bytes (`journal_size_limit`).
const LOG_BYTES: i64 = 16 << 20;

/// Level of figures per minute: samples and histograms as written.
pub(crate) const LEVEL_MINUTE: i64 = 0;

/// Value of the column `host` for all hosts together.
pub(crate) const ALL_HOSTS: i64 = -1;

/// The database, open for writing.
#[derive(Debug)]
pub(crate) struct Store {
    connection: Connection,
    names: Names,
    /// Maximum number of rows per write, of all hosts.
    kept_at_once: usize,
    file: Option<Identity>,
    /// Declared last, so that the lock is released after the connection is closed.
    _lock: File,
}

impl Store {
    /// Opens the database in `folder` and creates missing files. A database of a later version is
    /// [`VisitsError::Later`].
    pub(crate) fn open(folder: &Path) -> Result<Self, VisitsError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(|source| VisitsError::Folder { path: folder.to_owned(), source })?;
        let lock = lock::shared(folder)?;
        let path = folder.join(FILE);
        make_file(&path)?;
        let file = identity(&path);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(&path, flags)?;
        connection.busy_timeout(BUSY)?;
        // Effective only in a new database, before the first page is written.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        connection.pragma_update(None, "trusted_schema", false)?;
        // Before the first write: the database of another program is not changed.
        check_owner(&connection, &path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        // With a write-ahead log, a power failure may cost the last transactions but never damages the
        // database, and commits need not wait for the disk.
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
        migrate(&mut connection, &path)?;
        Ok(Self { connection, names: Names::default(), kept_at_once: 8_192, file, _lock: lock })
    }

    /// Whether [`FILE`] in `folder` still refers to the open file.
    pub(crate) fn is_current(&self, folder: &Path) -> bool {
        identity(&folder.join(FILE)) == self.file
    }

    /// Renames the files of a damaged database in `folder`, overwriting earlier ones. Returns the new path, or `None`
    /// if the file is not the `damaged` one because another process has renamed that. Fails while another process has
    /// the database open.
    pub(crate) fn move_damaged(
        folder: &Path,
        damaged: Option<Identity>,
    ) -> Result<Option<PathBuf>, VisitsError> {
        let _alone = lock::alone(folder)?;
        let (from, to) = (folder.join(FILE), folder.join(DAMAGED));
        if damaged.is_some() && identity(&from) != damaged {
            return Ok(None);
        }
        let failed =
            |source: std::io::Error| VisitsError::File { path: from.clone(), reason: source.to_string() };
        fs::rename(&from, &to).map_err(failed)?;
        // `SQLite` would otherwise apply the old log to the new database.
        for suffix in ["-wal", "-shm"] {
            match fs::remove_file(folder.join(format!("{FILE}{suffix}"))) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
        Ok(Some(to))
    }

    /// Size of the used pages of the database in bytes, without the write-ahead log.
    pub(crate) fn used(&self) -> Result<u64, VisitsError> {
        // Free pages are used again before the file grows.
        let pages = self.pragma("page_count")? - self.pragma("freelist_count")?;
        Ok((pages * self.pragma("page_size")?) as u64)
    }

    /// Names of the pages.
    pub(crate) fn pages(&self) -> Result<Vec<String>, VisitsError> {
        let text = "SELECT text FROM name WHERE kind = ?";
        let mut statement = self.connection.prepare_cached(text)?;
        let names = statement.query_map([Kind::Page as u8], |row| row.get(0))?;
        Ok(names.collect::<Result<_, _>>()?)
    }

    fn pragma(&self, name: &str) -> Result<i64, VisitsError> {
        Ok(self.connection.pragma_query_value(None, name, |row| row.get(0))?)
    }

    /// Writes [`Gathered`] visits in one transaction.
    pub(crate) fn write(
        &mut self,
        gathered: &mut Gathered,
        definitions: &Definitions,
        now: i64,
    ) -> Result<(), VisitsError> {
        // Takes the lock at once: a transaction that begins by reading cannot wait for the lock when it
        // writes later.
        let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let kept = self.kept_at_once;
        let mut write = Write { transaction: &transaction, names: &mut self.names, definitions, now, kept };
        let written = write.all(gathered);
        let committed = written.and_then(|()| Ok(transaction.commit()?));
        if committed.is_err() {
            // Numbers assigned in the failed transaction are not in the database.
            self.names.forget();
        }
        committed
    }
}

/// Size of the files of the database in `folder`, including the write-ahead log, in bytes.
pub(crate) fn bytes(folder: &Path) -> u64 {
    let size = |suffix| fs::metadata(folder.join(format!("{FILE}{suffix}"))).map_or(0, |found| found.len());
    size("") + size("-wal")
}

/// State of one write.
struct Write<'a> {
    transaction: &'a Transaction<'a>,
    names: &'a mut Names,
    definitions: &'a Definitions,
    /// Current time in Unix seconds.
    now: i64,
    /// Maximum number of rows, of all hosts.
    kept: usize,
}

impl Write<'_> {
    fn all(&mut self, gathered: &mut Gathered) -> Result<(), VisitsError> {
        let kept = fair_share(gathered.portions.values().map(|portion| portion.kept.len()), self.kept);
        let mut totals = std::collections::HashMap::<(i64, usize), TimeHistogram>::new();
        for ((minute, host), portion) in &mut gathered.portions {
            let host = i64::from(self.names.number(self.transaction, Kind::Host, host, self.now)?);
            // Any first rows of a portion are then a random sample, which the reader relies on.
            gathered.random.shuffle(&mut portion.kept);
            let rows = portion.kept.iter().take(kept);
            self.sample(*minute, host, portion.seen, rows)?;
            for (number, histogram) in portion.histograms.iter().enumerate() {
                let Some(histogram) = histogram else { continue };
                let bytes = histogram.encode();
                // All hosts have a series of their own, so that a query of all need not merge those of
                // each.
                totals.entry((*minute, number)).or_default().merge(&bytes);
                self.series(*minute, host, number, &bytes)?;
            }
        }
        for ((minute, number), histogram) in totals {
            self.series(minute, ALL_HOSTS, number, &histogram.encode())?;
        }
        self.arms(gathered)
    }

    fn sample<'v>(
        &mut self,
        minute: i64,
        host: i64,
        seen: u64,
        visits: impl Iterator<Item = &'v Visit>,
    ) -> Result<(), VisitsError> {
        let mut rows = Vec::with_capacity(visits.size_hint().0 * row::LENGTH);
        for visit in visits {
            let numbers = self.numbers(visit)?;
            Row::new(visit, numbers).write(&mut rows);
        }
        let text = "INSERT INTO sample (level, rolled, start, host, seen, rows) VALUES (?, 0, ?, ?, ?, ?)";
        self.transaction.prepare_cached(text)?.execute(params![
            LEVEL_MINUTE,
            minute,
            host,
            seen as i64,
            rows
        ])?;
        Ok(())
    }

    fn numbers(&mut self, visit: &Visit) -> Result<Numbers, VisitsError> {
        let mut number = |kind, text: &_| self.names.number(self.transaction, kind, text, self.now);
        let mut numbers = Numbers { route: number(Kind::Route, &visit.route)?, ..Numbers::default() };
        if let Some(label) = visit.network.label() {
            numbers.network = number(Kind::Network, label)?;
        }
        if let Some(page) = &visit.page {
            numbers.page = number(Kind::Page, page)?;
        }
        for (place, arm) in numbers.arms.iter_mut().zip(visit.assigned.iter()) {
            let experiment =
                self.names.experiment(self.transaction, arm.setting, self.definitions, self.now)?;
            *place = (experiment, arm.value);
        }
        Ok(numbers)
    }

    fn series(&self, minute: i64, host: i64, number: usize, histogram: &[u8]) -> Result<(), VisitsError> {
        let text =
            "INSERT INTO series (level, rolled, start, host, metric, histogram) VALUES (?, 0, ?, ?, ?, ?)";
        let metric = SERIES[number] as u8;
        self.transaction.prepare_cached(text)?.execute(params![
            LEVEL_MINUTE,
            minute,
            host,
            metric,
            histogram
        ])?;
        Ok(())
    }

    fn arms(&mut self, gathered: &Gathered) -> Result<(), VisitsError> {
        for ((experiment, arm, metric), sums) in &gathered.arms {
            let experiment =
                self.names.experiment(self.transaction, *experiment, self.definitions, self.now)?;
            if experiment == 0 {
                continue;
            }
            let text =
                "INSERT INTO arm (experiment, arm, metric, visits, sum, squares) VALUES (?, ?, ?, ?, ?, ?)
                ON CONFLICT DO UPDATE SET visits = visits + excluded.visits, sum = sum + excluded.sum,
                squares = squares + excluded.squares";
            self.transaction.prepare_cached(text)?.execute(params![
                experiment,
                arm,
                *metric as u8,
                sums.visits as i64,
                sums.sum,
                sums.squares
            ])?;
        }
        Ok(())
    }
}

/// Creates the file if it is missing, with permissions that keep other users from reading it and the files that
/// `SQLite` creates beside it.
fn make_file(path: &Path) -> Result<(), VisitsError> {
    let wrong = |reason: String| VisitsError::File { path: path.to_owned(), reason };
    // Links are refused: in a folder that others can write to, a link could lead to any file.
    match fs::symlink_metadata(path) {
        Ok(found) if !found.is_file() => Err(wrong("it is no regular file".to_owned())),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
            match made {
                // Another process has created it in the meantime.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
                made => made.map(drop).map_err(|error| wrong(error.to_string())),
            }
        }
        Err(error) => Err(wrong(error.to_string())),
    }
}

/// Checks by [`APPLICATION`] that the database is empty or was created by brisk.
fn check_owner(connection: &Connection, path: &Path) -> Result<(), VisitsError> {
    let application: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if application == APPLICATION || (application == 0 && tables == 0) {
        return Ok(());
    }
    Err(VisitsError::File { path: path.to_owned(), reason: "it is another program's database".to_owned() })
}

/// Migrates the schema to the latest version by [`MIGRATIONS`].
fn migrate(connection: &mut Connection, path: &Path) -> Result<(), VisitsError> {
    // Read within the transaction, since another process may migrate at the same time.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found: i64 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let known = MIGRATIONS.len() as i64;
    if found > known {
        return Err(VisitsError::Later { path: path.to_owned(), found, known });
    }
    // A negative number is of no version of brisk; it counts as an empty database.
    for migration in &MIGRATIONS[found.max(0) as usize..] {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    transaction.pragma_update(None, "user_version", known)?;
    transaction.commit()?;
    Ok(())
}
