#![doc = include_str!("rsa_lanes/README.md")]
#![expect(
    clippy::inline_always,
    reason = "what is not inlined into a function with the features enabled does without the instructions"
)]

mod block;
mod digits;
mod exponentiation;
#[cfg(target_arch = "x86_64")]
mod fma;
#[cfg(target_arch = "x86_64")]
mod ifma;
mod instructions;
mod key;
mod lanes;
mod montgomery;
mod operation;
#[cfg(any(test, feature = "testing"))]
mod portable;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod timing;

pub use instructions::Instructions;
pub use key::PreparedKey;

use std::fmt;

use crate::{processor::scrub_stack, rsa::RsaNumbers};

/// Most operations in one batch, whatever the instructions.
pub const OPERATIONS: usize = 4;

/// The sizes of key that batches and devices work with. Only keys of one size can share a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Width {
    /// 2048 bits.
    Rsa2048,
    /// 3072 bits.
    Rsa3072,
    /// 4096 bits.
    Rsa4096,
}

impl Width {
    /// Each [`Width`], the smallest first.
    pub const ALL: [Self; 3] = [Self::Rsa2048, Self::Rsa3072, Self::Rsa4096];

    /// The width of a modulus of `bits` bits.
    pub fn of_bits(bits: usize) -> Option<Self> {
        Self::ALL.into_iter().find(|width| width.bits() == bits)
    }

    /// The [`Width`] of a key with these numbers. `None` for a key that cannot share a batch: of a size that is none of these,
    /// with a public exponent that is not 65537, or with primes that are not of half the size of the modulus.
    pub fn of_key(numbers: &RsaNumbers) -> Option<Self> {
        let width = Self::of_bits(bits(&numbers.n))?;
        let half = width.bits() / 2;
        let odd = |number: &[u8]| number.last().is_some_and(|byte| byte & 1 == 1);
        // The check of a result consists of sixteen squarings and a product, for 65537 only. Montgomery
        // arithmetic needs odd moduli, and lanes have digits for primes of half the size.
        let usable = **numbers.e == [1, 0, 1]
            && [&numbers.p, &numbers.q].iter().all(|prime| bits(prime) == half && odd(prime))
            && odd(&numbers.n);
        usable.then_some(width)
    }

    /// Bits of the modulus.
    pub const fn bits(self) -> usize {
        match self {
            Self::Rsa2048 => 2048,
            Self::Rsa3072 => 3072,
            Self::Rsa4096 => 4096,
        }
    }
}

impl fmt::Display for Width {
    /// `RSA-2048`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RSA-{}", self.bits())
    }
}

/// One operation of a batch.
pub struct Lane<'a> {
    /// The key.
    pub key: &'a PreparedKey,
    /// Big-endian, as long as the modulus.
    pub input: &'a [u8],
    /// Becomes `input^d mod n`, as long; zeroes, unless the verdict is [`Verdict::Done`].
    pub output: &'a mut [u8],
}

/// The outcome of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The result is there, and raised to the public exponent it is the input.
    Done,
    /// The result did not stand the check, or there was no randomness for blinding: to be performed by other means.
    Fault,
    /// The input is not a number below the modulus.
    OutOfRange,
}

/// Performs operations with keys of one width that were made ready for the same instructions, in the time of a whole batch
/// however few they are; at most [`Instructions::operations`].
///
/// Verdicts beyond the operations mean nothing. Panics on a processor without the instructions; in tests it is as right
/// there with those of [`Instructions::Ifma`], and some fifty times slower than aws-lc.
pub fn private_transform(lanes: &mut [Lane<'_>]) -> [Verdict; OPERATIONS] {
    let Some(first) = lanes.first() else { return [Verdict::OutOfRange; OPERATIONS] };
    let (width, instructions) = (first.key.width(), first.key.instructions());
    debug_assert!(lanes.iter().all(|lane| lane.key.width() == width), "a batch of different widths");
    debug_assert!(
        lanes.iter().all(|lane| lane.key.instructions() == instructions),
        "keys for different lanes"
    );
    // In release builds too: a further operation would be loaded into a lane of the other prime.
    assert!(lanes.len() <= instructions.operations(), "more operations than lanes");
    let verdicts = match (instructions, width) {
        #[cfg(any(test, feature = "testing"))]
        (Instructions::Ifma, Width::Rsa3072) if !instructions.are_supported() => {
            operation::perform::<portable::Portable, 15>(lanes)
        }
        #[cfg(any(test, feature = "testing"))]
        (Instructions::Ifma, _) if !instructions.are_supported() => {
            operation::perform::<portable::Portable, 20>(lanes)
        }
        #[cfg(target_arch = "x86_64")]
        (Instructions::Ifma, Width::Rsa3072) => ifma::perform::<15>(lanes),
        #[cfg(target_arch = "x86_64")]
        (Instructions::Ifma, _) => ifma::perform::<20>(lanes),
        #[cfg(target_arch = "x86_64")]
        // The digits are the same, and half the lanes cost less.
        (Instructions::Fma512, _) if lanes.len() > Instructions::Fma.operations() => {
            fma::perform_in_eight_lanes(lanes)
        }
        #[cfg(target_arch = "x86_64")]
        (Instructions::Fma512 | Instructions::Fma, _) => fma::perform_in_four_lanes(lanes),
        #[cfg(not(target_arch = "x86_64"))]
        // There are no instructions, so no keys are ready for any.
        _ => [Verdict::Fault; OPERATIONS],
    };
    scrub_stack::<{ 16 * 1024 }>();
    verdicts
}

/// The length of a big-endian number in bits.
fn bits(number: &[u8]) -> usize {
    let significant = number.iter().skip_while(|byte| **byte == 0);
    let length = significant.clone().count();
    significant.clone().next().map_or(0, |first| 8 * length - first.leading_zeros() as usize)
}

/// Faults on purpose, to see them caught.
#[cfg(test)]
pub(crate) mod faults {
    use std::cell::Cell;

    use super::lanes::Lanes;

    /// Where there is to be a wrong bit.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Place {
        /// The power: in the lower half of the lanes modulo p, in the upper half modulo q.
        Power,
        /// The blinded input in the lower half; in the upper half the factor for a later operation.
        Blinding,
    }

    thread_local! {
        static FAULT: Cell<Option<(Place, usize)>> = const { Cell::new(None) };
    }

    /// The next batch of this thread has one wrong bit there, in this of the lanes.
    pub(crate) fn in_next_batch(place: Place, lane: usize) {
        FAULT.set(Some((place, lane)));
    }

    pub(super) fn inject<V: Lanes>(place: Place, digits: &mut V) {
        if let Some((at, lane)) = FAULT.get()
            && at == place
        {
            FAULT.set(None);
            let digit = &mut digits.lanes_mut()[lane];
            *digit = V::encode(V::decode(*digit) ^ 1);
        }
    }
}
