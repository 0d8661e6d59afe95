//! The median of a few values with its confidence interval, by the sign test.
//!
//! No distribution is assumed: a disturbed run is an outlier, which would distort mean and standard deviation. Each
//! value is above or below the true median with equal probability. So the interval from the `k`-th smallest to the `k`-th
//! largest of `n` values misses the median with twice the probability of fewer than `k` heads in `n` tosses of a coin.

/// Values from which on the binomial distribution is approximated by the normal one: 0.5 to the power of more values is no
/// float.
const MANY: usize = 1000;

/// The wanted probability that an interval contains the true median.
pub const CONFIDENCE: f64 = 0.95;

/// A median with its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The probability that such an interval contains the true median: at least [`CONFIDENCE`], or less with fewer than
    /// six values.
    pub confidence: f64,
    /// Number of values.
    pub count: usize,
}

impl Estimate {
    /// Half the width of the interval, relative to the median.
    pub fn precision(&self) -> f64 {
        // Not a division by zero: an interval of 0 to 0 is precise.
        (self.high - self.low) / 2.0 / self.median.abs().max(f64::MIN_POSITIVE)
    }

    /// Whether there are enough values for an interval of [`CONFIDENCE`].
    pub fn is_confident(&self) -> bool {
        self.confidence >= CONFIDENCE
    }
}

/// The median of the finite values among `values`; `None` if there are none.
pub fn estimate(values: impl Iterator<Item = f64>) -> Option<Estimate> {
    let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let count = values.len();
    let (first, last) = (count.checked_sub(1)? / 2, count / 2);
    let (rank, confidence) = rank(count);
    let median = f64::midpoint(values[first], values[last]);
    Some(Estimate { median, low: values[rank - 1], high: values[count - rank], confidence, count })
}

/// The greatest `k` whose interval has [`CONFIDENCE`], or 1; and the confidence of that interval.
fn rank(count: usize) -> (usize, f64) {
    if count > MANY {
        // 1.96 standard deviations; each is half the root of the number of values.
        let rank = (count as f64 - 1.96 * (count as f64).sqrt()) / 2.0;
        return (rank as usize, CONFIDENCE);
    }
    let mut below = 0.5_f64.powf(count as f64);
    let mut outcome = below;
    let mut best = (1, 1.0 - 2.0 * below);
    // Beyond the middle, the ends of the interval would cross.
    for rank in 2..=count.div_ceil(2) {
        // The probability of rank - 1 heads, computed from that of one fewer.
        outcome *= (count + 2 - rank) as f64 / (rank - 1) as f64;
        below += outcome;
        let confidence = 1.0 - 2.0 * below;
        if confidence < CONFIDENCE {
            break;
        }
        best = (rank, confidence);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_the_sign_test() {
        // Two-sided at 95 %, as in tables of the sign test: ranks of both ends, counted from 1.
        for (count, expected) in
            [(6, 1), (8, 1), (9, 2), (11, 2), (12, 3), (15, 4), (20, 6), (25, 8), (30, 10)]
        {
            let (rank, confidence) = rank(count);
            assert_eq!(rank, expected, "of {count}");
            assert!(confidence >= CONFIDENCE, "of {count}");
        }
    }

    #[test]
    fn the_interval_of_many_values_continues_that_of_fewer() {
        let (few, confidence) = rank(MANY);
        assert!(confidence >= CONFIDENCE && few.abs_diff(rank(MANY + 1).0) <= 1);
        assert_eq!(rank(10_000), (4902, CONFIDENCE));
    }

    #[test]
    fn too_few_values_do_not_pass_for_enough() {
        for (count, expected) in [(1, 0.0), (2, 0.5), (3, 0.75), (5, 0.9375)] {
            let (rank, confidence) = rank(count);
            assert_eq!(rank, 1);
            assert!((confidence - expected).abs() < 1e-12, "of {count}: {confidence}");
        }
        let three = estimate([1.0, 2.0, 3.0].into_iter()).unwrap();
        assert!(!three.is_confident());
    }

    #[test]
    fn the_median_and_its_interval() {
        let of_six = estimate([3.0, 1.0, 2.0, 6.0, 5.0, 4.0].into_iter()).unwrap();
        assert_eq!((of_six.median, of_six.low, of_six.high, of_six.count), (3.5, 1.0, 6.0, 6));
        assert!((of_six.confidence - 0.96875).abs() < 1e-12);
        let of_nine = estimate((1..=9).map(f64::from)).unwrap();
        assert_eq!((of_nine.median, of_nine.low, of_nine.high), (5.0, 2.0, 8.0));
        assert!((of_nine.precision() - 0.6).abs() < 1e-12);
    }

    #[test]
    fn one_disturbed_run_moves_neither_median_nor_interval() {
        let quiet = (0..12).map(|index| 1.0 + f64::from(index) / 1000.0);
        let all = estimate(quiet.clone().chain([9.0])).unwrap();
        assert!(all.high < 1.02 && all.precision() < 0.01, "{all:?}");
    }

    #[test]
    fn nothing_has_no_median() {
        assert_eq!(estimate(std::iter::empty()), None);
        assert_eq!(estimate([f64::NAN].into_iter()), None);
    }

    #[test]
    fn intervals_hold_the_median_as_often_as_they_say() {
        // A simple generator, and a skewed distribution whose median is 0.25.
        let mut state = 1_u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        for count in [6, 10, 25] {
            let trials = 4000;
            let mut held = 0;
            for _ in 0..trials {
                let values: Vec<f64> = (0..count).map(|_| uniform().powi(2)).collect();
                let found = estimate(values.into_iter()).unwrap();
                held += u32::from(found.low <= 0.25 && 0.25 <= found.high);
            }
            let share = f64::from(held) / f64::from(trials);
            let expected = rank(count).1;
            assert!((share - expected).abs() < 0.015, "of {count}: {share} for {expected}");
        }
    }
}
