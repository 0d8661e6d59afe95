//! Key operations by engine and algorithm: labels that are known only at run time.

use std::array;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;

use super::histogram::Histogram;
use crate::named;

named! {
    /// Outcome of a key operation, the label `outcome` of its metric.
    KeyOutcome {
        /// The engine answered with a result.
        Ok = "ok",
        /// The engine's queue was full.
        Overloaded = "overloaded",
        /// No result by the deadline.
        DeadlinePassed = "deadline-passed",
        /// The caller dropped the operation before its result.
        Abandoned = "abandoned",
        /// The engine has no such key, cannot do this with it, or failed.
        Failed = "failed",
    }
}

/// One key operation that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyOperationFacts {
    /// Engine that performed the operation; `None` if it was not performed.
    pub engine: Option<&'static str>,
    /// The family of the key.
    pub algorithm: &'static str,
    /// Outcome of the operation.
    pub outcome: KeyOutcome,
    /// Time that was not spent on the work itself.
    pub wait: Duration,
    /// Time of the work itself.
    pub compute: Duration,
}

impl KeyOperationFacts {
    fn engine_label(&self) -> &'static str {
        self.engine.unwrap_or("none")
    }
}

/// The key operations with one pair of `engine` and `algorithm`.
#[derive(Debug)]
pub(super) struct KeySeries {
    pub(super) engine: &'static str,
    pub(super) algorithm: &'static str,
    pub(super) wait: Histogram,
    /// Empty where [`KeyOperationFacts::engine`] is `None`.
    pub(super) compute: Histogram,
    outcomes: [AtomicU64; KeyOutcome::ALL.len()],
}

impl KeySeries {
    fn new(facts: &KeyOperationFacts) -> Self {
        Self {
            engine: facts.engine_label(),
            algorithm: facts.algorithm,
            wait: Histogram::default(),
            compute: Histogram::default(),
            outcomes: array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    fn is_of(&self, facts: &KeyOperationFacts) -> bool {
        self.engine == facts.engine_label() && self.algorithm == facts.algorithm
    }

    fn observe(&self, facts: &KeyOperationFacts) {
        self.outcomes[facts.outcome as usize].fetch_add(1, Ordering::Relaxed);
        self.wait.observe(facts.wait);
        // Without an engine nothing was computed; zeros would lower the quantiles of the others.
        if facts.engine.is_some() {
            self.compute.observe(facts.compute);
        }
    }

    /// Number of operations by [`KeyOutcome`].
    pub(super) fn outcomes(&self) -> impl Iterator<Item = (KeyOutcome, u64)> + '_ {
        let counts = self.outcomes.iter().map(|count| count.load(Ordering::Relaxed));
        KeyOutcome::ALL.iter().copied().zip(counts)
    }
}

/// All key operations: a short list that is read without a lock and replaced when a new pair of labels occurs.
#[derive(Debug, Default)]
pub(super) struct KeyOperations(ArcSwap<Vec<Arc<KeySeries>>>);

impl KeyOperations {
    pub(super) fn observe(&self, facts: &KeyOperationFacts) {
        if let Some(series) = self.0.load().iter().find(|series| series.is_of(facts)) {
            return series.observe(facts);
        }
        // The list needs no bound: both labels are static texts of the program, so that
        // no client can lengthen it.
        let new = Arc::new(KeySeries::new(facts));
        // Another thread may add the same labels concurrently, so the check is repeated inside.
        self.0.rcu(|all| {
            let mut all = Vec::clone(all);
            if !all.iter().any(|series| series.is_of(facts)) {
                all.push(Arc::clone(&new));
            }
            all
        });
        // Observed in the list that is in force: the series of another thread may have won,
        // and `new` would be lost.
        if let Some(series) = self.0.load().iter().find(|series| series.is_of(facts)) {
            series.observe(facts);
        }
    }

    pub(super) fn all(&self) -> Arc<Vec<Arc<KeySeries>>> {
        self.0.load_full()
    }
}

#[cfg(test)]
mod tests {
    use super::super::histogram::Totals;
    use super::*;

    #[test]
    fn key_operations_with_the_same_labels_are_one_series() {
        let operations = KeyOperations::default();
        let facts = |engine, outcome| KeyOperationFacts {
            engine,
            algorithm: "rsa",
            outcome,
            wait: Duration::from_micros(20),
            compute: Duration::from_micros(900),
        };
        for outcome in [KeyOutcome::Ok, KeyOutcome::Ok, KeyOutcome::Failed] {
            operations.observe(&facts(Some("ifma"), outcome));
        }
        operations.observe(&facts(None, KeyOutcome::Overloaded));
        let all = operations.all();
        let [performed, refused] = &all[..] else { panic!("two series: {all:?}") };
        let counts: Vec<_> = performed.outcomes().filter(|(_, count)| *count > 0).collect();
        assert_eq!(
            (performed.engine, &counts[..]),
            ("ifma", &[(KeyOutcome::Ok, 2), (KeyOutcome::Failed, 1)][..])
        );
        let counts = |series: &KeySeries| [&series.wait, &series.compute].map(|of| Totals::of([of]).count());
        assert_eq!((counts(performed), refused.engine, counts(refused)), ([3, 3], "none", [1, 0]));
    }
}
