//! A private key in this process: its parser and its operations.

use std::fmt;

use aws_lc_rs::{
    encoding::{AsDer, PublicKeyX509Der},
    error::{KeyRejected, Unspecified},
    rand::SystemRandom,
    signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair, PqdsaKeyPair, Signature},
};
use brisk_lanes::{
    ec_lanes::{self, PreparedKey},
    rsa::RsaNumbers,
    rsa_lanes::Width,
};
use rustls_pki_types::PrivateKeyDer;

use crate::{
    KeyAlgorithm, KeyError, KeyId, KeyResult, OperationKind,
    error::{REFUSED_TO_SIGN, refused},
    rsa::RsaPrivateKey,
};

/// A private key. AWS-LC wipes the memory of the key on drop.
pub struct PrivateKey {
    id: KeyId,
    algorithm: KeyAlgorithm,
    spki: Box<[u8]>,
    pair: Pair,
    /// A P-256 key in the form for vector lanes.
    p256: Option<Box<PreparedKey>>,
}

enum Pair {
    Ecdsa(EcdsaKeyPair),
    Rsa(Box<RsaPrivateKey>),
    Ed25519(Ed25519KeyPair),
    MlDsa(PqdsaKeyPair),
}

impl PrivateKey {
    /// Parses PKCS#8, PKCS#1 (RSA) or SEC1 (ECDSA), without a passphrase.
    pub(crate) fn from_der(der: &PrivateKeyDer<'_>) -> Result<Self, KeyError> {
        match der {
            PrivateKeyDer::Pkcs1(_) => RsaPrivateKey::from_der(der).and_then(Self::from_rsa),
            PrivateKeyDer::Sec1(key) => ecdsa_pair(key.secret_sec1_der())
                .map_err(|rejected| refused("EC (SEC1, P-256 or P-384)", rejected))
                .and_then(|(algorithm, pair)| Self::from_ecdsa(algorithm, pair)),
            PrivateKeyDer::Pkcs8(key) => Self::from_pkcs8(der, key.secret_pkcs8_der()),
            _ => Err(KeyError::Malformed("not a PKCS#8, PKCS#1 or SEC1 private key".into())),
        }
    }

    /// Parses PKCS#8, which holds any kind of key, so each kind is tried. The error of the last attempt is too vague
    /// to return.
    fn from_pkcs8(der: &PrivateKeyDer<'_>, bytes: &[u8]) -> Result<Self, KeyError> {
        if let Ok((algorithm, pair)) = ecdsa_pair(bytes) {
            return Self::from_ecdsa(algorithm, pair);
        }
        // OpenSSL writes Ed25519 keys without their public half, which only this function accepts.
        if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(bytes) {
            return Self::from_ed25519(pair);
        }
        if let Some((algorithm, pair)) = ml_dsa_pair(bytes) {
            let spki = pair.public_key().as_der();
            return Self::new(algorithm, spki, Pair::MlDsa(pair));
        }
        // Last, because the message of this error names all supported kinds of keys (`refused`).
        RsaPrivateKey::from_der(der).and_then(Self::from_rsa)
    }

    fn from_ecdsa(algorithm: KeyAlgorithm, pair: EcdsaKeyPair) -> Result<Self, KeyError> {
        let spki = pair.public_key().as_der();
        let p256 = if algorithm == KeyAlgorithm::EcdsaP256 { prepare(&pair) } else { None };
        Ok(Self { p256, ..Self::new(algorithm, spki, Pair::Ecdsa(pair))? })
    }

    fn from_ed25519(pair: Ed25519KeyPair) -> Result<Self, KeyError> {
        let spki = pair.public_key().as_der();
        Self::new(KeyAlgorithm::Ed25519, spki, Pair::Ed25519(pair))
    }

    fn from_rsa(key: RsaPrivateKey) -> Result<Self, KeyError> {
        let spki = key.spki();
        Self::new(key.algorithm(), spki, Pair::Rsa(Box::new(key)))
    }

    fn new(
        algorithm: KeyAlgorithm,
        spki: Result<PublicKeyX509Der<'_>, Unspecified>,
        pair: Pair,
    ) -> Result<Self, KeyError> {
        let spki = spki.map_err(|_| KeyError::Malformed("the private key has no public half".into()))?;
        let spki = Box::from(spki.as_ref());
        Ok(Self { id: KeyId::of_spki(&spki), algorithm, spki, pair, p256: None })
    }

    /// The id of the key.
    pub const fn id(&self) -> KeyId {
        self.id
    }

    /// The width of an RSA key that can share a batch or a GPU launch with others, see [`Width::of_key`]; `None` for
    /// all other keys.
    pub fn width(&self) -> Option<Width> {
        self.rsa().and_then(RsaPrivateKey::width)
    }

    /// Copies of the numbers of an RSA key, which are the secret itself; `None` for other keys.
    pub fn rsa_numbers(&self) -> Option<RsaNumbers> {
        self.rsa().map(RsaPrivateKey::numbers)
    }

    pub(crate) const fn algorithm(&self) -> KeyAlgorithm {
        self.algorithm
    }

    /// The public key as DER `SubjectPublicKeyInfo`, RFC 5280 section 4.1.
    pub(crate) fn spki(&self) -> &[u8] {
        &self.spki
    }

    /// The RSA key; `None` for other algorithms.
    pub(crate) const fn rsa(&self) -> Option<&RsaPrivateKey> {
        match &self.pair {
            Pair::Rsa(key) => Some(key),
            Pair::Ecdsa(_) | Pair::Ed25519(_) | Pair::MlDsa(_) => None,
        }
    }

    /// A P-256 key in the form for vector lanes; `None` for other keys, or if the processor has no lanes.
    pub(crate) fn p256(&self) -> Option<&PreparedKey> {
        self.p256.as_deref()
    }

    /// Mutable access for tests that corrupt the key.
    #[cfg(test)]
    pub(crate) fn p256_mut(&mut self) -> Option<&mut PreparedKey> {
        self.p256.as_deref_mut()
    }

    /// Fails if the key does not support the operation. Cheap for every kind.
    pub(crate) fn check(&self, kind: &OperationKind) -> Result<(), KeyError> {
        let algorithm = self.algorithm;
        match kind {
            OperationKind::Sign { scheme, .. } if !algorithm.schemes().contains(scheme) => {
                Err(KeyError::UnsupportedScheme { scheme: *scheme, algorithm })
            }
            OperationKind::Sign { .. } => Ok(()),
            OperationKind::Decrypt { ciphertext } => match self.rsa() {
                Some(key) if ciphertext.len() == key.size() => Ok(()),
                Some(_) => Err(KeyError::OutOfRange),
                None => Err(KeyError::CannotDecrypt(algorithm)),
            },
        }
    }

    /// Performs the operation on this thread with AWS-LC.
    pub(crate) fn perform(&self, kind: &OperationKind) -> KeyResult {
        // The `sign` of ECDSA and Ed25519 takes no scheme: without this check, a wrong scheme would get a
        // signature with the hash of the key.
        self.check(kind)?;
        match (&self.pair, kind) {
            (Pair::Rsa(key), OperationKind::Sign { scheme, message }) => key.sign(*scheme, message),
            (Pair::Rsa(key), OperationKind::Decrypt { ciphertext }) => key.decrypt(ciphertext),
            (Pair::Ecdsa(pair), OperationKind::Sign { message, .. }) => {
                signature(&pair.sign(&SystemRandom::new(), message))
            }
            (Pair::Ed25519(pair), OperationKind::Sign { message, .. }) => signature(&pair.try_sign(message)),
            (Pair::MlDsa(pair), OperationKind::Sign { message, .. }) => {
                let mut signature = vec![0; pair.algorithm().signature_len()];
                let len = pair.sign(message, &mut signature).map_err(|_| REFUSED_TO_SIGN)?;
                signature.truncate(len);
                Ok(signature.into())
            }
            (Pair::Ecdsa(_) | Pair::Ed25519(_) | Pair::MlDsa(_), OperationKind::Decrypt { .. }) => {
                Err(KeyError::CannotDecrypt(self.algorithm))
            }
        }
    }
}

impl fmt::Debug for PrivateKey {
    /// Writes the id and the algorithm, which are public.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PrivateKey")
            .field("id", &self.id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

/// Converts a P-256 key to the form for vector lanes; `None` if the processor has no lanes.
fn prepare(pair: &EcdsaKeyPair) -> Option<Box<PreparedKey>> {
    if !ec_lanes::are_supported() {
        return None;
    }
    PreparedKey::of_pair(pair).map(Box::new)
}

/// Parses SEC1 or PKCS#8; the curve determines the algorithm.
fn ecdsa_pair(der: &[u8]) -> Result<(KeyAlgorithm, EcdsaKeyPair), KeyRejected> {
    EcdsaKeyPair::from_private_key_der(&signature::ECDSA_P256_SHA256_ASN1_SIGNING, der)
        .map(|pair| (KeyAlgorithm::EcdsaP256, pair))
        .or_else(|_| {
            EcdsaKeyPair::from_private_key_der(&signature::ECDSA_P384_SHA384_ASN1_SIGNING, der)
                .map(|pair| (KeyAlgorithm::EcdsaP384, pair))
        })
}

/// Parses PKCS#8 with a seed, an expanded key, or both (RFC 9881).
fn ml_dsa_pair(pkcs8: &[u8]) -> Option<(KeyAlgorithm, PqdsaKeyPair)> {
    let kinds = [
        (KeyAlgorithm::MlDsa44, &signature::ML_DSA_44_SIGNING),
        (KeyAlgorithm::MlDsa65, &signature::ML_DSA_65_SIGNING),
        (KeyAlgorithm::MlDsa87, &signature::ML_DSA_87_SIGNING),
    ];
    kinds
        .into_iter()
        .find_map(|(algorithm, signing)| Some((algorithm, PqdsaKeyPair::from_pkcs8(signing, pkcs8).ok()?)))
}

fn signature(signed: &Result<Signature, Unspecified>) -> KeyResult {
    let signature = signed.as_ref().map_err(|_| REFUSED_TO_SIGN)?;
    Ok(signature.as_ref().to_vec().into())
}
