//! Premaster secrets of decrypted ciphertexts, with valid or invalid padding.

use aws_lc_rs::{digest, hmac};
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};
use zeroize::Zeroizing;

/// Length of a premaster secret (RFC 5246 section 7.4.7.1).
pub const PREMASTER: usize = 48;

/// Length of the output of HMAC-SHA256, the pseudorandom function.
const BLOCK: usize = 32;

/// Label of the alternative message in the draft.
const LABEL: &[u8] = b"message";

/// Secret from which replacement messages are derived, together with a ciphertext: the SHA-256 of the private
/// exponent.
pub(crate) struct Rejection(Zeroizing<[u8; BLOCK]>);

impl Rejection {
    /// Creates the secret of the key with this private exponent, which is big-endian and as long as the modulus.
    pub(crate) fn new(exponent: &[u8]) -> Self {
        let mut secret = Zeroizing::new([0; BLOCK]);
        secret.copy_from_slice(digest::digest(&digest::SHA256, exponent).as_ref());
        Self(secret)
    }

    /// The premaster secret of `ciphertext`, whose decryption is `padded`. Both are as long as the modulus, at least
    /// 256 bytes.
    pub(crate) fn premaster(&self, ciphertext: &[u8], padded: &[u8]) -> Zeroizing<Vec<u8>> {
        let (padding, message) = padded.split_at(padded.len() - PREMASTER);
        let is_right = is_padding(padding);
        // Derived in any case, and then selected without a branch: the time must not depend on the padding.
        let mut result = self.synthetic(ciphertext);
        for (byte, own) in result.iter_mut().zip(message) {
            *byte = u8::conditional_select(byte, own, is_right);
        }
        result
    }

    /// Replacement for the message of a ciphertext without valid padding: the end of the draft's alternative message.
    fn synthetic(&self, ciphertext: &[u8]) -> Zeroizing<Vec<u8>> {
        // draft-irtf-cfrg-rsa-guidance: the key is HMAC(SHA-256(private exponent), ciphertext), and block i
        // of the alternative message is HMAC(key, i, label, length in bits).
        let key = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &*self.0), ciphertext);
        let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_ref());
        let length = ciphertext.len();
        let bits = u16::try_from(length * 8).expect("keys have 8192 bits at most");
        // Blocks depend on their number alone, so the blocks before the last 48 bytes need not be computed.
        let first = (length - PREMASTER) / BLOCK;
        let mut made = Zeroizing::new(Vec::with_capacity(length));
        for number in first..length.div_ceil(BLOCK) {
            let mut block = hmac::Context::with_key(&key);
            block.update(&(number as u16).to_be_bytes());
            block.update(LABEL);
            block.update(&bits.to_be_bytes());
            made.extend_from_slice(block.sign().as_ref());
        }
        let start = length - PREMASTER - first * BLOCK;
        Zeroizing::new(made[start..start + PREMASTER].to_vec())
    }
}

/// Whether `padding` is the prefix of a PKCS#1 v1.5 message (RFC 8017 section 7.2.1): `00 02`, non-zero bytes, `00`.
/// It is as long as the modulus without the message, so at least eight non-zero bytes are certain.
pub(super) fn is_padding(padding: &[u8]) -> Choice {
    let [zero, two, filling @ .., end] = padding else { return Choice::from(0) };
    let is_filled = |so_far: Choice, byte: &u8| so_far & !byte.ct_eq(&0);
    // Reads all bytes: the time of an early end would be the oracle of Bleichenbacher's attack.
    filling.iter().fold(zero.ct_eq(&0) & two.ct_eq(&2) & end.ct_eq(&0), is_filled)
}
