//! Probes of a key outside this process: signatures that show which holders have the key.

use std::{sync::Arc, time::Instant};

use aws_lc_rs::rand;
use brisk_wire::registry::SignatureScheme;
use bytes::Bytes;

use crate::{KeyAlgorithm, KeyError, KeyId, KeyOperation, KeyResult, PrivateKeyEngine, PublicKey};

/// Error for a signature that belongs to another key.
const WRONG: KeyError = KeyError::Failed("the signature is not one of the certificate's key");

/// A key outside this process: its engine and its public key. Clones share both.
#[derive(Clone, Debug)]
pub struct KeyElsewhere {
    pub(crate) id: KeyId,
    pub(crate) engine: Arc<dyn PrivateKeyEngine>,
    pub(crate) public_key: PublicKey,
}

/// Result of a probe at one holder of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeAnswer {
    /// Name of the [holder](PrivateKeyEngine::holders), for operators; empty if the engine has one without a name.
    pub holder: String,
    /// The reason for which the holder made no signature with the key; `None` if it did.
    pub fault: Option<String>,
}

impl KeyElsewhere {
    /// The id of the key.
    pub const fn id(&self) -> KeyId {
        self.id
    }

    /// Whether `other` is the same key in the same engine.
    pub fn is_same(&self, other: &Self) -> bool {
        // Compares addresses without vtables: the compiler may emit several vtables for one type.
        self.id == other.id && std::ptr::addr_eq(Arc::as_ptr(&self.engine), Arc::as_ptr(&other.engine))
    }

    /// Has every holder sign the content of a TLS handshake that never takes place, and verifies the signatures. Costs
    /// one operation at each holder, and ends soon after `deadline`.
    pub async fn probe(&self, algorithm: KeyAlgorithm, deadline: Instant) -> Vec<ProbeAnswer> {
        let (scheme, message) = (algorithm.schemes()[0], tls13());
        let operation = |message: &Bytes| KeyOperation {
            public_key: Some(self.public_key.clone()),
            ..KeyOperation::sign(self.id, scheme, message.clone(), deadline)
        };
        // All are submitted before the first is awaited.
        let submit = |(index, holder)| (index, holder, self.engine.submit_to(index, operation(&message)));
        let asked: Vec<_> = self.engine.holders().into_iter().enumerate().map(submit).collect();
        let mut answers = Vec::with_capacity(asked.len());
        for (index, holder, pending) in asked {
            let mut result = self.verified(scheme, &message, pending.await);
            if result == Err(KeyError::KindNotPermitted) && algorithm.signs_tls12() {
                // The holder may sign for TLS 1.2 alone.
                let message = tls12();
                let pending = self.engine.submit_to(index, operation(&message));
                result = self.verified(scheme, &message, pending.await);
            }
            answers.push(ProbeAnswer { holder, fault: result.err().map(|error| self.fault(index, &error)) });
        }
        answers
    }

    fn verified(&self, scheme: SignatureScheme, message: &[u8], result: KeyResult) -> Result<(), KeyError> {
        let signature = result?;
        // A holder with another key of the same kind also signs without an error.
        self.public_key.verifies(scheme, message, &signature).then_some(()).ok_or(WRONG)
    }

    /// The error for operators, with the reason of a holder that does not respond.
    fn fault(&self, holder: usize, error: &KeyError) -> String {
        match (error, self.engine.holder_trouble(holder)) {
            // An operation for a key server without a connection waits until its deadline: the cause is in
            // the state.
            (KeyError::DeadlinePassed, Some(trouble)) => format!("it does not answer: {trouble}"),
            (KeyError::DeadlinePassed, None) => "it does not answer in time".to_owned(),
            (KeyError::Failed(reason), _) => (*reason).to_owned(),
            (error, _) => error.to_string(),
        }
    }
}

/// Content of a server's `CertificateVerify` of TLS 1.3 (RFC 8446 section 4.4.3) with a random transcript hash, so that
/// the signature is of no use in any handshake and cannot be known in advance.
fn tls13() -> Bytes {
    let hash: [u8; 32] = random();
    [&[b' '; 64][..], b"TLS 1.3, server CertificateVerify\0", &hash].concat().into()
}

/// Signed content of a `ServerKeyExchange` of TLS 1.2 (RFC 8422 section 5.4) with random numbers in place of both
/// randoms and of the X25519 point. The first byte, 0, begins no ASN.1 structure that is signed.
fn tls12() -> Bytes {
    let (randoms, point): ([u8; 63], [u8; 32]) = (random(), random());
    [&[0][..], &randoms, &[3, 0, 29, 32], &point].concat().into()
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    rand::fill(&mut bytes).expect("the system has randomness");
    bytes
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::{
        Keystore, LocalEngine, OperationKind, PendingOperation, Performer,
        testing::{deadline, key, keystore},
    };

    /// Three holders: the first signs, the second lacks the key, the third signs for TLS 1.2 alone.
    #[derive(Debug)]
    struct Three {
        local: LocalEngine,
        messages: Mutex<Vec<Bytes>>,
    }

    impl PrivateKeyEngine for Three {
        fn submit(&self, _: KeyOperation) -> PendingOperation {
            PendingOperation::refused(KeyError::Failed("no holder was named"))
        }

        fn holders(&self) -> Vec<String> {
            ["one", "two", "three"].map(str::to_owned).to_vec()
        }

        fn submit_to(&self, holder: usize, operation: KeyOperation) -> PendingOperation {
            let OperationKind::Sign { message, .. } = &operation.kind else { panic!("no signature") };
            self.messages.lock().unwrap().push(message.clone());
            match holder {
                1 => PendingOperation::refused(KeyError::DeadlinePassed),
                2 if message[0] == b' ' => PendingOperation::refused(KeyError::KindNotPermitted),
                _ => self.local.submit(operation),
            }
        }

        fn holder_trouble(&self, holder: usize) -> Option<String> {
            (holder == 1).then(|| "Connection refused".to_owned())
        }
    }

    fn elsewhere(id: KeyId, engine: Arc<dyn PrivateKeyEngine>) -> KeyElsewhere {
        let mut store = Keystore::new();
        store.add_elsewhere(keystore().public_key(id).unwrap(), engine);
        store.elsewhere(id).unwrap().clone()
    }

    #[tokio::test]
    async fn every_holder_is_asked_and_the_ones_without_the_key_are_named_with_the_reason() {
        for algorithm in [KeyAlgorithm::EcdsaP256, KeyAlgorithm::Rsa { bits: 2048 }, KeyAlgorithm::Ed25519] {
            let engine = Arc::new(Three { local: LocalEngine::new(keystore()), messages: Mutex::default() });
            let answers =
                elsewhere(key(algorithm), Arc::clone(&engine) as _).probe(algorithm, deadline()).await;
            let named: Vec<_> =
                answers.iter().map(|answer| (answer.holder.as_str(), answer.fault.as_deref())).collect();
            let refused = Some("it does not answer: Connection refused");
            assert_eq!(named, [("one", None), ("two", refused), ("three", None)], "{algorithm}");
            let messages = engine.messages.lock().unwrap();
            assert_eq!(messages.iter().map(Bytes::len).collect::<Vec<_>>(), [130, 130, 130, 100]);
        }
        assert_ne!(tls13(), tls13());
    }

    /// Signs everything with one key, whichever is meant.
    #[derive(Debug)]
    struct OneKey(KeyId);

    impl PrivateKeyEngine for OneKey {
        fn submit(&self, operation: KeyOperation) -> PendingOperation {
            let signed =
                LocalEngine::new(keystore()).submit(KeyOperation { key: self.0, ..operation }).try_take();
            PendingOperation::ready(signed.unwrap(), Performer::AWS_LC)
        }
    }

    #[tokio::test]
    async fn a_signature_of_another_key_is_none() {
        let other = KeyId::of_spki(&other_spki());
        let mut store = Keystore::new();
        store.add_elsewhere(&other_spki(), Arc::new(OneKey(key(KeyAlgorithm::EcdsaP256))));
        let answers = store.elsewhere(other).unwrap().probe(KeyAlgorithm::EcdsaP256, deadline()).await;
        let fault = Some("the signature is not one of the certificate's key".to_owned());
        assert_eq!(answers, [ProbeAnswer { holder: String::new(), fault }]);
        assert!(store.elsewhere(key(KeyAlgorithm::EcdsaP256)).is_none());
    }

    fn other_spki() -> Vec<u8> {
        use rcgen::PublicKeyData;
        static PAIR: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        PAIR.get_or_init(|| rcgen::KeyPair::generate().unwrap().subject_public_key_info()).clone()
    }

    #[test]
    fn keys_are_the_same_if_their_engines_are() {
        let (one, other): (Arc<dyn PrivateKeyEngine>, Arc<dyn PrivateKeyEngine>) =
            (Arc::new(LocalEngine::new(keystore())), Arc::new(LocalEngine::new(keystore())));
        let id = key(KeyAlgorithm::EcdsaP256);
        assert!(elsewhere(id, Arc::clone(&one)).is_same(&elsewhere(id, Arc::clone(&one))));
        assert!(!elsewhere(id, Arc::clone(&one)).is_same(&elsewhere(id, other)));
        assert!(!elsewhere(id, Arc::clone(&one)).is_same(&elsewhere(key(KeyAlgorithm::Ed25519), one)));
    }
}
