//! Counts of datagrams and handshakes that the drivers treated in a special way.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the start, of all drivers.
#[derive(Debug, Default)]
pub struct QuicCounters {
    /// Clients that had to prove their address with a Retry.
    pub retries: Counter,
    /// First packets that were ignored, because their client had its share of the handshakes in progress.
    pub handshakes_over_limit: Counter,
    /// Datagrams that were dropped, because too many waited for a suspended handshake or for its client.
    pub datagrams_over_limit: Counter,
    /// Datagrams that arrived at the wrong socket and were passed to the driver that their ID names.
    pub datagrams_passed: Counter,
}

/// A count.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The count until now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
