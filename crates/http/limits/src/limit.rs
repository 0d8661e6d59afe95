//! One limit: rate and concurrency of each of its keys.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use brisk_net::rates::Rate;

use crate::concurrency::{ConcurrencyPermit, ConcurrencyTable};
use crate::counters::{Counters, Outcome};
use crate::fleet::{Fleet, OnFailure, Question, Store};
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
    /// Whether all gateways of the fleet count the rate together, and the decision about a request without a reply.
    pub fleet: Option<OnFailure>,
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
    /// With a fleet, the requests that this gateway has admitted, and keys that are known to exceed the rate of the fleet.
    rates: Option<RateTable>,
    concurrency: Option<Arc<ConcurrencyTable>>,
    fleet: Option<Fleet>,
}

/// A request exceeds a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// The rate; a request after this time passes.
    Rate(Duration),
    /// The number of requests at a time.
    Concurrency,
    /// Redis gave no decision, and requests without a decision are refused.
    Undecided,
}

/// The admission of a request, which may have to be [revoked](Limit::revoke).
#[derive(Debug)]
#[must_use]
pub struct Admission {
    hash: u64,
    has_token: bool,
    /// Whether the request exceeds the limit, which is only observed.
    is_excess: bool,
    /// The request in progress, if the limit has a concurrency.
    pub permit: Option<ConcurrencyPermit>,
}

impl Limit {
    pub(crate) fn new(name: &str, settings: LimitSettings, counters: Arc<Counters>, store: &Store) -> Self {
        let fleet = |(on_failure, rate)| Fleet::new(name, rate, on_failure, Arc::clone(store));
        Self {
            counters,
            hasher: RandomState::new(),
            started: Instant::now(),
            rates: settings.rate.map(|rate| RateTable::new(rate, settings.keys)),
            concurrency: settings.concurrency.map(|most| Arc::new(ConcurrencyTable::new(most))),
            fleet: settings.fleet.zip(settings.rate).map(fleet),
            settings,
        }
    }

    /// The settings of the limit.
    pub fn settings(&self) -> &LimitSettings {
        &self.settings
    }

    /// Whether admitted requests need a [decision of the fleet](Self::ask) too.
    pub fn has_fleet(&self) -> bool {
        self.fleet.is_some()
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
        match self.try_admit(hash) {
            Ok(admission) => {
                if !self.has_fleet() {
                    self.counters.count(Outcome::Passed);
                }
                Ok(admission)
            }
            Err(excess) => {
                self.exceeded(excess)?;
                Ok(Admission { hash, has_token: false, is_excess: true, permit: None })
            }
        }
    }

    fn try_admit(&self, hash: u64) -> Result<Admission, Excess> {
        // First: a permit that is dropped costs nothing, a token that is taken is missed.
        let permit = match &self.concurrency {
            Some(table) => Some(table.begin(hash).ok_or(Excess::Concurrency)?),
            None => None,
        };
        let allows = |fleet: &Fleet| fleet.on_failure == OnFailure::Allow && !fleet.is_up();
        let rates = self.rates.as_ref().filter(|_| !self.fleet.as_ref().is_some_and(allows));
        if let Some(rates) = rates {
            rates.take(self.now(), hash).map_err(Excess::Rate)?;
        }
        Ok(Admission { hash, has_token: rates.is_some(), is_excess: false, permit })
    }

    /// Asks the fleet about an admitted request of `key`. The question is sent by this call; `None` if there is none.
    pub fn ask(&self, admission: &Admission, key: &[u8]) -> Option<Question> {
        let fleet = self.fleet.as_ref().filter(|_| !admission.is_excess)?;
        Some(Question(fleet.ask(key)))
    }

    /// Waits for the decision of the fleet about an admitted request.
    ///
    /// # Errors
    ///
    /// The excess, as of [`admit`](Self::admit).
    pub async fn decide(&self, admission: &Admission, question: Question) -> Result<(), Excess> {
        let Some(fleet) = &self.fleet else { return Ok(()) };
        match question.reply().await {
            Ok(Ok(())) => {}
            Ok(Err(wait)) => {
                if let Some(rates) = &self.rates {
                    // Until then, this gateway refuses the key without a question.
                    rates.block(self.now(), admission.hash, wait);
                }
                return self.exceeded(Excess::Rate(wait));
            }
            Err(_) => {
                self.counters.count_undecided();
                if fleet.on_failure == OnFailure::Deny {
                    return self.exceeded(Excess::Undecided);
                }
            }
        }
        self.counters.count(Outcome::Passed);
        Ok(())
    }

    /// Counts an excess, which is no error in a dry run.
    fn exceeded(&self, excess: Excess) -> Result<(), Excess> {
        if self.settings.is_dry_run {
            self.counters.count(Outcome::DryRun);
            return Ok(());
        }
        self.counters.count(match excess {
            Excess::Rate(_) => Outcome::Rate,
            Excess::Concurrency => Outcome::Concurrency,
            Excess::Undecided => Outcome::Store,
        });
        Err(excess)
    }

    /// Returns the token of a request that another limit has refused. A token of the fleet is not returned.
    pub fn revoke(&self, admission: &Admission) {
        if let Some(rates) = self.rates.as_ref().filter(|_| admission.has_token) {
            rates.give_back(admission.hash);
        }
    }

    fn now(&self) -> u64 {
        nanoseconds(self.started.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(rate: Option<u32>, concurrency: Option<u32>, is_dry_run: bool) -> Limit {
        let rate = rate.map(|burst| Rate { interval: Duration::from_hours(1), burst });
        let settings =
            LimitSettings { rate, concurrency, by: String::new(), keys: 1024, fleet: None, is_dry_run };
        Limit::new("a", settings, Arc::default(), &Store::default())
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
