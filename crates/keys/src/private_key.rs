//! One private key held by this process: how it is read, and how it signs.

use std::fmt;

use aws_lc_rs::{
    encoding::{AsDer, PublicKeyX509Der},
    error::KeyRejected,
    rand::SystemRandom,
    signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaEncoding, RsaKeyPair},
};
use brisk_wire::registry::SignatureScheme;
use rustls_pki_types::PrivateKeyDer;

use crate::{KeyAlgorithm, KeyError, KeyId, KeyResult};

/// A private key. aws-lc wipes the key's memory when it is dropped.
pub(crate) struct PrivateKey {
    id: KeyId,
    algorithm: KeyAlgorithm,
    spki: Box<[u8]>,
    pair: Pair,
}

enum Pair {
    Ecdsa(EcdsaKeyPair),
    Rsa(RsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl PrivateKey {
    /// Reads PKCS#8, PKCS#1 (RSA) or SEC1 (ECDSA), without a passphrase.
    pub(crate) fn from_der(der: &PrivateKeyDer<'_>) -> Result<Self, KeyError> {
        match der {
            PrivateKeyDer::Pkcs1(key) => RsaKeyPair::from_der(key.secret_pkcs1_der())
                .map_err(|rejected| refused("RSA (PKCS#1)", rejected))
                .and_then(Self::rsa),
            PrivateKeyDer::Sec1(key) => ecdsa_pair(key.secret_sec1_der())
                .map_err(|rejected| refused("EC (SEC1, P-256 or P-384)", rejected))
                .and_then(|(algorithm, pair)| Self::ecdsa(algorithm, pair)),
            PrivateKeyDer::Pkcs8(key) => Self::from_pkcs8(key.secret_pkcs8_der()),
            _ => Err(KeyError::Malformed("not a PKCS#8, PKCS#1 or SEC1 private key".into())),
        }
    }

    /// PKCS#8 holds any kind of key, so each kind is tried; what was wrong with the last tells too little to repeat.
    fn from_pkcs8(der: &[u8]) -> Result<Self, KeyError> {
        if let Ok((algorithm, pair)) = ecdsa_pair(der) {
            return Self::ecdsa(algorithm, pair);
        }
        // OpenSSL writes Ed25519 keys without their public half, which only this function accepts.
        if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
            return Self::ed25519(pair);
        }
        RsaKeyPair::from_pkcs8(der).map_err(|rejected| refused("PKCS#8", rejected)).and_then(Self::rsa)
    }

    fn ecdsa(algorithm: KeyAlgorithm, pair: EcdsaKeyPair) -> Result<Self, KeyError> {
        let spki = pair.public_key().as_der();
        Self::new(algorithm, spki, Pair::Ecdsa(pair))
    }

    fn ed25519(pair: Ed25519KeyPair) -> Result<Self, KeyError> {
        let spki = pair.public_key().as_der();
        Self::new(KeyAlgorithm::Ed25519, spki, Pair::Ed25519(pair))
    }

    fn rsa(pair: RsaKeyPair) -> Result<Self, KeyError> {
        let bits = u16::try_from(pair.public_modulus_len() * 8).expect("aws-lc accepts at most 8192 bits");
        let spki = pair.public_key().as_der();
        Self::new(KeyAlgorithm::Rsa { bits }, spki, Pair::Rsa(pair))
    }

    fn new(
        algorithm: KeyAlgorithm,
        spki: Result<PublicKeyX509Der<'_>, aws_lc_rs::error::Unspecified>,
        pair: Pair,
    ) -> Result<Self, KeyError> {
        let spki = spki.map_err(|_| KeyError::Malformed("the private key has no public half".into()))?;
        let spki = Box::from(spki.as_ref());
        Ok(Self { id: KeyId::of_spki(&spki), algorithm, spki, pair })
    }

    pub(crate) const fn id(&self) -> KeyId {
        self.id
    }

    pub(crate) const fn algorithm(&self) -> KeyAlgorithm {
        self.algorithm
    }

    /// The public key as DER `SubjectPublicKeyInfo`, RFC 5280 section 4.1.
    pub(crate) fn spki(&self) -> &[u8] {
        &self.spki
    }

    /// Whether a signature takes so long (RSA: 0.2 to 5 ms) that a thread serving connections must not make it.
    pub(crate) const fn is_slow(&self) -> bool {
        matches!(self.pair, Pair::Rsa(_))
    }

    /// An error if the key cannot sign with `scheme`.
    pub(crate) fn check(&self, scheme: SignatureScheme) -> Result<(), KeyError> {
        if self.algorithm.schemes().contains(&scheme) {
            return Ok(());
        }
        Err(KeyError::UnsupportedScheme { scheme, algorithm: self.algorithm })
    }

    /// Signs `message` itself: hashing is part of the scheme.
    pub(crate) fn sign(&self, scheme: SignatureScheme, message: &[u8]) -> KeyResult {
        self.check(scheme)?;
        match &self.pair {
            Pair::Ecdsa(pair) => {
                pair.sign(&SystemRandom::new(), message).map(|signature| signature.as_ref().to_vec())
            }
            Pair::Ed25519(pair) => pair.try_sign(message).map(|signature| signature.as_ref().to_vec()),
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                let encoding =
                    rsa_encoding(scheme).expect("`check` lets only RSA schemes pass for an RSA key");
                pair.sign(encoding, &SystemRandom::new(), message, &mut signature).map(|()| signature)
            }
        }
        .map_err(|_| KeyError::Failed("the cryptographic library refused to sign"))
    }
}

impl fmt::Debug for PrivateKey {
    /// The name and the algorithm, which are public.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey")
            .field("id", &self.id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

/// Reads SEC1 or PKCS#8; the curve decides the algorithm.
fn ecdsa_pair(der: &[u8]) -> Result<(KeyAlgorithm, EcdsaKeyPair), KeyRejected> {
    EcdsaKeyPair::from_private_key_der(&signature::ECDSA_P256_SHA256_ASN1_SIGNING, der)
        .map(|pair| (KeyAlgorithm::EcdsaP256, pair))
        .or_else(|_| {
            EcdsaKeyPair::from_private_key_der(&signature::ECDSA_P384_SHA384_ASN1_SIGNING, der)
                .map(|pair| (KeyAlgorithm::EcdsaP384, pair))
        })
}

fn rsa_encoding(scheme: SignatureScheme) -> Option<&'static dyn RsaEncoding> {
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

fn refused(form: &str, rejected: KeyRejected) -> KeyError {
    KeyError::Malformed(format!(
        "not a usable {form} private key ({rejected}): wanted ECDSA on P-256 or P-384, Ed25519, or RSA of 2048 to 8192 bits"
    ))
}
