//! [`Lanes`] of AVX-512 IFMA: eight in one register, and the heavy operations with the instructions enabled for each.
#![expect(unsafe_code, reason = "vector intrinsics, and functions that need what only some processors have")]

use std::arch::asm;
use std::arch::x86_64::{
    __m512i, __mmask8, _mm_cvtsi32_si128, _mm512_add_epi64, _mm512_and_si512, _mm512_madd52hi_epu64,
    _mm512_madd52lo_epu64, _mm512_mask_blend_epi64, _mm512_or_si512, _mm512_permutex2var_epi64,
    _mm512_set1_epi64, _mm512_sll_epi64, _mm512_slli_epi64, _mm512_srai_epi64, _mm512_srl_epi64,
    _mm512_srli_epi64, _mm512_sub_epi64, _mm512_test_epi64_mask, _mm512_testn_epi64_mask, _mm512_xor_si512,
};

use super::{
    field25519::{self, Element},
    keygen,
    lanes::{Entries, LANES, Lanes},
    p256::{self, Coordinate, Jacobian, Projective, Scalar, Signature, Signing},
    x25519::{self, Fraction},
};
use crate::processor::has_ifma;

/// Eight lanes in one register.
///
/// A value of it exists only below the functions that [`entry`] makes, hence only on a processor that has AVX-512F and IFMA:
/// the reason why each intrinsic here may be called. All of this is inlined into functions for which these are enabled.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Ifma(__m512i);

/// Functions for callers that may be on any processor.
macro_rules! entry {
    ($($(#[$attributes:meta])* fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? = $body:expr;)*) => {$(
        $(#[$attributes])*
        pub(super) fn $name($($argument: $type),*) $(-> $result)? {
            #[target_feature(enable = "avx512f,avx512ifma")]
            fn with_features($($argument: $type),*) $(-> $result)? {
                $body
            }

            assert!(has_ifma(), "this processor has no AVX-512 IFMA");
            // SAFETY: the processor has the features, as was just asserted.
            unsafe { with_features($($argument),*) }
        }
    )*};
}

/// Functions that only [`Ifma`] can be given to.
macro_rules! kernels {
    ($($trait:path { $(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty = $body:expr;)* })*) => {$(
        impl $trait for Ifma {$(
            fn $name($($argument: $type),*) -> $result {
                #[target_feature(enable = "avx512f,avx512ifma")]
                #[inline(never)]
                fn with_features($($argument: $type),*) -> $result {
                    $body
                }
                // SAFETY: see `Ifma`.
                unsafe { with_features($($argument),*) }
            }
        )*}
    )*};
}

entry! {
    /// [`x25519::exchange`].
    fn exchange(
        secrets: &[[[u8; 32]; LANES]],
        points: &[[[u8; 32]; LANES]],
        shared: &mut [[[u8; 32]; LANES]]
    ) = x25519::exchange::<Ifma>(secrets, points, shared);

    /// [`keygen::public_keys`].
    fn public_keys(
        table: &keygen::Table,
        secrets: &[[[u8; 32]; LANES]],
        public: &mut [[[u8; 32]; LANES]]
    ) = keygen::public_keys::<Ifma>(table, secrets, public);

    /// [`keygen::Table::compute`].
    fn keygen_table() -> keygen::Table = keygen::Table::compute::<Ifma>();

    /// [`p256::sign`].
    fn sign(
        table: &p256::Table,
        operations: &[Signing<'_>],
        nonces: &[p256::WideNonce],
        signatures: &mut [Option<Signature>]
    ) = p256::sign::<Ifma>(table, operations, nonces, signatures);

    #[cfg(test)]
    fn at_edges() = super::tests::arithmetic::check::<Ifma>();

    /// [`p256::Table::compute`].
    fn p256_table() -> p256::Table = p256::Table::compute::<Ifma>();
}

kernels! {
    field25519::Kernels {
        fn product(a: &Element<Ifma>, b: &Element<Ifma>) -> Element<Ifma> = a.multiply(b).carry();
        fn square_times(number: &Element<Ifma>, times: usize) -> Element<Ifma> =
            field25519::square_times(number, times);
    }
    x25519::Kernels {
        fn ladder(secrets: &[[u8; 32]; LANES], points: &[[u8; 32]; LANES]) -> Fraction<Ifma> =
            x25519::ladder(secrets, points);
    }
    keygen::Kernels {
        fn multiply_base(table: &keygen::Table, secrets: &[[u8; 32]; LANES]) -> Fraction<Ifma> =
            keygen::multiply_base(table, secrets);
        fn sum(a: &keygen::Point<Ifma>, b: &keygen::Point<Ifma>) -> keygen::Point<Ifma> = keygen::sum(a, b);
    }
    p256::FieldKernels {
        fn p256_product(a: &Coordinate<Ifma>, b: &Coordinate<Ifma>) -> Coordinate<Ifma> = a.multiply(b).carry();
        fn p256_scalar_product(a: &Scalar<Ifma>, b: &Scalar<Ifma>) -> Scalar<Ifma> = a.multiply(b);
        fn p256_invert(a: &Coordinate<Ifma>, b: &Scalar<Ifma>) -> (Coordinate<Ifma>, Scalar<Ifma>) =
            p256::invert(a, b);
    }
    p256::CurveKernels {
        fn p256_multiply_base(table: &p256::Table, scalars: &[Ifma; 4]) -> Jacobian<Ifma> =
            p256::multiply_base(table, scalars);
        fn p256_sum(a: &Projective<Ifma>, b: &Projective<Ifma>) -> Projective<Ifma> = p256::sum(a, b);
    }
}

/// Operations that are one intrinsic each.
macro_rules! intrinsics {
    ($($name:ident($($other:ident),*) = $intrinsic:ident;)*) => {$(
        #[inline(always)]
        fn $name(self, $($other: Self),*) -> Self {
            // SAFETY: see `Ifma`.
            Self(unsafe { $intrinsic(self.0, $($other.0),*) })
        }
    )*};
}

// SAFETY (of every `unsafe` block of intrinsics below): see `Ifma`.
impl Lanes for Ifma {
    type Mask = __mmask8;

    intrinsics! {
        add(other) = _mm512_add_epi64;
        subtract(other) = _mm512_sub_epi64;
        and(other) = _mm512_and_si512;
        or(other) = _mm512_or_si512;
        xor(other) = _mm512_xor_si512;
        multiply_add_low(a, b) = _mm512_madd52lo_epu64;
        multiply_add_high(a, b) = _mm512_madd52hi_epu64;
    }

    #[inline(always)]
    fn splat(value: u64) -> Self {
        // SAFETY: see `Ifma`.
        Self(unsafe { _mm512_set1_epi64(value.cast_signed()) })
    }

    #[inline(always)]
    fn array(&self) -> &[u64; LANES] {
        // SAFETY: both are 64 bytes without padding in which every bit pattern is valid; the register's alignment is more
        // than the array's.
        unsafe { &*std::ptr::from_ref(self).cast::<[u64; LANES]>() }
    }

    #[inline(always)]
    fn array_mut(&mut self) -> &mut [u64; LANES] {
        // SAFETY: as in `array`, and the reference is unique.
        unsafe { &mut *std::ptr::from_mut(self).cast::<[u64; LANES]>() }
    }

    #[inline(always)]
    fn shift_left<const BITS: u32>(self) -> Self {
        // SAFETY: see `Ifma`.
        Self(unsafe { _mm512_slli_epi64::<BITS>(self.0) })
    }

    #[inline(always)]
    fn shift_right<const BITS: u32>(self) -> Self {
        // SAFETY: see `Ifma`.
        Self(unsafe { _mm512_srli_epi64::<BITS>(self.0) })
    }

    #[inline(always)]
    fn shift_right_signed<const BITS: u32>(self) -> Self {
        // SAFETY: see `Ifma`.
        Self(unsafe { _mm512_srai_epi64::<BITS>(self.0) })
    }

    #[inline(always)]
    fn shift_left_by(self, bits: u32) -> Self {
        // SAFETY: see `Ifma`.
        Self(unsafe { _mm512_sll_epi64(self.0, _mm_cvtsi32_si128(bits.cast_signed())) })
    }

    #[inline(always)]
    fn shift_right_by(self, bits: u32) -> Self {
        // SAFETY: see `Ifma`.
        Self(unsafe { _mm512_srl_epi64(self.0, _mm_cvtsi32_si128(bits.cast_signed())) })
    }

    #[inline(always)]
    fn has_bit(self, bit: u32) -> __mmask8 {
        // SAFETY: see `Ifma`.
        unsafe { _mm512_test_epi64_mask(self.0, Self::splat(1 << bit).0) }
    }

    #[inline(always)]
    fn is_zero(self) -> __mmask8 {
        // SAFETY: see `Ifma`.
        unsafe { _mm512_testn_epi64_mask(self.0, self.0) }
    }

    #[inline(always)]
    fn select(mask: __mmask8, set: Self, clear: Self) -> Self {
        // SAFETY: see `Ifma`.
        Self(unsafe { _mm512_mask_blend_epi64(mask, clear.0, set.0) })
    }

    #[inline(always)]
    fn hide(self) -> Self {
        #[inline]
        #[target_feature(enable = "avx512f")]
        fn with_features(mut vector: __m512i) -> __m512i {
            // SAFETY: the assembly is a comment; the vector is unchanged.
            unsafe {
                asm!("/* {0} */", inout(zmm_reg) vector, options(pure, nomem, nostack, preserves_flags));
            };
            vector
        }
        // SAFETY: see `Ifma`.
        Self(unsafe { with_features(self.0) })
    }

    #[inline(always)]
    fn look_up(self, table: &Entries) -> Self {
        // SAFETY: see `Ifma`; the entries are as long as four registers, and aligned for them.
        unsafe {
            let quarters = std::ptr::from_ref(table).cast::<__m512i>();
            let low = _mm512_permutex2var_epi64(*quarters, self.0, *quarters.add(1));
            let high = _mm512_permutex2var_epi64(*quarters.add(2), self.0, *quarters.add(3));
            Self(_mm512_mask_blend_epi64(self.has_bit(4), low, high))
        }
    }
}
