//! [`KeyOperation`], one operation on a private key, as submitted to a [`PrivateKeyEngine`](crate::PrivateKeyEngine).

use std::{fmt, time::Instant};

use brisk_wire::registry::SignatureScheme;
use bytes::Bytes;

use crate::{PublicKey, algorithm::scheme_label};

/// Identifier of a private key: the SHA-256 of its DER `SubjectPublicKeyInfo`.
///
/// A key has the same id in every process. The id reveals nothing about the private key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub [u8; 32]);

impl KeyId {
    /// The id of the key whose DER `SubjectPublicKeyInfo` is `spki`.
    pub fn of_spki(spki: &[u8]) -> Self {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, spki);
        let mut id = [0; 32];
        id.copy_from_slice(digest.as_ref());
        Self(id)
    }
}

impl fmt::Display for KeyId {
    /// Writes lower-case hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

/// An operation on a private key. It is self-contained: an engine, local or remote, needs no other data.
#[derive(Clone)]
pub struct KeyOperation {
    /// The key to use.
    pub key: KeyId,
    /// The operation.
    pub kind: OperationKind,
    /// Time after which the caller does not need the result. Work that has not begun by then ends with
    /// `KeyError::DeadlinePassed`.
    pub deadline: Instant,
    /// Public key, for engines that verify a signature which another process made. Set for keys that are registered
    /// by [`Keystore::add_elsewhere`](crate::Keystore::add_elsewhere).
    pub public_key: Option<PublicKey>,
}

impl KeyOperation {
    /// Creates a signature over `message` with `key`.
    pub const fn sign(key: KeyId, scheme: SignatureScheme, message: Bytes, deadline: Instant) -> Self {
        Self { key, kind: OperationKind::Sign { scheme, message }, deadline, public_key: None }
    }

    /// Creates a decryption of `ciphertext` with `key`, an RSA key.
    pub const fn decrypt(key: KeyId, ciphertext: Bytes, deadline: Instant) -> Self {
        Self { key, kind: OperationKind::Decrypt { ciphertext }, deadline, public_key: None }
    }
}

impl fmt::Debug for KeyOperation {
    /// Omits the signed message and the ciphertext.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyOperation")
            .field("key", &self.key)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// Kind of a key operation, with its input.
#[derive(Clone)]
#[non_exhaustive]
pub enum OperationKind {
    /// RSA decryption of a TLS 1.2 premaster secret that leaves the padding in place: a key server must not reveal
    /// whether the padding is valid (RFC 5246 section 7.4.7.1). The result is as long as the modulus, and secret.
    Decrypt {
        /// Ciphertext, as long as the modulus and below it as a number.
        ciphertext: Bytes,
    },
    /// Signature over `message` instead of over its digest, so that a key server can inspect the signed content.
    Sign {
        /// Scheme, which defines hash and padding. ECDSA signatures are returned in DER, as in TLS.
        scheme: SignatureScheme,
        /// Bytes to sign: RFC 8446 section 4.4.3, or RFC 8422 section 5.4 in TLS 1.2.
        message: Bytes,
    },
}

impl OperationKind {
    /// The algorithm label of the key for this operation, for metrics: `ecdsa-p256` or `rsa`.
    pub fn algorithm_label(&self) -> &'static str {
        match self {
            Self::Decrypt { .. } => "rsa",
            Self::Sign { scheme, .. } => scheme_label(*scheme),
        }
    }
}

impl fmt::Debug for OperationKind {
    /// Omits the signed message and the ciphertext.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decrypt { .. } => f.debug_struct("Decrypt").finish_non_exhaustive(),
            Self::Sign { scheme, .. } => {
                f.debug_struct("Sign").field("scheme", scheme).finish_non_exhaustive()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_does_not_show_the_content() {
        let (key, now) = (KeyId([7; 32]), Instant::now());
        let content = Bytes::from_static(b"never-log-this");
        let sign = KeyOperation::sign(key, SignatureScheme::ED25519, content.clone(), now);
        for operation in [sign, KeyOperation::decrypt(key, content, now)] {
            let shown = format!("{operation:?}");
            assert!(shown.contains("KeyId(0707"), "{shown}");
            assert!(!shown.contains("never") && !shown.contains("110"), "{shown}");
        }
    }

    #[test]
    fn decryption_counts_as_rsa() {
        let operation = KeyOperation::decrypt(KeyId([7; 32]), Bytes::new(), Instant::now());
        assert_eq!(operation.kind.algorithm_label(), "rsa");
    }

    #[test]
    fn a_key_is_named_by_the_sha256_of_its_public_key() {
        let id = KeyId::of_spki(b"abc");
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(id.to_string(), known);
    }
}
