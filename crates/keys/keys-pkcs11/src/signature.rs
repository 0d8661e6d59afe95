//! Conversion of a token's signatures to the encoding of TLS, and their verification.

use aws_lc_rs::signature::ParsedPublicKey;
use brisk_keys::{KeyAlgorithm, verification};
use brisk_wire::registry::SignatureScheme;
use x509_parser::{prelude::FromDer, public_key, x509::SubjectPublicKeyInfo};

/// Public key that belongs to a key in a token.
#[derive(Clone, Debug)]
pub(crate) struct PublicKey {
    algorithm: KeyAlgorithm,
    schemes: Vec<(SignatureScheme, ParsedPublicKey)>,
    /// Modulus of an RSA key, without leading zeros.
    modulus: Option<Vec<u8>>,
}

impl PublicKey {
    /// Parses a DER `SubjectPublicKeyInfo`. `None` if AWS-LC does not support it.
    pub(crate) fn read(spki: &[u8], algorithm: KeyAlgorithm) -> Option<Self> {
        // Parsed once for each scheme, because every signature of the token is verified.
        let verifier = |scheme: &SignatureScheme| {
            let parsed = ParsedPublicKey::new(verification(*scheme)?, spki).ok()?;
            Some((*scheme, parsed))
        };
        let schemes = algorithm.schemes().iter().map(verifier).collect::<Option<Vec<_>>>()?;
        Some(Self { algorithm, schemes, modulus: modulus(spki) })
    }

    pub(crate) const fn algorithm(&self) -> KeyAlgorithm {
        self.algorithm
    }

    pub(crate) fn modulus(&self) -> Option<&[u8]> {
        self.modulus.as_deref()
    }

    /// Verifies a signature over `message`.
    pub(crate) fn verifies(&self, scheme: SignatureScheme, message: &[u8], signature: &[u8]) -> bool {
        let key = self.schemes.iter().find(|(own, _)| *own == scheme);
        key.is_some_and(|(_, key)| key.verify_sig(message, signature).is_ok())
    }
}

fn modulus(spki: &[u8]) -> Option<Vec<u8>> {
    let (_, spki) = SubjectPublicKeyInfo::from_der(spki).ok()?;
    let public_key::PublicKey::RSA(key) = spki.parsed().ok()? else { return None };
    let zeroes = key.modulus.iter().take_while(|byte| **byte == 0).count();
    Some(key.modulus[zeroes..].to_vec())
}

/// Encodes an ECDSA signature in DER (RFC 3279 section 2.2.3). Tokens return two integers of equal length; `None` for
/// anything else.
pub(crate) fn ecdsa_der(raw: &[u8]) -> Option<Vec<u8>> {
    // Up to P-384, all lengths fit into one byte.
    if raw.is_empty() || !raw.len().is_multiple_of(2) || raw.len() > 96 {
        return None;
    }
    let (r, s) = raw.split_at(raw.len() / 2);
    let (r, s) = (integer(r)?, integer(s)?);
    let mut der = vec![0x30, (r.len() + s.len()) as u8];
    der.extend(r);
    der.extend(s);
    Some(der)
}

/// Encodes a positive INTEGER in DER: no leading zeros except one that keeps it positive.
fn integer(bytes: &[u8]) -> Option<Vec<u8>> {
    let zeroes = bytes.iter().take_while(|byte| **byte == 0).count();
    let number = &bytes[zeroes..];
    let first = number.first()?;
    let sign = first & 0x80 != 0;
    let mut integer = vec![2, (number.len() + usize::from(sign)) as u8];
    integer.extend(sign.then_some(0));
    integer.extend(number);
    Some(integer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_signature_are_as_short_as_der_wants_them() {
        assert_eq!(ecdsa_der(&[1, 2]), Some(vec![0x30, 6, 2, 1, 1, 2, 1, 2]));
        assert_eq!(ecdsa_der(&[0, 0x7f, 0x80, 0]), Some(vec![0x30, 8, 2, 1, 0x7f, 2, 3, 0, 0x80, 0]));
        let der = ecdsa_der(&[0xff; 96]).unwrap();
        assert_eq!((der.len(), &der[..5]), (2 + 2 * 51, &[0x30, 102, 2, 49, 0][..]));
    }

    #[test]
    fn what_is_no_signature_is_refused() {
        for raw in [&[][..], &[1], &[1, 2, 3], &[0, 1], &[1, 0], &[1; 98]] {
            assert_eq!(ecdsa_der(raw), None, "{raw:?}");
        }
    }
}
