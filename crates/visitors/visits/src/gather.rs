//! Visits between two writes to the database: a sample of visits and histograms of all, per minute and host.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use crate::agent::Browser;
use crate::experiment::{ExperimentId, NOT_COMPARED};
use crate::histogram::TimeHistogram;
use crate::kinds::Connection;
use crate::metric::Metric;
use crate::random::Random;
use crate::visit::Visit;

/// Metrics with histograms.
pub(crate) const SERIES: [Metric; 7] = [
    Metric::Handshake,
    Metric::FirstByte,
    Metric::LargestPaint,
    Metric::Interaction,
    Metric::Wait,
    Metric::FirstPaint,
    Metric::Shift,
];

/// Maximum number of visits of one host kept as rows between two writes.
const KEPT_OF_A_HOST: usize = 512;
/// Cap of a time in [`ArmSums`], in milliseconds.
const LONGEST_OF_ARM: f64 = 60_000.0;
/// Size of all histograms at which [`Gathered`] is written ahead of schedule, in bytes.
const FULL_BYTES: usize = 64 << 20;
/// Number of rows at which [`Gathered`] is written ahead of schedule.
const FULL: usize = 32_768;

/// Seconds per minute.
pub(crate) const MINUTE: i64 = 60;

/// Visits of one host in one [`MINUTE`].
#[derive(Debug, Default)]
pub(crate) struct Portion {
    /// Number of visits.
    pub(crate) seen: u64,
    /// Random sample of the visits, at most [`KEPT_OF_A_HOST`].
    pub(crate) kept: Vec<Visit>,
    /// Histograms of [`SERIES`] over all visits.
    pub(crate) histograms: [Option<Box<TimeHistogram>>; SERIES.len()],
}

/// Sums of natural logarithms of one metric in one arm, in milliseconds before the logarithm.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct ArmSums {
    /// Visits with a value.
    pub(crate) visits: u64,
    /// Sum of the logarithms.
    pub(crate) sum: f64,
    /// Sum of the squared logarithms.
    pub(crate) squares: f64,
}

impl ArmSums {
    /// Adds a time in milliseconds, clamped to the range from a millisecond to a minute: pages can send any value,
    /// and a single one must not decide an experiment.
    pub(crate) fn add(&mut self, ms: f64) {
        // Logarithms: waiting times are skewed, and the mean of their logarithms is closer to a normal
        // distribution.
        let logarithm = ms.clamp(1.0, LONGEST_OF_ARM).ln();
        self.visits += 1;
        self.sum += logarithm;
        self.squares += logarithm * logarithm;
    }
}

/// Arm with a metric.
pub(crate) type ArmKey = (ExperimentId, u8, Metric);

/// Visits since the last write.
#[derive(Debug)]
pub(crate) struct Gathered {
    /// Portions by start of the minute, in Unix seconds, and host.
    pub(crate) portions: HashMap<(i64, Arc<str>), Portion>,
    pub(crate) arms: HashMap<ArmKey, ArmSums>,
    pub(crate) random: Random,
    rows: usize,
    /// Size of all histograms in bytes.
    bytes: usize,
}

impl Gathered {
    pub(crate) fn new() -> Self {
        Self { portions: HashMap::new(), arms: HashMap::new(), random: Random::new(), rows: 0, bytes: 0 }
    }

    /// Adds a visit to its [`Portion`] and its arms.
    pub(crate) fn add(&mut self, visit: Visit) {
        self.add_to_arms(&visit);
        let seconds = visit.at.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() as i64);
        let minute = seconds - seconds % MINUTE;
        let portion = self.portions.entry((minute, Arc::clone(&visit.host))).or_default();
        portion.seen += 1;
        for (metric, histogram) in SERIES.iter().zip(&mut portion.histograms) {
            if let Some(value) = visit.measures.get(*metric) {
                let histogram = histogram.get_or_insert_default();
                let before = histogram.bytes();
                histogram.record(value * metric.histogram_scale());
                // By the difference: a histogram grows in steps, and its size cannot be computed from the
                // number of values.
                self.bytes += histogram.bytes() - before;
            }
        }
        // Vitter's algorithm R: every visit of a host has the same chance to be kept.
        if portion.kept.len() < KEPT_OF_A_HOST {
            portion.kept.push(visit);
            self.rows += 1;
        } else if let Some(place) = portion.kept.get_mut(self.random.below(portion.seen) as usize) {
            *place = visit;
        }
    }

    /// Adds the visit to its arms, unless it is [`Connection::Reused`], since arms are assigned per connection, or by a
    /// [`Browser::Robot`].
    fn add_to_arms(&mut self, visit: &Visit) {
        if visit.connection == Connection::Reused || visit.browser == Browser::Robot {
            return;
        }
        for arm in visit.assigned.iter().filter(|arm| arm.setting != NOT_COMPARED) {
            for metric in Metric::ALL.iter().filter(|metric| metric.is_compared()) {
                if let Some(value) = visit.measures.get(*metric) {
                    self.arms.entry((arm.setting, arm.value, *metric)).or_default().add(value);
                }
            }
        }
    }

    /// Whether a write is due because of [`FULL`] or [`FULL_BYTES`].
    pub(crate) fn is_full(&self) -> bool {
        self.rows >= FULL || self.portions.len() >= FULL || self.bytes >= FULL_BYTES
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.portions.is_empty()
    }

    /// Discards all visits and returns their number.
    pub(crate) fn clear(&mut self) -> u64 {
        let seen = self.portions.values().map(|portion| portion.seen).sum();
        self.portions.clear();
        self.arms.clear();
        (self.rows, self.bytes) = (0, 0);
        seen
    }
}

/// The number to keep of each of `sizes`, so that the total is at most `most`: the same for each, and small ones
/// whole.
pub(crate) fn fair_share(sizes: impl IntoIterator<Item = usize>, most: usize) -> usize {
    let mut sizes: Vec<_> = sizes.into_iter().collect();
    sizes.sort_unstable();
    let mut left = most;
    for (index, size) in sizes.iter().enumerate() {
        let share = left / (sizes.len() - index);
        if *size > share {
            // A host keeps a row even if there are more hosts than rows.
            return share.max(1);
        }
        left -= size;
    }
    usize::MAX
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::experiment::Arm;

    fn visit(host: &Arc<str>, number: u32) -> Visit {
        let mut visit = Visit::new(Arc::clone(host), "/".into());
        visit.at = UNIX_EPOCH + Duration::from_mins(100);
        visit.measures.set(Metric::FirstByte, number.into());
        visit
    }

    #[test]
    fn a_sample_of_a_host_is_even_and_its_histogram_whole() {
        let mut gathered = Gathered::new();
        gathered.random = Random::seeded(3);
        let host: Arc<str> = "example.com".into();
        for number in 0..20_000 {
            gathered.add(visit(&host, number));
        }
        let portion = &gathered.portions[&(6_000, host)];
        assert_eq!((portion.seen, portion.kept.len()), (20_000, KEPT_OF_A_HOST));
        let late =
            portion.kept.iter().filter(|visit| visit.measures.get(Metric::FirstByte) >= Some(10_000.0));
        let late = late.count();
        assert!((190..320).contains(&late), "{late} of the second half");
        let histogram = portion.histograms[1].as_ref().unwrap();
        assert_eq!(histogram.count(), 20_000);
        assert!(portion.histograms[0].is_none());
    }

    #[test]
    fn arms_count_visits_that_opened_their_connection() {
        let mut gathered = Gathered::new();
        let host: Arc<str> = "example.com".into();
        for connection in [Connection::New, Connection::Reused, Connection::Unknown] {
            let mut visit = visit(&host, 100);
            visit.connection = connection;
            visit.assigned.push(Arm { setting: ExperimentId(0), value: 1 });
            visit.assigned.push(Arm { setting: NOT_COMPARED, value: 1 });
            gathered.add(visit);
        }
        assert_eq!(gathered.arms.len(), 1);
        let sums = gathered.arms[&(ExperimentId(0), 1, Metric::FirstByte)];
        assert_eq!(sums.visits, 2);
        assert!((sums.sum - 2.0 * 100_f64.ln()).abs() < 0.001);
    }

    #[test]
    fn robots_take_no_part_in_experiments() {
        let mut gathered = Gathered::new();
        let mut visit = visit(&"example.com".into(), 100);
        visit.browser = Browser::Robot;
        visit.assigned.push(Arm { setting: ExperimentId(0), value: 1 });
        gathered.add(visit);
        assert!(gathered.arms.is_empty() && !gathered.is_empty());
    }

    #[test]
    fn one_visit_with_a_lie_weighs_no_more_than_a_minute() {
        let mut sums = ArmSums::default();
        sums.add(600_000.0);
        assert!((sums.sum - 60_000_f64.ln()).abs() < 1e-9);
    }

    #[test]
    fn histograms_have_a_bounded_memory() {
        let mut gathered = Gathered::new();
        // Each value is far from the last, as of one who wants them to be large.
        let (host, mut number) = (Arc::<str>::from("example.com"), 0_u32);
        while !gathered.is_full() {
            let mut visit = visit(&host, 0);
            visit.at = UNIX_EPOCH + Duration::from_mins(u64::from(number / 100));
            for metric in SERIES {
                visit.measures.set(metric, f64::from(number % 100) * 6_000.0);
            }
            gathered.add(visit);
            number += 1;
        }
        assert!((FULL_BYTES..FULL_BYTES + (1 << 20)).contains(&gathered.bytes) || gathered.rows >= FULL);
        let held: usize = gathered
            .portions
            .values()
            .flat_map(|portion| portion.histograms.iter().flatten())
            .map(|histogram| histogram.bytes())
            .sum();
        assert_eq!(held, gathered.bytes);
        // A visit a minute of many hosts is small.
        let mut gathered = Gathered::new();
        for number in 0..10_000 {
            let mut visit = visit(&format!("host {number}").into(), 30);
            visit.measures.set(Metric::FirstByte, 600_000.0);
            gathered.add(visit);
        }
        assert!(gathered.bytes < 10_000 * 100, "{} bytes", gathered.bytes);
        gathered.clear();
        assert_eq!(gathered.bytes, 0);
    }

    #[test]
    fn a_fair_share_cuts_the_largest_alone() {
        for (sizes, most, expected) in [
            (&[10, 20, 30][..], 60, usize::MAX),
            (&[10, 20, 300], 60, 30),
            (&[5, 300, 300], 65, 30),
            (&[9; 100], 50, 1),
            (&[], 5, usize::MAX),
        ] {
            assert_eq!(fair_share(sizes.iter().copied(), most), expected, "{sizes:?} of {most}");
        }
    }
}
