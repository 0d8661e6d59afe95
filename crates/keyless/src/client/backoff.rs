//! Pauses between attempts to connect, longer after each failure and never the same for two gateways.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(5);

/// The pauses of one connection.
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(super) const fn new() -> Self {
        Self { next: FIRST }
    }

    /// The pause after a failure: between a half and the whole of a time that doubles with each failure, up to five seconds.
    pub(super) fn pause(&mut self) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(LONGEST);
        // A hasher with random keys is randomness enough to keep gateways apart.
        let random = RandomState::new().hash_one(whole) as u32;
        whole / 2 + (whole / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
    }

    /// The connection was good: the next failure is the first again.
    pub(super) const fn reset(&mut self) {
        self.next = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_differ() {
        let mut backoff = Backoff::new();
        let pauses: Vec<_> = (0..12).map(|_| backoff.pause()).collect();
        assert!(pauses[0] >= FIRST / 2 && pauses[0] <= FIRST);
        assert!(pauses[11] >= LONGEST / 2 && pauses[11] <= LONGEST);
        assert_ne!(pauses[10], pauses[11]);
        backoff.reset();
        assert!(backoff.pause() <= FIRST);
    }
}
