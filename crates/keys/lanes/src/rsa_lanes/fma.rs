//! The lanes in a register of AVX2 or AVX-512, multiplied by FMA as floating-point numbers.
#![expect(unsafe_code, reason = "intrinsics; the way in is guarded by the detection of the processor")]

mod block;
mod kernels;
mod register;

pub(super) use self::kernels::{perform_in_eight_lanes, perform_in_four_lanes};
use self::register::Register;
use super::{Instructions, digits::Radix, lanes::Lanes};

const RADIX: Radix = Instructions::Fma.radix();

/// 2^52 as a floating-point number: plus an integer below 2^52 it has that integer as its lowest bits.
const SHIFTER: f64 = (1u64 << 52) as f64;

/// More than the absolute value of any column, and a multiple of the radix.
const OFFSET: u64 = 1 << 62;

/// The lanes of one register: digits as floating-point numbers, columns as integers.
///
/// A value of it exists only below [`perform_in_four_lanes`] or [`perform_in_eight_lanes`], hence only on a processor that has the
/// instructions of its register: the reason why each of them may be called. All of this is inlined into functions for which they
/// are enabled.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Fma<R>(R);

/// Four lanes of AVX2.
#[cfg(test)]
pub(super) type Fma256 = Fma<std::arch::x86_64::__m256i>;
/// Eight lanes of AVX-512.
#[cfg(test)]
pub(super) type Fma512 = Fma<std::arch::x86_64::__m512i>;

// SAFETY (of every `unsafe` block of instructions below): see `Fma`.
impl<R: Register> Lanes for Fma<R> {
    const COUNT: usize = R::COUNT;
    const RADIX: Radix = RADIX;
    type Mask = R::Mask;

    #[inline(always)]
    fn splat(value: u64) -> Self {
        // SAFETY: see `Fma`.
        Self(unsafe { R::splat(value) })
    }

    #[inline(always)]
    fn lanes(&self) -> &[u64] {
        // SAFETY: a register is `COUNT` words without padding in which every bit pattern is valid, and its alignment is more
        // than theirs.
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), R::COUNT) }
    }

    #[inline(always)]
    fn lanes_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `lanes`, and the reference is unique.
        unsafe { std::slice::from_raw_parts_mut(std::ptr::from_mut(self).cast(), R::COUNT) }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: see `Fma`.
        Self(unsafe { R::add(self.0, other.0) })
    }

    #[inline(always)]
    fn subtract(self, other: Self) -> Self {
        // SAFETY: see `Fma`.
        Self(unsafe { R::subtract(self.0, other.0) })
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: see `Fma`.
        Self(unsafe { R::xor(self.0, other.0) })
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        // SAFETY: see `Fma`.
        Self(unsafe { R::or(self.0, other.0) })
    }

    // Conversions by adding and subtracting, since those of the language may branch.

    #[inline(always)]
    fn encode(digit: u64) -> u64 {
        (f64::from_bits(digit | SHIFTER.to_bits()) - SHIFTER).to_bits()
    }

    #[inline(always)]
    fn decode(lane: u64) -> u64 {
        (f64::from_bits(lane) + SHIFTER).to_bits() & RADIX.mask()
    }

    #[inline(always)]
    fn digit(self) -> Self {
        let shifter = Self::splat(SHIFTER.to_bits());
        // SAFETY: see `Fma`.
        Self(unsafe { R::subtract_doubles(self.lowest().or(shifter).0, shifter.0) })
    }

    #[inline(always)]
    fn column(self) -> Self {
        // SAFETY: see `Fma`.
        Self(unsafe { R::add_doubles(self.0, Self::splat(SHIFTER.to_bits()).0) }).lowest()
    }

    #[inline(always)]
    fn carry(self) -> Self {
        // AVX2 has no arithmetic shift of 64 bits.
        self.add(Self::splat(OFFSET)).shift_right().subtract(Self::splat(OFFSET >> RADIX.bits))
    }

    /// The offset that [`carry`](Self::carry) adds and takes off stays in the carry here: two instructions from digit to
    /// digit instead of four.
    #[inline(always)]
    fn normalize(digits: &mut [Self], columns: &[Self]) {
        let mut carry = Self::splat(OFFSET >> RADIX.bits);
        for (digit, column) in digits.iter_mut().zip(columns) {
            let column = column.add(Self::splat(OFFSET - (OFFSET >> RADIX.bits))).add(carry);
            (*digit, carry) = (column.digit(), column.shift_right());
        }
    }

    #[inline(always)]
    fn has_bit(self, bit: u32) -> R::Mask {
        // SAFETY: see `Fma`.
        unsafe { R::has_bit(self.0, bit) }
    }

    #[inline(always)]
    fn is_negative(self) -> R::Mask {
        // SAFETY: see `Fma`.
        unsafe { R::is_negative(self.0) }
    }

    #[inline(always)]
    fn select(mask: R::Mask, set: Self, clear: Self) -> Self {
        // SAFETY: see `Fma`.
        Self(unsafe { R::select(mask, set.0, clear.0) })
    }

    #[inline(always)]
    fn swap_halves(self) -> Self {
        // SAFETY: see `Fma`.
        Self(unsafe { R::swap_halves(self.0) })
    }
}

impl<R: Register> Fma<R> {
    /// As [`splat`](Lanes::splat), before there is a processor.
    const fn same(value: u64) -> Self {
        // SAFETY: a register is at most eight words without padding in which every bit pattern is valid.
        unsafe { std::mem::transmute_copy(&[value; 8]) }
    }

    /// The lowest digit of a column, still an integer.
    #[inline(always)]
    fn lowest(self) -> Self {
        // SAFETY: see `Fma`.
        Self(unsafe { R::and(self.0, Self::splat(RADIX.mask()).0) })
    }

    /// A column that is not negative, without its lowest digit.
    #[inline(always)]
    fn shift_right(self) -> Self {
        // SAFETY: see `Fma`.
        Self(unsafe { R::shift_right(self.0) })
    }

    /// Twice a digit, good for one factor of a product.
    #[inline(always)]
    fn doubled(self) -> Self {
        // SAFETY: see `Fma`.
        Self(unsafe { R::add_doubles(self.0, self.0) })
    }
}
