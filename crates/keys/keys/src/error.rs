//! [`KeyError`], the errors of private keys and of a [`KeyOperation`](crate::KeyOperation).

use aws_lc_rs::error::KeyRejected;
use brisk_lanes::rsa::RsaError;
use brisk_wire::registry::SignatureScheme;

use crate::{KeyAlgorithm, KeyId};

/// Reason for which a key operation has no result, or a key was rejected.
///
/// No message contains key material or any part of the signed message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// [`PrivateKeyEngine::submit`](crate::PrivateKeyEngine::submit) found the engine's queue full. Another engine may accept
    /// the operation; an immediate retry with the same one increases the overload.
    #[error("the key engine has as many operations waiting as it accepts")]
    Overloaded,
    /// [`KeyOperation::deadline`](crate::KeyOperation::deadline) passed before the work began.
    #[error("the deadline of the key operation has passed")]
    DeadlinePassed,
    /// The engine has no such key.
    #[error("no private key with the fingerprint {0}")]
    UnknownKey(KeyId),
    /// The key does not support this signature scheme; see [`KeyAlgorithm::schemes`].
    #[error("a {algorithm} key cannot sign with {scheme}")]
    UnsupportedScheme {
        /// The requested scheme.
        scheme: SignatureScheme,
        /// The algorithm of the key.
        algorithm: KeyAlgorithm,
    },
    /// Only RSA keys perform [`OperationKind::Decrypt`](crate::OperationKind::Decrypt).
    #[error("a {0} key cannot decrypt")]
    CannotDecrypt(KeyAlgorithm),
    /// The ciphertext is not as long as the modulus of the key, or its number is not below the modulus.
    #[error("the ciphertext is not a number below the modulus of the key, in as many bytes")]
    OutOfRange,
    /// The bytes are not a supported private key; the message describes them and the accepted forms.
    #[error("{0}")]
    Malformed(String),
    /// The engine has the key and does not perform this kind of operation with it.
    #[error("the key server does not permit this kind of operation")]
    KindNotPermitted,
    /// The operation failed after it had begun, or its engine was dropped.
    #[error("the key operation failed: {0}")]
    Failed(&'static str),
}

/// Error for a signature that AWS-LC could not make.
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

/// The error for a key that AWS-LC rejected; `form` names its encoding.
pub(crate) fn refused(form: &str, rejected: KeyRejected) -> KeyError {
    KeyError::Malformed(format!(
        "not a usable {form} private key ({rejected}): wanted ECDSA on P-256 or P-384, Ed25519, or RSA of 2048 to 8192 bits"
    ))
}
