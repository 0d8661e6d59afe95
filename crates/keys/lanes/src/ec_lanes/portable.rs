//! [`Lanes`] as an array: the same arithmetic on any processor, for tests, in no hurry.
//!
//! No operation is inlined: the arithmetic is a few thousand of them in one function, eight times as long with arrays.

use super::{
    field25519::{self, Element},
    keygen,
    lanes::{Entries, LANES, Lanes},
    p256::{self, Coordinate, Jacobian, Projective, Scalar},
    x25519::{self, Fraction},
};

/// Bits that are multiplied.
const MASK: u64 = (1 << 52) - 1;

/// The lanes as an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub(super) struct Portable([u64; LANES]);

impl Portable {
    fn map(self, operation: impl Fn(u64) -> u64) -> Self {
        Self(self.0.map(operation))
    }

    fn with(self, other: Self, operation: impl Fn(u64, u64) -> u64) -> Self {
        Self(std::array::from_fn(|lane| operation(self.0[lane], other.0[lane])))
    }

    fn mask(self, condition: impl Fn(u64) -> bool) -> u8 {
        (0..LANES).fold(0, |mask, lane| mask | u8::from(condition(self.0[lane])) << lane)
    }

    fn products(a: Self, b: Self) -> [u128; LANES] {
        std::array::from_fn(|lane| u128::from(a.0[lane] & MASK) * u128::from(b.0[lane] & MASK))
    }
}

impl Lanes for Portable {
    type Mask = u8;

    #[inline(never)]
    fn splat(value: u64) -> Self {
        Self([value; LANES])
    }

    #[inline(never)]
    fn array(&self) -> &[u64; LANES] {
        &self.0
    }

    #[inline(never)]
    fn array_mut(&mut self) -> &mut [u64; LANES] {
        &mut self.0
    }

    #[inline(never)]
    fn add(self, other: Self) -> Self {
        self.with(other, u64::wrapping_add)
    }

    #[inline(never)]
    fn subtract(self, other: Self) -> Self {
        self.with(other, u64::wrapping_sub)
    }

    #[inline(never)]
    fn and(self, other: Self) -> Self {
        self.with(other, |a, b| a & b)
    }

    #[inline(never)]
    fn or(self, other: Self) -> Self {
        self.with(other, |a, b| a | b)
    }

    #[inline(never)]
    fn xor(self, other: Self) -> Self {
        self.with(other, |a, b| a ^ b)
    }

    #[inline(never)]
    fn shift_left<const BITS: u32>(self) -> Self {
        self.shift_left_by(BITS)
    }

    #[inline(never)]
    fn shift_right<const BITS: u32>(self) -> Self {
        self.shift_right_by(BITS)
    }

    #[inline(never)]
    fn shift_right_signed<const BITS: u32>(self) -> Self {
        self.map(|lane| (lane.cast_signed() >> BITS).cast_unsigned())
    }

    #[inline(never)]
    fn shift_left_by(self, bits: u32) -> Self {
        self.map(|lane| lane << bits)
    }

    #[inline(never)]
    fn shift_right_by(self, bits: u32) -> Self {
        self.map(|lane| lane >> bits)
    }

    #[inline(never)]
    fn multiply_add_low(self, a: Self, b: Self) -> Self {
        let products = Self::products(a, b);
        Self(std::array::from_fn(|lane| self.0[lane].wrapping_add(products[lane] as u64 & MASK)))
    }

    #[inline(never)]
    fn multiply_add_high(self, a: Self, b: Self) -> Self {
        let products = Self::products(a, b);
        Self(std::array::from_fn(|lane| self.0[lane].wrapping_add((products[lane] >> 52) as u64)))
    }

    #[inline(never)]
    fn has_bit(self, bit: u32) -> u8 {
        self.mask(|lane| lane >> bit & 1 == 1)
    }

    #[inline(never)]
    fn is_zero(self) -> u8 {
        self.mask(|lane| lane == 0)
    }

    #[inline(never)]
    fn select(mask: u8, set: Self, clear: Self) -> Self {
        Self(std::array::from_fn(|lane| if mask >> lane & 1 == 1 { set.0[lane] } else { clear.0[lane] }))
    }

    #[inline(always)]
    fn hide(self) -> Self {
        self
    }

    #[inline(never)]
    fn look_up(self, table: &Entries) -> Self {
        self.map(|place| table.0[place as usize])
    }
}

impl field25519::Kernels for Portable {
    fn product(a: &Element<Self>, b: &Element<Self>) -> Element<Self> {
        a.multiply(b).carry()
    }

    fn square_times(number: &Element<Self>, times: usize) -> Element<Self> {
        field25519::square_times(number, times)
    }
}

impl x25519::Kernels for Portable {
    fn ladder(secrets: &[[u8; 32]; LANES], points: &[[u8; 32]; LANES]) -> Fraction<Self> {
        x25519::ladder(secrets, points)
    }
}

impl keygen::Kernels for Portable {
    fn multiply_base(table: &keygen::Table, secrets: &[[u8; 32]; LANES]) -> Fraction<Self> {
        keygen::multiply_base(table, secrets)
    }

    fn sum(a: &keygen::Point<Self>, b: &keygen::Point<Self>) -> keygen::Point<Self> {
        keygen::sum(a, b)
    }
}

impl p256::FieldKernels for Portable {
    fn p256_product(a: &Coordinate<Self>, b: &Coordinate<Self>) -> Coordinate<Self> {
        a.multiply(b).carry()
    }

    fn p256_scalar_product(a: &Scalar<Self>, b: &Scalar<Self>) -> Scalar<Self> {
        a.multiply(b)
    }

    fn p256_invert(a: &Coordinate<Self>, b: &Scalar<Self>) -> (Coordinate<Self>, Scalar<Self>) {
        p256::invert(a, b)
    }
}

impl p256::CurveKernels for Portable {
    fn p256_multiply_base(table: &p256::Table, scalars: &[Self; 4]) -> Jacobian<Self> {
        p256::multiply_base(table, scalars)
    }

    fn p256_sum(a: &Projective<Self>, b: &Projective<Self>) -> Projective<Self> {
        p256::sum(a, b)
    }
}
