//! [`LocalEngine`], which uses keys of this process on the calling thread.

use std::{sync::Arc, time::Instant};

use brisk_lanes::rsa_lanes::Width;

use crate::{
    BatchChoice, KeyError, KeyOperation, KeyResult, Keystore, PendingOperation, Performer, PrivateKeyEngine,
    batch::on_caller, private_key::PrivateKey, turn,
};

/// Engine that performs key operations in this process, before [`submit`](PrivateKeyEngine::submit) returns; on a
/// thread that [gathers](turn), signatures with P-256 are performed at the end of the turn.
///
/// ECDSA and Ed25519 cost less than handing the operation to another thread. RSA blocks the calling thread for 0.2 to
/// 5 ms: threads that serve connections use a [`BatchEngine`](crate::BatchEngine) instead.
#[derive(Clone, Debug)]
pub struct LocalEngine {
    keystore: Arc<Keystore>,
}

impl LocalEngine {
    /// Creates an engine for the keys of `keystore`.
    pub const fn new(keystore: Arc<Keystore>) -> Self {
        Self { keystore }
    }

    /// The fastest method for RSA operations with keys of `bits` bits on this machine. `None` if keys of this size do
    /// not support batches. The first call for each size takes a few milliseconds for the measurement.
    pub fn batch_choice(bits: usize) -> Option<BatchChoice> {
        Width::of_bits(bits).map(BatchChoice::of_this_machine)
    }

    /// Performs operations that the caller already has together: RSA in batches where the processor supports it, like
    /// a [`BatchEngine`](crate::BatchEngine) that found all of them waiting. Results are in the order of
    /// `operations`.
    pub fn perform_batch(&self, operations: Vec<KeyOperation>) -> Vec<KeyResult> {
        on_caller::perform(&self.keystore, operations)
    }

    /// The key of `operation`.
    ///
    /// Fails if the key does not support the operation or its deadline has passed.
    fn key_for(&self, operation: &KeyOperation) -> Result<&Arc<PrivateKey>, KeyError> {
        let key = self.keystore.get(operation.key)?;
        key.check(&operation.kind)?;
        // After the checks, so that an operation that can never succeed has its own error, however late it
        // is.
        if Instant::now() >= operation.deadline {
            return Err(KeyError::DeadlinePassed);
        }
        Ok(key)
    }
}

impl PrivateKeyEngine for LocalEngine {
    fn submit(&self, operation: KeyOperation) -> PendingOperation {
        match self.key_for(&operation) {
            Ok(key) => turn::gather(key, &operation)
                .unwrap_or_else(|| PendingOperation::ready(key.perform(&operation.kind), Performer::AWS_LC)),
            Err(error) => PendingOperation::refused(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::{
        rsa::{Pkcs1PublicEncryptingKey, PublicEncryptingKey},
        signature::ParsedPublicKey,
    };
    use brisk_wire::registry::SignatureScheme;
    use bytes::Bytes;

    use super::*;
    use crate::{
        KeyAlgorithm, KeyId,
        testing::{MESSAGE, deadline, key, keystore, sign, verification},
    };

    const RSA: KeyAlgorithm = KeyAlgorithm::Rsa { bits: 2048 };

    fn perform(operation: KeyOperation) -> KeyResult {
        let result = LocalEngine::new(keystore()).submit(operation).try_take();
        result.expect("it is done when `submit` returns")
    }

    fn decrypt(key: KeyId, ciphertext: &[u8]) -> KeyOperation {
        KeyOperation::decrypt(key, Bytes::copy_from_slice(ciphertext), deadline())
    }

    #[test]
    fn every_key_signs_with_every_scheme_of_its_own() {
        let keystore = keystore();
        for id in keystore.ids() {
            for &scheme in keystore.algorithm(id).unwrap().schemes() {
                let signature = perform(sign(id, scheme)).unwrap();
                let public =
                    ParsedPublicKey::new(verification(scheme), keystore.public_key(id).unwrap()).unwrap();
                assert!(public.verify_sig(MESSAGE, &signature).is_ok(), "{scheme}");
                assert!(public.verify_sig(b"another message", &signature).is_err(), "{scheme}");
            }
        }
    }

    #[test]
    fn an_rsa_key_decrypts_and_leaves_the_padding() {
        let id = key(RSA);
        let public = PublicEncryptingKey::from_der(keystore().public_key(id).unwrap()).unwrap();
        let mut ciphertext = [0; 256];
        let public = Pkcs1PublicEncryptingKey::new(public).unwrap();
        public.encrypt(b"premaster secret", &mut ciphertext).unwrap();
        let padded = perform(decrypt(id, &ciphertext)).unwrap();
        assert_eq!((padded.len(), &padded[..2]), (256, &[0, 2][..]));
        assert!(padded.ends_with(b"\0premaster secret"));
    }

    #[test]
    fn no_ciphertext_of_the_key_is_refused() {
        for ciphertext in [&[0xff; 256][..], &[1; 255], &[0; 257], &[]] {
            assert_eq!(perform(decrypt(key(RSA), ciphertext)), Err(KeyError::OutOfRange));
        }
    }

    #[test]
    fn only_rsa_decrypts() {
        for algorithm in [KeyAlgorithm::EcdsaP256, KeyAlgorithm::EcdsaP384, KeyAlgorithm::Ed25519] {
            let refused = perform(decrypt(key(algorithm), &[1; 256]));
            assert_eq!(refused, Err(KeyError::CannotDecrypt(algorithm)));
        }
    }

    #[test]
    fn what_the_key_cannot_do_is_refused() {
        let unknown = KeyId([1; 32]);
        let refused = perform(sign(unknown, SignatureScheme::ED25519));
        assert_eq!(refused, Err(KeyError::UnknownKey(unknown)));
        let (algorithm, scheme) = (RSA, SignatureScheme::ED25519);
        let refused = perform(sign(key(algorithm), scheme));
        assert_eq!(refused, Err(KeyError::UnsupportedScheme { scheme, algorithm }));
    }

    #[test]
    fn no_work_is_begun_after_its_deadline() {
        for algorithm in [RSA, KeyAlgorithm::EcdsaP256] {
            let operation = sign(key(algorithm), algorithm.schemes()[0]);
            let late = KeyOperation { deadline: Instant::now(), ..operation };
            assert_eq!(perform(late), Err(KeyError::DeadlinePassed));
        }
    }
}
