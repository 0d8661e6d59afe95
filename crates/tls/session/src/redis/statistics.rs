//! Statistics of the store in Redis.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::Miss;

/// Statistics of a [`RedisStore`](super::RedisStore). Counters count from its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisStatistics {
    /// Look-ups (`get` and `take`) that found a session.
    pub hits: u64,
    /// Look-ups that ended with [`Miss::Unknown`].
    pub misses: u64,
    /// Look-ups of a session that was taken before.
    pub used: u64,
    /// Look-ups counted in `used` that had [`Claim::Everywhere`](crate::Claim::Everywhere): early data was refused.
    pub replays: u64,
    /// Look-ups whose value was forged or damaged ([`Miss::Forged`]).
    pub forged: u64,
    /// Look-ups without a reply before [`RedisSettings::deadline`](super::RedisSettings::deadline).
    pub late: u64,
    /// Look-ups that were skipped or failed because Redis does not work.
    pub down: u64,
    /// Look-ups for early data that were refused because Redis was restarted or failed over after the session was
    /// stored, so that it could have been taken twice. Counted in `misses` too.
    pub outlived: u64,
    /// Writes that Redis has confirmed.
    pub written: u64,
    /// Writes dropped because [`RedisSettings::queue`](super::RedisSettings::queue) was full.
    pub dropped_full: u64,
    /// Writes dropped because Redis does not work or refused them.
    pub dropped_down: u64,
    /// Commands that are queued or unanswered now.
    pub queue_length: u64,
    /// Whether the circuit breaker is open now: Redis gets no commands until a probe succeeds.
    pub breaker_open: bool,
    /// Times that the circuit breaker opened.
    pub breaker_opened: u64,
    /// Connections open now.
    pub connections: u64,
    /// Connections established.
    pub connected: u64,
    /// Look-ups that were answered, before or after the deadline.
    pub operations: u64,
    /// Total time from queueing to the reply of these look-ups.
    pub operation_time: Duration,
    /// Current problems: one line for each problem of a server, with the remedy.
    pub troubles: Vec<String>,
}

/// The counters behind [`RedisStatistics`].
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) hits: Counter,
    pub(super) misses: Counter,
    pub(super) used: Counter,
    pub(super) replays: Counter,
    pub(super) forged: Counter,
    pub(super) late: Counter,
    pub(super) down: Counter,
    pub(super) outlived: Counter,
    pub(super) written: Counter,
    pub(super) dropped_full: Counter,
    pub(super) dropped_down: Counter,
    pub(super) in_flight: Counter,
    pub(super) connections: Counter,
    pub(super) connected: Counter,
    pub(super) operations: Counter,
    pub(super) operation_nanos: Counter,
}

#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn count(&self) {
        self.add(1);
    }

    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(super) fn sub(&self, less: u64) {
        self.0.fetch_sub(less, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Counters {
    /// Counts the outcome of a look-up, by its [`Miss`].
    pub(super) fn found<T>(&self, found: &Result<T, Miss>) {
        match found {
            Ok(_) => &self.hits,
            Err(Miss::Used) => &self.used,
            Err(Miss::Forged) => &self.forged,
            Err(Miss::Late) => &self.late,
            Err(Miss::Down) => &self.down,
            Err(Miss::Unknown) => &self.misses,
        }
        .count();
    }

    pub(super) fn answered(&self, after: Duration) {
        self.operations.count();
        self.operation_nanos.add(after.as_nanos() as u64);
    }

    /// The counters; other fields have their defaults.
    pub(super) fn statistics(&self) -> RedisStatistics {
        RedisStatistics {
            hits: self.hits.get(),
            misses: self.misses.get(),
            used: self.used.get(),
            replays: self.replays.get(),
            forged: self.forged.get(),
            late: self.late.get(),
            down: self.down.get(),
            outlived: self.outlived.get(),
            written: self.written.get(),
            dropped_full: self.dropped_full.get(),
            dropped_down: self.dropped_down.get(),
            queue_length: self.in_flight.get(),
            connections: self.connections.get(),
            connected: self.connected.get(),
            operations: self.operations.get(),
            operation_time: Duration::from_nanos(self.operation_nanos.get()),
            ..RedisStatistics::default()
        }
    }
}
