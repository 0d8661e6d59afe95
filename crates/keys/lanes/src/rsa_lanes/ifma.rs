//! The lanes in an AVX-512 register, multiplied by the IFMA instructions.
#![expect(unsafe_code, reason = "intrinsics; the way in is guarded by the detection of the processor")]

use std::arch::asm;
use std::arch::x86_64::{
    __m512i, __mmask8, _mm512_add_epi64, _mm512_and_si512, _mm512_cmplt_epi64_mask, _mm512_madd52hi_epu64,
    _mm512_madd52lo_epu64, _mm512_mask_blend_epi64, _mm512_or_si512, _mm512_set1_epi64, _mm512_setzero_si512,
    _mm512_shuffle_i64x2, _mm512_srai_epi64, _mm512_sub_epi64, _mm512_test_epi64_mask, _mm512_xor_si512,
};

use super::{
    Instructions, Lane, OPERATIONS, Verdict,
    digits::Radix,
    lanes::{Lanes, MultiplyAdd},
    montgomery::{self, Arithmetic, Modulus, Scratch},
    operation,
};
use crate::processor::has_ifma;

const RADIX: Radix = Instructions::Ifma.radix();

/// Performs the operations in AVX-512 registers.
///
/// # Panics
///
/// On a processor without the instructions.
pub(super) fn perform<const B: usize>(lanes: &mut [Lane<'_>]) -> [Verdict; OPERATIONS] {
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn with_features<const B: usize>(lanes: &mut [Lane<'_>]) -> [Verdict; OPERATIONS] {
        operation::perform::<Ifma, B>(lanes)
    }

    assert!(has_ifma(), "this processor has no AVX-512 IFMA");
    // SAFETY: the processor has the features, as was just asserted.
    unsafe { with_features::<B>(lanes) }
}

/// Eight lanes in one register.
///
/// A value of it exists only below [`perform`], hence only on a processor that has AVX-512F and IFMA: the reason why
/// each intrinsic here may be called. All of this is inlined into functions for which these features are enabled.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Ifma(__m512i);

// SAFETY (of every `unsafe` block of intrinsics below): see `Ifma`.
impl Lanes for Ifma {
    const COUNT: usize = 8;
    const RADIX: Radix = RADIX;
    type Mask = __mmask8;

    #[inline(always)]
    fn splat(value: u64) -> Self {
        // SAFETY: see `Ifma`.
        Self(unsafe { _mm512_set1_epi64(value.cast_signed()) })
    }

    #[inline(always)]
    fn lanes(&self) -> &[u64] {
        // SAFETY: both are 64 bytes without padding in which every bit pattern is valid; the register's alignment is more
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
        // SAFETY: see `Ifma`.
        Self(unsafe { _mm512_add_epi64(self.0, other.0) })
    }

    #[inline(always)]
    fn subtract(self, other: Self) -> Self {
        // SAFETY: see `Ifma`.
        Self(unsafe { _mm512_sub_epi64(self.0, other.0) })
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        // SAFETY: see `Ifma`.
        Self(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn or(self, other: Self) -> Self {
        // SAFETY: see `Ifma`.
        Self(unsafe { _mm512_or_si512(self.0, other.0) })
    }

    #[inline(always)]
    fn encode(digit: u64) -> u64 {
        digit
    }

    #[inline(always)]
    fn decode(lane: u64) -> u64 {
        lane
    }

    #[inline(always)]
    fn digit(self) -> Self {
        // SAFETY: see `Ifma`.
        Self(unsafe { _mm512_and_si512(self.0, Self::splat(RADIX.mask()).0) })
    }

    #[inline(always)]
    fn column(self) -> Self {
        self
    }

    #[inline(always)]
    fn carry(self) -> Self {
        // SAFETY: see `Ifma`.
        Self(unsafe { _mm512_srai_epi64::<{ RADIX.bits }>(self.0) })
    }

    #[inline(always)]
    fn has_bit(self, bit: u32) -> __mmask8 {
        // SAFETY: see `Ifma`.
        unsafe { _mm512_test_epi64_mask(self.0, Self::splat(1 << bit).0) }
    }

    #[inline(always)]
    fn is_negative(self) -> __mmask8 {
        // SAFETY: see `Ifma`.
        unsafe { _mm512_cmplt_epi64_mask(self.0, _mm512_setzero_si512()) }
    }

    #[inline(always)]
    fn select(mask: __mmask8, set: Self, clear: Self) -> Self {
        // SAFETY: see `Ifma`.
        Self(unsafe { _mm512_mask_blend_epi64(mask, clear.0, set.0) })
    }

    #[inline(always)]
    fn swap_halves(self) -> Self {
        // SAFETY: see `Ifma`. The result's quarters are number 2, 3, 0 and 1 of the operand.
        Self(unsafe { _mm512_shuffle_i64x2::<0b01_00_11_10>(self.0, self.0) })
    }
}

impl MultiplyAdd for Ifma {
    #[inline(always)]
    fn multiply_add_low(self, a: Self, b: Self) -> Self {
        // SAFETY: see `Ifma`.
        Self(unsafe { _mm512_madd52lo_epu64(self.0, a.0, b.0) })
    }

    #[inline(always)]
    fn multiply_add_high(self, a: Self, b: Self) -> Self {
        // SAFETY: see `Ifma`.
        Self(unsafe { _mm512_madd52hi_epu64(self.0, a.0, b.0) })
    }

    #[inline(always)]
    #[expect(clippy::pointers_in_nomem_asm_block, reason = "the assembly reads nothing, it hides an address")]
    fn hide<T>(reference: &T) -> &T {
        let mut pointer = std::ptr::from_ref(reference);
        // SAFETY: the assembly is a comment; the pointer is unchanged. It is not declared `pure`: the compiler would
        // then move it out of the loop together with the loads.
        unsafe {
            asm!("/* {0} */", inout(reg) pointer, options(nomem, nostack, preserves_flags));
            &*pointer
        }
    }

    #[inline(always)]
    fn before<T>(self, reference: &T) -> (Self, &T) {
        #[inline]
        #[target_feature(enable = "avx512f")]
        #[expect(
            clippy::pointers_in_nomem_asm_block,
            reason = "the assembly reads nothing, it hides an address"
        )]
        fn with_features<T>(mut vector: __m512i, reference: &T) -> (__m512i, &T) {
            let mut pointer = std::ptr::from_ref(reference);
            // SAFETY: as in `hide`.
            unsafe {
                asm!(
                    "/* {0} {1} */",
                    inout(reg) pointer,
                    inout(zmm_reg) vector,
                    options(nomem, nostack, preserves_flags)
                );
                (vector, &*pointer)
            }
        }
        // SAFETY: see `Ifma`.
        let (vector, reference) = unsafe { with_features(self.0, reference) };
        (Self(vector), reference)
    }
}

/// The heavy operations as functions of their own, with the features enabled for each.
impl<const B: usize> Arithmetic<B> for Ifma {
    fn multiply(
        product: &mut [[Self; B]],
        a: &[[Self; B]],
        b: &[[Self; B]],
        modulus: &Modulus<Self, B>,
        scratch: &mut Scratch<Self, B>,
    ) {
        #[target_feature(enable = "avx512f,avx512ifma")]
        fn with_features<const B: usize>(
            product: &mut [[Ifma; B]],
            a: &[[Ifma; B]],
            b: &[[Ifma; B]],
            modulus: &Modulus<Ifma, B>,
            scratch: &mut Scratch<Ifma, B>,
        ) {
            montgomery::multiply(product, a, b, modulus, scratch);
        }
        // SAFETY: see `Ifma`.
        unsafe { with_features(product, a, b, modulus, scratch) }
    }

    fn square(number: &mut [[Self; B]], modulus: &Modulus<Self, B>, scratch: &mut Scratch<Self, B>) {
        #[target_feature(enable = "avx512f,avx512ifma")]
        fn with_features<const B: usize>(
            number: &mut [[Ifma; B]],
            modulus: &Modulus<Ifma, B>,
            scratch: &mut Scratch<Ifma, B>,
        ) {
            montgomery::square(number, modulus, scratch);
        }
        // SAFETY: see `Ifma`.
        unsafe { with_features(number, modulus, scratch) }
    }

    fn look_up(entry: &mut [Self], table: &[[Self; 32]], index: Self) {
        #[target_feature(enable = "avx512f,avx512ifma")]
        fn with_features(entry: &mut [Ifma], table: &[[Ifma; 32]], index: Ifma) {
            montgomery::look_up(entry, table, index);
        }
        // SAFETY: see `Ifma`.
        unsafe { with_features(entry, table, index) }
    }
}
