//! [`GpuKey`], the conversion of an RSA private key for the GPU: words and Montgomery constants, computed once.
//!
//! The code handles secrets: no branch and no index depends on a secret word.

use std::fmt;

use brisk_keys::KeyError;
use brisk_keys::device::{RsaNumbers, Width, blinding_pair};
use zeroize::Zeroizing;

use crate::source;

/// A number as 32-bit words, the least significant first; wiped on drop.
type Words = Zeroizing<Vec<u32>>;

/// Record of a private key, as read by the kernels. Wiped on drop.
pub(super) struct GpuKey {
    width: Width,
    record: Words,
    n: Vec<u8>,
    e: Vec<u8>,
}

impl GpuKey {
    /// Converts a key. `None` if its size is not supported; see [`Width::of_key`].
    pub(super) fn new(numbers: &RsaNumbers) -> Option<Self> {
        let width = Width::of_key(numbers)?;
        Some(Self { width, record: record(numbers, width), n: numbers.n.to_vec(), e: numbers.e.to_vec() })
    }

    /// The record, [`record_words`] long.
    pub(super) fn words(&self) -> &[u32] {
        &self.record
    }

    /// A random blinding pair for the first slot of the key's ring: `r^e`, then `1/r`, in Montgomery form. Takes about
    /// as long as two private key operations.
    pub(super) fn blinding_pair(&self) -> Result<Words, KeyError> {
        let (pair, count) = (blinding_pair(&self.n, &self.e)?, source::words(self.width) as usize);
        let n = from_bytes(&self.n, count);
        let montgomery = |number: &[u8]| shift_left(&from_bytes(number, count), 32 * count, &n);
        let mut words = Zeroizing::new(Vec::with_capacity(2 * count));
        words.extend_from_slice(&montgomery(&pair.factor));
        words.extend_from_slice(&montgomery(&pair.inverse));
        Ok(words)
    }
}

impl fmt::Debug for GpuKey {
    /// Prints no secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GpuKey").field("width", &self.width).finish_non_exhaustive()
    }
}

/// Number of words of a key's record.
pub(super) const fn record_words(width: Width) -> usize {
    let words = source::words(width) as usize;
    // Four inverses; n and two numbers modulo n; four numbers of half the size for each prime; the inverse of q.
    4 + 3 * words + 4 * words + words / 2
}

/// Creates the record, in the order of the constants at the top of `rsa.cu`.
fn record(numbers: &RsaNumbers, width: Width) -> Words {
    let count = source::words(width) as usize;
    let (half, r_bits) = (count / 2, 32 * count);
    let n = from_bytes(&numbers.n, count);
    let [p, q] = [&numbers.p, &numbers.q].map(|prime| from_bytes(prime, half));
    // Allocated with full capacity: a growing vector would leave unwiped copies.
    let mut record = Zeroizing::new(Vec::with_capacity(record_words(width)));
    record.extend([negated_inverse(n[0]), negated_inverse(p[0]), negated_inverse(q[0]), 0]);
    record.extend_from_slice(&n);
    record.extend_from_slice(&shift_left(&power_of_the_base(&n), r_bits, &n));
    record.extend_from_slice(&shift_left(&from_bytes(&numbers.q, count), r_bits, &n));
    for (prime, exponent) in [(&p, &numbers.dp), (&q, &numbers.dq)] {
        let r2 = shift_left(&power_of_the_base(prime), r_bits / 2, prime);
        let r3 = shift_left(&r2, r_bits / 2, prime);
        record.extend_from_slice(prime);
        record.extend_from_slice(&r2);
        record.extend_from_slice(&r3);
        record.extend_from_slice(&from_bytes(exponent, half));
    }
    record.extend_from_slice(&from_bytes(&numbers.qinv, half));
    record
}

/// Converts a big-endian number to `count` words.
fn from_bytes(bytes: &[u8], count: usize) -> Words {
    let mut words = Zeroizing::new(Vec::with_capacity(count));
    for bytes in bytes.rchunks(4) {
        words.push(bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)));
    }
    words.resize(count, 0);
    words
}

/// Computes -1/n modulo 2^32 for an odd number, from its least significant word.
const fn negated_inverse(least: u32) -> u32 {
    // Each Newton step doubles the number of correct bits, starting with three for n itself.
    let mut inverse = least;
    let mut step = 0;
    while step < 4 {
        inverse = inverse.wrapping_mul(2u32.wrapping_sub(least.wrapping_mul(inverse)));
        step += 1;
    }
    inverse.wrapping_neg()
}

/// Computes R modulo an odd number with its highest bit set: R minus the number.
fn power_of_the_base(modulus: &[u32]) -> Words {
    let mut negated = Zeroizing::new(modulus.iter().map(|word| !word).collect::<Vec<_>>());
    // The lowest bit was set, so there is no carry.
    negated[0] |= 1;
    negated
}

/// Computes `number · 2^bits mod modulus` for a number below the modulus.
fn shift_left(number: &[u32], bits: usize, modulus: &[u32]) -> Words {
    let mut shifted = Zeroizing::new(number.to_vec());
    for _ in 0..bits {
        let mut carry = 0;
        for word in shifted.iter_mut() {
            (*word, carry) = (*word << 1 | carry, *word >> 31);
        }
        subtract_once(&mut shifted, carry, modulus);
    }
    shifted
}

/// Subtracts the modulus once if the result is not negative. `top` is the word above the number.
fn subtract_once(number: &mut [u32], top: u32, modulus: &[u32]) {
    let difference = |word: u32, other: u32, borrow: u64| {
        let difference = u64::from(word).wrapping_sub(u64::from(other)).wrapping_sub(borrow);
        (difference as u32, difference >> 63)
    };
    let mut borrow = 0;
    for (word, other) in number.iter().zip(modulus) {
        borrow = difference(*word, *other, borrow).1;
    }
    let (_, less) = difference(top, 0, borrow);
    // All ones if the modulus is subtracted.
    let (wanted, mut borrow) = ((less as u32).wrapping_sub(1), 0);
    for (word, other) in number.iter_mut().zip(modulus) {
        (*word, borrow) = difference(*word, other & wanted, borrow);
    }
}

#[cfg(test)]
mod tests {
    use num_bigint::BigUint;

    use brisk_testkit::rsa::{key, number};

    use super::*;
    use crate::testing::numbers;

    fn biguint(words: &[u32]) -> BigUint {
        BigUint::from_slice(words)
    }

    #[test]
    fn bytes_become_words() {
        assert_eq!(*from_bytes(&[1, 2, 3, 4, 5, 6], 3), [0x0304_0506, 0x0102, 0]);
        assert_eq!(*from_bytes(&[], 1), [0]);
    }

    #[test]
    fn the_inverse_is_one() {
        for odd in [1, 3, 0xffff_ffff, 0x8123_4567, 0xdead_beef] {
            assert_eq!(negated_inverse(odd).wrapping_mul(odd), u32::MAX, "{odd:x}");
        }
    }

    #[test]
    fn shifts_are_right_modulo_a_number_of_two_words() {
        for modulus in [0xffff_ffff_ffff_ffff_u64, 0x8000_0000_0000_0001, 0xdead_beef_1234_5679] {
            let words = |number: u64| [number as u32, (number >> 32) as u32];
            for number in [0, 1, modulus / 3, modulus - 1] {
                let shifted = shift_left(&words(number), 77, &words(modulus));
                assert_eq!(biguint(&shifted), (BigUint::from(number) << 77) % modulus);
            }
            assert_eq!(biguint(&power_of_the_base(&words(modulus))), (BigUint::from(1_u8) << 64) % modulus);
        }
    }

    #[test]
    fn a_record_holds_the_numbers_of_the_key_in_order() {
        for width in Width::ALL {
            let numbers = numbers(key(width.bits()));
            let gpu_key = GpuKey::new(&numbers).unwrap();
            assert_eq!((gpu_key.width, gpu_key.words().len()), (width, record_words(width)));
            let (count, mut rest) = (width.bits() / 32, gpu_key.words());
            let mut take = |words| {
                let (taken, left) = rest.split_at(words);
                rest = left;
                biguint(taken)
            };
            let inverses = [take(1), take(1), take(1)];
            assert_eq!(take(1), BigUint::ZERO);
            let [n, p, q] = [&numbers.n, &numbers.p, &numbers.q].map(|bytes| number(bytes));
            let base: BigUint = BigUint::from(1_u8) << 32;
            for (inverse, modulus) in inverses.iter().zip([&n, &p, &q]) {
                assert_eq!((inverse * modulus + 1_u8) % &base, BigUint::ZERO);
            }
            let (r_whole, r) = (base.pow(count as u32), base.pow(count as u32 / 2));
            assert_eq!(take(count), n);
            assert_eq!(take(count), r_whole.pow(2) % &n);
            assert_eq!(take(count), &q * &r_whole % &n);
            for (prime, exponent) in [(&p, &numbers.dp), (&q, &numbers.dq)] {
                assert_eq!(take(count / 2), *prime);
                assert_eq!(take(count / 2), r.pow(2) % prime);
                assert_eq!(take(count / 2), r.pow(3) % prime);
                assert_eq!(take(count / 2), number(exponent));
            }
            assert_eq!(take(count / 2), number(&numbers.qinv));
            assert!(rest.is_empty());
        }
    }

    #[test]
    fn keys_that_the_gpu_cannot_work_with_are_left_to_others() {
        for bits in [2049, 2056] {
            assert!(GpuKey::new(&numbers(key(bits))).is_none(), "{bits}");
        }
    }
}
