//! Numbers of requests by their result at a limit.

use std::sync::atomic::{AtomicU64, Ordering};

/// Results of the requests of one limit name. `Counters` outlive a [`Limit`](crate::Limit) that a reload replaces.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    // The index is the variant, so `ALL` must have every variant.
    outcomes: [AtomicU64; Outcome::ALL.len()],
    /// Requests about which Redis gave no decision.
    undecided: AtomicU64,
}

/// Result of a request at a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Within the limit.
    Passed,
    /// Refused because of the rate.
    Rate,
    /// Refused because of the requests in progress.
    Concurrency,
    /// Refused because Redis gave no decision.
    Store,
    /// Beyond the limit, and not refused because of `dry_run`.
    DryRun,
}

impl Outcome {
    /// The results with the values of their label.
    pub(crate) const ALL: [(&str, Self); 5] = [
        ("passed", Self::Passed),
        ("rate", Self::Rate),
        ("concurrency", Self::Concurrency),
        ("store", Self::Store),
        ("dry_run", Self::DryRun),
    ];
}

impl Counters {
    pub(crate) fn count(&self, outcome: Outcome) {
        // Relaxed: a counter guards no other memory.
        self.outcomes[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn of(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn count_undecided(&self) {
        self.undecided.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn undecided(&self) -> u64 {
        self.undecided.load(Ordering::Relaxed)
    }
}
