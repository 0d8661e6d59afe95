//! The engine that uses keys of this process: ECDSA and Ed25519 at once, RSA on threads of its own.

use std::{
    io,
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::Instant,
};

use crossbeam_channel::{Receiver, Sender, TrySendError};

use crate::{
    Completion, KeyError, KeyOperation, Keystore, OperationKind, PendingOperation, PrivateKeyEngine,
    private_key::PrivateKey,
};

/// How a [`LocalEngine`] is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalSettings {
    /// Threads that perform RSA operations. Default: one per core.
    pub rsa_threads: NonZeroUsize,
    /// RSA operations that may wait for a thread; one more is refused as overloaded. Default: 1024, which one core
    /// works off in about a quarter of a second at 2048 bits.
    pub queue: NonZeroUsize,
}

impl Default for LocalSettings {
    fn default() -> Self {
        Self {
            rsa_threads: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            queue: NonZeroUsize::new(1024).unwrap_or(NonZeroUsize::MIN),
        }
    }
}

/// Performs key operations in this process, with aws-lc.
///
/// An ECDSA or Ed25519 signature costs less than handing it to another thread, so [`submit`](PrivateKeyEngine::submit)
/// makes it and the result is there when it returns. RSA waits in a bounded queue for a thread; an operation that was
/// abandoned or whose deadline has passed when its turn comes is not performed.
#[derive(Debug)]
pub struct LocalEngine {
    keystore: Arc<Keystore>,
    pool: Pool,
}

impl LocalEngine {
    /// Starts the threads; they end when the last engine that shares them has gone and the queue is empty.
    ///
    /// The error is the operating system's, when it refuses a thread.
    pub fn new(keystore: Arc<Keystore>, settings: &LocalSettings) -> io::Result<Self> {
        Ok(Self { keystore, pool: Pool::start(settings)? })
    }

    /// An engine for other keys on the same threads and queue: what a reload makes, while operations that are under
    /// way finish with the keys they were begun with.
    #[must_use]
    pub fn with_keystore(&self, keystore: Arc<Keystore>) -> Self {
        Self { keystore, pool: self.pool.clone() }
    }

    fn start(&self, operation: KeyOperation) -> Result<PendingOperation, KeyError> {
        let key = self.keystore.get(operation.key)?;
        key.check(&operation.kind)?;
        if key.is_slow() {
            return self.pool.submit(key, operation.kind, operation.deadline);
        }
        if Instant::now() >= operation.deadline {
            return Err(KeyError::DeadlinePassed);
        }
        Ok(PendingOperation::ready(key.perform(&operation.kind)))
    }
}

impl PrivateKeyEngine for LocalEngine {
    fn submit(&self, operation: KeyOperation) -> PendingOperation {
        self.start(operation).unwrap_or_else(|error| PendingOperation::ready(Err(error)))
    }
}

/// The threads for slow operations, by the sending end of their queue.
#[derive(Clone, Debug)]
struct Pool {
    queue: Sender<Job>,
}

/// One slow operation, with all that a thread needs for it.
struct Job {
    key: Arc<PrivateKey>,
    kind: OperationKind,
    completion: Completion,
}

impl Pool {
    fn start(settings: &LocalSettings) -> io::Result<Self> {
        let (queue, jobs) = crossbeam_channel::bounded(settings.queue.get());
        for number in 0..settings.rsa_threads.get() {
            let jobs = jobs.clone();
            thread::Builder::new().name(format!("rsa-{number}")).spawn(move || work(&jobs))?;
        }
        Ok(Self { queue })
    }

    fn submit(
        &self,
        key: &Arc<PrivateKey>,
        kind: OperationKind,
        deadline: Instant,
    ) -> Result<PendingOperation, KeyError> {
        let (pending, completion) = PendingOperation::with_completion(deadline);
        let job = Job { key: Arc::clone(key), kind, completion };
        match self.queue.try_send(job) {
            Ok(()) => Ok(pending),
            Err(TrySendError::Full(_)) => Err(KeyError::Overloaded),
            Err(TrySendError::Disconnected(_)) => {
                Err(KeyError::Failed("the threads of the key engine have ended"))
            }
        }
    }
}

fn work(jobs: &Receiver<Job>) {
    for Job { key, kind, completion } in jobs {
        if let Some(completion) = completion.begin() {
            // The queue outlives its threads: if they died of a panic, what waits in it would wait for ever.
            let performed = catch_unwind(AssertUnwindSafe(|| key.perform(&kind)));
            completion.complete(performed.unwrap_or(Err(KeyError::Failed("the engine panicked"))));
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

    fn rsa() -> KeyOperation {
        sign(key(KeyAlgorithm::Rsa { bits: 2048 }), SignatureScheme::RSA_PSS_RSAE_SHA256)
    }

    fn decrypt(key: KeyId, ciphertext: &[u8]) -> KeyOperation {
        KeyOperation::decrypt(key, Bytes::copy_from_slice(ciphertext), deadline())
    }

    fn engine() -> LocalEngine {
        LocalEngine::new(keystore(), &LocalSettings::default()).unwrap()
    }

    /// An engine without threads; the test works off the queue.
    fn idle_engine(queue: usize) -> (LocalEngine, Receiver<Job>) {
        let (queue, jobs) = crossbeam_channel::bounded(queue);
        (LocalEngine { keystore: keystore(), pool: Pool { queue } }, jobs)
    }

    #[tokio::test]
    async fn every_key_signs_with_every_scheme_of_its_own() {
        let (engine, keystore) = (engine(), keystore());
        for id in keystore.ids() {
            for &scheme in keystore.algorithm(id).unwrap().schemes() {
                let signature = engine.submit(sign(id, scheme)).await.unwrap();
                let public =
                    ParsedPublicKey::new(verification(scheme), keystore.public_key(id).unwrap()).unwrap();
                assert!(public.verify_sig(MESSAGE, &signature).is_ok(), "{scheme}");
                assert!(public.verify_sig(b"another message", &signature).is_err(), "{scheme}");
            }
        }
    }

    #[tokio::test]
    async fn an_rsa_key_decrypts_and_leaves_the_padding() {
        let (engine, id) = (engine(), key(KeyAlgorithm::Rsa { bits: 2048 }));
        let public = PublicEncryptingKey::from_der(keystore().public_key(id).unwrap()).unwrap();
        let mut ciphertext = [0; 256];
        let public = Pkcs1PublicEncryptingKey::new(public).unwrap();
        public.encrypt(b"premaster secret", &mut ciphertext).unwrap();
        let padded = engine.submit(decrypt(id, &ciphertext)).await.unwrap();
        assert_eq!((padded.len(), &padded[..2]), (256, &[0, 2][..]));
        assert!(padded.ends_with(b"\0premaster secret"));
        let too_great = engine.submit(decrypt(id, &[0xff; 256])).await;
        assert_eq!(too_great, Err(KeyError::OutOfRange));
    }

    #[test]
    fn ecdsa_and_ed25519_are_done_when_submit_returns() {
        let (engine, _jobs) = idle_engine(1);
        for algorithm in [KeyAlgorithm::EcdsaP256, KeyAlgorithm::EcdsaP384, KeyAlgorithm::Ed25519] {
            let mut pending = engine.submit(sign(key(algorithm), algorithm.schemes()[0]));
            assert!(matches!(pending.try_take(), Some(Ok(_))), "{algorithm}");
        }
    }

    #[test]
    fn a_full_queue_refuses_instead_of_blocking() {
        let (engine, jobs) = idle_engine(2);
        let mut waiting = [(); 2].map(|()| engine.submit(rsa()));
        assert_eq!(engine.submit(rsa()).try_take(), Some(Err(KeyError::Overloaded)));
        drop(engine);
        work(&jobs);
        for pending in &mut waiting {
            assert!(matches!(pending.try_take(), Some(Ok(_))), "an engine that goes away finishes its queue");
        }
    }

    #[test]
    fn no_work_is_begun_after_its_deadline() {
        let (engine, jobs) = idle_engine(1);
        let late = |operation: KeyOperation| KeyOperation { deadline: Instant::now(), ..operation };
        let p256 = sign(key(KeyAlgorithm::EcdsaP256), SignatureScheme::ECDSA_SECP256R1_SHA256);
        assert_eq!(engine.submit(late(p256)).try_take(), Some(Err(KeyError::DeadlinePassed)));
        let mut pending = engine.submit(late(rsa()));
        drop(engine);
        work(&jobs);
        assert_eq!(pending.try_take(), Some(Err(KeyError::DeadlinePassed)));
    }

    #[test]
    fn abandoned_work_is_passed_over() {
        let (engine, jobs) = idle_engine(2);
        drop(engine.submit(rsa()));
        let mut wanted = engine.submit(rsa());
        drop(engine);
        work(&jobs);
        assert!(matches!(wanted.try_take(), Some(Ok(_))));
    }

    #[test]
    fn an_engine_whose_threads_have_ended_says_so() {
        let (engine, jobs) = idle_engine(1);
        drop(jobs);
        assert!(matches!(engine.submit(rsa()).try_take(), Some(Err(KeyError::Failed(_)))));
    }

    #[test]
    fn what_the_key_cannot_do_is_refused_before_it_waits() {
        let (engine, jobs) = idle_engine(1);
        let unknown = KeyId([1; 32]);
        let refused = engine.submit(sign(unknown, SignatureScheme::ED25519)).try_take();
        assert_eq!(refused, Some(Err(KeyError::UnknownKey(unknown))));
        let algorithm = KeyAlgorithm::Rsa { bits: 2048 };
        let scheme = SignatureScheme::ED25519;
        let refused = engine.submit(sign(key(algorithm), scheme)).try_take();
        assert_eq!(refused, Some(Err(KeyError::UnsupportedScheme { scheme, algorithm })));
        let refused = engine.submit(decrypt(key(algorithm), &[1; 255])).try_take();
        assert_eq!(refused, Some(Err(KeyError::OutOfRange)));
        let algorithm = KeyAlgorithm::EcdsaP256;
        let refused = engine.submit(decrypt(key(algorithm), &[1; 256])).try_take();
        assert_eq!(refused, Some(Err(KeyError::CannotDecrypt(algorithm))));
        assert!(jobs.is_empty());
    }

    #[tokio::test]
    async fn an_engine_for_other_keys_shares_the_threads() {
        let first = LocalEngine::new(Arc::default(), &LocalSettings::default()).unwrap();
        assert!(first.submit(rsa()).await.is_err());
        let second = first.with_keystore(keystore());
        drop(first);
        assert!(second.submit(rsa()).await.is_ok());
    }
}
