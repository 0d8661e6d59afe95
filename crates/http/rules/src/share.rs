//! Shares of requests and visitors.

use std::fmt;

/// Steps of a share: 0.01 %.
const STEPS: u16 = 10_000;

/// A share from 0 to 100 %, in steps of 0.01 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share(u16);

/// One of 10,000 equally likely buckets. A greater [`Share`] includes the buckets of a smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket(u16);

impl Share {
    /// The whole.
    pub const ALL: Self = Self(STEPS);

    /// The share of `percent`, rounded to a step of 0.01; `None` outside of 0 to 100.
    pub fn of_percent(percent: f64) -> Option<Self> {
        // A range contains no NaN, which the conversion to a number would make 0.
        let is_valid = (0.0..=100.0).contains(&percent);
        is_valid.then(|| Self((percent * f64::from(STEPS / 100)).round() as u16))
    }

    /// Whether the share includes a bucket.
    pub fn includes(self, bucket: Bucket) -> bool {
        bucket.0 < self.0
    }
}

/// In percent, as `12.5`.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (f64::from(self.0) / f64::from(STEPS / 100)).fmt(f)
    }
}

impl Bucket {
    /// The bucket of a random number.
    pub fn of(number: u64) -> Self {
        // Below STEPS, because the number is below 2^64.
        Self(((u128::from(number) * u128::from(STEPS)) >> 64) as u16)
    }

    /// The bucket with this number; `None` from 10,000.
    pub(crate) fn new(number: u16) -> Option<Self> {
        (number < STEPS).then_some(Self(number))
    }

    /// The number of the bucket.
    pub(crate) fn number(self) -> u16 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_includes_its_part_of_all_buckets_and_those_of_smaller_shares() {
        for (percent, buckets) in [(0.0, 0), (0.01, 1), (12.5, 1250), (99.994, 9999), (100.0, 10_000)] {
            let share = Share::of_percent(percent).expect("a share");
            let included = |number: &u16| share.includes(Bucket::new(*number).expect("a bucket"));
            assert!((0..STEPS).take_while(included).count() == buckets, "{percent}");
            assert_eq!((0..STEPS).filter(included).count(), buckets, "{percent}");
        }
        for percent in [-0.1, 100.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Share::of_percent(percent), None, "{percent}");
        }
        assert_eq!(Share::of_percent(100.0), Some(Share::ALL));
        assert_eq!(Share(1250).to_string() + " " + &Share::ALL.to_string(), "12.5 100");
    }

    #[test]
    fn random_numbers_have_all_buckets() {
        assert_eq!((Bucket::of(0), Bucket::of(u64::MAX)), (Bucket(0), Bucket(9999)));
        assert_eq!(Bucket::of(u64::MAX / 2 + 1), Bucket(5000));
        assert_eq!(Bucket::new(10_000), None);
    }
}
