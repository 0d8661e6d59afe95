//! Polynomials from bytes and to bytes. FIPS 203 section 4.2.1.

use super::{
    polynomial::{Polynomial, Q, REGISTERS},
    register::{Aligned, BytePlaces, Register},
};

/// Bytes of a polynomial with coefficients of 12 bits.
pub(super) const BYTES_OF_12_BITS: usize = 384;

/// The two bytes that each of 32 numbers of 12 bits is in.
static TWELVE: BytePlaces = {
    let mut all = Aligned([0; 64]);
    let mut number = 0;
    while number < 32 {
        all.0[2 * number] = (3 * number / 2) as u8;
        all.0[2 * number + 1] = (3 * number / 2 + 1) as u8;
        number += 1;
    }
    all
};

/// The first five bytes of each word, then anything.
static FORTY_BITS: BytePlaces = {
    let mut all = Aligned([0; 64]);
    let mut byte = 0;
    while byte < 40 {
        all.0[byte] = (byte / 5 * 8 + byte % 5) as u8;
        byte += 1;
    }
    all
};

/// The first byte of each pair, then anything.
static EIGHT_BITS: BytePlaces = {
    let mut all = Aligned([0; 64]);
    let mut byte = 0;
    while byte < 16 {
        all.0[byte] = 4 * byte as u8;
        byte += 1;
    }
    all
};

/// The 32 numbers of 12 bits in the first 48 bytes.
#[inline(always)]
pub(super) fn numbers_of_12_bits<V: Register>(bytes: &[u8; 64]) -> V {
    V::load(bytes).pick_bytes(&TWELVE).shift_second_right_by_4().and(V::splat(0xfff))
}

/// Coefficients of 12 bits, from 384 bytes that others follow.
#[inline(always)]
pub(super) fn polynomial_of_12_bits<V: Register>(bytes: &[u8]) -> Polynomial<V> {
    let mut polynomial = Polynomial::zero();
    for register in 0..REGISTERS {
        polynomial.0[register] =
            numbers_of_12_bits(bytes[48 * register..].first_chunk().expect("a whole register"));
    }
    polynomial
}

/// One coefficient for each bit: half of q for a one. FIPS 203, `Decompress` with d = 1.
#[inline(always)]
pub(super) fn of_message<V: Register>(message: &[u8; 32]) -> Polynomial<V> {
    let mut polynomial = Polynomial::zero();
    let (bits, _) = message.as_chunks();
    for register in 0..REGISTERS {
        polynomial.0[register] = V::splat(Q.midpoint(1)).only(u32::from_le_bytes(bits[register]));
    }
    polynomial
}

/// `number·2^BITS/q` rounded, modulo 2^BITS, for numbers up to 4,000 either way. FIPS 203, `Compress`.
///
/// The quotient is estimated, and is one off at most where it lies near the middle of two numbers; then the remainder
/// is beyond half of q.
#[inline(always)]
fn compressed<V: Register, const BITS: u32>(number: V) -> V {
    let estimate = number.multiply_rounded(V::splat(((1 << (15 + BITS)) / i32::from(Q)) as i16));
    let remainder = number.shift_left::<BITS>().subtract(estimate.multiply_low(V::splat(Q)));
    let one = V::splat(1);
    let low = one.only(V::splat(Q / 2).less_than(remainder));
    let high = one.only(remainder.less_than(V::splat(-(Q / 2))));
    estimate.add(low).subtract(high).and(V::splat((1 << BITS) - 1))
}

/// Numbers of ten bits, 320 bytes.
#[inline(always)]
pub(super) fn compress_to_10_bits<V: Register>(polynomial: &Polynomial<V>, bytes: &mut [u8]) {
    let factors = V::load_coefficients(const { &pairs(1, 1 << 10) });
    for register in 0..REGISTERS {
        let numbers = compressed::<V, 10>(polynomial.0[register]);
        let words = V::zero().add_products(numbers, factors).join_20_bits();
        let mut stored = [0; 64];
        words.pick_bytes(&FORTY_BITS).store(&mut stored);
        bytes[40 * register..40 * (register + 1)].copy_from_slice(&stored[..40]);
    }
}

/// Numbers of four bits, 128 bytes.
#[inline(always)]
pub(super) fn compress_to_4_bits<V: Register>(polynomial: &Polynomial<V>, bytes: &mut [u8]) {
    let factors = V::load_coefficients(const { &pairs(1, 1 << 4) });
    for register in 0..REGISTERS {
        let numbers = compressed::<V, 4>(polynomial.0[register]);
        let mut stored = [0; 64];
        V::zero().add_products(numbers, factors).pick_bytes(&EIGHT_BITS).store(&mut stored);
        bytes[16 * register..16 * (register + 1)].copy_from_slice(&stored[..16]);
    }
}

const fn pairs(first: i16, second: i16) -> [i16; 32] {
    let mut all = [first; 32];
    let mut pair = 0;
    while pair < 16 {
        all[2 * pair + 1] = second;
        pair += 1;
    }
    all
}

/// Whether an encapsulation key has only coefficients less than q. FIPS 203 section 7.2.
pub(super) fn has_reduced_coefficients(vector: &[u8]) -> bool {
    vector.as_chunks::<3>().0.iter().all(|[low, middle, high]| {
        let first = u16::from_le_bytes([*low, middle & 0xf]);
        let second = u16::from_le_bytes([*middle, *high]) >> 4;
        first < Q as u16 && second < Q as u16
    })
}
