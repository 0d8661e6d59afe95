//! Reproducible random numbers, for tests that choose by a seed.

/// A generator of the kind xorshift64*: the same seed gives the same numbers on every machine. Random enough to choose actions.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Default for Random {
    /// The generator of fuzz targets in ordinary tests.
    fn default() -> Self {
        Self(0x9e37_79b9_7f4a_7c15)
    }
}

impl Random {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Self {
        // The finaliser of SplitMix64, so that seeds in succession have nothing in common. The state must not be 0.
        let mixed =
            (seed ^ (seed >> 30)).wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Self((mixed ^ (mixed >> 31)) | 1)
    }

    /// A number of 40 bits.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        // The lowest bits of this generator are the weakest.
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 24
    }

    /// A number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end.max(1) as u64) as usize
    }

    /// `true` in this share of the calls, in percent.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`, which must not be empty.
    pub fn of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// Brings `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (1..items.len()).rev() {
            items.swap(end, self.below(end + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_determines_all_numbers() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            [(); 4].map(|()| random.number())
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        assert_ne!(numbers(0), [0; 4]);
    }

    #[test]
    fn numbers_and_orders_cover_their_range() {
        let mut random = Random::new(1);
        let mut seen = [false; 6];
        (0..200).for_each(|_| seen[random.below(6)] = true);
        assert_eq!(seen, [true; 6]);
        let mut items: Vec<_> = (0..20).collect();
        random.shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert!(items.into_iter().eq(0..20));
        assert!((0..100).all(|_| random.chance(100) && !random.chance(0)));
    }
}
