//! An RSA private key as the lanes want it: digits and Montgomery constants, computed once.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use zeroize::Zeroizing;

use super::{
    Instructions, Width,
    digits::{self, Digits, Radix},
};
use crate::rsa::{RsaNumbers, blinding_pair};

/// Operations that use one chain of blinding factors before fresh ones are drawn: making them costs about as much as
/// one operation in a batch, and each operation squares the last pair, so that none is used twice.
const BLINDING_USES: u32 = 256;

/// A private key, ready for the lanes. Wiped when it is dropped.
pub struct PreparedKey {
    width: Width,
    instructions: Instructions,
    public: Public,
    /// The modulus `n`.
    pub(super) modulus: Modulus,
    /// `R² mod n`.
    pub(super) r2: Digits,
    pub(super) p: Prime,
    pub(super) q: Prime,
    /// `1/q mod p`, in Montgomery form.
    pub(super) q_inverse: Digits,
    blinding: Mutex<Vec<Blinding>>,
}

/// The public key, big-endian.
struct Public {
    n: Vec<u8>,
    e: Vec<u8>,
}

/// A modulus with its precomputed values for Montgomery arithmetic.
pub(super) struct Modulus {
    pub(super) digits: Digits,
    /// -1/modulus modulo the radix.
    pub(super) inverse: Zeroizing<u64>,
    /// The modulus times `inverse`; empty if the lanes do not need it.
    pub(super) multiple: Digits,
}

/// One prime and the exponent that belongs to it.
pub(super) struct Prime {
    pub(super) modulus: Modulus,
    /// `R mod p`: 1 in Montgomery form.
    pub(super) one: Digits,
    /// `R³ mod p`.
    pub(super) r3: Digits,
    /// `d mod (p - 1)`, in windows of five bits, the greatest first.
    pub(super) exponent: Zeroizing<Vec<u8>>,
}

/// Factors that hide the base of the exponentiation: the operation is performed on `input · factor`, and its result
/// times `inverse` is the result for `input`. In Montgomery form modulo n, below 2·n.
pub(super) struct Blinding {
    /// `r^e`
    pub(super) factor: Digits,
    /// `1/r`
    pub(super) inverse: Digits,
    uses: u32,
}

impl PreparedKey {
    /// For lanes of these instructions. `None` for a key that they cannot work with, see [`Width::of_key`].
    pub fn new(numbers: &RsaNumbers, instructions: Instructions) -> Option<Self> {
        let width = Width::of_key(numbers)?;
        let (count, radix) = (instructions.prime_digits(width), instructions.radix());
        let modulus = |number: &[u8], count| Modulus::new(number, count, instructions);
        let p = Prime::new(modulus(&numbers.p, count), &numbers.dp, width, radix);
        let q = Prime::new(modulus(&numbers.q, count), &numbers.dq, width, radix);
        let q_inverse = digits::from_bytes(&numbers.qinv, count, radix);
        let q_inverse = digits::shift_left(&q_inverse, radix.bits * count as u32, &p.modulus.digits, radix);
        let public = Public { n: numbers.n.to_vec(), e: numbers.e.to_vec() };
        let modulus = modulus(&public.n, 2 * count);
        // For n, R is the radix to the power `2 * count`, the number of its digits. This is the square of
        // R, for the conversion of operands.
        let r2 = modulus.power_of_radix(2 * 2 * count, radix);
        Some(Self { width, instructions, public, modulus, r2, p, q, q_inverse, blinding: Mutex::default() })
    }

    /// The [`Instructions`] that the key was made ready for.
    pub(super) const fn instructions(&self) -> Instructions {
        self.instructions
    }

    /// Which other keys it can share a batch with.
    pub const fn width(&self) -> Width {
        self.width
    }

    /// Whether the private operation is defined for `input`: a number below the modulus, of the modulus' length.
    pub(super) fn accepts(&self, input: &[u8]) -> bool {
        // Variable time is acceptable: the caller knows both values.
        input.len() == self.public.n.len() && *input < self.public.n[..]
    }

    /// Factors for one operation, that no other operation has.
    pub(super) fn take_blinding(&self) -> Option<Blinding> {
        // The lock ends with this statement: fresh factors cost about as much as an operation, for which
        // others need not wait.
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
            let (Modulus { digits, inverse, .. }, radix) = (&self.modulus, self.instructions.radix());
            let number = digits::from_bytes(bytes, digits.len(), radix);
            digits::montgomery_multiply(&number, &self.r2, digits, **inverse, radix)
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

impl Modulus {
    fn new(modulus: &[u8], count: usize, instructions: Instructions) -> Self {
        let radix = instructions.radix();
        let digits = digits::from_bytes(modulus, count, radix);
        let inverse = digits::negated_inverse(digits[0], radix);
        let multiple = if instructions.reduce_by_multiple() {
            digits::multiple(&digits, inverse, radix)
        } else {
            Digits::default()
        };
        Self { digits, inverse: Zeroizing::new(inverse), multiple }
    }

    /// The radix to the power `exponent`, modulo this.
    fn power_of_radix(&self, exponent: usize, radix: Radix) -> Digits {
        let mut one = Zeroizing::new(vec![0; self.digits.len()]);
        one[0] = 1;
        digits::shift_left(&one, radix.bits * exponent as u32, &self.digits, radix)
    }
}

impl Prime {
    fn new(modulus: Modulus, exponent: &[u8], width: Width, radix: Radix) -> Self {
        let count = modulus.digits.len();
        let one = modulus.power_of_radix(count, radix);
        Self {
            r3: digits::shift_left(&one, 2 * radix.bits * count as u32, &modulus.digits, radix),
            one,
            exponent: digits::windows(exponent, width.bits() / 2),
            modulus,
        }
    }
}
