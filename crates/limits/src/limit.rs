//! One limit: rate and concurrency of each of its keys.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use brisk_net::rates::Rate;

use crate::concurrency::{ConcurrencyPermit, ConcurrencyTable};
use crate::counters::{Counters, Outcome};
use crate::rate::{RateTable, nanoseconds};

/// The settings on which the state of a limit depends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitSettings {
    /// Rate of a key.
    pub rate: Option<Rate>,
    /// Maximum number of requests of a key at a time.
    pub concurrency: Option<u32>,
    /// Origin of the keys, as the operator wrote it: keys of another origin have nothing in common with these.
    pub by: String,
    /// Number of keys whose rates are remembered, within [`KEYS`](crate::KEYS).
    pub keys: u32,
    /// Whether requests beyond the limit are counted instead of refused.
    pub is_dry_run: bool,
}

/// A limit with the state of its keys, shared by all workers.
#[derive(Debug)]
pub struct Limit {
    settings: LimitSettings,
    counters: Arc<Counters>,
    hasher: RandomState,
    started: Instant,
    rates: Option<RateTable>,
    concurrency: Option<Arc<ConcurrencyTable>>,
}

/// A request exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// The rate; a request after this time passes.
    Rate(Duration),
    /// The number of requests at a time.
    Concurrency,
}

/// The admission of a request, which may have to be [revoked](Limit::revoke).
#[derive(Debug)]
#[must_use]
pub struct Admission {
    hash: u64,
    has_token: bool,
    /// The request in progress, if the limit has a concurrency.
    pub permit: Option<ConcurrencyPermit>,
}

impl Limit {
    pub(crate) fn new(settings: LimitSettings, counters: Arc<Counters>) -> Self {
        Self {
            counters,
            hasher: RandomState::new(),
            started: Instant::now(),
            rates: settings.rate.map(|rate| RateTable::new(rate, settings.keys)),
            concurrency: settings.concurrency.map(|most| Arc::new(ConcurrencyTable::new(most))),
            settings,
        }
    }

    /// The settings of the limit.
    pub fn settings(&self) -> &LimitSettings {
        &self.settings
    }

    #[cfg(test)]
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Admits one request of `key`. Costs a keyed hash, a search in eight cells for the rate, and a lock that is rarely
    /// contended for the concurrency.
    ///
    /// # Errors
    ///
    /// The excess, which is counted. In a dry run, every request is admitted.
    pub fn admit(&self, key: &[u8]) -> Result<Admission, Excess> {
        let hash = self.hasher.hash_one(key);
        let admitted = self.try_admit(hash);
        let outcome = match &admitted {
            Ok(_) => Outcome::Passed,
            Err(_) if self.settings.is_dry_run => Outcome::DryRun,
            Err(Excess::Rate(_)) => Outcome::Rate,
            Err(Excess::Concurrency) => Outcome::Concurrency,
        };
        self.counters.count(outcome);
        match admitted {
            Err(_) if self.settings.is_dry_run => Ok(Admission { hash, has_token: false, permit: None }),
            admitted => admitted,
        }
    }

    fn try_admit(&self, hash: u64) -> Result<Admission, Excess> {
        // First: a permit that is dropped costs nothing, a token that is taken is missed.
        let permit = match &self.concurrency {
            Some(table) => Some(table.begin(hash).ok_or(Excess::Concurrency)?),
            None => None,
        };
        if let Some(rates) = &self.rates {
            rates.take(nanoseconds(self.started.elapsed()), hash).map_err(Excess::Rate)?;
        }
        Ok(Admission { hash, has_token: self.rates.is_some(), permit })
    }

    /// Returns the token of a request that another limit has refused.
    pub fn revoke(&self, admission: &Admission) {
        if let Some(rates) = self.rates.as_ref().filter(|_| admission.has_token) {
            rates.give_back(admission.hash);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(rate: Option<u32>, concurrency: Option<u32>, is_dry_run: bool) -> Limit {
        let rate = rate.map(|burst| Rate { interval: Duration::from_hours(1), burst });
        let settings = LimitSettings { rate, concurrency, by: String::new(), keys: 1024, is_dry_run };
        Limit::new(settings, Arc::default())
    }

    #[test]
    fn a_refused_request_takes_neither_a_token_nor_a_permit() {
        let limit = limit(Some(2), Some(1), false);
        let first = limit.admit(b"a").expect("the first");
        for _ in 0..5 {
            assert_eq!(limit.admit(b"a").expect_err("one at a time"), Excess::Concurrency);
        }
        drop(first);
        drop(limit.admit(b"a").expect("the second token"));
        assert!(matches!(limit.admit(b"a"), Err(Excess::Rate(_))));
        assert!(matches!(limit.admit(b"a"), Err(Excess::Rate(_))), "no permit is held");
        assert!(limit.admit(b"b").is_ok(), "another key");
        assert_eq!(limit.counters.of(Outcome::Concurrency), 5);
        assert_eq!(limit.counters.of(Outcome::Rate), 2);
        assert_eq!(limit.counters.of(Outcome::Passed), 3);
    }

    #[test]
    fn a_revoked_admission_takes_no_token() {
        let limit = limit(Some(1), None, false);
        let admission = limit.admit(b"a").expect("a token");
        limit.revoke(&admission);
        assert!(limit.admit(b"a").is_ok());
        assert!(limit.admit(b"a").is_err());
    }

    #[test]
    fn a_dry_run_counts_and_refuses_nothing() {
        let limit = limit(Some(1), None, true);
        for _ in 0..3 {
            let admission = limit.admit(b"a").expect("a dry run");
            drop(admission);
        }
        assert_eq!((limit.counters.of(Outcome::Passed), limit.counters.of(Outcome::DryRun)), (1, 2));
    }
}
