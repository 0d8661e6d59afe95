//! [`Pressure`]: the present overload, as gates read it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::level::{Level, SOURCES, Source, Work};
use crate::shedding::KINDS;

/// The whole of a kind of work, in the unit of stored shares. A power of two, so that sums may overflow.
const WHOLE: u32 = 1 << 10;

/// Unit of the stored values of sources: thousandths.
const THOUSAND: f64 = 1e3;

/// Idle time of connections from [`Level::Elevated`] on.
const SHORT_IDLE: Duration = Duration::from_secs(10);

/// The present overload of the process. A [`Sampler`](crate::Sampler) writes it, at most ten times a second and only changes, so
/// that reading costs one load from a shared cache line.
#[derive(Debug, Default)]
pub struct Pressure {
    level: AtomicU8,
    /// The level by the sources that connections hold.
    held: AtomicU8,
    /// Refused shares of [`KINDS`], in parts of [`WHOLE`].
    shares: [AtomicU32; KINDS.len()],
    /// Sums of the shares of the requests so far, for an even distribution of refusals.
    sums: [AtomicU32; KINDS.len()],
    /// Values of the sources in thousandths.
    values: [AtomicU32; SOURCES],
    refused: [AtomicU64; Work::ALL.len()],
}

impl Pressure {
    /// No overload.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// The [`Level`] of all [`Source`]s.
    pub fn level(&self) -> Level {
        // Relaxed, here and below: the numbers guard no other memory.
        Level::of(self.level.load(Ordering::Relaxed))
    }

    /// Whether this piece of `work` is refused, which is counted. In a partial overload, refusals are distributed evenly over the
    /// pieces of all workers. Costs one load without overload.
    pub fn refuses(&self, work: Work) -> bool {
        let is_refused = match work {
            Work::Low => self.takes_turn(0),
            Work::FullHandshake => self.takes_turn(1),
            Work::Normal => self.takes_turn(2),
            // Their requests would be refused.
            Work::Connection => self.shares[2].load(Ordering::Relaxed) == WHOLE,
        };
        if is_refused {
            self.refused[work as usize].fetch_add(1, Ordering::Relaxed);
        }
        is_refused
    }

    fn takes_turn(&self, index: usize) -> bool {
        let share = self.shares[index].load(Ordering::Relaxed);
        if share == 0 {
            return false;
        }
        let before = self.sums[index].fetch_add(share, Ordering::Relaxed);
        before / WHOLE != before.wrapping_add(share) / WHOLE
    }

    /// The idle time of a connection: `usual`, or less if connections hold resources that are short.
    pub fn idle_time(&self, usual: Duration) -> Duration {
        if self.held().is_at_least(Level::Elevated) { usual.min(SHORT_IDLE) } else { usual }
    }

    /// Whether connections end after a response, because they hold resources that are short.
    pub fn ends_connections(&self) -> bool {
        self.held().is_at_least(Level::Severe)
    }

    fn held(&self) -> Level {
        Level::of(self.held.load(Ordering::Relaxed))
    }

    /// The value of `source`, smoothed over about 0.3 s.
    pub fn value(&self, source: Source) -> f64 {
        f64::from(self.values[source as usize].load(Ordering::Relaxed)) / THOUSAND
    }

    /// The [`Source`] that causes the [`Level`], or is nearest to one.
    pub fn foremost(&self) -> Source {
        let share = |source: &Source| self.value(*source) / source.thresholds()[0];
        let sources = Source::ALL.iter().copied();
        sources.max_by(|one, other| share(one).total_cmp(&share(other))).unwrap_or(Source::LoopDelay)
    }

    /// The refused share of `work`, from 0 to 1.
    pub fn share(&self, work: Work) -> f64 {
        let index = KINDS.iter().position(|kind| *kind == work);
        match index {
            Some(index) => f64::from(self.shares[index].load(Ordering::Relaxed)) / f64::from(WHOLE),
            None => f64::from(u8::from(self.shares[2].load(Ordering::Relaxed) == WHOLE)),
        }
    }

    /// Number of refusals of `work` so far.
    pub fn refusals(&self, work: Work) -> u64 {
        self.refused[work as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn set_levels(&self, level: Level, held: Level) {
        for (stored, level) in [(&self.level, level), (&self.held, held)] {
            // Without a change, the cache line stays shared among the workers.
            if stored.load(Ordering::Relaxed) != level.number() {
                stored.store(level.number(), Ordering::Relaxed);
            }
        }
    }

    /// Sets the refused share, from 0 to 1, of the kind at `index` of [`KINDS`].
    pub(crate) fn set_share(&self, index: usize, share: f64) {
        let share = (share * f64::from(WHOLE)).round() as u32;
        if self.shares[index].load(Ordering::Relaxed) != share {
            self.shares[index].store(share, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_values(&self, values: &[f64; SOURCES]) {
        for (stored, value) in self.values.iter().zip(values) {
            let thousandths = (value * THOUSAND).round() as u32;
            if stored.load(Ordering::Relaxed) != thousandths {
                stored.store(thousandths, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_a_share_of_the_work_and_distributed_evenly() {
        let pressure = Pressure::new();
        let refused = |work| (0..100).filter(|_| pressure.refuses(work)).count();
        assert_eq!(KINDS.map(refused), [0, 0, 0]);
        pressure.set_share(0, 0.25);
        let pieces: Vec<_> = (0..12).map(|_| pressure.refuses(Work::Low)).collect();
        assert_eq!(
            pieces.chunks(4).map(|four| four.iter().filter(|refused| **refused).count()).collect::<Vec<_>>(),
            [1; 3]
        );
        assert_eq!(pressure.refusals(Work::Low), 3);
        pressure.set_share(0, 1.0);
        assert_eq!(refused(Work::Low), 100);
        assert_eq!(refused(Work::Normal), 0);
    }

    #[test]
    fn the_foremost_source_is_nearest_to_its_threshold() {
        let pressure = Pressure::new();
        let mut values = [0.0; SOURCES];
        values[Source::Memory as usize] = 0.8;
        values[Source::LoopDelay as usize] = 0.04;
        pressure.set_values(&values);
        assert_eq!(pressure.foremost(), Source::Memory);
        values[Source::LoopDelay as usize] = 0.05;
        pressure.set_values(&values);
        assert_eq!(pressure.foremost(), Source::LoopDelay);
    }

    #[test]
    fn connections_are_refused_once_all_of_their_requests_would_be() {
        let pressure = Pressure::new();
        pressure.set_share(2, 0.9);
        assert!(!pressure.refuses(Work::Connection));
        pressure.set_share(2, 1.0);
        assert!(pressure.refuses(Work::Connection));
        assert_eq!(pressure.refusals(Work::Connection), 1);
    }

    #[test]
    fn connections_end_sooner_while_they_hold_resources_that_are_short() {
        let (pressure, minute) = (Pressure::new(), Duration::from_mins(1));
        pressure.set_levels(Level::Critical, Level::Normal);
        assert!(pressure.idle_time(minute) == minute && !pressure.ends_connections());
        pressure.set_levels(Level::Critical, Level::Elevated);
        assert!(pressure.idle_time(minute) == SHORT_IDLE && !pressure.ends_connections());
        assert_eq!(pressure.idle_time(Duration::from_secs(1)), Duration::from_secs(1));
        pressure.set_levels(Level::Critical, Level::Severe);
        assert!(pressure.ends_connections());
    }
}
