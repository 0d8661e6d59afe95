//! [`Throttle`], the rate limit for log messages that clients can cause.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Passes one event per interval, after a burst, and counts the others. Shared by all threads without a lock.
#[derive(Debug)]
pub struct Throttle {
    interval: Duration,
    /// Time by which events may be ahead of `interval`: `burst - 1` intervals.
    ahead: Duration,
    started: Instant,
    /// Nanoseconds after `started` at which the next event is due.
    next: AtomicU64,
    held_back: AtomicU64,
}

impl Throttle {
    /// Passes the first event, then one per `interval`: a burst of 1.
    pub fn new(interval: Duration) -> Self {
        Self::with_burst(interval, 1)
    }

    /// Passes the first `burst` events, then one per `interval`; after a pause, up to `burst` at once again.
    pub fn with_burst(interval: Duration, burst: u32) -> Self {
        Self {
            interval,
            ahead: interval * burst.saturating_sub(1),
            started: Instant::now(),
            next: AtomicU64::new(0),
            held_back: AtomicU64::new(0),
        }
    }

    /// Whether this event passes: `Some` with the number of events suppressed since the last one that passed.
    pub fn pass(&self) -> Option<u64> {
        let now = nanoseconds(self.started.elapsed());
        // Relaxed order suffices: no other data depends on the time.
        let next = self.next.load(Ordering::Relaxed);
        let later = next.max(now).saturating_add(nanoseconds(self.interval));
        // Among concurrent events one wins the exchange; the others are counted as suppressed.
        let passes = now.saturating_add(nanoseconds(self.ahead)) >= next
            && self.next.compare_exchange(next, later, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if passes {
            return Some(self.held_back.swap(0, Ordering::Relaxed));
        }
        self.held_back.fetch_add(1, Ordering::Relaxed);
        None
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_event_passes_and_the_others_are_counted() {
        let throttle = Throttle::new(Duration::from_hours(1));
        assert_eq!(throttle.pass(), Some(0));
        assert_eq!(throttle.pass(), None);
        assert_eq!(throttle.pass(), None);
        throttle.next.store(0, Ordering::Relaxed);
        assert_eq!(throttle.pass(), Some(2));
        assert_eq!(throttle.pass(), None);
    }

    #[test]
    fn a_burst_passes_at_once() {
        let throttle = Throttle::with_burst(Duration::from_hours(1), 3);
        assert_eq!([(); 5].map(|()| throttle.pass()), [Some(0), Some(0), Some(0), None, None]);
    }
}
