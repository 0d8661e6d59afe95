//! Numbers at the edges of what their limbs may be, beside integers of any size.

use num_bigint::BigUint;

use super::*;
use crate::ec_lanes::{
    field25519::Element,
    lanes::Lanes,
    p256::{Coordinate, Scalar},
};

const ROUNDS: usize = 300;

fn number(limbs: &[u64], bits: usize) -> BigUint {
    limbs.iter().rev().fold(BigUint::ZERO, |sum, limb| (sum << bits) + limb)
}

/// Limbs up to these, the greatest and the least more often than others.
fn edges<V: Lanes>(greatest: &[u64; 5]) -> [V; 5] {
    let mut all = [V::splat(0); 5];
    for (limb, greatest) in all.iter_mut().zip(greatest) {
        for lane in limb.array_mut() {
            let [choice, less, ..] = random::<4>();
            *lane = match choice % 4 {
                0 => *greatest,
                1 => 0,
                2 => greatest - u64::from(less % 3),
                _ => u64::from_le_bytes(random()) % (greatest + 1),
            };
        }
    }
    all
}

fn lane<V: Lanes>(limbs: &[V; 5], lane: usize) -> [u64; 5] {
    limbs.map(|limb| limb.array()[lane])
}

fn check_25519<V: Lanes>() {
    let modulus = (BigUint::from(1u8) << 255) - 19u8;
    let greatest = [(1 << 51) + (1 << 16) - 1; 5];
    let small = 121_665u64;
    for _ in 0..ROUNDS {
        let [a, b, c, d] = std::array::from_fn(|_| Element(edges::<V>(&greatest)));
        let (x, y) = (a.multiply_raised(&b), c.multiply(&d));
        let results = [
            x.carry(),
            a.square().carry(),
            a.square_raised().carry(),
            x.minus(&y).carry(),
            x.plus(&y).carry(),
            a.square_raised().wide().plus_small_multiple(&b, small).carry(),
            c.square_raised().minus(&a.square()).carry(),
        ];
        for at in 0..LANES {
            let [a, b, c, d] = [a, b, c, d].map(|element| number(&lane(&element.0, at), 51));
            let (x, y) = (&a * &b, &c * &d);
            let above = &modulus << 264;
            let expected = [
                x.clone(),
                &a * &a,
                &a * &a,
                &x + &above - &y,
                &x + &y,
                &a * &a + &b * small,
                &c * &c + &above - &a * &a,
            ];
            for (which, (result, expected)) in results.iter().zip(expected).enumerate() {
                let limbs = lane(&result.0, at);
                assert_eq!(number(&limbs, 51) % &modulus, &expected % &modulus, "result {which}");
                assert!(limbs.iter().all(|limb| *limb <= greatest[0]), "limbs of result {which}: {limbs:x?}");
                let reduced = lane(&result.reduced().0, at);
                assert_eq!(number(&reduced, 51), expected % &modulus, "result {which}, reduced");
            }
        }
    }
}

/// A negative may have limbs up to 2^52; a product of it may be subtracted from a doubled one.
fn check_negatives<V: Lanes>() {
    let modulus = (BigUint::from(1u8) << 255) - 19u8;
    let (greatest, canonical) = ([(1 << 51) + (1 << 16) - 1; 5], [(1 << 51) - 1; 5]);
    for _ in 0..ROUNDS {
        let (a, b) = (Element(edges::<V>(&canonical)).reduced(), Element(edges::<V>(&greatest)));
        let doubled = b.square_raised().doubled();
        let product = b.multiply(&a.negative_of_reduced());
        let results = [doubled.minus(&product).carry(), doubled.plus(&product).carry()];
        for at in 0..LANES {
            let (a, b) = (number(&lane(&a.0, at), 51), number(&lane(&b.0, at), 51));
            let negative = &modulus * 2u8 - &a;
            let expected = [&b * &b * 2u8 + &b * &a, &b * &b * 2u8 + &b * negative];
            for (result, expected) in results.iter().zip(expected) {
                assert_eq!(number(&lane(&result.0, at), 51) % &modulus, expected % &modulus);
            }
        }
    }
}

fn check_p256<V: Lanes>() {
    let p = BigUint::parse_bytes(b"ffffffff00000001000000000000000000000000ffffffffffffffffffffffff", 16)
        .expect("a number");
    let n = BigUint::parse_bytes(b"ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551", 16)
        .expect("a number");
    let inverse = |modulus: &BigUint| {
        BigUint::from(2u8).modpow(&(modulus - 2u8), modulus).modpow(&260u32.into(), modulus)
    };
    let (p_inverse, n_inverse) = (inverse(&p), inverse(&n));
    // Just below four times p.
    let greatest = [(1 << 52) - 1, (1 << 52) - 1, (1 << 52) - 1, (1 << 52) - 1, (1 << 50) - (1 << 18) - 1];
    for _ in 0..ROUNDS {
        let [a, b] = std::array::from_fn(|_| edges::<V>(&greatest));
        let (left, right) = (Coordinate(a), Coordinate(b));
        let (x, y) = (left.multiply(&right), right.square());
        let results = [
            x.carry(),
            y.carry(),
            x.minus(&y).reduced(4),
            x.minus(&y).minus(&y).minus(&y).reduced(8),
            x.plus(&y).reduced(1),
        ];
        let scalars = [Scalar(a).multiply(&Scalar(b)), Scalar(a).square()];
        for at in 0..LANES {
            let (a, b) = (number(&lane(&a, at), 52), number(&lane(&b, at), 52));
            let (x, y) = (&a * &b * &p_inverse % &p, &b * &b * &p_inverse % &p);
            let expected = [x.clone(), y.clone(), &x + &p - &y, &x + &p * 3u8 - &y * 3u8, &x + &y]
                .map(|number| number % &p);
            for (which, (result, expected)) in results.iter().zip(expected).enumerate() {
                let limbs = lane(&result.0, at);
                assert!(limbs.iter().all(|limb| *limb < 1 << 52), "limbs of result {which}: {limbs:x?}");
                let value = number(&limbs, 52);
                assert!(value < &p * 2u8, "result {which} is too large");
                assert_eq!(value % &p, expected, "result {which}");
            }
            let expected = [&a * &b * &n_inverse % &n, &a * &a * &n_inverse % &n];
            for (result, expected) in scalars.iter().zip(expected) {
                let limbs = lane(&result.0, at);
                assert!(limbs.iter().all(|limb| *limb < 1 << 52));
                assert_eq!(number(&limbs, 52) % &n, expected);
            }
        }
    }
}

#[test]
fn the_portable_lanes_are_right_at_the_edges() {
    check_25519::<Portable>();
    check_negatives::<Portable>();
    check_p256::<Portable>();
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_lanes_of_the_processor_are_right_at_the_edges() {
    if are_supported() {
        ifma::at_edges();
    }
}

/// Called with the instructions enabled.
#[inline(always)]
pub(in crate::ec_lanes) fn check<V: Lanes>() {
    check_25519::<V>();
    check_negatives::<V>();
    check_p256::<V>();
}
