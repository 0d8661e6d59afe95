//! RSA as clients of key transport use it: without proof of anything.

use num_bigint::BigUint;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;

use crate::error::AuditError;
use crate::random;

/// Lengths of a modulus that are worked with, in bits.
const BITS: std::ops::RangeInclusive<u64> = 512..=16384;

/// Longer exponents are those of servers that want their clients to be busy.
const EXPONENT_BITS: u64 = 64;

/// The key of a certificate.
pub(crate) struct Key {
    modulus: BigUint,
    exponent: BigUint,
}

impl Key {
    /// The key of a certificate (DER); `None` of another kind, and of lengths that no server has.
    pub(crate) fn of(certificate: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
        let PublicKey::RSA(key) = certificate.public_key().parsed().ok()? else { return None };
        let (modulus, exponent) = (BigUint::from_bytes_be(key.modulus), BigUint::from_bytes_be(key.exponent));
        (BITS.contains(&modulus.bits()) && exponent.bits() <= EXPONENT_BITS)
            .then_some(Self { modulus, exponent })
    }

    /// Bytes of what it encrypts, and of the result.
    pub(crate) fn length(&self) -> usize {
        self.modulus.bits().div_ceil(8) as usize
    }

    /// Random bytes of this length, of which none is zero.
    pub(crate) fn filling(&self) -> Result<Vec<u8>, AuditError> {
        let mut block = Vec::with_capacity(self.length());
        while block.len() < self.length() {
            block.extend(random::bytes::<64>()?.into_iter().filter(|byte| *byte != 0));
        }
        block.truncate(self.length());
        Ok(block)
    }

    /// A padded block encrypted, as the body of a `ClientKeyExchange` has it: behind its length.
    pub(crate) fn exchange(&self, block: &[u8]) -> Vec<u8> {
        let secret = BigUint::from_bytes_be(block).modpow(&self.exponent, &self.modulus).to_bytes_be();
        let mut body = (self.length() as u16).to_be_bytes().to_vec();
        body.resize(2 + self.length() - secret.len(), 0);
        body.extend(secret);
        body
    }
}
