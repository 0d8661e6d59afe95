//! An RSA private key, prepared for AWS-LC, vector lanes and devices.

mod encoding;
#[cfg(test)]
mod vectors;

use std::sync::OnceLock;

use aws_lc_rs::{
    encoding::{AsDer, PublicKeyX509Der},
    error::Unspecified,
    rand::SystemRandom,
    signature::{self, KeyPair, RsaEncoding, RsaKeyPair},
};
use brisk_lanes::rsa::{RawRsa, RsaNumbers};
use brisk_lanes::rsa_lanes::{Instructions, PreparedKey, Width};
use brisk_wire::registry::SignatureScheme;
use rustls_pki_types::PrivateKeyDer;
use zeroize::Zeroizing;

use crate::{
    KeyAlgorithm, KeyError, KeyResult, OperationKind,
    error::{REFUSED_TO_SIGN, refused},
    premaster::Rejection,
};

/// An RSA private key. Whatever holds a part of it wipes that when it is dropped.
pub(crate) struct RsaPrivateKey {
    /// For a signature alone.
    pair: RsaKeyPair,
    /// For its numbers, and for the bare operation of a decryption.
    raw: RawRsa,
    /// What other keys it can share a batch with.
    width: Option<Width>,
    /// For a lane of a batch, by instructions; made when it is first asked for.
    prepared: [OnceLock<Option<Box<PreparedKey>>>; Instructions::ALL.len()],
    rejection: Rejection,
}

impl RsaPrivateKey {
    /// Reads PKCS#1 or PKCS#8: 2048 to 8192 bits, two prime factors.
    pub(crate) fn from_der(der: &PrivateKeyDer<'_>) -> Result<Self, KeyError> {
        let pair = match der {
            PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der())
                .map_err(|rejected| refused("RSA (PKCS#1)", rejected))?,
            PrivateKeyDer::Pkcs8(key) => RsaKeyPair::from_pkcs8(key.secret_pkcs8_der())
                .map_err(|rejected| refused("PKCS#8", rejected))?,
            _ => return Err(KeyError::Malformed("not a PKCS#8 or PKCS#1 private key".into())),
        };
        // Parsed a second time: `RsaKeyPair` reveals neither the numbers nor the operation without padding.
        let raw = RawRsa::from_private_der(der)?;
        let width = Width::of_key(&raw.numbers());
        // Read at load although only decryptions need it, so that no decryption fails later without it.
        let exponent = raw.private_exponent().ok_or_else(|| {
            KeyError::Malformed(
                "not an RSA private key with its private exponent, in PKCS#1 or PKCS#8".into(),
            )
        })?;
        let rejection = Rejection::new(&exponent);
        let prepared = [const { OnceLock::new() }; Instructions::ALL.len()];
        Ok(Self { pair, raw, width, prepared, rejection })
    }

    /// With the exact length of the modulus.
    pub(crate) fn algorithm(&self) -> KeyAlgorithm {
        let bits = u16::try_from(self.raw.bits()).expect("aws-lc-rs accepts at most 8192 bits");
        KeyAlgorithm::Rsa { bits }
    }

    /// Length of the modulus in bytes: that of ciphertexts, encoded messages and results.
    pub(crate) const fn size(&self) -> usize {
        self.raw.size()
    }

    /// The public half as DER `SubjectPublicKeyInfo`.
    pub(crate) fn spki(&self) -> Result<PublicKeyX509Der<'static>, Unspecified> {
        self.pair.public_key().as_der()
    }

    /// The width of the batches, on the processor or on a GPU, that operations with this key can share. `None`: they are
    /// performed one by one; see [`Width::of_key`].
    pub(crate) const fn width(&self) -> Option<Width> {
        self.width
    }

    /// What a batch with these instructions computes with. `None` for a key without a [`width`](Self::width).
    ///
    /// The first call for some instructions computes it, which takes about as long as an operation with the key.
    pub(crate) fn prepared(&self, instructions: Instructions) -> Option<&PreparedKey> {
        // `PreparedKey::new` refuses such keys too, but only after another copy of the private numbers.
        self.width?;
        let prepare = || PreparedKey::new(&self.raw.numbers(), instructions).map(Box::new);
        self.prepared[instructions as usize].get_or_init(prepare).as_deref()
    }

    /// What answers for ciphertexts without a premaster secret.
    pub(crate) const fn rejection(&self) -> &Rejection {
        &self.rejection
    }

    /// Copies of the key's numbers.
    pub(crate) fn numbers(&self) -> RsaNumbers {
        self.raw.numbers()
    }

    /// What the private operation is applied to: the encoded message, or the ciphertext itself.
    pub(crate) fn representative(&self, kind: &OperationKind) -> Result<Vec<u8>, KeyError> {
        match kind {
            OperationKind::Sign { scheme, message } => {
                encoding::encode(*scheme, message, self.raw.bits(), &SystemRandom::new())
            }
            OperationKind::Decrypt { ciphertext } => Ok(ciphertext.to_vec()),
        }
    }

    /// Signs `message` with aws-lc, which encodes it as well.
    pub(crate) fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> KeyResult {
        let Some(encoding) = aws_lc_encoding(scheme) else {
            return Err(KeyError::UnsupportedScheme { scheme, algorithm: self.algorithm() });
        };
        let mut signature = vec![0; self.size()];
        self.pair
            .sign(encoding, &SystemRandom::new(), message, &mut signature)
            .map_err(|Unspecified| REFUSED_TO_SIGN)?;
        Ok(signature.into())
    }

    /// Decrypts with aws-lc, and leaves the padding in place.
    pub(crate) fn decrypt(&self, ciphertext: &[u8]) -> KeyResult {
        let mut plaintext = Zeroizing::new(vec![0; self.size()]);
        self.raw.transform(ciphertext, &mut plaintext)?;
        Ok(plaintext)
    }
}

fn aws_lc_encoding(scheme: SignatureScheme) -> Option<&'static dyn RsaEncoding> {
    Some(match scheme {
        SignatureScheme::RSA_PSS_RSAE_SHA256 => &signature::RSA_PSS_SHA256,
        SignatureScheme::RSA_PSS_RSAE_SHA384 => &signature::RSA_PSS_SHA384,
        SignatureScheme::RSA_PSS_RSAE_SHA512 => &signature::RSA_PSS_SHA512,
        SignatureScheme::RSA_PKCS1_SHA256 => &signature::RSA_PKCS1_SHA256,
        SignatureScheme::RSA_PKCS1_SHA384 => &signature::RSA_PKCS1_SHA384,
        SignatureScheme::RSA_PKCS1_SHA512 => &signature::RSA_PKCS1_SHA512,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::signature::ParsedPublicKey;
    use bytes::Bytes;

    use brisk_testkit::rsa::{SIZES, key};

    use super::*;
    use crate::testing::verification;

    const MESSAGE: &[u8] = b"what the server signs";
    const SCHEMES: &[SignatureScheme] = KeyAlgorithm::Rsa { bits: 2048 }.schemes();

    fn private_key(bits: usize) -> RsaPrivateKey {
        RsaPrivateKey::from_der(&key(bits).der).unwrap()
    }

    /// The signature as a batch makes it: the encoded message, then the private operation.
    fn sign_in_two_steps(key: &RsaPrivateKey, scheme: SignatureScheme) -> Vec<u8> {
        let kind = OperationKind::Sign { scheme, message: Bytes::from_static(MESSAGE) };
        key.decrypt(&key.representative(&kind).unwrap()).unwrap().to_vec()
    }

    #[test]
    fn a_signature_in_two_steps_verifies_with_every_scheme_and_size() {
        for bits in SIZES {
            let key = private_key(bits);
            for &scheme in SCHEMES {
                let signature = sign_in_two_steps(&key, scheme);
                let public =
                    ParsedPublicKey::new(verification(scheme), key.spki().unwrap().as_ref()).unwrap();
                assert!(public.verify_sig(MESSAGE, &signature).is_ok(), "{scheme} {bits}");
                assert!(public.verify_sig(b"another message", &signature).is_err(), "{scheme} {bits}");
            }
        }
    }

    #[test]
    fn pkcs1_in_two_steps_is_byte_for_byte_that_of_aws_lc() {
        for bits in SIZES {
            let key = private_key(bits);
            for &scheme in SCHEMES.iter().filter(|scheme| scheme.to_string().starts_with("rsa_pkcs1")) {
                let signature = key.sign(scheme, MESSAGE).unwrap();
                assert_eq!(sign_in_two_steps(&key, scheme), *signature, "{scheme} {bits}");
            }
        }
    }

    #[test]
    fn the_algorithm_has_the_exact_length_of_the_modulus() {
        for bits in SIZES {
            let key = private_key(bits);
            assert_eq!(key.algorithm(), KeyAlgorithm::Rsa { bits: bits as u16 });
            assert_eq!(key.size(), bits.div_ceil(8));
        }
    }

    #[test]
    fn what_openssl_encrypted_comes_back_with_its_padding() {
        for bits in SIZES {
            let plaintext = b"\x03\x03 a premaster secret";
            let ciphertext = key(bits).encrypt_pkcs1(plaintext);
            let padded = private_key(bits).decrypt(&ciphertext).unwrap();
            // RFC 8017 section 7.2.1: 00 02, nonzero bytes, 00, the message.
            let padding = padded.len() - plaintext.len() - 1;
            assert_eq!(padded[..2], [0, 2], "{bits}");
            assert!(padded[2..padding].iter().all(|byte| *byte != 0), "{bits}");
            assert_eq!(padded[padding], 0, "{bits}");
            assert_eq!(padded[padding + 1..], *plaintext, "{bits}");
        }
    }

    #[test]
    fn another_key_s_scheme_is_refused() {
        let (key, scheme) = (private_key(2048), SignatureScheme::ED25519);
        let refusal = KeyError::UnsupportedScheme { scheme, algorithm: key.algorithm() };
        assert_eq!(key.sign(scheme, MESSAGE), Err(refusal.clone()));
        let kind = OperationKind::Sign { scheme, message: Bytes::from_static(MESSAGE) };
        assert_eq!(key.representative(&kind), Err(refusal));
    }
}
