//! One operation on a private key, as it is asked of an engine.

use std::{fmt, time::Instant};

use brisk_wire::registry::SignatureScheme;
use bytes::Bytes;

use crate::algorithm::scheme_label;

/// Names a private key: the SHA-256 of its DER `SubjectPublicKeyInfo`.
///
/// The same key has the same name in every process, and a name reveals nothing about the private key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId(pub [u8; 32]);

impl KeyId {
    /// The name of the key whose DER `SubjectPublicKeyInfo` is `spki`.
    pub fn of_spki(spki: &[u8]) -> Self {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, spki);
        let mut id = [0; 32];
        id.copy_from_slice(digest.as_ref());
        Self(id)
    }
}

impl fmt::Display for KeyId {
    /// In lower-case hexadecimal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyId({self})")
    }
}

/// An operation on a private key, complete in itself: an engine needs no more to perform it, here or elsewhere.
#[derive(Clone)]
pub struct KeyOperation {
    /// Which key.
    pub key: KeyId,
    /// What to do with it.
    pub kind: OperationKind,
    /// When the caller no longer needs the result. Work not begun by then is not begun at all.
    pub deadline: Instant,
}

impl KeyOperation {
    /// A signature with `key` over `message`.
    pub const fn sign(key: KeyId, scheme: SignatureScheme, message: Bytes, deadline: Instant) -> Self {
        Self { key, kind: OperationKind::Sign { scheme, message }, deadline }
    }

    /// The decryption of `ciphertext` with `key`, which is an RSA key.
    pub const fn decrypt(key: KeyId, ciphertext: Bytes, deadline: Instant) -> Self {
        Self { key, kind: OperationKind::Decrypt { ciphertext }, deadline }
    }
}

impl fmt::Debug for KeyOperation {
    /// Without what is signed or decrypted.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyOperation")
            .field("key", &self.key)
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

/// What is to be done with a private key.
#[derive(Clone)]
#[non_exhaustive]
pub enum OperationKind {
    /// RSA decryption of a premaster secret of TLS 1.2, the padding left in place: a key server must not
    /// reveal whether the padding is valid, RFC 5246 section 7.4.7.1. The result is as long as the modulus, and secret.
    Decrypt {
        /// As long as the modulus; as a number, below it.
        ciphertext: Bytes,
    },
    /// A signature over `message`, not over its digest, so that a key server can see what it signs.
    Sign {
        /// How to hash, pad and sign. ECDSA signatures come back in DER, as TLS has them.
        scheme: SignatureScheme,
        /// The bytes to be signed: RFC 8446 section 4.4.3, or RFC 8422 section 5.4 in TLS 1.2.
        message: Bytes,
    },
}

impl OperationKind {
    /// The family of key that the operation is for, `ecdsa-p256` or `rsa`: a label for metrics.
    pub fn algorithm_label(&self) -> &'static str {
        match self {
            Self::Decrypt { .. } => "rsa",
            Self::Sign { scheme, .. } => scheme_label(*scheme),
        }
    }
}

impl fmt::Debug for OperationKind {
    /// Without what is signed or decrypted.
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
