//! The circuit breaker: while Redis does not answer, it gets no commands and no caller waits.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use tokio::sync::{Notify, futures::Notified};

/// Failures in a row that open it. A save to disk, or a single lost packet, is to cost a few full handshakes and no more.
const MOST_FAILURES: u32 = 10;

/// Open when Redis fails: then nothing is asked of it but an occasional sign of life, and when that comes in time it
/// closes. It is open to begin with, until the first sign of life.
#[derive(Debug)]
pub(super) struct Breaker {
    closed: AtomicBool,
    failures: AtomicU32,
    opened: AtomicU64,
    opening: Notify,
}

impl Breaker {
    pub(super) fn new() -> Self {
        Self {
            closed: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            opened: AtomicU64::new(0),
            opening: Notify::new(),
        }
    }

    /// Whether Redis is to be asked.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// An answer came in time.
    pub(super) fn succeeded(&self) {
        // Most of the time it is zero already, and then the cache line stays shared.
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// No answer came in time, or one that says that Redis cannot do its work.
    pub(super) fn failed(&self) {
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_FAILURES {
            self.open();
        }
    }

    /// Redis is known to be out of reach.
    pub(super) fn open(&self) {
        if self.closed.swap(false, Ordering::Relaxed) {
            self.opened.fetch_add(1, Ordering::Relaxed);
            self.opening.notify_waiters();
        }
    }

    /// A sign of life came in time.
    pub(super) fn close(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Waits until it opens, from this call on.
    pub(super) fn opening(&self) -> Notified<'_> {
        self.opening.notified()
    }

    /// How often it has opened.
    pub(super) fn times_opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_failures_in_a_row_and_closes_by_a_sign_of_life() {
        let breaker = Breaker::new();
        assert!(!breaker.is_closed(), "nothing is known of Redis yet");
        breaker.close();
        for _ in 1..MOST_FAILURES {
            breaker.failed();
        }
        breaker.succeeded();
        for _ in 1..MOST_FAILURES {
            breaker.failed();
            assert!(breaker.is_closed());
        }
        breaker.failed();
        assert!(!breaker.is_closed());
        breaker.failed();
        breaker.open();
        assert_eq!(breaker.times_opened(), 1);
        breaker.close();
        breaker.failed();
        assert!(breaker.is_closed(), "failures of before are forgotten");
    }
}
