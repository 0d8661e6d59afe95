//! [`BatchEngine`]: moves slow operations off the threads that serve connections, and performs RSA in batches where
//! the processor supports it.

mod beside_device;
mod choice;
mod class;
mod gather;
pub(crate) mod on_caller;
pub(crate) mod perform;
mod statistics;
mod threads;

use std::{fmt, io, num::NonZeroUsize, sync::Arc};

use crossbeam_channel::{Sender, TrySendError};

use brisk_lanes::rsa_lanes::Width;

use self::{
    class::Class,
    perform::{Performing, Transform},
};
use crate::{
    KeyAlgorithm, KeyError, KeyOperation, Keystore, LocalEngine, PendingOperation, PrivateKeyEngine,
    private_key::PrivateKey,
};
pub use choice::BatchChoice;
pub use perform::Job;
pub use statistics::BatchStatistics;

/// Settings of a [`BatchEngine`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchSettings {
    /// Number of threads that perform operations. Default: one; see [`Threads`].
    pub threads: Threads,
    /// Numbers of the cores that the threads are pinned to. Default: empty; the system schedules them on all cores.
    pub cores: Vec<usize>,
    /// Capacity of the queue; when it is full, an operation fails with [`KeyError::Overloaded`]. Default: 1024
    /// operations, which one core performs in 0.2 s with 2048-bit keys, or in 0.07 s with batches.
    pub queue: NonZeroUsize,
    /// Operations that are performed on the threads; `submit` performs the others itself. Default: RSA.
    pub offload: Offload,
    /// Whether RSA is performed in batches where the processor has the instructions. Default: yes.
    pub simd: bool,
}

/// Number of threads of a [`BatchEngine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// A fixed number.
    Exactly(NonZeroUsize),
    /// A number that suits a machine with `cores` cores on which `workers` threads serve connections: one thread per
    /// remaining core.
    ///
    /// If no core remains, the threads share cores with the workers: one thread per core, or one per four cores if an
    /// RSA key of the engine is used in batches of four, since one such thread replaces about three others.
    Beside {
        /// Cores of the machine.
        cores: NonZeroUsize,
        /// Threads that serve connections.
        workers: NonZeroUsize,
    },
}

impl Threads {
    /// The number of threads. `by_fours` returns whether RSA keys are used in batches of four; it may start a
    /// measurement, so it is called only if the number depends on it.
    fn number(self, by_fours: impl FnOnce() -> bool) -> NonZeroUsize {
        let (cores, workers) = match self {
            Self::Exactly(number) => return number,
            Self::Beside { cores, workers } => (cores, workers),
        };
        let left = NonZeroUsize::new(cores.get().saturating_sub(workers.get()));
        left.or_else(|| by_fours().then_some(NonZeroUsize::new(cores.get().div_ceil(4))?)).unwrap_or(cores)
    }
}

impl Default for BatchSettings {
    fn default() -> Self {
        Self {
            threads: Threads::Exactly(NonZeroUsize::MIN),
            cores: Vec::new(),
            queue: NonZeroUsize::new(1024).unwrap_or(NonZeroUsize::MIN),
            offload: Offload::default(),
            simd: true,
        }
    }
}

/// Operations that leave the thread that submits them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// RSA: 200 µs and more per operation.
    pub rsa: bool,
    /// ECDSA: about 12 µs with P-256, four times that with P-384.
    pub ecdsa: bool,
    /// Ed25519: about 12 µs.
    pub ed25519: bool,
}

impl Offload {
    const fn anything(self) -> bool {
        self.rsa || self.ecdsa || self.ed25519
    }

    const fn includes(self, algorithm: KeyAlgorithm) -> bool {
        match algorithm {
            KeyAlgorithm::Rsa { .. } => self.rsa,
            KeyAlgorithm::EcdsaP256 | KeyAlgorithm::EcdsaP384 => self.ecdsa,
            KeyAlgorithm::Ed25519 => self.ed25519,
            KeyAlgorithm::MlDsa44 | KeyAlgorithm::MlDsa65 | KeyAlgorithm::MlDsa87 => false,
        }
    }
}

impl Default for Offload {
    fn default() -> Self {
        Self { rsa: true, ecdsa: false, ed25519: false }
    }
}

/// Engine that performs key operations in this process: slow ones on its own threads, the others in `submit`.
///
/// RSA operations with keys of the same size are performed two or four at a time in vector lanes where a measurement
/// on this machine shows a gain, see [`BatchChoice`]. An operation waits for others only while more arrive than one
/// thread could perform one by one, and never longer than the operation itself takes.
///
/// The queue is bounded. Operations that were abandoned, or whose deadline has passed, are removed from it without
/// being performed.
#[derive(Clone, Debug)]
pub struct BatchEngine {
    keystore: Arc<Keystore>,
    local: LocalEngine,
    /// Threads; `None` if every operation is performed in `submit`.
    pool: Option<Pool>,
    statistics: Arc<BatchStatistics>,
}

/// The threads, represented by the sending end of their queue.
#[derive(Clone, Debug)]
struct Pool {
    queue: Sender<Job>,
    offload: Offload,
    threads: NonZeroUsize,
    /// Whether [`BatchSettings::simd`] is set.
    simd: bool,
    /// Implementation of batches; `None` if they are disabled or the processor does not support them.
    transform: Option<Transform>,
}

impl BatchEngine {
    /// Starts the threads if [`BatchSettings::offload`] contains anything. They end when the queue is empty and the
    /// last engine that shares them is dropped.
    ///
    /// # Errors
    ///
    /// The operating system's error if it refuses a thread or a core.
    pub fn new(keystore: Arc<Keystore>, settings: &BatchSettings) -> io::Result<Self> {
        Self::with_transform(keystore, settings, Transform::supported())
    }

    fn with_transform(
        keystore: Arc<Keystore>,
        settings: &BatchSettings,
        transform: Option<Transform>,
    ) -> io::Result<Self> {
        let statistics = Arc::<BatchStatistics>::default();
        let transform = transform.filter(|_| settings.simd);
        let pool = if settings.offload.anything() {
            // A closure, because the first use of a choice measures for some tens of milliseconds: without
            // need with a fixed number of threads, and where cores remain.
            let by_fours = || choices(&keystore, transform).any(|choice| choice.operations() == 4);
            let threads = settings.threads.number(by_fours);
            let performing = Performing::new(transform, Arc::clone(&statistics));
            let queue = threads::start(settings, threads, performing, &statistics)?;
            Some(Pool { queue, offload: settings.offload, threads, simd: settings.simd, transform })
        } else {
            None
        };
        Ok(Self::of(keystore, pool, statistics))
    }

    fn of(keystore: Arc<Keystore>, pool: Option<Pool>, statistics: Arc<BatchStatistics>) -> Self {
        let local = LocalEngine::new(Arc::clone(&keystore));
        let engine = Self { keystore, local, pool, statistics };
        engine.prepare_keys();
        engine
    }

    /// Creates an engine for other keys on the same threads and queue, for a reload. Operations in progress finish
    /// with the keys that they were submitted for.
    #[must_use]
    pub fn with_keystore(&self, keystore: Arc<Keystore>) -> Self {
        // The clone shares the queue: a reload starts no thread, and loses no operation that waits.
        Self::of(keystore, self.pool.clone(), Arc::clone(&self.statistics))
    }

    /// Prepares all keys for batches, so that no handshake waits for the preparation.
    fn prepare_keys(&self) {
        let Some(transform) = self.transform() else { return };
        for rsa in self.keystore.keys().filter_map(|key| key.rsa()) {
            // For the chosen instructions only, since each prepared form is another copy of the private
            // numbers.
            if let Some(instructions) = rsa.width().and_then(|width| (transform.choose)(width).instructions())
            {
                rsa.prepared(instructions);
            }
        }
    }

    /// Implementation of RSA batches; `None` if RSA is not offloaded or cannot be batched.
    fn transform(&self) -> Option<Transform> {
        self.pool.as_ref().filter(|pool| pool.offload.rsa)?.transform
    }

    /// The method chosen for each size of this engine's RSA keys that supports batches, in ascending order. Empty if
    /// batches are disabled or not supported by the processor.
    pub fn choices(&self) -> Vec<BatchChoice> {
        choices(&self.keystore, self.transform()).collect()
    }

    /// Counters of the threads, shared by all engines that use them.
    pub const fn statistics(&self) -> &Arc<BatchStatistics> {
        &self.statistics
    }

    fn start(&self, operation: KeyOperation) -> Result<PendingOperation, KeyError> {
        let key = self.keystore.get(operation.key)?;
        match &self.pool {
            Some(pool) if pool.offload.includes(key.algorithm()) => {
                // Before the queue, so that an operation that must fail takes no slot from others.
                key.check(&operation.kind)?;
                pool.submit(key, operation, &self.statistics)
            }
            _ => Ok(self.local.submit(operation)),
        }
    }
}

impl PrivateKeyEngine for BatchEngine {
    fn submit(&self, operation: KeyOperation) -> PendingOperation {
        self.start(operation).unwrap_or_else(PendingOperation::refused)
    }
}

impl fmt::Display for BatchEngine {
    /// Writes one line with the method for RSA and its reason:
    /// `RSA on 2 threads: 2048 bits in batches of four with AVX-512 IFMA, 3.2 times as fast as one by one`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(pool) = self.pool.as_ref().filter(|pool| pool.offload.rsa) else {
            return f.write_str(
                "RSA by the workers themselves: one by one with AWS-LC, since offload does not name it",
            );
        };
        let (threads, s) = (pool.threads, if pool.threads.get() == 1 { "" } else { "s" });
        write!(f, "RSA on {threads} thread{s}: ")?;
        match pool.transform {
            Some(_) => self.write_choices(f),
            None if !pool.simd => f.write_str("one by one with AWS-LC, since simd = false"),
            None => f.write_str("one by one with AWS-LC, since this processor has no AVX2 and FMA"),
        }
    }
}

impl BatchEngine {
    fn write_choices(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let choices = self.choices();
        if choices.is_empty() {
            return f.write_str("one by one with AWS-LC, since no key has 2048, 3072 or 4096 bits");
        }
        for (index, choice) in choices.iter().enumerate() {
            write!(f, "{}{choice}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

/// The method chosen for each size of the RSA keys in `keystore` that supports batches, in ascending order.
fn choices(keystore: &Keystore, transform: Option<Transform>) -> impl Iterator<Item = BatchChoice> {
    let present =
        |width: &Width| keystore.keys().filter_map(|key| key.rsa()).any(|rsa| rsa.width() == Some(*width));
    let choose = move |transform: Transform| Width::ALL.into_iter().filter(present).map(transform.choose);
    transform.into_iter().flat_map(choose)
}

impl Pool {
    fn class(&self, key: &PrivateKey) -> Class {
        self.transform.map_or(Class::Alone, |transform| transform.class(key))
    }

    fn submit(
        &self,
        key: &Arc<PrivateKey>,
        operation: KeyOperation,
        statistics: &BatchStatistics,
    ) -> Result<PendingOperation, KeyError> {
        let class = self.class(key);
        let (pending, completion) = PendingOperation::with_completion(operation.deadline);
        // Counted before the job is sent: a thread that takes it at once would otherwise decrease the counter below
        // zero.
        statistics.arrived();
        // Never `send`, which would block the worker and all its connections while the queue is full.
        let Err(error) = self.queue.try_send(Job::new(key, operation.kind, class, completion)) else {
            return Ok(pending);
        };
        statistics.left(1);
        Err(match error {
            TrySendError::Full(_) => KeyError::Overloaded,
            TrySendError::Disconnected(_) => KeyError::Failed("the threads of the key engine have ended"),
        })
    }
}

#[cfg(test)]
mod tests;
