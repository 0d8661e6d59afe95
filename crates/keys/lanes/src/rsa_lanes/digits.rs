//! Numbers as digits, least significant first, outside of lanes: precomputation for each key.
//!
//! Secrets pass through this module, so no branch and no index depends on a digit.

use zeroize::Zeroizing;

/// Size of digits, the type of [`Lanes::RADIX`](super::lanes::Lanes::RADIX).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Radix {
    /// Bits of a digit: more than eight, and fewer than 64.
    pub(super) bits: u32,
}

impl Radix {
    /// The greatest digit: as many ones.
    pub(super) const fn mask(self) -> u64 {
        (1 << self.bits) - 1
    }
}

/// A number that is wiped when it is dropped.
pub(super) type Digits = Zeroizing<Vec<u64>>;

/// The digits of a big-endian number that fits in `count` of them.
pub(super) fn from_bytes(bytes: &[u8], count: usize, radix: Radix) -> Digits {
    let mut digits = Zeroizing::new(Vec::with_capacity(count));
    let (mut pending, mut bits) = (0u64, 0);
    for byte in bytes.iter().rev() {
        let value = u128::from(*byte) << bits | u128::from(pending);
        bits += 8;
        if bits >= radix.bits && digits.len() < count {
            digits.push(value as u64 & radix.mask());
            pending = (value >> radix.bits) as u64;
            bits -= radix.bits;
        } else {
            pending = value as u64;
        }
    }
    if digits.len() < count {
        digits.push(pending);
    }
    digits.resize(count, 0);
    digits
}

/// Writes a number big-endian. It fits.
pub(super) fn to_bytes(digits: &[u64], bytes: &mut [u8], radix: Radix) {
    let (mut pending, mut bits) = (0u128, 0);
    let mut digits = digits.iter();
    for byte in bytes.iter_mut().rev() {
        if bits < 8 {
            pending |= u128::from(digits.next().copied().unwrap_or(0)) << bits;
            bits += radix.bits;
        }
        *byte = pending as u8;
        pending >>= 8;
        bits -= 8;
    }
}

/// The exponent `bytes`, big-endian and below 2^`bits`, in windows of five bits, the greatest first.
pub(super) fn windows(bytes: &[u8], bits: usize) -> Zeroizing<Vec<u8>> {
    let bit = |index: usize| match bytes.len().checked_sub(1 + index / 8) {
        Some(byte) => bytes[byte] >> (index % 8) & 1,
        None => 0,
    };
    let window = |number: usize| (0..5).fold(0, |window, offset| window | bit(5 * number + offset) << offset);
    Zeroizing::new((0..bits.div_ceil(5)).rev().map(window).collect())
}

/// -1/n modulo the radix, of an odd number by its least digit.
pub(super) const fn negated_inverse(least: u64, radix: Radix) -> u64 {
    // Each step of Newton's iteration doubles the number of right bits; n itself is right in the lowest three.
    let mut inverse = least;
    let mut step = 0;
    while step < 5 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(least.wrapping_mul(inverse)));
        step += 1;
    }
    inverse.wrapping_neg() & radix.mask()
}

/// `number · 2^bits mod modulus`, of a number below the modulus.
pub(super) fn shift_left(number: &[u64], bits: u32, modulus: &[u64], radix: Radix) -> Digits {
    let mut shifted = Zeroizing::new(number.to_vec());
    for _ in 0..bits {
        let mut carry = 0;
        for digit in shifted.iter_mut() {
            let doubled = *digit << 1 | carry;
            (*digit, carry) = (doubled & radix.mask(), doubled >> radix.bits);
        }
        subtract_once(&mut shifted, modulus, radix);
    }
    shifted
}

/// `number · factor`, of a factor of one digit and a number so small that the product needs no more digits.
pub(super) fn multiple(number: &[u64], factor: u64, radix: Radix) -> Digits {
    let mut product = Zeroizing::new(vec![0; number.len()]);
    add_multiple(&mut product, number, factor, radix);
    product
}

/// `a·b/R mod modulus`, less than the modulus.
pub(super) fn montgomery_multiply(
    a: &[u64],
    b: &[u64],
    modulus: &[u64],
    inverse: u64,
    radix: Radix,
) -> Digits {
    let mut sum = Zeroizing::new(vec![0u64; modulus.len() + 1]);
    for digit in b {
        add_multiple(&mut sum, a, *digit, radix);
        let quotient = sum[0].wrapping_mul(inverse) & radix.mask();
        add_multiple(&mut sum, modulus, quotient, radix);
        sum.rotate_left(1);
    }
    sum.truncate(modulus.len());
    subtract_once(&mut sum, modulus, radix);
    sum
}

/// `sum += number·digit`; a further digit of the sum takes the carry.
fn add_multiple(sum: &mut [u64], number: &[u64], digit: u64, radix: Radix) {
    let mut carry = 0u128;
    for (sum, number) in sum.iter_mut().zip(number.iter().chain([&0])) {
        let column = u128::from(*sum) + u128::from(*number) * u128::from(digit) + carry;
        (*sum, carry) = (column as u64 & radix.mask(), column >> radix.bits);
    }
}

/// Subtracts the modulus unless the number is less.
fn subtract_once(number: &mut [u64], modulus: &[u64], radix: Radix) {
    let difference = |digit: &u64, other: &u64, borrow: u64| digit.wrapping_sub(*other).wrapping_sub(borrow);
    let mut borrow = 0;
    for (digit, other) in number.iter().zip(modulus) {
        borrow = difference(digit, other, borrow) >> 63;
    }
    // All ones where the number is to stay as it is.
    let (stay, mut borrow) = (borrow.wrapping_neg(), 0);
    for (digit, other) in number.iter_mut().zip(modulus) {
        let difference = difference(digit, other, borrow);
        borrow = difference >> 63;
        *digit = *digit & stay | difference & radix.mask() & !stay;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RADIXES: [Radix; 2] = [Radix { bits: 52 }, Radix { bits: 51 }];

    #[test]
    fn bytes_become_digits_and_bytes_again() {
        for (length, radix) in [1usize, 6, 7, 13, 64, 128, 256]
            .into_iter()
            .flat_map(|length| RADIXES.map(|radix| (length, radix)))
        {
            let bytes: Vec<u8> = (1..=length).map(|byte| (byte * 37 % 251) as u8).collect();
            let digits = from_bytes(&bytes, 8 * length / radix.bits as usize + 2, radix);
            assert!(digits.iter().all(|digit| *digit <= radix.mask()));
            let mut back = vec![0xff; length + 3];
            to_bytes(&digits, &mut back, radix);
            assert_eq!(back[..3], [0; 3]);
            assert_eq!(back[3..], bytes);
        }
        let bytes = [1, 0, 0, 0, 0, 0, 0x20, 3];
        assert_eq!(
            RADIXES.map(|radix| from_bytes(&bytes, 2, radix).to_vec()),
            [[0x2003, 0x10], [0x2003, 0x20]]
        );
    }

    #[test]
    fn windows_are_five_bits_each_the_greatest_first() {
        assert_eq!(*windows(&[0b0010_1010, 0b0111_1101], 16), [0, 0b01010, 0b10011, 0b11101][..]);
        assert_eq!(*windows(&[7], 25), [0, 0, 0, 0, 7], "leading zeroes may be missing");
    }

    #[test]
    fn the_inverse_is_one() {
        for (odd, radix) in
            [1, 3, 0x7_ffff_ffff_ffff, 0x4_1234_5678_9abd].into_iter().zip(RADIXES.into_iter().cycle())
        {
            let product = negated_inverse(odd, radix).wrapping_mul(odd);
            assert_eq!(product & radix.mask(), radix.mask(), "{odd:x}");
        }
    }

    #[test]
    fn shifts_and_products_are_right_modulo_a_number_of_two_digits() {
        let modulus: u128 = (0x1ead_beef_u128 << 64) + 0x1234_5678_9abc_def1;
        let shift = |number: u128, bits: u32| (0..bits).fold(number, |number, _| 2 * number % modulus);
        let (a, b) = (modulus - 1, modulus / 3);
        for radix in RADIXES {
            let digits = |number: u128| [number as u64 & radix.mask(), (number >> radix.bits) as u64];
            let number = |digits: &[u64]| u128::from(digits[1]) << radix.bits | u128::from(digits[0]);
            assert_eq!(number(&shift_left(&digits(a), 200, &digits(modulus), radix)), shift(a, 200));
            assert_eq!(number(&multiple(&digits(modulus), 7, radix)), 7 * modulus);
            let inverse = negated_inverse(digits(modulus)[0], radix);
            // a = -1, so the product is -b/R.
            let product = montgomery_multiply(&digits(a), &digits(b), &digits(modulus), inverse, radix);
            assert_eq!(shift(number(&product), 2 * radix.bits), modulus - b);
        }
    }
}
