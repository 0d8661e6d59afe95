//! Counts of datagrams and handshakes that the drivers treated in a special way.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the start, of all drivers.
#[derive(Debug, Default)]
pub struct QuicCounters {
    /// Clients that had to prove their address with a Retry; see
    /// [`QuicSettings::unvalidated_rate`](crate::QuicSettings::unvalidated_rate).
    pub retries: Counter,
    /// First packets that were ignored, because their client had its share of
    /// [`QuicSettings::pending_handshakes`](crate::QuicSettings::pending_handshakes).
    pub handshakes_over_limit: Counter,
    /// Changes of the address or port of a client; see [`Application::moved`](crate::Application::moved).
    pub migrations: Counter,
    /// Datagrams that were dropped, because they were too large to wait, or too many waited for a suspended handshake or for
    /// [`QuicSettings::waiting_datagrams`](crate::QuicSettings::waiting_datagrams).
    pub datagrams_over_limit: Counter,
    /// Datagrams that arrived at the wrong socket and were passed by the [`Group`](crate::Group) to the driver that their ID
    /// names.
    pub datagrams_passed: Counter,
    /// Packets sent, counted by the service at the end of each connection.
    pub packets_sent: Counter,
    /// Sent packets that were declared lost (RFC 9002 section 6), counted with [`packets_sent`](Self::packets_sent).
    pub packets_lost: Counter,
}

/// A count, which any thread may read.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self) {
        self.add_all(1);
    }

    /// Adds `count`.
    pub fn add_all(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// The count until now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
