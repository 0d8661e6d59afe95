//! [`Breaker`], the circuit breaker: while Redis does not work, it gets no commands and no caller waits.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use tokio::sync::{Notify, futures::Notified};

/// Consecutive failures that open the breaker. Ten, so that a save to disk or a lost packet costs a few full handshakes
/// only.
const MOST_FAILURES: u32 = 10;

/// Suspends all commands while it is open. Probes then continue, and the first timely reply closes it. Initially open,
/// until the first reply.
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

    /// Whether commands may be sent to Redis.
    pub(super) fn is_closed(&self) -> bool {
        // Relaxed: one command more or less after a change does no harm.
        self.closed.load(Ordering::Relaxed)
    }

    /// Records a reply in time.
    pub(super) fn succeeded(&self) {
        // Read before writing: the value is almost always zero, and its cache line then stays shared.
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Records a missing or late reply, or an error that shows that Redis does not work.
    pub(super) fn failed(&self) {
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= MOST_FAILURES {
            self.open();
        }
    }

    /// Opens the breaker at once, without [`MOST_FAILURES`], because Redis is unreachable.
    pub(super) fn open(&self) {
        // Many commands fail together; only the change counts and wakes.
        if self.closed.swap(false, Ordering::Relaxed) {
            self.opened.fetch_add(1, Ordering::Relaxed);
            self.opening.notify_waiters();
        }
    }

    /// Closes the breaker after a timely reply to a probe.
    pub(super) fn close(&self) {
        // Before the breaker closes: with the former count, one late reply would open it again.
        self.failures.store(0, Ordering::Relaxed);
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Waits for the next time that the breaker opens.
    pub(super) fn opening(&self) -> Notified<'_> {
        self.opening.notified()
    }

    /// Number of times that the breaker opened.
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
