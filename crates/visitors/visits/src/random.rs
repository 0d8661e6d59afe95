//! Random numbers for sampling. Not for secrets.

use std::hash::{BuildHasher, RandomState};

/// `SplitMix64` random number generator.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// Creates a generator with a random seed.
    pub(crate) fn new() -> Self {
        Self(RandomState::new().hash_one(0_u8))
    }

    /// Creates a generator with a fixed seed, for reproducible numbers.
    #[cfg(test)]
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// A random number from all values of `u64`.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A random number below `bound`, which must not be 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // Upper half of the product: uniform to within 2^-64 times the bound.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A random number above 0 and at most 1.
    pub(crate) fn unit(&mut self) -> f64 {
        // 53 bits are exact in an `f64`. The addition excludes 0 and includes 1.
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Shuffles `values`.
    pub(crate) fn shuffle<T>(&mut self, values: &mut [T]) {
        for last in (1..values.len()).rev() {
            values.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_below_a_bound_are_even() {
        let mut random = Random::seeded(7);
        let mut counts = [0; 10];
        for _ in 0..10_000 {
            counts[random.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert!((0..1000).map(|_| random.unit()).all(|unit| unit > 0.0 && unit <= 1.0));
    }

    #[test]
    fn a_shuffle_keeps_every_value() {
        let mut values: Vec<_> = (0..100).collect();
        Random::seeded(1).shuffle(&mut values);
        assert!(!values.is_sorted());
        values.sort_unstable();
        assert!(values.into_iter().eq(0..100));
    }
}
