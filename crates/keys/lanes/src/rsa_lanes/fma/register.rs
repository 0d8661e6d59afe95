//! Registers with lanes of 64 bits and FMA: four lanes by AVX2, eight by AVX-512.

use std::arch::{
    asm,
    x86_64::{
        __m256i, __m512i, __mmask8, _mm_cvtsi32_si128, _mm256_add_epi64, _mm256_add_pd, _mm256_and_si256,
        _mm256_blendv_pd, _mm256_castpd_si256, _mm256_castsi256_pd, _mm256_fmadd_pd, _mm256_or_si256,
        _mm256_permute4x64_epi64, _mm256_set1_epi64x, _mm256_sll_epi64, _mm256_srli_epi64, _mm256_sub_epi64,
        _mm256_sub_pd, _mm256_xor_si256, _mm512_add_epi64, _mm512_add_pd, _mm512_and_si512,
        _mm512_castpd_si512, _mm512_castsi512_pd, _mm512_fmadd_pd, _mm512_mask_blend_epi64,
        _mm512_movepi64_mask, _mm512_or_si512, _mm512_set1_epi64, _mm512_shuffle_i64x2, _mm512_srli_epi64,
        _mm512_sub_epi64, _mm512_sub_pd, _mm512_test_epi64_mask, _mm512_xor_si512,
    },
};

use super::RADIX;

/// Instructions on one register. Those for floating-point numbers take the bits of a lane as such a number.
///
/// # Safety
///
/// The functions may be called only on a processor that has the instructions. They are fast only in code that is inlined into a
/// function for which the instructions are enabled.
pub(in crate::rsa_lanes) trait Register: Copy + 'static {
    /// Number of lanes.
    const COUNT: usize;
    /// One bit for each lane.
    type Mask: Copy;

    unsafe fn splat(value: u64) -> Self;
    unsafe fn add(a: Self, b: Self) -> Self;
    unsafe fn subtract(a: Self, b: Self) -> Self;
    unsafe fn and(a: Self, b: Self) -> Self;
    unsafe fn xor(a: Self, b: Self) -> Self;
    unsafe fn or(a: Self, b: Self) -> Self;
    /// Moves each lane down by the bits of a digit; zeroes enter.
    unsafe fn shift_right(a: Self) -> Self;

    unsafe fn add_doubles(a: Self, b: Self) -> Self;
    unsafe fn subtract_doubles(a: Self, b: Self) -> Self;
    /// `a·b + c`, rounded once.
    unsafe fn multiply_add_doubles(a: Self, b: Self, c: Self) -> Self;

    unsafe fn has_bit(a: Self, bit: u32) -> Self::Mask;
    unsafe fn is_negative(a: Self) -> Self::Mask;
    unsafe fn select(mask: Self::Mask, set: Self, clear: Self) -> Self;
    unsafe fn swap_halves(a: Self) -> Self;

    /// Adds the halves of the product of `digit` and number `INDEX` of the digits at `digits`, which must exist, to a column
    /// each: returns `columns`, the lower one first. `constants` are [`HIGH`](super::block::HIGH) and
    /// [`LOW`](super::block::LOW). The instructions stay in their order; see [`super::block`].
    unsafe fn add_product<const INDEX: usize>(
        digits: *const Self,
        digit: Self,
        constants: [Self; 2],
        columns: [Self; 2],
    ) -> [Self; 2];
}

/// Functions of [`Register`] of one or a few instructions.
macro_rules! instructions {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty = $body:expr;)*) => {$(
        #[inline(always)]
        unsafe fn $name($($argument: $type),*) -> $result {
            // SAFETY: see `Register`.
            unsafe { $body }
        }
    )*};
}

/// [`Register::add_product`] by registers of the class `$class`, which are of the type `$register`.
// A macro, since an operand of `asm!` has a register class, which cannot be a parameter of a type.
macro_rules! add_product {
    ($register:ty, $class:ident, $features:literal) => {
        #[inline]
        #[target_feature(enable = $features)]
        unsafe fn add_product<const INDEX: usize>(
            digits: *const $register,
            digit: $register,
            [high_constant, low_constant]: [$register; 2],
            [mut low_column, mut high_column]: [$register; 2],
        ) -> [$register; 2] {
            // SAFETY: reads digit number `INDEX` of those to which `digits` points.
            unsafe {
                asm!(
                    "vmovapd {high}, [{digits} + {offset}]",
                    "vfmadd213pd {high}, {digit}, {HIGH}",
                    "vsubpd {low}, {LOW}, {high}",
                    "vpaddq {high_column}, {high_column}, {high}",
                    "vfmadd231pd {low}, {digit}, [{digits} + {offset}]",
                    "vpaddq {low_column}, {low_column}, {low}",
                    digits = in(reg) digits,
                    offset = const size_of::<$register>() * INDEX,
                    digit = in($class) digit,
                    HIGH = in($class) high_constant,
                    LOW = in($class) low_constant,
                    low_column = inout($class) low_column,
                    high_column = inout($class) high_column,
                    high = out($class) _,
                    low = out($class) _,
                    options(readonly, nostack),
                );
            }
            [low_column, high_column]
        }
    };
}

impl Register for __m256i {
    const COUNT: usize = 4;
    /// In the highest bit of each lane.
    type Mask = Self;

    instructions! {
        splat(value: u64) -> Self = _mm256_set1_epi64x(value.cast_signed());
        add(a: Self, b: Self) -> Self = _mm256_add_epi64(a, b);
        subtract(a: Self, b: Self) -> Self = _mm256_sub_epi64(a, b);
        and(a: Self, b: Self) -> Self = _mm256_and_si256(a, b);
        xor(a: Self, b: Self) -> Self = _mm256_xor_si256(a, b);
        or(a: Self, b: Self) -> Self = _mm256_or_si256(a, b);
        shift_right(a: Self) -> Self = _mm256_srli_epi64::<{ RADIX.bits.cast_signed() }>(a);
        add_doubles(a: Self, b: Self) -> Self =
            _mm256_castpd_si256(_mm256_add_pd(_mm256_castsi256_pd(a), _mm256_castsi256_pd(b)));
        subtract_doubles(a: Self, b: Self) -> Self =
            _mm256_castpd_si256(_mm256_sub_pd(_mm256_castsi256_pd(a), _mm256_castsi256_pd(b)));
        multiply_add_doubles(a: Self, b: Self, c: Self) -> Self =
            _mm256_castpd_si256(_mm256_fmadd_pd(_mm256_castsi256_pd(a), _mm256_castsi256_pd(b), _mm256_castsi256_pd(c)));
        has_bit(a: Self, bit: u32) -> Self = _mm256_sll_epi64(a, _mm_cvtsi32_si128(63 - bit.cast_signed()));
        select(mask: Self, set: Self, clear: Self) -> Self = _mm256_castpd_si256(_mm256_blendv_pd(
            _mm256_castsi256_pd(clear),
            _mm256_castsi256_pd(set),
            _mm256_castsi256_pd(mask)
        ));
        // The result's lanes are number 2, 3, 0 and 1 of the operand.
        swap_halves(a: Self) -> Self = _mm256_permute4x64_epi64::<0b01_00_11_10>(a);
    }

    #[inline(always)]
    unsafe fn is_negative(a: Self) -> Self {
        a
    }

    add_product!(__m256i, ymm_reg, "avx2,fma");
}

impl Register for __m512i {
    const COUNT: usize = 8;
    type Mask = __mmask8;

    instructions! {
        splat(value: u64) -> Self = _mm512_set1_epi64(value.cast_signed());
        add(a: Self, b: Self) -> Self = _mm512_add_epi64(a, b);
        subtract(a: Self, b: Self) -> Self = _mm512_sub_epi64(a, b);
        and(a: Self, b: Self) -> Self = _mm512_and_si512(a, b);
        xor(a: Self, b: Self) -> Self = _mm512_xor_si512(a, b);
        or(a: Self, b: Self) -> Self = _mm512_or_si512(a, b);
        shift_right(a: Self) -> Self = _mm512_srli_epi64::<{ RADIX.bits }>(a);
        add_doubles(a: Self, b: Self) -> Self =
            _mm512_castpd_si512(_mm512_add_pd(_mm512_castsi512_pd(a), _mm512_castsi512_pd(b)));
        subtract_doubles(a: Self, b: Self) -> Self =
            _mm512_castpd_si512(_mm512_sub_pd(_mm512_castsi512_pd(a), _mm512_castsi512_pd(b)));
        multiply_add_doubles(a: Self, b: Self, c: Self) -> Self =
            _mm512_castpd_si512(_mm512_fmadd_pd(_mm512_castsi512_pd(a), _mm512_castsi512_pd(b), _mm512_castsi512_pd(c)));
        has_bit(a: Self, bit: u32) -> __mmask8 = _mm512_test_epi64_mask(a, _mm512_set1_epi64(1 << bit));
        is_negative(a: Self) -> __mmask8 = _mm512_movepi64_mask(a);
        select(mask: __mmask8, set: Self, clear: Self) -> Self = _mm512_mask_blend_epi64(mask, clear, set);
        // The result's quarters are number 2, 3, 0 and 1 of the operand.
        swap_halves(a: Self) -> Self = _mm512_shuffle_i64x2::<0b01_00_11_10>(a, a);
    }

    add_product!(__m512i, zmm_reg, "avx512f,avx512dq");
}
