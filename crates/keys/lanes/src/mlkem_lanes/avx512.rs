//! Registers of AVX-512, and the heavy parts with the instructions enabled for each.
#![expect(unsafe_code, reason = "vector intrinsics, and functions that need what only some processors have")]

use std::arch::x86_64::{
    __m512i, _mm512_add_epi16, _mm512_and_si512, _mm512_cmplt_epi16_mask, _mm512_dpwssd_epi32,
    _mm512_loadu_si512, _mm512_mask_blend_epi16, _mm512_maskz_compress_epi16, _mm512_maskz_mov_epi16,
    _mm512_mulhi_epi16, _mm512_mulhrs_epi16, _mm512_mullo_epi16, _mm512_permutex2var_epi16,
    _mm512_permutexvar_epi8, _mm512_permutexvar_epi16, _mm512_rol_epi32, _mm512_rol_epi64, _mm512_set1_epi16,
    _mm512_set1_epi32, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_shuffle_i64x2, _mm512_slli_epi16,
    _mm512_slli_epi32, _mm512_sllv_epi32, _mm512_srli_epi32, _mm512_srli_epi64, _mm512_srlv_epi16,
    _mm512_storeu_si512, _mm512_sub_epi16, _mm512_ternarylogic_epi64, _mm512_unpackhi_epi64,
    _mm512_unpacklo_epi64, _mm512_xor_si512,
};

use super::{
    Encapsulation, LANES,
    batch::{self, NOISES, Noise, Secrets},
    matrices::{self, Matrices},
    polynomial::{self, Polynomial, Prepared, Sum},
    register::{BytePlaces, Coefficients, Places, Register},
};

/// Whether this processor has the instructions of [`Avx512`].
pub(super) fn is_supported() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("avx512vbmi2")
        && is_x86_feature_detected!("avx512vnni")
}

/// A register of 64 bytes.
///
/// A value of it exists only below the functions that [`entry`] makes, hence only on a processor that has the
/// instructions: the reason why each intrinsic here may be called. All of this is inlined into functions for which
/// these are enabled.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Avx512(__m512i);

/// Functions for callers that may be on any processor.
macro_rules! entry {
    ($($(#[$attributes:meta])* fn $name:ident($($argument:ident: $type:ty),*) = $body:expr;)*) => {$(
        $(#[$attributes])*
        pub(super) fn $name($($argument: $type),*) {
            #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,avx512vnni")]
            fn with_features($($argument: $type),*) {
                $body
            }

            assert!(is_supported(), "this processor has no AVX-512 VBMI2 or VNNI");
            // SAFETY: the processor has the features, as was just asserted.
            unsafe { with_features($($argument),*) }
        }
    )*};
}

/// Functions that only [`Avx512`] can be given to.
macro_rules! kernels {
    ($($trait:path { $(fn $name:ident($($argument:ident: $type:ty),*) = $body:expr;)* })*) => {$(
        impl $trait for Avx512 {$(
            // Not at the function with the features: the compiler attaches it to the call there, which is inlined
            // itself.
            #[inline(never)]
            fn $name($($argument: $type),*) {
                #[target_feature(enable = "avx512f,avx512bw,avx512vbmi,avx512vbmi2,avx512vnni")]
                fn with_features($($argument: $type),*) {
                    $body
                }
                // SAFETY: see `Avx512`.
                unsafe { with_features($($argument),*) }
            }
        )*}
    )*};
}

entry! {
    /// [`batch::encapsulate`].
    fn encapsulate(encapsulations: &mut [Encapsulation], messages: &[[u8; 32]]) =
        batch::encapsulate::<Avx512>(encapsulations, messages);

    #[cfg(test)]
    fn at_edges() = super::tests::arithmetic::check::<Avx512>();
}

kernels! {
    polynomial::Kernels {
        fn transform(polynomial: &mut Polynomial<Avx512>) = polynomial::transform(polynomial);
        fn transform_back(polynomial: &mut Polynomial<Avx512>) = polynomial::transform_back(polynomial);
        fn add_product(sum: &mut Sum<Avx512>, polynomial: &Polynomial<Avx512>, factor: &Prepared<Avx512>) =
            polynomial::add_product(sum, polynomial, factor);
    }
    matrices::Kernels {
        fn hash_keys(encapsulations: &[Encapsulation], matrices: &mut Matrices, hashes: &mut [[u8; 64]; LANES]) =
            matrices::hash_keys::<Avx512>(encapsulations, matrices, hashes);
        fn sample(matrices: &mut Matrices, first: usize) = matrices::sample::<Avx512>(matrices, first);
    }
    batch::Kernels {
        fn secrets(hashes: &[[u8; 64]], messages: &[[u8; 32]], secrets: &mut [Secrets]) =
            batch::secrets::<Avx512>(hashes, messages, secrets);
        fn make_noises(secrets: &[Secrets], noises: &mut [[Noise<Avx512>; NOISES]]) =
            batch::make_noises(secrets, noises);
        fn encrypt(
            encapsulation: &mut Encapsulation,
            message: &[u8; 32],
            noises: &[Noise<Avx512>; NOISES],
            matrices: &mut Matrices
        ) = batch::encrypt(encapsulation, message, noises, matrices);
    }
}

/// Operations that are one intrinsic each.
macro_rules! intrinsics {
    ($($name:ident($($other:ident),*) = $intrinsic:ident;)*) => {$(
        #[inline(always)]
        fn $name(self, $($other: Self),*) -> Self {
            // SAFETY: see `Avx512`.
            Self(unsafe { $intrinsic(self.0, $($other.0),*) })
        }
    )*};
}

impl Register for Avx512 {
    intrinsics! {
        and(other) = _mm512_and_si512;
        xor(other) = _mm512_xor_si512;
        add(other) = _mm512_add_epi16;
        subtract(other) = _mm512_sub_epi16;
        multiply_low(other) = _mm512_mullo_epi16;
        multiply_high(other) = _mm512_mulhi_epi16;
        multiply_rounded(other) = _mm512_mulhrs_epi16;
        add_products(a, b) = _mm512_dpwssd_epi32;
    }

    #[inline(always)]
    fn zero() -> Self {
        // SAFETY: see `Avx512`.
        Self(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    fn load(bytes: &[u8; 64]) -> Self {
        // SAFETY: see `Avx512`; 64 bytes are read, at any alignment, here and in the two functions below.
        Self(unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) })
    }

    #[inline(always)]
    fn load_words(words: &[u64; 8]) -> Self {
        // SAFETY: see `load`.
        Self(unsafe { _mm512_loadu_si512(words.as_ptr().cast()) })
    }

    #[inline(always)]
    fn load_coefficients(coefficients: &[i16; 32]) -> Self {
        // SAFETY: see `load`.
        Self(unsafe { _mm512_loadu_si512(coefficients.as_ptr().cast()) })
    }

    #[inline(always)]
    fn store(self, bytes: &mut [u8; 64]) {
        // SAFETY: see `Avx512`; 64 bytes are written, at any alignment, here and in the two functions below.
        unsafe { _mm512_storeu_si512(bytes.as_mut_ptr().cast(), self.0) }
    }

    #[inline(always)]
    fn store_words(self, words: &mut [u64; 8]) {
        // SAFETY: see `store`.
        unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), self.0) }
    }

    #[inline(always)]
    fn store_coefficients(self, coefficients: &mut [i16; 32]) {
        // SAFETY: see `store`.
        unsafe { _mm512_storeu_si512(coefficients.as_mut_ptr().cast(), self.0) }
    }

    #[inline(always)]
    fn splat(coefficient: i16) -> Self {
        // SAFETY: see `Avx512`.
        Self(unsafe { _mm512_set1_epi16(coefficient) })
    }

    #[inline(always)]
    fn xor_both(self, a: Self, b: Self) -> Self {
        // SAFETY: see `Avx512`.
        Self(unsafe { _mm512_ternarylogic_epi64::<0x96>(self.0, a.0, b.0) })
    }

    #[inline(always)]
    fn xor_unless(self, a: Self, b: Self) -> Self {
        // SAFETY: see `Avx512`.
        Self(unsafe { _mm512_ternarylogic_epi64::<0xd2>(self.0, a.0, b.0) })
    }

    #[inline(always)]
    fn rotate_left<const BITS: i32>(self) -> Self {
        // SAFETY: see `Avx512`.
        Self(unsafe { _mm512_rol_epi64::<BITS>(self.0) })
    }

    #[inline(always)]
    fn transpose(rows: &[Self; 8]) -> [Self; 8] {
        // Words by pairs of rows, then quarters of registers by halves.
        let mut pairs = *rows;
        let mut fours = *rows;
        let mut columns = *rows;
        // SAFETY: see `Avx512`.
        unsafe {
            for row in 0..4 {
                pairs[2 * row].0 = _mm512_unpacklo_epi64(rows[2 * row].0, rows[2 * row + 1].0);
                pairs[2 * row + 1].0 = _mm512_unpackhi_epi64(rows[2 * row].0, rows[2 * row + 1].0);
            }
            for odd in 0..2 {
                for half in 0..2 {
                    let (first, second) = (pairs[4 * half + odd].0, pairs[4 * half + 2 + odd].0);
                    fours[4 * half + odd].0 = _mm512_shuffle_i64x2::<0x88>(first, second);
                    fours[4 * half + 2 + odd].0 = _mm512_shuffle_i64x2::<0xdd>(first, second);
                }
            }
            for column in 0..4 {
                columns[column].0 = _mm512_shuffle_i64x2::<0x88>(fours[column].0, fours[4 + column].0);
                columns[4 + column].0 = _mm512_shuffle_i64x2::<0xdd>(fours[column].0, fours[4 + column].0);
            }
        }
        columns
    }

    #[inline(always)]
    fn shift_left<const BITS: u32>(self) -> Self {
        // SAFETY: see `Avx512`.
        Self(unsafe { _mm512_slli_epi16::<BITS>(self.0) })
    }

    #[inline(always)]
    fn shift_second_right_by_4(self) -> Self {
        // SAFETY: see `Avx512`.
        Self(unsafe { _mm512_srlv_epi16(self.0, _mm512_set1_epi32(4 << 16)) })
    }

    #[inline(always)]
    fn less_than(self, other: Self) -> u32 {
        // SAFETY: see `Avx512`.
        unsafe { _mm512_cmplt_epi16_mask(self.0, other.0) }
    }

    #[inline(always)]
    fn only(self, mask: u32) -> Self {
        // SAFETY: see `Avx512`.
        Self(unsafe { _mm512_maskz_mov_epi16(mask, self.0) })
    }

    #[inline(always)]
    fn compress(self, mask: u32) -> Self {
        // SAFETY: see `Avx512`.
        Self(unsafe { _mm512_maskz_compress_epi16(mask, self.0) })
    }

    #[inline(always)]
    fn swap_pairs(self) -> Self {
        // SAFETY: see `Avx512`.
        Self(unsafe { _mm512_rol_epi32::<16>(self.0) })
    }

    #[inline(always)]
    fn low_halves(self, other: Self) -> Self {
        // SAFETY: see `Avx512`.
        Self(unsafe { _mm512_mask_blend_epi16(0xaaaa_aaaa, self.0, _mm512_slli_epi32::<16>(other.0)) })
    }

    #[inline(always)]
    fn high_halves(self, other: Self) -> Self {
        // SAFETY: see `Avx512`.
        Self(unsafe { _mm512_mask_blend_epi16(0xaaaa_aaaa, _mm512_srli_epi32::<16>(self.0), other.0) })
    }

    #[inline(always)]
    fn join_20_bits(self) -> Self {
        // SAFETY: see `Avx512`.
        unsafe {
            let adjacent = _mm512_sllv_epi32(self.0, _mm512_set1_epi64(12));
            Self(_mm512_srli_epi64::<12>(adjacent))
        }
    }

    #[inline(always)]
    fn pick(self, other: Self, places: &Places) -> Self {
        // SAFETY: see `Avx512`.
        Self(unsafe { _mm512_permutex2var_epi16(self.0, Self::load_coefficients(&places.0).0, other.0) })
    }

    #[inline(always)]
    fn pick_bytes(self, places: &BytePlaces) -> Self {
        // SAFETY: see `Avx512`.
        Self(unsafe { _mm512_permutexvar_epi8(Self::load(&places.0).0, self.0) })
    }

    #[inline(always)]
    fn look_up(self, entries: &Coefficients) -> Self {
        // SAFETY: see `Avx512`.
        Self(unsafe { _mm512_permutexvar_epi16(self.0, Self::load_coefficients(&entries.0).0) })
    }

    #[inline(always)]
    fn wipe(registers: &mut [Self]) {
        for register in registers {
            // SAFETY: a reference may be written to; `volatile` keeps the compiler from leaving it out.
            unsafe { std::ptr::write_volatile(register, Self::zero()) };
        }
    }
}
