//! The limits of a process by name, which reloads keep.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use brisk_session::RedisStore;
use brisk_telemetry::metrics::{Collector, Encoder};

use crate::counters::{Counters, Outcome};
use crate::fleet::Store;
use crate::limit::{Limit, LimitSettings};

/// The limits that configurations have opened. A reload that leaves the [`LimitSettings`] of a [`Limit`] unchanged continues to
/// use its state. Clones share the limits. As a [`Collector`], it writes the metrics `limit_requests` and `limit_undecided` of
/// all limits in use.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    named: Arc<Mutex<BTreeMap<String, Named>>>,
    store: Store,
}

/// The limits of one name: that in force, and that of a configuration being read. [`Counters`] belong to the name, so that
/// metrics continue when a reload changes the settings.
#[derive(Debug, Default)]
struct Named {
    counters: Arc<Counters>,
    limits: Vec<Weak<Limit>>,
}

impl Limits {
    /// Counts the rates of fleets in `store` from now on. Called once, when the process has started.
    pub fn share_through(&self, store: RedisStore) {
        // The error is ignored: the first store stays, as for sessions.
        let _ = self.store.set(store);
    }

    /// The limit called `name` with these `settings`: one in use, or a new one without counts. Its state lasts as long as an
    /// [`Arc`] of it.
    pub fn open(&self, name: &str, settings: LimitSettings) -> Arc<Limit> {
        let mut all = self.in_use();
        let named = all.entry(name.to_owned()).or_default();
        let known = named.limits.iter().filter_map(Weak::upgrade).find(|limit| *limit.settings() == settings);
        known.unwrap_or_else(|| {
            let limit = Arc::new(Limit::new(name, settings, Arc::clone(&named.counters), &self.store));
            named.limits.push(Arc::downgrade(&limit));
            limit
        })
    }

    /// The limits that configurations use.
    fn in_use(&self) -> MutexGuard<'_, BTreeMap<String, Named>> {
        let mut all = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, named| {
            named.limits.retain(|limit| limit.strong_count() > 0);
            !named.limits.is_empty()
        });
        all
    }
}

impl Collector for Limits {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let all = self.in_use();
        let mut family =
            page.counter("limit_requests", "Requests of routes with limits, by limit and result.")?;
        for (name, named) in all.iter() {
            for (result, outcome) in Outcome::ALL {
                family.counter(&[("limit", name), ("result", result)], named.counters.of(outcome))?;
            }
        }
        let mut family = page
            .counter("limit_undecided", "Requests about which Redis gave no decision in time, by limit.")?;
        for (name, named) in all.iter() {
            family.counter(&[("limit", name)], named.counters.undecided())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use brisk_net::rates::Rate;

    use super::*;

    fn settings(burst: u32) -> LimitSettings {
        let rate = Some(Rate { interval: Duration::from_hours(1), burst });
        LimitSettings {
            rate,
            concurrency: None,
            by: String::new(),
            keys: 1024,
            fleet: None,
            is_dry_run: false,
        }
    }

    #[test]
    fn a_reload_keeps_the_state_of_a_limit_that_is_the_same() {
        let limits = Limits::default();
        let first = limits.open("a", settings(1));
        assert!(first.admit(b"k").is_ok());
        // A configuration that is read and refused.
        assert!(limits.open("a", settings(2)).admit(b"k").is_ok());
        assert!(limits.open("a", settings(1)).admit(b"k").is_err());
        assert!(limits.open("b", settings(1)).admit(b"k").is_ok(), "another name");
        assert_eq!(first.counters().of(Outcome::Passed), 2, "counters belong to the name");
        drop(first);
        assert!(limits.open("a", settings(1)).admit(b"k").is_ok(), "no longer in use");
        assert_eq!(limits.in_use().len(), 0, "no longer in use");
    }
}
