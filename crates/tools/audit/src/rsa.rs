//! RSA encryption of a premaster secret, without any proof of the key.

use num_bigint::BigUint;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;

use crate::error::AuditError;
use crate::random;

// The lower bound leaves room for the 11 bytes of padding and a premaster secret of 48 bytes (RFC 8017
// section 7.2.1).
/// Supported lengths of a modulus in bits.
const BITS: std::ops::RangeInclusive<u64> = 512..=16384;

/// Longest exponent in bits; servers with longer ones want to keep clients busy.
const EXPONENT_BITS: u64 = 64;

/// Public key of a certificate.
pub(crate) struct Key {
    modulus: BigUint,
    exponent: BigUint,
}

impl Key {
    /// The key of a certificate (DER); `None` for other algorithms and unsupported lengths.
    pub(crate) fn of(certificate: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let PublicKey::RSA(key) = certificate.public_key().parsed().ok()? else { return None };
        let (modulus, exponent) = (BigUint::from_bytes_be(key.modulus), BigUint::from_bytes_be(key.exponent));
        (BITS.contains(&modulus.bits()) && exponent.bits() <= EXPONENT_BITS)
            .then_some(Self { modulus, exponent })
    }

    /// Size in bytes of the encrypted block and of the result.
    pub(crate) fn length(&self) -> usize {
        self.modulus.bits().div_ceil(8) as usize
    }

    /// Random bytes without zeros.
    pub(crate) fn filling(&self) -> Result<Vec<u8>, AuditError> {
        let mut block = Vec::with_capacity(self.length());
        while block.len() < self.length() {
            // RFC 8017 section 7.2.1: the first zero ends the padding.
            block.extend(random::bytes::<64>()?.into_iter().filter(|byte| *byte != 0));
        }
        block.truncate(self.length());
        Ok(block)
    }

    /// Encrypts a padded block in the form of a `ClientKeyExchange` body, i.e. after its length.
    pub(crate) fn exchange(&self, block: &[u8]) -> Vec<u8> {
        // Not in constant time: the server is not authenticated, so the secret protects nothing.
        let secret = BigUint::from_bytes_be(block).modpow(&self.exponent, &self.modulus).to_bytes_be();
        let mut body = (self.length() as u16).to_be_bytes().to_vec();
        // RFC 8017 section 7.2.1: the ciphertext has the length of the modulus, including leading zeros.
        body.resize(2 + self.length() - secret.len(), 0);
        body.extend(secret);
        body
    }
}
