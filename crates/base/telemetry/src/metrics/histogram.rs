//! Histograms of durations with plain atomics: an observation costs two additions and no lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets in microseconds: from 50 µs, the CPU time of a handshake, to waits that users abandon.
pub(super) const BOUNDS: [u64; 16] = [
    50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000,
    2_000_000, 5_000_000,
];

/// A histogram of durations. All metrics share the buckets `BOUNDS`: from 50 µs to 5 s, and one for longer durations.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    sum_micros: AtomicU64,
}

impl Histogram {
    /// Adds one observation. A few ns, no lock.
    pub fn observe(&self, time: Duration) {
        let micros = time.as_secs().saturating_mul(1_000_000).saturating_add(time.subsec_micros().into());
        // `<`: the upper bound `le` of a bucket belongs to the bucket.
        let bucket = BOUNDS.iter().take_while(|bound| **bound < micros).count();
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_micros.fetch_add(micros, Ordering::Relaxed);
    }
}

/// Sum of one [`Histogram`] or several at one time.
#[derive(Debug, Default)]
pub(super) struct Totals {
    buckets: [u64; BOUNDS.len() + 1],
    sum_micros: u64,
}

impl Totals {
    /// Adds up `histograms`.
    pub(super) fn of<'a>(histograms: impl IntoIterator<Item = &'a Histogram>) -> Self {
        let mut totals = Self::default();
        for histogram in histograms {
            for (total, bucket) in totals.buckets.iter_mut().zip(&histogram.buckets) {
                *total += bucket.load(Ordering::Relaxed);
            }
            totals.sum_micros = totals.sum_micros.wrapping_add(histogram.sum_micros.load(Ordering::Relaxed));
        }
        totals
    }

    /// Number of observations, by [`Histogram::observe`].
    pub(super) fn count(&self) -> u64 {
        // Not a counter of its own: an observation between the two loads would make it
        // differ from the bucket `+Inf`.
        self.buckets.iter().sum()
    }

    /// Their sum in seconds.
    pub(super) fn sum_seconds(&self) -> f64 {
        self.sum_micros as f64 / 1e6
    }

    /// Upper bound in seconds and observations of each bucket, the last one unbounded.
    pub(super) fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bounds = BOUNDS.iter().map(|micros| *micros as f64 / 1e6).chain([f64::INFINITY]);
        bounds.zip(self.buckets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_observation_falls_into_the_first_bucket_that_holds_it() {
        let histogram = Histogram::default();
        for micros in [0, 50, 51, 1_000, 5_000_000, 5_000_001] {
            histogram.observe(Duration::from_micros(micros));
        }
        let filled: Vec<_> = Totals::of([&histogram]).buckets().filter(|(_, count)| *count > 0).collect();
        assert_eq!(filled, [(0.000_05, 2), (0.000_1, 1), (0.001, 1), (5.0, 1), (f64::INFINITY, 1)]);
    }

    #[test]
    fn histograms_of_several_workers_add_up() {
        let (first, second) = (Histogram::default(), Histogram::default());
        first.observe(Duration::from_millis(1500));
        second.observe(Duration::from_millis(500));
        let totals = Totals::of([&first, &second]);
        assert_eq!(totals.count(), 2);
        assert!((totals.sum_seconds() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn bounds_rise() {
        assert!(BOUNDS.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
