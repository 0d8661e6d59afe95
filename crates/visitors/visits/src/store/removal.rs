//! Removal of data beyond the limits of age and size.

use rusqlite::{OptionalExtension, TransactionBehavior};

use super::{DAY, HOUR, Kind, LEVEL_MINUTE, SAMPLE_HOUR, SERIES_HOUR, SERIES_TEN_MINUTES, Store};
use crate::error::VisitsError;
use crate::row;
use crate::settings::Settings;

/// Retention of minutes ([`LEVEL_MINUTE`]) after they were rolled up; the dashboard shows the last hour by minutes.
const KEEP_MINUTES: i64 = 3 * HOUR;
const KEEP_TEN_MINUTES: i64 = 2 * DAY;
/// Retention of unused names and of ended experiments.
const KEEP_NAMES: i64 = 400 * DAY;

/// Maximum number of rows per write, of all hosts, if the size permits.
const KEPT_AT_ONCE: u64 = 8_192;
/// Samples of minutes may take `1 / MINUTES_PART` of the database, spread over at most [`WRITES`] writes.
const MINUTES_PART: u64 = 3;
const WRITES: u64 = 4 * 180;

/// Minimum size of a database, for data independent of hosts and for minutes before they are rolled up.
const SMALLEST: u64 = 16 << 20;
/// Minimum size per host with a visit in every minute: the hour that is not rolled up yet takes half of the database,
/// and a day of hours two fifths.
const SMALLEST_OF_HOST: u64 = 112 << 10;

impl Settings {
    /// The minimum [`max_bytes`](Self::max_bytes) for this many hosts. A smaller database does not hold a day if each
    /// host has a visit in every minute.
    pub fn smallest(hosts: usize) -> u64 {
        SMALLEST.max(SMALLEST_OF_HOST.saturating_mul(hosts as u64))
    }
}

impl Store {
    /// Time of the last removal because of age, in Unix seconds.
    pub(crate) fn latest(&self) -> Result<Option<i64>, VisitsError> {
        let text = "SELECT value FROM meta WHERE name = 'latest'";
        Ok(self.connection.prepare_cached(text)?.query_row([], |row| row.get(0)).optional()?)
    }

    /// Removes data beyond its age limit, then the oldest data if the database is too large. Data with a time after
    /// `now` is kept, since `now` may be wrong; queries do not return it.
    pub(crate) fn remove_old(&mut self, now: i64, settings: &Settings) -> Result<(), VisitsError> {
        let keep = now - settings.keep.as_secs() as i64;
        for (table, level, oldest) in [
            ("sample", LEVEL_MINUTE, now - KEEP_MINUTES),
            ("sample", SAMPLE_HOUR, keep),
            ("series", LEVEL_MINUTE, now - KEEP_MINUTES),
            ("series", SERIES_TEN_MINUTES, now - KEEP_TEN_MINUTES),
            ("series", SERIES_HOUR, keep),
        ] {
            let text = format!("DELETE FROM {table} WHERE level = ? AND rolled = 1 AND start < ?");
            self.connection.prepare_cached(&text)?.execute([level, oldest])?;
        }
        self.connection.execute("DELETE FROM name WHERE used < ?", [(now - KEEP_NAMES) / DAY - 1])?;
        // Pages come and go. After this time, no sample has their numbers.
        let text = "DELETE FROM name WHERE kind = ? AND used < ?";
        self.connection.execute(text, [Kind::Page as i64, keep / DAY - 1])?;
        self.connection.execute("DELETE FROM experiment WHERE ended < ?", [now - KEEP_NAMES])?;
        self.connection.execute("DELETE FROM arm WHERE experiment NOT IN (SELECT id FROM experiment)", [])?;
        self.connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('latest', ?)", [now])?;
        self.remove_too_much(settings.max_bytes)
    }

    /// Removes data beyond `max_bytes` and returns the space to the file system.
    pub(crate) fn remove_too_much(&mut self, max_bytes: u64) -> Result<(), VisitsError> {
        if self.used()? > max_bytes {
            tracing::warn!(
                "the database of visits has reached its limit of {} MiB: the oldest days are removed; a greater \
                 visits.max_size or a smaller visits.keep avoids that",
                max_bytes >> 20
            );
            self.fit(max_bytes)?;
        }
        self.shrink()
    }

    /// Makes `SQLite` refuse to grow the file beyond 125 % of `max_bytes`, as a limit between two removals.
    pub(crate) fn limit(&mut self, max_bytes: u64) -> Result<(), VisitsError> {
        let page = self.pragma("page_size")?;
        let pages = (max_bytes + max_bytes / 4) as i64 / page;
        // The pragma returns the limit, so it is a query.
        self.connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
        let room = max_bytes / MINUTES_PART / (WRITES * row::LENGTH as u64);
        self.kept_at_once = room.clamp(64, KEPT_AT_ONCE) as usize;
        Ok(())
    }

    /// Removes data until the database fits into 90 % of `max_bytes`: first rolled-up minutes, then the oldest days.
    /// Minutes that are not rolled up yet are kept; even if they are too large, days keep two fifths.
    fn fit(&mut self, max_bytes: u64) -> Result<(), VisitsError> {
        // Below the limit, so that the next writes do not reach it again.
        let wanted = max_bytes / 10 * 9;
        for text in [
            "DELETE FROM sample WHERE level = 0 AND rolled = 1",
            "DELETE FROM series WHERE level = 0 AND rolled = 1",
            "DELETE FROM series WHERE level = 1",
        ] {
            if self.used()? > wanted {
                self.connection.execute(text, [])?;
            }
        }
        let (mut used, mut history) = (self.used()?, self.history(i64::MAX)?);
        if used.saturating_sub(history) > max_bytes / 2 {
            tracing::warn!(
                "an hour of visits takes more than half of visits.max_size: it is too small for the number of hosts"
            );
        }
        while used > wanted && history > max_bytes / 5 * 2 {
            let text = "SELECT min(start) FROM (SELECT min(start) AS start FROM sample WHERE level = 1 AND rolled = 1
                UNION ALL SELECT min(start) FROM series WHERE level = 2 AND rolled = 1)";
            let oldest: Option<i64> = self.connection.query_row(text, [], |row| row.get(0))?;
            let Some(oldest) = oldest else { break };
            history = history.saturating_sub(self.history(oldest + DAY)?);
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for text in [
                "DELETE FROM sample WHERE level = 1 AND rolled = 1 AND start < ?",
                "DELETE FROM series WHERE level = 2 AND rolled = 1 AND start < ?",
            ] {
                transaction.execute(text, [oldest + DAY])?;
            }
            transaction.commit()?;
            let left = self.used()?;
            // Removed rows may free no whole page: without progress, the loop must end.
            if left >= used {
                break;
            }
            used = left;
        }
        Ok(())
    }

    /// Approximate size of the hours before `end`, in bytes.
    pub(super) fn history(&self, end: i64) -> Result<u64, VisitsError> {
        // Includes the overhead of a row and its index entries.
        let text = "SELECT
            (SELECT coalesce(sum(length(rows) + 70), 0) FROM sample WHERE level = 1 AND rolled = 1 AND start < ?1)
            + (SELECT coalesce(sum(length(histogram) + 90), 0) FROM series WHERE level = 2 AND rolled = 1 AND start < ?1)";
        Ok(self.connection.query_row(text, [end], |row| row.get::<_, i64>(0))? as u64)
    }

    /// Returns free pages to the file system in small transactions, since each is written to the write-ahead log.
    pub(super) fn shrink(&self) -> Result<(), VisitsError> {
        let mut free = self.pragma("freelist_count")?;
        while free > 0 {
            let mut statement = self.connection.prepare("PRAGMA incremental_vacuum(1000)")?;
            let mut freed = statement.query([])?;
            // Each step frees one page.
            while freed.next()?.is_some() {}
            let left = self.pragma("freelist_count")?;
            if left >= free {
                break;
            }
            free = left;
        }
        Ok(())
    }
}
