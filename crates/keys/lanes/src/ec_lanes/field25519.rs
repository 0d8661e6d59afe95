//! Arithmetic modulo 2^255 - 19 in eight lanes: five limbs of 51 bits, a vector for each.
//!
//! The instructions multiply 52 bits and silently ignore higher bits. With 51 bits per limb there is room for the
//! remainder of one parallel carry, so no carry has to wait for another. Products are not carried: sums and
//! differences are computed from uncarried products, and one carry makes a factor of the result.
//!
//! | type | limbs below | meaning |
//! |---|---|---|
//! | [`Element`] | 2^51 + 2^16 | a factor |
//! | [`Wide`] | 2^59 | a product |
//! | [`Raised`] | 2^62 | a product plus a multiple of the modulus, from which a product can be subtracted |

mod limbs;

use self::limbs::{add, carry, modulus_times, product, ripple, square, subtract};
use super::lanes::{LANES, Lanes, splat, transpose};

const MASK: u64 = (1 << 51) - 1;
/// Multiple of the modulus added to a product so that another can be subtracted; its limbs are above 2^60.
const RAISED_BY: u64 = 38 * 16;

/// A number whose limbs can be multiplied.
#[derive(Clone, Copy)]
pub(super) struct Element<V>(pub(super) [V; 5]);

/// A product, or a sum of two, whose limbs are too large to be multiplied.
#[derive(Clone, Copy)]
pub(super) struct Wide<V>([V; 5]);

/// A product that a product may be subtracted from.
#[derive(Clone, Copy)]
pub(super) struct Raised<V>([V; 5]);

impl<V: Lanes> Element<V> {
    #[inline(always)]
    pub(super) fn of(number: &[u64; 5]) -> Self {
        Self(splat(number))
    }

    #[inline(always)]
    pub(super) fn zero() -> Self {
        Self([V::splat(0); 5])
    }

    #[inline(always)]
    pub(super) fn one() -> Self {
        Self::of(&[1, 0, 0, 0, 0])
    }

    #[inline(always)]
    pub(super) fn multiply(&self, other: &Self) -> Wide<V> {
        Wide(product(&self.0, &other.0, &[V::splat(0); 5]))
    }

    #[inline(always)]
    pub(super) fn multiply_raised(&self, other: &Self) -> Raised<V> {
        Raised(product(&self.0, &other.0, &modulus_times(RAISED_BY / 38)))
    }

    #[inline(always)]
    pub(super) fn square(&self) -> Wide<V> {
        Wide(square(&self.0, &[V::splat(0); 5]))
    }

    #[inline(always)]
    pub(super) fn square_raised(&self) -> Raised<V> {
        Raised(square(&self.0, &modulus_times(RAISED_BY / 38)))
    }

    /// As a product that a product may be subtracted from.
    #[inline(always)]
    pub(super) fn raised(&self) -> Raised<V> {
        Raised(add(&self.0, &modulus_times(RAISED_BY)))
    }

    #[inline(always)]
    pub(super) fn wide(&self) -> Wide<V> {
        Wide(self.0)
    }

    /// The negative of a [`reduced`](Self::reduced) number. Its limbs are below 2^52: a factor, of a product below 2^60.
    #[inline(always)]
    pub(super) fn negative_of_reduced(&self) -> Self {
        Self(subtract(&modulus_times(2), &self.0))
    }

    /// `set` in the lanes of the mask, `clear` in the others.
    #[inline(always)]
    pub(super) fn select(mask: V::Mask, set: &Self, clear: &Self) -> Self {
        let mut chosen = *set;
        for limb in 0..5 {
            chosen.0[limb] = V::select(mask, set.0[limb], clear.0[limb]);
        }
        chosen
    }

    /// The least number that is the same modulo the modulus, limbs below 2^51.
    #[inline(always)]
    pub(super) fn reduced(&self) -> Self {
        let (mask, nineteen) = (V::splat(MASK), V::splat(19));
        let mut limbs = self.0;
        for _ in 0..2 {
            ripple(&mut limbs);
            limbs[0] = limbs[0].multiply_add_low(limbs[4].shift_right::<51>(), nineteen);
            limbs[4] = limbs[4].and(mask);
        }
        // Below 2^255 now, but that the lowest limb may have a carry. Adding 19 carries out of the top from the modulus on.
        let mut carry = limbs[0].add(nineteen).shift_right::<51>();
        for limb in 1..5 {
            carry = limbs[limb].add(carry).shift_right::<51>();
        }
        limbs[0] = limbs[0].multiply_add_low(carry, nineteen);
        ripple(&mut limbs);
        limbs[4] = limbs[4].and(mask);
        Self(limbs)
    }

    /// The lanes that are zero modulo the modulus; of a [`reduced`](Self::reduced) number.
    #[inline(always)]
    pub(super) fn is_zero(&self) -> V::Mask {
        let [a, b, c, d, e] = self.0;
        a.or(b).or(c.or(d)).or(e).is_zero()
    }

    /// Reads numbers of 255 bits, little-endian; the highest bit is ignored, RFC 7748 section 5.
    #[inline(always)]
    pub(super) fn from_bytes(numbers: &[[u8; 32]; LANES]) -> Self {
        let mut limbs = [[0; 5]; LANES];
        for lane in 0..LANES {
            limbs[lane] = self::limbs(words(&numbers[lane]));
        }
        Self(transpose(&limbs))
    }

    /// Little-endian, below the modulus.
    #[inline(always)]
    pub(super) fn to_bytes(self, numbers: &mut [[u8; 32]; LANES]) {
        let Self([a, b, c, d, e]) = self.reduced();
        for lane in 0..LANES {
            let [a, b, c, d, e] =
                [a.array()[lane], b.array()[lane], c.array()[lane], d.array()[lane], e.array()[lane]];
            let words = [a | b << 51, b >> 13 | c << 38, c >> 26 | d << 25, d >> 39 | e << 12];
            for (bytes, word) in numbers[lane].chunks_exact_mut(8).zip(words) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
        }
    }
}

impl<V: Lanes> Wide<V> {
    #[inline(always)]
    pub(super) fn plus(&self, other: &Self) -> Self {
        Self(add(&self.0, &other.0))
    }

    #[inline(always)]
    pub(super) fn carry(&self) -> Element<V> {
        Element(carry(&self.0))
    }

    #[inline(always)]
    pub(super) fn limbs(&self) -> [V; 5] {
        self.0
    }

    #[inline(always)]
    pub(super) fn limbs_mut(&mut self) -> &mut [V; 5] {
        &mut self.0
    }

    /// `self + factor·small` for a small number below 2^17.
    #[inline(always)]
    pub(super) fn plus_small_multiple(&self, factor: &Element<V>, small: u64) -> Self {
        let (small, mut sum) = (V::splat(small), self.0);
        // High halves weigh twice as much as the next limb.
        for limb in 0..4 {
            let doubled = sum[limb + 1].multiply_add_high(factor.0[limb], small);
            sum[limb + 1] = doubled.multiply_add_high(factor.0[limb], small);
        }
        let top = V::splat(0).multiply_add_high(factor.0[4], small);
        sum[0] = sum[0].multiply_add_low(top, V::splat(38));
        for limb in 0..5 {
            sum[limb] = sum[limb].multiply_add_low(factor.0[limb], small);
        }
        Self(sum)
    }
}

impl<V: Lanes> Raised<V> {
    #[inline(always)]
    pub(super) fn plus(&self, other: &Wide<V>) -> Wide<V> {
        Wide(add(&self.0, &other.0))
    }

    #[inline(always)]
    pub(super) fn minus(&self, other: &Wide<V>) -> Wide<V> {
        Wide(subtract(&self.0, &other.0))
    }

    #[inline(always)]
    pub(super) fn minus_raised(&self, other: &Self) -> Wide<V> {
        Wide(subtract(&add(&self.0, &modulus_times(2 * RAISED_BY)), &other.0))
    }

    #[inline(always)]
    pub(super) fn limbs_mut(&mut self) -> &mut [V; 5] {
        &mut self.0
    }

    #[inline(always)]
    pub(super) fn doubled(&self) -> Self {
        Self(add(&self.0, &self.0))
    }

    #[inline(always)]
    pub(super) fn wide(&self) -> Wide<V> {
        Wide(self.0)
    }

    #[inline(always)]
    pub(super) fn carry(&self) -> Element<V> {
        Element(carry(&self.0))
    }
}

/// `1/number`, and 0 of 0: the power 2^255 - 21.
///
/// The chain is the usual one: powers of two less one, with exponents 5, 10, 20, 40, 50, 100, 200 and 250.
#[inline(always)]
pub(super) fn invert<V: Kernels>(number: &Element<V>) -> Element<V> {
    let two = V::square_times(number, 1);
    let nine = V::product(number, &V::square_times(&two, 2));
    let eleven = V::product(&nine, &two);
    let mut power = V::product(&V::square_times(&eleven, 1), &nine);
    let ones_5 = power;
    power = V::product(&V::square_times(&power, 5), &ones_5);
    let ones_10 = power;
    power = V::product(&V::square_times(&power, 10), &ones_10);
    power = V::product(&V::square_times(&power, 20), &power);
    power = V::product(&V::square_times(&power, 10), &ones_10);
    let ones_50 = power;
    power = V::product(&V::square_times(&power, 50), &ones_50);
    power = V::product(&V::square_times(&power, 100), &power);
    power = V::product(&V::square_times(&power, 50), &ones_50);
    V::product(&V::square_times(&power, 5), &eleven)
}

/// Heavy operations as functions of their own.
pub(super) trait Kernels: Lanes {
    fn product(a: &Element<Self>, b: &Element<Self>) -> Element<Self>;
    /// Squares `times` times.
    fn square_times(number: &Element<Self>, times: usize) -> Element<Self>;
}

/// [`Kernels::square_times`].
#[inline(always)]
pub(super) fn square_times<V: Lanes>(number: &Element<V>, times: usize) -> Element<V> {
    let mut power = *number;
    for _ in 0..times {
        power = power.square().carry();
    }
    power
}

/// A number of 256 bits, little-endian, in words of 64 bits.
#[inline(always)]
pub(super) fn words(bytes: &[u8; 32]) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

/// The limbs of a number of 255 bits, given in words of 64.
pub(super) const fn limbs([a, b, c, d]: [u64; 4]) -> [u64; 5] {
    [
        a & MASK,
        (a >> 51 | b << 13) & MASK,
        (b >> 38 | c << 26) & MASK,
        (c >> 25 | d << 39) & MASK,
        d >> 12 & MASK,
    ]
}
