//! Rate limit of one client: a token bucket that all its connections share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use brisk_net::rates::Rate;

/// A token bucket, initially full. `full_at` is the time at which it is full again, in nanoseconds since `started`.
#[derive(Debug)]
pub(crate) struct Bucket {
    rate: Rate,
    started: Instant,
    full_at: AtomicU64,
}

impl Bucket {
    pub(crate) fn new(rate: Rate) -> Self {
        Self { rate, started: Instant::now(), full_at: AtomicU64::new(0) }
    }

    pub(crate) const fn rate(&self) -> Rate {
        self.rate
    }

    /// Takes a token if one is available. Lock-free: on a conflict between two threads, one repeats its update.
    pub(crate) fn take(&self) -> bool {
        let interval = nanoseconds(self.rate.interval.as_nanos()).max(1);
        let now = nanoseconds(self.started.elapsed().as_nanos());
        let spared = interval.saturating_mul(u64::from(self.rate.burst.saturating_sub(1)));
        // Relaxed suffices, because the value guards no other memory.
        let taken = self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            let full_at = full_at.max(now);
            (full_at - now <= spared).then(|| full_at.saturating_add(interval))
        });
        taken.is_ok()
    }
}

fn nanoseconds(time: u128) -> u64 {
    u64::try_from(time).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_is_allowed_and_then_one_per_interval() {
        let bucket = Bucket::new(Rate { interval: Duration::from_hours(1), burst: 3 });
        assert_eq!((0..5).filter(|_| bucket.take()).count(), 3);
        let bucket = Bucket::new(Rate { interval: Duration::from_millis(1), burst: 1 });
        assert!(bucket.take());
        std::thread::sleep(Duration::from_millis(3));
        assert!(bucket.take());
    }
}
