//! The engine that uses keys of this process: ECDSA and Ed25519 at once, RSA on threads of its own.

use std::{io, num::NonZeroUsize, sync::Arc, thread, time::Instant};

use brisk_wire::registry::SignatureScheme;
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, TrySendError};

use crate::{
    Completion, KeyError, KeyOperation, Keystore, OperationKind, PendingOperation,
    PrivateKeyEngine, private_key::PrivateKey,
};

/// How a [`LocalEngine`] is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalSettings {
    /// Threads that make RSA signatures. Default: one per core.
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
        Ok(Self {
            keystore,
            pool: Pool::start(settings)?,
        })
    }

    /// An engine for other keys on the same threads and queue: what a reload makes, while operations that are under
    /// way finish with the keys they were begun with.
    #[must_use]
    pub fn with_keystore(&self, keystore: Arc<Keystore>) -> Self {
        Self {
            keystore,
            pool: self.pool.clone(),
        }
    }

    fn start(&self, operation: KeyOperation) -> Result<PendingOperation, KeyError> {
        let key = self.keystore.get(operation.key)?;
        let OperationKind::Sign { scheme, message } = operation.kind;
        key.check(scheme)?;
        if key.is_slow() {
            return self.pool.submit(key, scheme, message, operation.deadline);
        }
        if Instant::now() >= operation.deadline {
            return Err(KeyError::DeadlinePassed);
        }
        Ok(PendingOperation::ready(key.sign(scheme, &message)))
    }
}

impl PrivateKeyEngine for LocalEngine {
    fn submit(&self, operation: KeyOperation) -> PendingOperation {
        self.start(operation)
            .unwrap_or_else(|error| PendingOperation::ready(Err(error)))
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
    scheme: SignatureScheme,
    message: Bytes,
    completion: Completion,
}

impl Pool {
    fn start(settings: &LocalSettings) -> io::Result<Self> {
        let (queue, jobs) = crossbeam_channel::bounded(settings.queue.get());
        for number in 0..settings.rsa_threads.get() {
            let jobs = jobs.clone();
            thread::Builder::new()
                .name(format!("rsa-{number}"))
                .spawn(move || work(&jobs))?;
        }
        Ok(Self { queue })
    }

    fn submit(
        &self,
        key: &Arc<PrivateKey>,
        scheme: SignatureScheme,
        message: Bytes,
        deadline: Instant,
    ) -> Result<PendingOperation, KeyError> {
        let (pending, completion) = PendingOperation::with_completion(deadline);
        let job = Job {
            key: Arc::clone(key),
            scheme,
            message,
            completion,
        };
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
    for Job {
        key,
        scheme,
        message,
        completion,
    } in jobs
    {
        if let Some(completion) = completion.begin() {
            completion.complete(key.sign(scheme, &message));
        }
    }
}
