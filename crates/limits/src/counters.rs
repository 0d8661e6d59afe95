//! Numbers of requests by their result at a limit.

use std::sync::atomic::{AtomicU64, Ordering};

/// Results of the requests of one limit. They outlive the limit's table.
#[derive(Debug, Default)]
pub(crate) struct Counters([AtomicU64; Outcome::ALL.len()]);

/// Result of a request at a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Within the limit.
    Passed,
    /// Refused because of the rate.
    Rate,
    /// Refused because of the requests in progress.
    Concurrency,
    /// Beyond the limit, and not refused because the limit is only observed.
    DryRun,
}

impl Outcome {
    /// The results with the values of their label.
    pub(crate) const ALL: [(&str, Self); 4] = [
        ("passed", Self::Passed),
        ("rate", Self::Rate),
        ("concurrency", Self::Concurrency),
        ("dry_run", Self::DryRun),
    ];
}

impl Counters {
    pub(crate) fn count(&self, outcome: Outcome) {
        self.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn of(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize].load(Ordering::Relaxed)
    }
}
