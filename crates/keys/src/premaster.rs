//! The premaster secret of TLS 1.2's RSA key exchange out of what an RSA key decrypted, without saying whether the padding was right.
//!
//! Who may learn that of a ciphertext can have others decrypted and signed (Bleichenbacher, 1998). So there is always a result of 48
//! bytes: the message, if the padding of PKCS#1 v1.5 leaves one of 48 bytes; and bytes that follow from the key and the ciphertext if it
//! does not, as draft-irtf-cfrg-rsa-guidance ("implicit rejection") makes them. Without the key the two cannot be distinguished,
//! and the same ciphertext always has the same result. No branch and no address depends on the padding or the message.

mod rejection;

use std::sync::Arc;

pub use rejection::PREMASTER;
pub(crate) use rejection::Rejection;

use crate::{KeyError, KeyOperation, Keystore, OperationKind, PendingOperation, PrivateKeyEngine};

/// Answers decryptions with premaster secrets, and leaves everything else as it is. An operation fails only if its ciphertext is no
/// number below the modulus, which everyone can see.
#[derive(Clone, Debug)]
pub struct PremasterEngine {
    keystore: Arc<Keystore>,
    decrypting: Arc<dyn PrivateKeyEngine>,
}

impl PremasterEngine {
    /// `decrypting` leaves the padding in place, and has the keys of `keystore`. Keys that are not in this process are refused for
    /// decryptions.
    pub fn new(keystore: Arc<Keystore>, decrypting: Arc<dyn PrivateKeyEngine>) -> Self {
        Self { keystore, decrypting }
    }

    fn decrypt(&self, operation: KeyOperation) -> Result<PendingOperation, KeyError> {
        let key = Arc::clone(self.keystore.get(operation.key)?);
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
