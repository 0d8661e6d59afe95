//! An RSA private key as the lanes want it: digits and Montgomery constants, computed once.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use zeroize::Zeroizing;

use super::{
    Width,
    digits::{self, Digits},
    lanes::DIGIT_BITS,
};
use crate::rsa::{RsaNumbers, blinding_pair};

/// So many operations use one chain of blinding factors before fresh ones are drawn: making them costs about as much as
/// one operation in a batch, and each operation squares the last pair, so that none is used twice.
const BLINDING_USES: u32 = 256;

/// A private key, ready for the lanes. Wiped when it is dropped.
pub(crate) struct PreparedKey {
    pub(super) width: Width,
    public: Public,
    pub(super) modulus: PublicModulus,
    pub(super) p: Prime,
    pub(super) q: Prime,
    /// 1/q mod p, in Montgomery form.
    pub(super) q_inverse: Digits,
    blinding: Mutex<Vec<Blinding>>,
}

/// The public key, big-endian.
struct Public {
    n: Vec<u8>,
    e: Vec<u8>,
}

/// n, and what Montgomery arithmetic needs of it.
pub(super) struct PublicModulus {
    pub(super) digits: Vec<u64>,
    /// -1/n modulo 2^52.
    pub(super) inverse: u64,
    /// R² mod n.
    pub(super) r2: Vec<u64>,
}

/// One prime and the exponent that belongs to it.
pub(super) struct Prime {
    pub(super) digits: Digits,
    /// -1/p modulo 2^52.
    pub(super) inverse: Zeroizing<u64>,
    /// R mod p: 1 in Montgomery form.
    pub(super) one: Digits,
    /// R³ mod p.
    pub(super) r3: Digits,
    /// d mod p-1, in windows of five bits, the greatest first.
    pub(super) exponent: Zeroizing<Vec<u8>>,
}

/// Factors that hide what is exponentiated: the operation is performed on `input · factor`, and its result times
/// `inverse` is the result for `input`. In Montgomery form modulo n, below 2·n.
pub(super) struct Blinding {
    /// r^e
    pub(super) factor: Digits,
    /// 1/r
    pub(super) inverse: Digits,
    uses: u32,
}

impl PreparedKey {
    /// `None` for a key that the lanes cannot work with, see [`Width::of_key`].
    pub(crate) fn new(numbers: &RsaNumbers) -> Option<Self> {
        let width = Width::of_key(numbers)?;
        let count = width.prime_digits();
        let p = Prime::new(&numbers.p, &numbers.dp, width);
        let q = Prime::new(&numbers.q, &numbers.dq, width);
        let q_inverse = digits::from_bytes(&numbers.qinv, count);
        let q_inverse = digits::shift_left(&q_inverse, DIGIT_BITS * count as u32, &p.digits);
        let public = Public { n: numbers.n.to_vec(), e: numbers.e.to_vec() };
        let modulus = PublicModulus::new(&public.n, 2 * count);
        Some(Self { width, public, modulus, p, q, q_inverse, blinding: Mutex::default() })
    }

    /// Which other keys it can share a batch with.
    pub(crate) const fn width(&self) -> Width {
        self.width
    }

    /// Whether the private operation is defined for `input`: a number below the modulus, of the modulus' length.
    pub(super) fn accepts(&self, input: &[u8]) -> bool {
        // Neither is a secret to the one who asked for the operation.
        input.len() == self.public.n.len() && *input < self.public.n[..]
    }

    /// Factors for one operation, that no other operation has.
    pub(super) fn take_blinding(&self) -> Option<Blinding> {
        let kept = self.blinding.lock().unwrap_or_else(PoisonError::into_inner).pop();
        kept.or_else(|| self.fresh_blinding())
    }

    /// Takes back the factors of a finished operation, squared.
    pub(super) fn give_blinding(&self, mut squared: Blinding) {
        squared.uses += 1;
        if squared.uses < BLINDING_USES {
            self.blinding.lock().unwrap_or_else(PoisonError::into_inner).push(squared);
        }
    }

    fn fresh_blinding(&self) -> Option<Blinding> {
        let pair = blinding_pair(&self.public.n, &self.public.e).ok()?;
        let montgomery = |bytes: &[u8]| {
            let number = digits::from_bytes(bytes, self.modulus.digits.len());
            let PublicModulus { digits, inverse, r2 } = &self.modulus;
            digits::montgomery_multiply(&number, r2, digits, *inverse)
        };
        Some(Blinding { factor: montgomery(&pair.factor), inverse: montgomery(&pair.inverse), uses: 0 })
    }
}

impl fmt::Debug for PreparedKey {
    /// Shows no number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedKey").field("width", &self.width).finish_non_exhaustive()
    }
}

impl PublicModulus {
    fn new(n: &[u8], count: usize) -> Self {
        let digits = digits::from_bytes(n, count);
        let mut one = vec![0; count];
        one[0] = 1;
        let r2 = digits::shift_left(&one, 2 * DIGIT_BITS * count as u32, &digits).to_vec();
        Self { inverse: digits::negated_inverse(digits[0]), digits: digits.to_vec(), r2 }
    }
}

impl Prime {
    fn new(prime: &[u8], exponent: &[u8], width: Width) -> Self {
        let count = width.prime_digits();
        let digits = digits::from_bytes(prime, count);
        let r_bits = DIGIT_BITS * count as u32;
        let mut one = Zeroizing::new(vec![0; count]);
        one[0] = 1;
        let one = digits::shift_left(&one, r_bits, &digits);
        Self {
            inverse: Zeroizing::new(digits::negated_inverse(digits[0])),
            r3: digits::shift_left(&one, 2 * r_bits, &digits),
            exponent: digits::windows(exponent, width.bits() / 2),
            one,
            digits,
        }
    }
}
