//! What a store on Redis counts.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::Miss;

/// Counts of a [`RedisStore`](super::RedisStore): since it was started, unless they say "now".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisStatistics {
    /// Look-ups (`get` and `take`) that found a session.
    pub hits: u64,
    /// Look-ups of a session that is not there.
    pub misses: u64,
    /// Look-ups of a session that somebody took before.
    pub used: u64,
    /// Those of them with [`Claim::Everywhere`](crate::Claim::Everywhere): early data that was refused.
    pub replays: u64,
    /// Look-ups of what was forged or damaged.
    pub forged: u64,
    /// Look-ups that were not answered by the deadline.
    pub late: u64,
    /// Look-ups that were not made, or failed, because Redis is out of order.
    pub down: u64,
    /// Sessions that could have been taken twice, because Redis was restarted or failed over since they were put
    /// there, and were therefore not given for early data. They count as `misses` too.
    pub outlived: u64,
    /// Writes that Redis has done.
    pub written: u64,
    /// Writes given up because the queue was full.
    pub dropped_full: u64,
    /// Writes given up because Redis is out of order, or refused them.
    pub dropped_down: u64,
    /// Commands that wait to be sent, or to be answered, now.
    pub queue_length: u64,
    /// Whether Redis is taken to be out of order now, and is not asked until it gives a sign of life.
    pub breaker_open: bool,
    /// How often that began.
    pub breaker_opened: u64,
    /// Connections now.
    pub connections: u64,
    /// Connections made.
    pub connected: u64,
    /// Look-ups that were answered, in time or too late.
    pub operations: u64,
    /// The time from handing each of them over to its answer, added up.
    pub operation_time: Duration,
    /// What is wrong now: a line for each server that has a trouble, with what would be right.
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
    /// What a look-up came to, as its caller got it.
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

    /// Without what is known elsewhere.
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
