//! Premaster secrets of TLS 1.2's RSA key exchange, derived without revealing whether the padding was valid.
//!
//! An attacker who learns the validity of the padding of chosen ciphertexts can have others decrypted and signed
//! (Bleichenbacher, 1998). So the result is always 48 bytes long: the message, if valid PKCS#1 v1.5 padding leaves 48
//! bytes; otherwise bytes derived from the key and the ciphertext, as in draft-irtf-cfrg-rsa-guidance ("implicit
//! rejection"). Without the key the two cannot be distinguished, and the same ciphertext always has the same result.
//! No branch and no address depends on the padding or the message.

mod rejection;

use std::sync::Arc;

pub use rejection::PREMASTER;
pub(crate) use rejection::Rejection;

use crate::{KeyError, KeyOperation, Keystore, OperationKind, PendingOperation, PrivateKeyEngine};

/// Engine that converts the results of [`OperationKind::Decrypt`] into premaster secrets and passes all other operations on. A
/// decryption fails only if its ciphertext is not a number below the modulus, which is public.
#[derive(Clone, Debug)]
pub struct PremasterEngine {
    keystore: Arc<Keystore>,
    decrypting: Arc<dyn PrivateKeyEngine>,
}

impl PremasterEngine {
    /// Creates an engine around `decrypting`, which leaves the padding in place and uses the keys of `keystore`.
    /// Decryptions with keys outside this process fail.
    pub fn new(keystore: Arc<Keystore>, decrypting: Arc<dyn PrivateKeyEngine>) -> Self {
        Self { keystore, decrypting }
    }

    fn decrypt(&self, operation: KeyOperation) -> Result<PendingOperation, KeyError> {
        // The future keeps the key: a reload may replace the keystore before the result is available.
        let key = Arc::clone(self.keystore.get(operation.key)?);
        // Kind of key and length of the ciphertext are public, so this error reveals nothing about the
        // padding.
        key.check(&operation.kind)?;
        let OperationKind::Decrypt { ciphertext } = &operation.kind else {
            return Ok(self.decrypting.submit(operation));
        };
        let ciphertext = ciphertext.clone();
        let padded = self.decrypting.submit(operation);
        Ok(PendingOperation::from_future(async move {
            let padded = padded.await?;
            let rsa = key.rsa().ok_or(KeyError::CannotDecrypt(key.algorithm()))?;
            Ok(rsa.rejection().premaster(&ciphertext, &padded))
        }))
    }
}

impl PrivateKeyEngine for PremasterEngine {
    fn submit(&self, operation: KeyOperation) -> PendingOperation {
        if !matches!(operation.kind, OperationKind::Decrypt { .. }) {
            return self.decrypting.submit(operation);
        }
        self.decrypt(operation).unwrap_or_else(PendingOperation::refused)
    }
}

#[cfg(test)]
mod tests;
