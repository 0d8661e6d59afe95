//! The lanes in an AVX2 register, multiplied by FMA as floating-point numbers.
#![expect(unsafe_code, reason = "intrinsics; the way in is guarded by the detection of the processor")]

mod block;

use std::arch::x86_64::{
    __m256i, _mm_cvtsi32_si128, _mm256_add_epi64, _mm256_add_pd, _mm256_and_si256, _mm256_blendv_pd,
    _mm256_castpd_si256, _mm256_castsi256_pd, _mm256_or_si256, _mm256_permute4x64_epi64, _mm256_set1_epi64x,
    _mm256_set1_pd, _mm256_sll_epi64, _mm256_srli_epi64, _mm256_sub_epi64, _mm256_sub_pd, _mm256_xor_si256,
};

use self::block::DIGITS;
use super::{
    Instructions, Lane, OPERATIONS, Verdict,
    digits::Radix,
    lanes::Lanes,
    montgomery::{self, Arithmetic, Blocks, Modulus, Scratch, two},
    operation,
};
use crate::processor::has_fma;

const RADIX: Radix = Instructions::Fma.radix();

/// 2^52 as a floating-point number: plus an integer below 2^52 it has that integer as its lowest bits.
const SHIFTER: f64 = (1u64 << 52) as f64;

/// More than the absolute value of any column, and a multiple of the radix.
const OFFSET: u64 = 1 << 62;

/// Performs up to two operations in AVX2 registers.
///
/// # Panics
///
/// On a processor without the instructions.
pub(super) fn perform(lanes: &mut [Lane<'_>]) -> [Verdict; OPERATIONS] {
    #[target_feature(enable = "avx2,fma")]
    fn with_features(lanes: &mut [Lane<'_>]) -> [Verdict; OPERATIONS] {
        operation::perform::<Fma, DIGITS>(lanes)
    }

    assert!(has_fma(), "this processor has no AVX2 or no FMA");
    // SAFETY: the processor has the features, as was just asserted.
    unsafe { with_features(lanes) }
}

/// Four lanes in one register: digits as floating-point numbers, columns as integers.
///
/// A value of it exists only below [`perform`], hence only on a processor that has AVX2 and FMA: the reason why each
/// intrinsic here may be called. All of this is inlined into functions for which these features are enabled.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Fma(__m256i);

// SAFETY (of every `unsafe` block of intrinsics below): see `Fma`.
impl Lanes for Fma {
    const COUNT: usize = 4;
    const RADIX: Radix = RADIX;
    /// In the highest bit of each lane.
    type Mask = __m256i;

    #[inline(always)]
    fn splat(value: u64) -> Self {
        // SAFETY: see `Fma`.
        Self(unsafe { _mm256_set1_epi64x(value.cast_signed()) })
    }

    #[inline(always)]
    fn lanes(&self) -> &[u64] {
        // SAFETY: both are 32 bytes without padding in which every bit pattern is valid; the register's alignment is more
        // than the array's.
        unsafe { &*std::ptr::from_ref(self).cast::<[u64; Self::COUNT]>() }
    }

    #[inline(always)]
    fn lanes_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `lanes`, and the reference is unique.
        unsafe { &mut *std::ptr::from_mut(self).cast::<[u64; Self::COUNT]>() }
    }

    #[inline(always)]
    fn add(self, other: Self) -> Self {
        // SAFETY: see `Fma`.
        Self(unsafe { _mm256_add_epi64(self.0, other.0) })
    }

    #[inline(always)]
    fn subtract(self, other: Self) -> Self {
        // SAFETY: see `Fma`.
        Self(unsafe { _mm256_sub_epi64(self.0, other.0) })
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: see `Fma`.
        Self(unsafe { _mm256_xor_si256(self.0, other.0) })
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        // SAFETY: see `Fma`.
        Self(unsafe { _mm256_or_si256(self.0, other.0) })
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
        let shifted = self.lowest().or(Self::splat(SHIFTER.to_bits())).0;
        // SAFETY: see `Fma`.
        unsafe {
            Self(_mm256_castpd_si256(_mm256_sub_pd(_mm256_castsi256_pd(shifted), _mm256_set1_pd(SHIFTER))))
        }
    }

    #[inline(always)]
    fn column(self) -> Self {
        // SAFETY: see `Fma`.
        unsafe {
            let shifted = _mm256_add_pd(_mm256_castsi256_pd(self.0), _mm256_set1_pd(SHIFTER));
            Self(_mm256_castpd_si256(shifted)).lowest()
        }
    }

    #[inline(always)]
    fn carry(self) -> Self {
        // There is no arithmetic shift of 64 bits.
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
    fn has_bit(self, bit: u32) -> __m256i {
        // SAFETY: see `Fma`.
        unsafe { _mm256_sll_epi64(self.0, _mm_cvtsi32_si128(63 - bit.cast_signed())) }
    }

    #[inline(always)]
    fn is_negative(self) -> __m256i {
        self.0
    }

    #[inline(always)]
    fn select(mask: __m256i, set: Self, clear: Self) -> Self {
        // SAFETY: see `Fma`.
        unsafe {
            let (set, clear) = (_mm256_castsi256_pd(set.0), _mm256_castsi256_pd(clear.0));
            Self(_mm256_castpd_si256(_mm256_blendv_pd(clear, set, _mm256_castsi256_pd(mask))))
        }
    }

    #[inline(always)]
    fn swap_halves(self) -> Self {
        // SAFETY: see `Fma`. The result's lanes are number 2, 3, 0 and 1 of the operand.
        Self(unsafe { _mm256_permute4x64_epi64::<0b01_00_11_10>(self.0) })
    }
}

impl Fma {
    /// As [`splat`](Lanes::splat), before there is a processor.
    const fn same(value: u64) -> Self {
        // SAFETY: both are 32 bytes without padding in which every bit pattern is valid.
        Self(unsafe { std::mem::transmute::<[u64; Self::COUNT], __m256i>([value; Self::COUNT]) })
    }

    /// The lowest digit of a column, still an integer.
    #[inline(always)]
    fn lowest(self) -> Self {
        // SAFETY: see `Fma`.
        Self(unsafe { _mm256_and_si256(self.0, Self::splat(RADIX.mask()).0) })
    }

    /// A column that is not negative, without its lowest digit.
    #[inline(always)]
    fn shift_right(self) -> Self {
        // SAFETY: see `Fma`.
        Self(unsafe { _mm256_srli_epi64::<{ RADIX.bits.cast_signed() }>(self.0) })
    }

    /// Twice a digit, good for one factor of a product.
    #[inline(always)]
    fn doubled(self) -> Self {
        // SAFETY: see `Fma`.
        unsafe {
            let digit = _mm256_castsi256_pd(self.0);
            Self(_mm256_castpd_si256(_mm256_add_pd(digit, digit)))
        }
    }
}

impl Blocks<DIGITS> for Fma {
    #[inline(always)]
    fn multiply_block<const ADD: bool>(
        low: &mut [Self; DIGITS],
        high: &mut [Self; DIGITS],
        a: &[Self; DIGITS],
        b: &[Self; DIGITS],
    ) {
        // SAFETY: see `Fma`.
        unsafe { block::multiply::<ADD>(low, high, a, b) }
    }

    #[inline(always)]
    fn reduce_block(
        low: &[Self; DIGITS],
        high: &mut [Self; DIGITS],
        quotient: &mut [Self; DIGITS],
        modulus: &[Self; DIGITS],
        inverse: Self,
    ) {
        // SAFETY: see `Fma`.
        unsafe { block::reduce(low, high, quotient, modulus, inverse) }
    }
}

/// As [`montgomery::multiply`], but by the multiple of the modulus: its least digit makes the digits of the quotient those
/// of the columns themselves, and nothing waits for a product to know them.
impl Arithmetic<DIGITS> for Fma {
    fn multiply(
        product: &mut [[Self; DIGITS]],
        a: &[[Self; DIGITS]],
        b: &[[Self; DIGITS]],
        modulus: &Modulus<Self, DIGITS>,
        scratch: &mut Scratch<Self, DIGITS>,
    ) {
        #[target_feature(enable = "avx2,fma")]
        fn with_features(
            product: &mut [[Fma; DIGITS]],
            a: &[[Fma; DIGITS]],
            b: &[[Fma; DIGITS]],
            modulus: &Modulus<Fma, DIGITS>,
            scratch: &mut Scratch<Fma, DIGITS>,
        ) {
            let columns = &mut scratch.product[..2 * a.len()];
            montgomery::multiply_columns(columns, a, b);
            reduce_by_multiple(columns, &modulus.multiple, &mut scratch.quotient);
            montgomery::normalize(product, &columns[a.len()..]);
        }
        // SAFETY: see `Fma`.
        unsafe { with_features(product, a, b, modulus, scratch) }
    }

    fn multiply_exactly(
        product: &mut [[Self; DIGITS]],
        a: &[[Self; DIGITS]],
        b: &[[Self; DIGITS]],
        modulus: &Modulus<Self, DIGITS>,
        scratch: &mut Scratch<Self, DIGITS>,
    ) {
        #[target_feature(enable = "avx2,fma")]
        fn with_features(
            product: &mut [[Fma; DIGITS]],
            a: &[[Fma; DIGITS]],
            b: &[[Fma; DIGITS]],
            modulus: &Modulus<Fma, DIGITS>,
            scratch: &mut Scratch<Fma, DIGITS>,
        ) {
            montgomery::multiply(product, a, b, modulus, scratch);
        }
        // SAFETY: see `Fma`.
        unsafe { with_features(product, a, b, modulus, scratch) }
    }

    fn square(
        number: &mut [[Self; DIGITS]],
        modulus: &Modulus<Self, DIGITS>,
        scratch: &mut Scratch<Self, DIGITS>,
    ) {
        #[target_feature(enable = "avx2,fma")]
        fn with_features(
            number: &mut [[Fma; DIGITS]],
            modulus: &Modulus<Fma, DIGITS>,
            scratch: &mut Scratch<Fma, DIGITS>,
        ) {
            let blocks = number.len();
            let (columns, doubled) = (&mut scratch.product[..2 * blocks], &mut scratch.quotient);
            for (index, digits) in number.iter().enumerate() {
                let (low, high) = two(columns, 2 * index);
                block::square(low, high, digits);
            }
            for (index, digits) in number.iter().enumerate().take(blocks - 1) {
                for (doubled, digit) in doubled.iter_mut().zip(digits) {
                    *doubled = digit.doubled();
                }
                for (further, others) in number.iter().enumerate().skip(index + 1) {
                    let (low, high) = two(columns, index + further);
                    block::multiply::<true>(low, high, others, doubled);
                }
            }
            reduce_by_multiple(columns, &modulus.multiple, &mut scratch.quotient);
            montgomery::normalize(number, &columns[blocks..]);
        }
        // SAFETY: see `Fma`.
        unsafe { with_features(number, modulus, scratch) }
    }

    fn look_up(entry: &mut [Self], table: &[[Self; 32]], index: Self) {
        #[target_feature(enable = "avx2,fma")]
        fn with_features(entry: &mut [Fma], table: &[[Fma; 32]], index: Fma) {
            montgomery::look_up(entry, table, index);
        }
        // SAFETY: see `Fma`.
        unsafe { with_features(entry, table, index) }
    }
}

/// Makes the lower half of the columns zero by adding a multiple of `modulus`, whose least digit is the greatest there is.
#[target_feature(enable = "avx2,fma")]
fn reduce_by_multiple(
    columns: &mut [[Fma; DIGITS]],
    modulus: &[[Fma; DIGITS]],
    quotient: &mut [Fma; DIGITS],
) {
    let (least, further) = modulus.split_first().expect("a modulus has digits");
    for index in 0..modulus.len() {
        let (low, high) = two(columns, index);
        block::reduce_by_multiple(low, high, quotient, least);
        for (offset, digits) in further.iter().enumerate() {
            let (low, high) = two(columns, index + 1 + offset);
            block::multiply::<true>(low, high, digits, quotient);
        }
    }
}
