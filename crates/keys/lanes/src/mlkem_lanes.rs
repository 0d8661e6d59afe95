//! Encapsulation with ML-KEM-768 (FIPS 203), up to eight at a time, in vector registers of AVX-512.
//!
//! Two thirds of the work are hashes. They are computed eight at a time, each in its own 64-bit lane, independently
//! of the encapsulation that they belong to. Polynomials have coefficients of twelve bits; a register contains 32 of
//! them, and eight registers a polynomial. So a smaller batch takes less time, and on some processors lanes are
//! faster even for a single encapsulation: [`Encapsulation::break_even`] measures that.
//!
//! | file | content |
//! |---|---|
//! | `batch` | encapsulations from keys to ciphertexts |
//! | `matrices` | hashes of keys, and the matrices in them |
//! | `keccak` | eight hashes at a time |
//! | `sampling` | polynomials from random bytes |
//! | `polynomial` | the number-theoretic transform and products |
//! | `encoding` | polynomials from bytes and to bytes |
//! | `register` | operations on registers: `avx512`, and `portable` for tests |
//! | `calibration` | cost of a batch on this processor |
//!
//! No branch, no address and no instruction of variable time depends on a secret: the message, its hashes, and the
//! noise. The matrix and its sampling are public. Secrets are wiped.
//!
//! Results are not verified. A wrong bit makes a ciphertext from which the client derives another secret, and the
//! handshake fails at the first record. It reveals no key: the server has no long-term key here, and the inputs of an
//! encapsulation are used once.
#![expect(
    clippy::inline_always,
    clippy::needless_range_loop,
    reason = "what is not inlined into a function with the features does without the instructions, closures least of all"
)]

#[cfg(target_arch = "x86_64")]
mod avx512;
mod batch;
mod calibration;
mod encoding;
mod keccak;
mod matrices;
mod polynomial;
#[cfg(any(test, feature = "testing"))]
mod portable;
mod register;
mod sampling;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod timing;

use aws_lc_rs::{
    kem::{EncapsulationKey, ML_KEM_768},
    rand,
};
use zeroize::Zeroizing;

use crate::processor::scrub_stack;

/// Hashes at a time, and most encapsulations of a batch.
const LANES: usize = 8;

/// Bytes of an encapsulation key and of a ciphertext, FIPS 203 section 8.
const KEY: usize = 1184;
const CIPHERTEXT: usize = 1088;

/// An encapsulation with ML-KEM-768. The secret is wiped when it is dropped.
pub struct Encapsulation(Box<Parts>);

/// On the heap, so that no move leaves a copy of the secret behind.
struct Parts {
    key: [u8; KEY],
    ciphertext: [u8; CIPHERTEXT],
    shared: Zeroizing<[u8; 32]>,
    is_done: bool,
}

impl Encapsulation {
    /// One for an encapsulation key, yet to be performed. `None` if the key does not stand the checks of FIPS 203
    /// section 7.2: the length, and the range of its coefficients.
    pub fn new(encapsulation_key: &[u8]) -> Option<Self> {
        let key: [u8; KEY] = encapsulation_key.try_into().ok()?;
        encoding::has_reduced_coefficients(&key[..KEY - 32]).then(|| {
            let (ciphertext, shared) = ([0; CIPHERTEXT], Zeroizing::new([0; 32]));
            Self(Box::new(Parts { key, ciphertext, shared, is_done: false }))
        })
    }

    /// Performs it with aws-lc.
    pub fn perform(&mut self) {
        let key = EncapsulationKey::new(&ML_KEM_768, &self.0.key).ok();
        if let Some((ciphertext, shared)) = key.and_then(|key| key.encapsulate().ok()) {
            self.0.ciphertext.copy_from_slice(ciphertext.as_ref());
            self.0.shared.copy_from_slice(shared.as_ref());
            self.0.is_done = true;
        }
    }

    /// Performs all of them, in lanes where that takes less time than one by one. Returns how many were in lanes.
    pub fn perform_all(encapsulations: &mut [Self]) -> usize {
        let break_even = Self::break_even().unwrap_or(usize::MAX);
        let (in_lanes, alone) =
            encapsulations.split_at_mut(crate::ec_lanes::worth_lanes(encapsulations.len(), break_even));
        alone.iter_mut().for_each(Self::perform);
        if !in_lanes.is_empty() {
            Self::perform_together(in_lanes);
        }
        in_lanes.len()
    }

    /// Performs some in lanes, eight at a time.
    ///
    /// # Panics
    ///
    /// Where [`Encapsulation::break_even`] is `None`.
    pub fn perform_together(encapsulations: &mut [Self]) {
        for together in encapsulations.chunks_mut(LANES) {
            let mut messages = Zeroizing::new([[0; 32]; LANES]);
            // Without randomness, `is_done` stays false, and the handshake fails.
            if rand::fill(messages[..together.len()].as_flattened_mut()).is_ok() {
                encapsulate(together, &messages[..together.len()]);
            }
        }
        scrub_stack::<{ 40 * 1024 }>();
    }

    /// What the peer is sent, once it was performed.
    pub const fn ciphertext(&self) -> &[u8; CIPHERTEXT] {
        &self.0.ciphertext
    }

    /// The shared secret. `None` unless it was performed, which needs randomness.
    pub fn shared(&self) -> Option<&[u8; 32]> {
        self.0.is_done.then_some(&*self.0.shared)
    }
}

/// Whether this processor has what the lanes are made of.
fn are_supported() -> bool {
    #[cfg(target_arch = "x86_64")]
    return avx512::is_supported();
    #[cfg(not(target_arch = "x86_64"))]
    return false;
}

/// Performs at most eight, each with its message.
fn encapsulate(encapsulations: &mut [Encapsulation], messages: &[[u8; 32]]) {
    #[cfg(any(test, feature = "testing"))]
    if !are_supported() {
        return batch::encapsulate::<portable::Portable>(encapsulations, messages);
    }
    #[cfg(target_arch = "x86_64")]
    avx512::encapsulate(encapsulations, messages);
    #[cfg(not(target_arch = "x86_64"))]
    panic!("this processor has no AVX-512");
}
