//! Polynomials at the edges of what their coefficients may be, beside plain integers.

use super::*;
use crate::mlkem_lanes::{
    polynomial::{Kernels, Polynomial, Prepared, Q, Sum},
    register::Register,
};

const ROUNDS: usize = 20;

type Plain = [i16; 256];

fn polynomial<V: Register>(coefficients: &Plain) -> Polynomial<V> {
    let mut polynomial = Polynomial::zero();
    for (register, coefficients) in polynomial.0.iter_mut().zip(coefficients.as_chunks().0) {
        *register = V::load_coefficients(coefficients);
    }
    polynomial
}

fn coefficients<V: Register>(polynomial: &Polynomial<V>) -> Plain {
    let mut coefficients = [0; 256];
    for (register, coefficients) in polynomial.0.iter().zip(coefficients.as_chunks_mut().0) {
        register.store_coefficients(coefficients);
    }
    coefficients
}

/// Coefficients within bounds, the bounds more often than others.
fn edges(least: i16, greatest: i16) -> Plain {
    let one_way = random::<1>()[0].is_multiple_of(4);
    let mut all = [greatest; 256];
    for coefficient in all.iter_mut().filter(|_| !one_way) {
        let [choice, low, high] = random();
        let range = i32::from(greatest) - i32::from(least) + 1;
        *coefficient = match choice % 4 {
            0 => greatest,
            1 => least,
            _ => (i32::from(least) + i32::from(u16::from_le_bytes([low, high])) % range) as i16,
        };
    }
    all
}

/// The product modulo x^256 + 1, and modulo q.
fn product(a: &Plain, b: &Plain) -> [i64; 256] {
    let mut product = [0; 256];
    for (i, a) in a.iter().enumerate() {
        for (j, b) in b.iter().enumerate() {
            let sign = if i + j < 256 { 1 } else { -1 };
            product[(i + j) % 256] += sign * i64::from(*a) * i64::from(*b);
        }
    }
    product
}

/// Products of three polynomials each by way of the transform, and that bounds are as documented.
fn check_products<V: Kernels>() {
    for _ in 0..ROUNDS {
        let (mut sum, mut expected) = (Sum::<V>::zero(), [0; 256]);
        for _ in 0..3 {
            let (a, b) = (edges(-1664, 1664), edges(-1664, 1664));
            for (expected, product) in expected.iter_mut().zip(product(&a, &b)) {
                *expected += product;
            }
            let [mut a, mut b] = [polynomial::<V>(&a), polynomial(&b)];
            V::transform(&mut a);
            V::transform(&mut b);
            assert!(coefficients(&b).iter().all(|coefficient| coefficient.abs() <= 2188));
            let factor = polynomial::<V>(&coefficients(&a).map(|coefficient| coefficient.rem_euclid(Q)));
            let prepared = Prepared::of(&b);
            V::add_product(&mut sum, &factor, &prepared);
        }
        let mut result = sum.reduced();
        assert!(coefficients(&result).iter().all(|coefficient| coefficient.abs() <= 2400));
        V::transform_back(&mut result);
        for (result, expected) in coefficients(&result).into_iter().zip(expected) {
            assert!(result.abs() <= 1800, "{result}");
            assert_eq!(i64::from(result.rem_euclid(Q)), expected.rem_euclid(i64::from(Q)));
        }
    }
}

/// The greatest coefficients that may be transformed back, and the greatest sums.
fn check_bounds<V: Kernels>() {
    for _ in 0..ROUNDS {
        let mut edges = polynomial::<V>(&edges(-2400, 2400));
        let mut halves = coefficients(&edges).map(|coefficient| coefficient.rem_euclid(Q));
        V::transform_back(&mut edges);
        // The same from numbers that are smaller.
        for half in &mut halves {
            *half -= if *half > Q / 2 { Q } else { 0 };
        }
        let mut halves = polynomial::<V>(&halves);
        V::transform_back(&mut halves);
        for (edge, half) in coefficients(&edges).into_iter().zip(coefficients(&halves)) {
            assert!(edge.abs() <= 1800, "{edge}");
            assert_eq!(edge.rem_euclid(Q), half.rem_euclid(Q));
        }
    }
}

/// FIPS 203, `Compress`, of all numbers.
fn check_compression<V: Register>() {
    for first in (-4000..4000i16).step_by(256) {
        let numbers: Plain = std::array::from_fn(|number| (first + (number as u16).cast_signed()).min(4000));
        let rounded = |bits: u32, number: i16| {
            let (number, q) = (i64::from(number), i64::from(Q));
            ((2 * (number << bits) + q).div_euclid(2 * q)).rem_euclid(1 << bits).cast_unsigned()
        };
        let (mut ten, mut four) = ([0; 320], [0; 128]);
        encoding::compress_to_10_bits(&polynomial::<V>(&numbers), &mut ten);
        encoding::compress_to_4_bits(&polynomial::<V>(&numbers), &mut four);
        for (four, bytes) in numbers.as_chunks::<4>().0.iter().zip(ten.as_chunks::<5>().0) {
            let expected = (0..4).fold(0, |word, at| word | rounded(10, four[at]) << (10 * at));
            assert_eq!(bytes[..], expected.to_le_bytes()[..5], "{four:?}");
        }
        for (two, byte) in numbers.as_chunks::<2>().0.iter().zip(four) {
            assert_eq!(u64::from(byte), rounded(4, two[0]) | rounded(4, two[1]) << 4, "{two:?}");
        }
    }
}

pub(in crate::mlkem_lanes) fn check<V: Kernels>() {
    check_products::<V>();
    check_bounds::<V>();
    check_compression::<V>();
}

#[test]
fn arithmetic_is_right_at_the_edges() {
    check::<Portable>();
    #[cfg(target_arch = "x86_64")]
    if are_supported() {
        avx512::at_edges();
    }
}
