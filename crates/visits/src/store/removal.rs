//! What is too old or too much is removed.

use rusqlite::{OptionalExtension, TransactionBehavior};

use super::{DAY, HOUR, LEVEL_MINUTE, SAMPLE_HOUR, SERIES_HOUR, SERIES_TEN_MINUTES, Store};
use crate::error::VisitsError;
use crate::row;
use crate::settings::Settings;

/// How long minutes are kept after they were rolled up: the last hour is shown by minutes.
const KEEP_MINUTES: i64 = 3 * HOUR;
const KEEP_TEN_MINUTES: i64 = 2 * DAY;
/// How long names are kept that are in use no more, and experiments that have ended.
const KEEP_NAMES: i64 = 400 * DAY;

/// Rows that one write keeps of all hosts, where there is room.
const KEPT_AT_ONCE: u64 = 8_192;
/// The part of the database that samples of minutes may take, of as many writes as are kept at most.
const MINUTES_PART: u64 = 3;
const WRITES: u64 = 4 * 180;

/// The smallest size of any database: what is not of hosts, and minutes as they come.
const SMALLEST: u64 = 16 << 20;
/// Of each host with a visit in every minute: the hour that is not rolled up yet has half of the database, and a day of hours two
/// fifths of it.
const SMALLEST_OF_HOST: u64 = 112 << 10;

impl Settings {
    /// The least [`max_bytes`](Self::max_bytes) for this many hosts: a smaller database does not hold a day of them once each has a
    /// visit in every minute.
    pub fn smallest(hosts: usize) -> u64 {
        SMALLEST.max(SMALLEST_OF_HOST.saturating_mul(hosts as u64))
    }
}

impl Store {
    /// When something was last removed for its age.
    pub(crate) fn latest(&self) -> Result<Option<i64>, VisitsError> {
        let text = "SELECT value FROM meta WHERE name = 'latest'";
        Ok(self.connection.prepare_cached(text)?.query_row([], |row| row.get(0)).optional()?)
    }

    /// Removes what is older than it may be, then the oldest if the database is too large. What is of the future stays, as it may
    /// be `now` that is wrong; no answer has it.
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
        self.connection.execute("DELETE FROM experiment WHERE ended < ?", [now - KEEP_NAMES])?;
        self.connection.execute("DELETE FROM arm WHERE experiment NOT IN (SELECT id FROM experiment)", [])?;
        self.connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('latest', ?)", [now])?;
        self.remove_too_much(settings.max_bytes)
    }

    /// Removes what is too much, and gives the space back.
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

    /// Has `SQLite` refuse to let the file grow beyond `max_bytes` and a quarter, whatever happens between two removals.
    pub(crate) fn limit(&mut self, max_bytes: u64) -> Result<(), VisitsError> {
        let page = self.pragma("page_size")?;
        let pages = (max_bytes + max_bytes / 4) as i64 / page;
        // It answers with the limit, so it is a query.
        self.connection.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |_| Ok(()))?;
        let room = max_bytes / MINUTES_PART / (WRITES * row::LENGTH as u64);
        self.kept_at_once = room.clamp(64, KEPT_AT_ONCE) as usize;
        Ok(())
    }

    /// Removes until nine tenths of `max_bytes` are enough: first what is kept twice, then the oldest days. Minutes that are in no
    /// hour yet cannot go; where they are too much, days keep two fifths all the same.
    fn fit(&mut self, max_bytes: u64) -> Result<(), VisitsError> {
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
            if left >= used {
                break;
            }
            used = left;
        }
        Ok(())
    }

    /// About how many bytes the hours before `end` take.
    pub(super) fn history(&self, end: i64) -> Result<u64, VisitsError> {
        // With what the row and its places in the indexes take.
        let text = "SELECT
            (SELECT coalesce(sum(length(rows) + 70), 0) FROM sample WHERE level = 1 AND rolled = 1 AND start < ?1)
            + (SELECT coalesce(sum(length(histogram) + 90), 0) FROM series WHERE level = 2 AND rolled = 1 AND start < ?1)";
        Ok(self.connection.query_row(text, [end], |row| row.get::<_, i64>(0))? as u64)
    }

    /// Gives the pages that are free back to the file system, some at a time: each time is a transaction, which is in the log.
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
