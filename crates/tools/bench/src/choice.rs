//! Weighted choice, evenly distributed and equal in every run.

/// Values with weights, chosen by a low-discrepancy sequence: short runs match the weights as well as long ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weighted<T> {
    /// Each value with the sum of the weights up to and including its own.
    values: Vec<(u64, T)>,
}

/// Independent dimensions of choice.
///
/// Multiples of an irrational number, modulo one, fill the interval evenly. The two factors are those of the R2
/// sequence (M. Roberts, 2018), which fills the square evenly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// For handshakes.
    Handshake,
    /// For requests.
    Request,
}

impl Axis {
    /// 2^64 times the reciprocal of the plastic number, and of its square.
    const fn stride(self) -> u64 {
        match self {
            Self::Handshake => 0xC13F_A9A9_02A6_328F,
            Self::Request => 0x91E1_0DA5_C79E_7B1D,
        }
    }
}

impl<T> Weighted<T> {
    /// Creates a choice among `values`, given with their weights. Values of weight `0` are dropped; `None` if none
    /// remains.
    pub fn new(values: impl IntoIterator<Item = (u32, T)>) -> Option<Self> {
        let mut sum = 0;
        let values = values.into_iter().filter(|(weight, _)| *weight > 0);
        let values: Vec<_> = values
            .map(|(weight, value)| {
                sum += u64::from(weight);
                (sum, value)
            })
            .collect();
        (!values.is_empty()).then_some(Self { values })
    }

    /// A choice of one value.
    pub fn one(value: T) -> Self {
        Self { values: vec![(1, value)] }
    }

    /// The value for number `index`. Costs a multiplication and a binary search.
    pub fn pick(&self, index: u64, axis: Axis) -> &T {
        // The product modulo 2^64 is the fraction of `index` times the irrational number.
        let fraction = index.wrapping_mul(axis.stride());
        let sum = self.values.last().expect("at least one value").0;
        // Scaling by a multiplication and a shift: no division, and no bias as with a remainder.
        let point = ((u128::from(fraction) * u128::from(sum)) >> 64) as u64;
        &self.values[self.values.partition_point(|(end, _)| *end <= point)].1
    }

    /// Maps the values by `other` and keeps the weights.
    pub fn map<U>(&self, mut other: impl FnMut(&T) -> U) -> Weighted<U> {
        Weighted { values: self.values.iter().map(|(end, value)| (*end, other(value))).collect() }
    }

    /// The values in the order of [`new`](Self::new).
    pub fn values(&self) -> impl ExactSizeIterator<Item = &T> {
        self.values.iter().map(|(_, value)| value)
    }

    /// The weights and their values.
    pub fn weights(&self) -> impl Iterator<Item = (u64, &T)> {
        let mut before = 0;
        self.values.iter().map(move |(end, value)| (end - std::mem::replace(&mut before, *end), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(weighted: &Weighted<char>, choices: u64, axis: Axis) -> Vec<u64> {
        let picked: Vec<_> = (0..choices).map(|index| *weighted.pick(index, axis)).collect();
        weighted.values().map(|value| picked.iter().filter(|other| *other == value).count() as u64).collect()
    }

    #[test]
    fn choices_are_close_to_the_weights_from_the_start() {
        let weighted = Weighted::new([(20, 'a'), (50, 'b'), (30, 'c')]).expect("values");
        for axis in [Axis::Handshake, Axis::Request] {
            for choices in [100, 1000, 100_000] {
                for (count, share) in counts(&weighted, choices, axis).into_iter().zip([0.2, 0.5, 0.3]) {
                    let wanted = share * choices as f64;
                    assert!((count as f64 - wanted).abs() < 6.0, "{count} of {choices}, wanted {wanted}");
                }
            }
        }
    }

    #[test]
    fn the_two_axes_do_not_know_one_another() {
        let half = Weighted::new([(1, 'a'), (1, 'b')]).expect("values");
        let both = (0..10_000)
            .filter(|index| {
                half.pick(*index, Axis::Handshake) == &'a' && half.pick(*index, Axis::Request) == &'a'
            })
            .count();
        assert!((2450..2550).contains(&both), "{both}");
    }

    #[test]
    fn weights_of_nothing_are_left_out() {
        assert!(Weighted::<char>::new([]).is_none());
        assert!(Weighted::new([(0, 'a')]).is_none());
        let weighted = Weighted::new([(0, 'a'), (7, 'b')]).expect("values");
        assert_eq!(weighted.weights().collect::<Vec<_>>(), [(7, &'b')]);
        assert!((0..100).all(|index| weighted.pick(index, Axis::Request) == &'b'));
    }
}
