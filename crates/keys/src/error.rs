//! What can go wrong with a private key or an operation on it.

use aws_lc_rs::error::KeyRejected;
use brisk_lanes::rsa::RsaError;
use brisk_wire::registry::SignatureScheme;

use crate::{KeyAlgorithm, KeyId};

/// Why a key operation has no result, or a key was not accepted.
///
/// No message contains key material or any part of what was to be signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The engine's queue is full. Another engine may do it; trying the same one again at once makes matters worse.
    #[error("the key engine has as many operations waiting as it accepts")]
    Overloaded,
    /// The deadline came before the work was begun.
    #[error("the deadline of the key operation has passed")]
    DeadlinePassed,
    /// The engine has no such key.
    #[error("no private key with the fingerprint {0}")]
    UnknownKey(KeyId),
    /// The key cannot make signatures of this scheme.
    #[error("a {algorithm} key cannot sign with {scheme}")]
    UnsupportedScheme {
        /// What was asked for.
        scheme: SignatureScheme,
        /// What the key is.
        algorithm: KeyAlgorithm,
    },
    /// Only RSA keys decrypt.
    #[error("a {0} key cannot decrypt")]
    CannotDecrypt(KeyAlgorithm),
    /// The ciphertext is not as long as the key's modulus, or as a number not below it.
    #[error("the ciphertext is not a number below the modulus of the key, in as many bytes")]
    OutOfRange,
    /// The bytes are not a private key that we can use; the text says what they are and what would be right.
    #[error("{0}")]
    Malformed(String),
    /// The operation was begun and failed, or the engine went away with it.
    #[error("the key operation failed: {0}")]
    Failed(&'static str),
}

/// A failure of AWS-LC within a signature.
pub(crate) const REFUSED_TO_SIGN: KeyError = KeyError::Failed("the cryptographic library refused to sign");

impl From<RsaError> for KeyError {
    fn from(error: RsaError) -> Self {
        match error {
            RsaError::Malformed => Self::Malformed(error.to_string()),
            RsaError::OutOfRange => Self::OutOfRange,
            RsaError::Refused => Self::Failed("the cryptographic library refused an RSA operation"),
        }
    }
}

/// The error about a key that AWS-LC rejected; `form` is that of its encoding.
pub(crate) fn refused(form: &str, rejected: KeyRejected) -> KeyError {
    KeyError::Malformed(format!(
        "not a usable {form} private key ({rejected}): wanted ECDSA on P-256 or P-384, Ed25519, or RSA of 2048 to 8192 bits"
    ))
}
