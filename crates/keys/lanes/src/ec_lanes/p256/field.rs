//! Arithmetic modulo the prime of P-256 and modulo the order of its base point, in eight lanes.
//!
//! Five limbs of 52 bits, a vector for each, in Montgomery form with R = 2^260. Products are columns whose carry is not yet
//! handed on: signed numbers, which can be added and subtracted before the one carry that makes a factor of them. Factors may
//! be as large as four times the modulus; a product is then below twice the modulus, and of factors that are hardly above the
//! modulus it is hardly above it too.

use super::{
    super::lanes::{LANES, Lanes, splat, transpose},
    words::{MASK, N, P, Words, doubled, limbs, reduced},
};

const P_LIMBS: [u64; 5] = limbs(P);
const N_LIMBS: [u64; 5] = limbs(N);

/// `-1/n mod 2^52`.
const N_NEGATIVE_INVERSE: u64 = {
    let (mut inverse, mut round) = (1u64, 0);
    while round < 6 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(N[0].wrapping_mul(inverse)));
        round += 1;
    }
    inverse.wrapping_neg() & MASK
};

/// Factor that converts to Montgomery form: R² modulo n.
const INTO_N: [u64; 5] = doubled([1, 0, 0, 0], 520, N);
/// [`INTO_N`] times 2^256.
const INTO_N_ABOVE: [u64; 5] = doubled([1, 0, 0, 0], 520 + 256, N);
/// 1 in Montgomery form.
const ONE_P: [u64; 5] = in_form([1, 0, 0, 0]);

/// A number below p, in Montgomery form.
pub(in crate::ec_lanes) const fn in_form(number: Words) -> [u64; 5] {
    doubled(number, 260, P)
}

/// A number modulo p, as a factor.
#[derive(Clone, Copy)]
pub(in crate::ec_lanes) struct Coordinate<V>(pub(in crate::ec_lanes) [V; 5]);

/// A product modulo p, or sums and differences of some.
#[derive(Clone, Copy)]
pub(in crate::ec_lanes) struct Columns<V>([V; 5]);

/// A number modulo n, as a factor.
#[derive(Clone, Copy)]
pub(in crate::ec_lanes) struct Scalar<V>(pub(in crate::ec_lanes) [V; 5]);

/// Heavy operations as functions of their own.
pub(in crate::ec_lanes) trait Kernels: Lanes {
    fn p256_product(a: &Coordinate<Self>, b: &Coordinate<Self>) -> Coordinate<Self>;
    fn p256_scalar_product(a: &Scalar<Self>, b: &Scalar<Self>) -> Scalar<Self>;
    fn p256_invert(a: &Coordinate<Self>, b: &Scalar<Self>) -> (Coordinate<Self>, Scalar<Self>);
}

impl<V: Lanes> Coordinate<V> {
    #[inline(always)]
    pub(in crate::ec_lanes) fn of(limbs: &[u64; 5]) -> Self {
        Self(splat(limbs))
    }

    /// 1 in Montgomery form.
    #[inline(always)]
    pub(in crate::ec_lanes) fn one() -> Self {
        Self::of(&ONE_P)
    }

    #[inline(always)]
    pub(in crate::ec_lanes) fn multiply(&self, other: &Self) -> Columns<V> {
        Columns(reduce_p(product(&self.0, &other.0)))
    }

    #[inline(always)]
    pub(in crate::ec_lanes) fn square(&self) -> Columns<V> {
        Columns(reduce_p(square(&self.0)))
    }

    #[inline(always)]
    pub(in crate::ec_lanes) fn columns(&self) -> Columns<V> {
        Columns(self.0)
    }
}

impl<V: Kernels> Coordinate<V> {
    /// The number in each lane, out of Montgomery form.
    #[inline(always)]
    pub(in crate::ec_lanes) fn to_words(self) -> [Words; LANES] {
        let plain = V::p256_product(&self, &Self::of(&[1, 0, 0, 0, 0]));
        each_reduced(&plain.0, P)
    }
}

impl<V: Lanes> Columns<V> {
    #[inline(always)]
    pub(in crate::ec_lanes) fn plus(&self, other: &Self) -> Self {
        let mut sum = *self;
        for limb in 0..5 {
            sum.0[limb] = sum.0[limb].add(other.0[limb]);
        }
        sum
    }

    #[inline(always)]
    pub(in crate::ec_lanes) fn minus(&self, other: &Self) -> Self {
        let mut difference = *self;
        for limb in 0..5 {
            difference.0[limb] = difference.0[limb].subtract(other.0[limb]);
        }
        difference
    }

    /// The negative in the lanes of the mask.
    #[inline(always)]
    pub(in crate::ec_lanes) fn negated(&self, mask: V::Mask) -> Self {
        let mut chosen = *self;
        for limb in 0..5 {
            chosen.0[limb] = V::select(mask, V::splat(0).subtract(self.0[limb]), self.0[limb]);
        }
        chosen
    }

    /// A product as a factor.
    #[inline(always)]
    pub(in crate::ec_lanes) fn carry(self) -> Coordinate<V> {
        Coordinate(carry(self.0))
    }

    /// A sum or difference as a factor that is below 1.001 p. Together with `times` p it is positive, and above 2^256 if any
    /// column is negative.
    ///
    /// What is above 2^256 is replaced by the same modulo p: 2^256 is 2^224 - 2^192 - 2^96 + 1.
    #[inline(always)]
    pub(in crate::ec_lanes) fn reduced(self, times: u64) -> Coordinate<V> {
        let mut limbs = self.0;
        for limb in [0, 1, 3, 4] {
            limbs[limb] = limbs[limb].add(V::splat(times * P_LIMBS[limb]));
        }
        let above = limbs[4].shift_right_signed::<48>();
        limbs[4] = limbs[4].and(V::splat((1 << 48) - 1)).add(above.shift_left::<16>());
        limbs[0] = limbs[0].add(above);
        limbs[1] = limbs[1].subtract(above.shift_left::<44>());
        limbs[3] = limbs[3].subtract(above.shift_left::<36>());
        Coordinate(carry(limbs))
    }
}

impl<V: Lanes> Scalar<V> {
    #[inline(always)]
    pub(in crate::ec_lanes) fn multiply(&self, other: &Self) -> Self {
        Self(carry(reduce_n(product(&self.0, &other.0))))
    }

    #[inline(always)]
    pub(in crate::ec_lanes) fn square(&self) -> Self {
        Self(carry(reduce_n(square(&self.0))))
    }

    /// One number in each lane.
    #[inline(always)]
    pub(in crate::ec_lanes) fn from_words(numbers: &[Words; LANES]) -> Self {
        let mut all = [[0; 5]; LANES];
        for lane in 0..LANES {
            all[lane] = limbs(numbers[lane]);
        }
        Self(transpose(&all))
    }

    #[inline(always)]
    pub(in crate::ec_lanes) fn plus(&self, other: &Self) -> Self {
        let mut sum = self.0;
        for limb in 0..5 {
            sum[limb] = sum[limb].add(other.0[limb]);
        }
        Self(carry(sum))
    }

    /// The difference with a number below 2 n, as a positive number.
    #[inline(always)]
    pub(in crate::ec_lanes) fn minus(&self, other: &Self) -> Self {
        let mut difference = self.0;
        for limb in 0..5 {
            let sum = difference[limb].add(V::splat(2 * N_LIMBS[limb]));
            difference[limb] = sum.subtract(other.0[limb]);
        }
        Self(carry(difference))
    }

    /// The number in each lane; of one below 2 n, not in Montgomery form.
    #[inline(always)]
    pub(in crate::ec_lanes) fn to_words(self) -> [Words; LANES] {
        each_reduced(&self.0, N)
    }
}

impl<V: Kernels> Scalar<V> {
    /// Into Montgomery form.
    #[inline(always)]
    pub(in crate::ec_lanes) fn montgomery(&self) -> Self {
        V::p256_scalar_product(self, &Self(splat(&INTO_N)))
    }

    /// Into Montgomery form, of `self·2^256`.
    #[inline(always)]
    pub(in crate::ec_lanes) fn montgomery_above(&self) -> Self {
        V::p256_scalar_product(self, &Self(splat(&INTO_N_ABOVE)))
    }

    /// Out of Montgomery form.
    #[inline(always)]
    pub(in crate::ec_lanes) fn plain(&self) -> Self {
        V::p256_scalar_product(self, &Self(splat(&[1, 0, 0, 0, 0])))
    }
}

/// [`Kernels::p256_invert`]: the powers p - 2 and n - 2 by windows of four bits, side by side, because each would wait for
/// itself most of the time. The exponents are public.
#[inline(always)]
pub(in crate::ec_lanes) fn invert<V: Kernels>(
    a: &Coordinate<V>,
    b: &Scalar<V>,
) -> (Coordinate<V>, Scalar<V>) {
    let mut a_powers = [*a; 16];
    let mut b_powers = [*b; 16];
    for power in 2..16 {
        a_powers[power] = V::p256_product(&a_powers[power - 1], a);
        b_powers[power] = V::p256_scalar_product(&b_powers[power - 1], b);
    }
    let mut of_a = a_powers[inversion_digit(&P, 63)];
    let mut of_b = b_powers[inversion_digit(&N, 63)];
    for place in (0..63).rev() {
        for _ in 0..4 {
            of_b = of_b.square();
            of_a = of_a.square().carry();
        }
        let (a_digit, b_digit) = (inversion_digit(&P, place), inversion_digit(&N, place));
        if b_digit > 0 {
            of_b = V::p256_scalar_product(&of_b, &b_powers[b_digit]);
        }
        if a_digit > 0 {
            of_a = V::p256_product(&of_a, &a_powers[a_digit]);
        }
    }
    for power in 0..16 {
        V::wipe(&mut a_powers[power].0);
        V::wipe(&mut b_powers[power].0);
    }
    (of_a, of_b)
}

/// Four bits of the modulus less two. No borrow leaves the lowest word.
const fn inversion_digit(modulus: &Words, place: usize) -> usize {
    let word = if place < 16 { modulus[0] - 2 } else { modulus[place / 16] };
    (word >> (4 * (place % 16)) & 15) as usize
}

/// Hands carries on, one after the other.
#[inline(always)]
fn carry<V: Lanes>(mut limbs: [V; 5]) -> [V; 5] {
    for limb in 0..4 {
        limbs[limb + 1] = limbs[limb + 1].add(limbs[limb].shift_right_signed::<52>());
        limbs[limb] = limbs[limb].and(V::splat(MASK));
    }
    limbs
}

#[inline(always)]
fn product<V: Lanes>(a: &[V; 5], b: &[V; 5]) -> [V; 10] {
    let mut columns = [V::splat(0); 10];
    for i in 0..5 {
        for j in 0..5 {
            columns[i + j] = columns[i + j].multiply_add_low(a[i], b[j]);
        }
        for j in 0..5 {
            columns[i + j + 1] = columns[i + j + 1].multiply_add_high(a[i], b[j]);
        }
    }
    columns
}

#[inline(always)]
fn square<V: Lanes>(a: &[V; 5]) -> [V; 10] {
    let mut columns = [V::splat(0); 10];
    for i in 0..5 {
        for j in i + 1..5 {
            columns[i + j] = columns[i + j].multiply_add_low(a[i], a[j]);
        }
        for j in i + 1..5 {
            columns[i + j + 1] = columns[i + j + 1].multiply_add_high(a[i], a[j]);
        }
    }
    for column in 1..9 {
        columns[column] = columns[column].add(columns[column]);
    }
    for i in 0..5 {
        columns[2 * i] = columns[2 * i].multiply_add_low(a[i], a[i]);
        columns[2 * i + 1] = columns[2 * i + 1].multiply_add_high(a[i], a[i]);
    }
    columns
}

/// Montgomery's reduction modulo p. `-1/p` is 1 modulo 2^52, so the digit of the quotient is the column itself, and p + 1 has
/// three limbs: 2^44, 2^36 and the highest of p.
#[inline(always)]
fn reduce_p<V: Lanes>(mut columns: [V; 10]) -> [V; 5] {
    let (first, third, fourth) = (V::splat(1 << 44), V::splat(1 << 36), V::splat(P_LIMBS[4]));
    for i in 0..5 {
        let digit = columns[i];
        columns[i + 1] = columns[i + 1].multiply_add_low(digit, first).add(digit.shift_right_signed::<52>());
        columns[i + 2] = columns[i + 2].multiply_add_high(digit, first);
        columns[i + 3] = columns[i + 3].multiply_add_low(digit, third);
        columns[i + 4] = columns[i + 4].multiply_add_low(digit, fourth).multiply_add_high(digit, third);
        columns[i + 5] = columns[i + 5].multiply_add_high(digit, fourth);
    }
    let [_, _, _, _, _, a, b, c, d, e] = columns;
    [a, b, c, d, e]
}

/// Montgomery's reduction modulo n.
#[inline(always)]
fn reduce_n<V: Lanes>(mut columns: [V; 10]) -> [V; 5] {
    let modulus: [V; 5] = splat(&N_LIMBS);
    for i in 0..5 {
        let digit = V::splat(0).multiply_add_low(columns[i], V::splat(N_NEGATIVE_INVERSE));
        for j in 0..5 {
            columns[i + j] = columns[i + j].multiply_add_low(digit, modulus[j]);
        }
        columns[i + 1] = columns[i + 1].add(columns[i].shift_right_signed::<52>());
        for j in 0..5 {
            columns[i + j + 1] = columns[i + j + 1].multiply_add_high(digit, modulus[j]);
        }
    }
    let [_, _, _, _, _, a, b, c, d, e] = columns;
    [a, b, c, d, e]
}

/// The number in each lane, below the modulus.
#[inline(always)]
fn each_reduced<V: Lanes>(limbs: &[V; 5], modulus: Words) -> [Words; LANES] {
    let mut numbers = [[0; 4]; LANES];
    for lane in 0..LANES {
        let mut number = [0; 5];
        for limb in 0..5 {
            number[limb] = limbs[limb].array()[lane];
        }
        numbers[lane] = reduced(number, modulus);
    }
    numbers
}
