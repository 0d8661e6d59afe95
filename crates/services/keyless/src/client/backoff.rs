//! Pauses between connection attempts: exponential, with jitter.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use tokio::time::sleep;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(5);

/// Shortest pause while operations wait for a server.
const WANTED: Duration = Duration::from_millis(250);

/// Pauses of one connection, between [`FIRST`] and [`LONGEST`].
#[derive(Debug)]
pub(super) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(super) const fn new() -> Self {
        Self { next: FIRST }
    }

    /// Pause after a failure: random between half and all of a time that doubles with each failure, from 50 ms up to 5
    /// s.
    pub(super) fn pause(&mut self) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(LONGEST);
        // The random keys of `RandomState` suffice to separate the attempts of different gateways.
        let random = RandomState::new().hash_one(whole) as u32;
        whole / 2 + (whole / 2).mul_f64(f64::from(random) / f64::from(u32::MAX))
    }

    /// Waits for the [`pause`](Self::pause), or for [`WANTED`] and then `wanted`: otherwise the longest pause would follow
    /// the end of an outage, during which operations fail.
    pub(super) async fn wait(&mut self, wanted: impl Future<Output = ()>) {
        let early = async {
            sleep(WANTED).await;
            wanted.await;
        };
        tokio::select! {
            () = sleep(self.pause()) => {}
            () = early => {}
        }
    }

    /// Restarts at the shortest pause, after a connection that lasted.
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
