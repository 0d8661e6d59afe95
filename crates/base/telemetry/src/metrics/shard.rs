//! Counters per request and per connection, one set per worker, so that workers never share a cache line.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use super::Listening;
use super::histogram::{Histogram, Totals};
use crate::outcome::{EarlyRequest, Side};

/// Status codes with a counter of their own; all others are counted as [`NO_STATUS`].
const STATUSES: std::ops::Range<u16> = 100..600;
const NO_STATUS: usize = 500;

/// The figures of one worker.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) accepted: [AtomicU64; Listening::ALL.len()],
    pub(super) closed: [AtomicU64; Listening::ALL.len()],
    pub(super) received: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) errors: [AtomicU64; Side::ALL.len()],
    pub(super) early_requests: [AtomicU64; EarlyRequest::ALL.len()],
    pub(super) early_bytes: AtomicU64,
    pub(super) request_time: Histogram,
    pub(super) upstream_time: Histogram,
    statuses: [AtomicU64; NO_STATUS + 1],
}

impl Shard {
    fn new() -> Self {
        Self {
            accepted: Default::default(),
            closed: Default::default(),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            errors: Default::default(),
            early_requests: Default::default(),
            early_bytes: AtomicU64::new(0),
            request_time: Histogram::default(),
            upstream_time: Histogram::default(),
            statuses: [const { AtomicU64::new(0) }; NO_STATUS + 1],
        }
    }

    /// Counts a response's status code.
    pub(super) fn count_status(&self, status: u16) {
        // An upstream may respond with any code, so that an index without this check could be out of bounds.
        let index = if STATUSES.contains(&status) { usize::from(status - STATUSES.start) } else { NO_STATUS };
        self.statuses[index].fetch_add(1, Ordering::Relaxed);
    }
}

/// A value per worker, so that workers share no cache line.
#[derive(Debug)]
pub(crate) struct PerWorker<T>(Box<[Apart<T>]>);

/// Aligned so that two workers' values share no pair of cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Apart<T>(T);

impl<T> PerWorker<T> {
    /// One value of `make` for each core that the process may use, at most 64.
    pub(crate) fn new(make: impl Fn() -> T) -> Self {
        // Bounded to 64 copies, each with more than 500 counters.
        let cores = thread::available_parallelism().map_or(1, usize::from).min(64);
        Self((0..cores).map(|_| Apart(make())).collect())
    }

    /// The value of the calling thread. Threads beyond the number of cores share values.
    pub(crate) fn mine(&self) -> &T {
        &self.0[thread_number() % self.0.len()].0
    }

    /// The values of all workers.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|apart| &apart.0)
    }
}

/// The [`Shard`] of each worker.
#[derive(Debug)]
pub(super) struct Shards(PerWorker<Shard>);

impl Shards {
    pub(super) fn new() -> Self {
        Self(PerWorker::new(Shard::new))
    }

    /// The shard of the calling thread.
    pub(super) fn mine(&self) -> &Shard {
        self.0.mine()
    }

    /// The sum of one counter over all workers. The loads are relaxed, so concurrent additions may be missing.
    pub(super) fn sum(&self, counter: impl Fn(&Shard) -> &AtomicU64) -> u64 {
        self.0.all().map(|shard| counter(shard).load(Ordering::Relaxed)).sum()
    }

    /// One histogram over all workers.
    pub(super) fn totals(&self, histogram: impl Fn(&Shard) -> &Histogram) -> Totals {
        Totals::of(self.0.all().map(histogram))
    }

    /// Status codes that were counted, `0` for none, each with its count. Upstreams choose the codes.
    pub(super) fn statuses(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        (0..=NO_STATUS).filter_map(|index| {
            let count = self.sum(|shard| &shard.statuses[index]);
            let status = if index == NO_STATUS { 0 } else { STATUSES.start + index as u16 };
            (count > 0).then_some((status, count))
        })
    }
}

/// A small number for the calling thread, given out in the order of first use.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // A number of our own, because `ThreadId` has no stable conversion to an integer.
    const UNSET: usize = usize::MAX;
    thread_local! {
        static NUMBER: Cell<usize> = const { Cell::new(UNSET) };
    }
    NUMBER.with(|number| {
        if number.get() == UNSET {
            number.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        number.get()
    })
}
