//! One `[limit.NAME]`: the `rate` and the `concurrency` of each key.

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
    /// Rate of a key; `None` for no limit of the rate.
    pub rate: Option<Rate>,
    /// Maximum number of requests of a key at a time; `None` for no limit of their number.
    pub concurrency: Option<u32>,
    /// Origin of the keys, the value of `by` as the operator wrote it: a reload with another `by` must not reuse the counts.
    pub by: String,
    /// Number of keys whose rates are remembered, within [`KEYS`](crate::KEYS).
    pub keys: u32,
    /// The decision about a request without a reply of Redis, if all gateways of the fleet count `rate` together; else `None`.
    /// Without effect if `rate` is `None`.
    pub fleet: Option<OnFailure>,
    /// `dry_run`: whether requests beyond the limit are counted instead of refused.
    pub is_dry_run: bool,
}

/// A limit with the state of its keys, shared by all workers.
#[derive(Debug)]
pub struct Limit {
    settings: LimitSettings,
    counters: Arc<Counters>,
    /// Keyed with random numbers of this process, so that a client cannot choose keys that collide with those of others.
    hasher: RandomState,
    started: Instant,
    /// With a fleet, the requests that this gateway has admitted, and keys that are known to exceed the rate of the fleet.
    rates: Option<RateTable>,
    concurrency: Option<Arc<ConcurrencyTable>>,
    fleet: Option<Fleet>,
}

/// The setting of a [`Limit`] that a request exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Excess {
    /// [`LimitSettings::rate`], with the time until the next token of the key, for `Retry-After`.
    Rate(Duration),
    /// [`LimitSettings::concurrency`]. The end of the requests in progress is unknown, so this excess has no [`Duration`].
    Concurrency,
    /// Redis gave no decision, and [`OnFailure::Deny`] refuses such requests.
    Undecided,
}

/// The admission of a request, which may have to be [revoked](Limit::revoke).
#[derive(Debug)]
#[must_use]
pub struct Admission {
    hash: u64,
    has_token: bool,
    /// Whether the request exceeds a limit with `is_dry_run`.
    is_excess: bool,
    /// The request in progress, if [`LimitSettings::concurrency`] is set. The caller keeps the permit until the response ends.
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

    /// Whether requests that [`Self::admit`] has admitted need a [decision of the fleet](Self::decide) too.
    pub fn has_fleet(&self) -> bool {
        self.fleet.is_some()
    }

    #[cfg(test)]
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Admits one request of `key`. Costs a keyed hash; for `rate`, a search in eight cells; for `concurrency`, a lock that is
    /// rarely contended.
    ///
    /// # Errors
    ///
    /// [`Excess::Rate`] or [`Excess::Concurrency`], which is counted. With [`LimitSettings::is_dry_run`], there is no error.
    pub fn admit(&self, key: &[u8]) -> Result<Admission, Excess> {
        let hash = self.hasher.hash_one(key);
        match self.try_admit(hash) {
            Ok(admission) => {
                // With a fleet, `decide` counts the request: each request has one outcome in the metrics.
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
        // `OnFailure::Allow` lets all requests pass while Redis is down, so the rate of this gateway must not refuse any.
        let allows = |fleet: &Fleet| fleet.on_failure == OnFailure::Allow && !fleet.is_up();
        let rates = self.rates.as_ref().filter(|_| !self.fleet.as_ref().is_some_and(allows));
        if let Some(rates) = rates {
            rates.take(self.now(), hash).map_err(Excess::Rate)?;
        }
        Ok(Admission { hash, has_token: rates.is_some(), is_excess: false, permit })
    }

    /// Asks the fleet about an admitted request of `key`. The call itself sends the question, so questions to several limits
    /// share one round trip. `None` without a fleet, and for a request that a dry run has admitted beyond the limit.
    pub fn ask(&self, admission: &Admission, key: &[u8]) -> Option<Question> {
        let fleet = self.fleet.as_ref().filter(|_| !admission.is_excess)?;
        Some(Question(fleet.ask(key)))
    }

    /// Waits for the decision of the fleet about an admitted request, until the deadline of Redis. [`LimitSettings::fleet`]
    /// decides without a reply.
    ///
    /// # Errors
    ///
    /// [`Excess::Rate`] or [`Excess::Undecided`], which is counted. With [`LimitSettings::is_dry_run`], there is no error.
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
            // `OnFailure::Local` needs nothing here: `admit` has applied the rate of this gateway.
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

    /// Counts `excess`, which is `Ok` with `is_dry_run`.
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

    /// Returns the token of a request that another limit has refused. A token in Redis is not returned. The permit ends with
    /// the [`Admission`].
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
