//! The lanes of AVX-512 IFMA as an array: the same arithmetic on any processor, for tests, in no hurry.

use super::{
    Instructions,
    digits::Radix,
    lanes::{Lanes, MultiplyAdd},
    montgomery::{self, Arithmetic, Modulus, Scratch},
};

/// The lanes as an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(align(64))]
pub(super) struct Portable([u64; 8]);

impl Portable {
    fn map(self, other: Self, operation: impl Fn(u64, u64) -> u64) -> Self {
        Self(std::array::from_fn(|lane| operation(self.0[lane], other.0[lane])))
    }

    fn mask(self, condition: impl Fn(u64) -> bool) -> u8 {
        (0..8).fold(0, |mask, lane| mask | u8::from(condition(self.0[lane])) << lane)
    }

    fn products(a: Self, b: Self) -> [u128; 8] {
        std::array::from_fn(|lane| {
            u128::from(a.0[lane] & Self::RADIX.mask()) * u128::from(b.0[lane] & Self::RADIX.mask())
        })
    }
}

impl Lanes for Portable {
    const COUNT: usize = 8;
    const RADIX: Radix = Instructions::Ifma.radix();
    type Mask = u8;

    fn splat(value: u64) -> Self {
        Self([value; 8])
    }

    fn lanes(&self) -> &[u64] {
        &self.0
    }

    fn lanes_mut(&mut self) -> &mut [u64] {
        &mut self.0
    }

    fn add(self, other: Self) -> Self {
        self.map(other, u64::wrapping_add)
    }

    fn subtract(self, other: Self) -> Self {
        self.map(other, u64::wrapping_sub)
    }

    fn xor(self, other: Self) -> Self {
        self.map(other, |a, b| a ^ b)
    }

    fn or(self, other: Self) -> Self {
        self.map(other, |a, b| a | b)
    }

    fn encode(digit: u64) -> u64 {
        digit
    }

    fn decode(lane: u64) -> u64 {
        lane
    }

    fn digit(self) -> Self {
        Self(self.0.map(|lane| lane & Self::RADIX.mask()))
    }

    fn column(self) -> Self {
        self
    }

    fn carry(self) -> Self {
        Self(self.0.map(|lane| (lane.cast_signed() >> Self::RADIX.bits).cast_unsigned()))
    }

    fn has_bit(self, bit: u32) -> u8 {
        self.mask(|lane| lane >> bit & 1 == 1)
    }

    fn is_negative(self) -> u8 {
        self.mask(|lane| lane.cast_signed() < 0)
    }

    fn select(mask: u8, set: Self, clear: Self) -> Self {
        Self(std::array::from_fn(|lane| if mask >> lane & 1 == 1 { set.0[lane] } else { clear.0[lane] }))
    }

    fn swap_halves(self) -> Self {
        Self(std::array::from_fn(|lane| self.0[(lane + 4) % 8]))
    }
}

impl MultiplyAdd for Portable {
    fn multiply_add_low(self, a: Self, b: Self) -> Self {
        let products = Self::products(a, b);
        self.add(Self(products.map(|product| product as u64 & Self::RADIX.mask())))
    }

    fn multiply_add_high(self, a: Self, b: Self) -> Self {
        let products = Self::products(a, b);
        self.add(Self(products.map(|product| (product >> Self::RADIX.bits) as u64)))
    }

    fn hide<T>(reference: &T) -> &T {
        reference
    }

    fn before<T>(self, reference: &T) -> (Self, &T) {
        (self, reference)
    }
}

impl<const B: usize> Arithmetic<B> for Portable {
    fn multiply(
        product: &mut [[Self; B]],
        a: &[[Self; B]],
        b: &[[Self; B]],
        modulus: &Modulus<Self, B>,
        scratch: &mut Scratch<Self, B>,
    ) {
        montgomery::multiply(product, a, b, modulus, scratch);
    }

    fn square(number: &mut [[Self; B]], modulus: &Modulus<Self, B>, scratch: &mut Scratch<Self, B>) {
        montgomery::square(number, modulus, scratch);
    }

    fn look_up(entry: &mut [Self], table: &[[Self; 32]], index: Self) {
        montgomery::look_up(entry, table, index);
    }
}
