//! The engine that keeps slow operations off the threads that serve connections, and performs RSA in batches where the
//! processor can.

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

/// How a [`BatchEngine`] is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchSettings {
    /// Threads that perform operations. Default: one.
    pub threads: Threads,
    /// Numbers of the cores that the threads are kept on. Default: none, the system chooses among all.
    pub cores: Vec<usize>,
    /// Operations that may wait for a thread; one more is refused as overloaded. Default: 1024, which one core works off
    /// in a fifth of a second at 2048 bits, or in a fifteenth with batches.
    pub queue: NonZeroUsize,
    /// What goes to the threads; the rest is performed in `submit`. Default: RSA.
    pub offload: Offload,
    /// Whether RSA is performed in batches, where the processor has the instructions for it. Default: yes.
    pub simd: bool,
}

/// How many threads perform operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// This number.
    Exactly(NonZeroUsize),
    /// What suits a machine of `cores` cores, `workers` of which have a thread that serves connections: one for each core
    /// that is left. If none is left, the threads share cores with the workers: one per core, or one per four cores if an
    /// RSA key of the engine is used in batches of four, since one thread then does as much as about three without.
    Beside {
        /// Cores of the machine.
        cores: NonZeroUsize,
        /// Threads that serve connections.
        workers: NonZeroUsize,
    },
}

impl Threads {
    /// `by_fours` answers whether batches of four are performed. It may have to measure, so it is called only where the
    /// number depends on it.
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

/// Which operations leave the thread that submits them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offload {
    /// RSA: 200 us and more.
    pub rsa: bool,
    /// ECDSA: about 12 us with P-256, four times that with P-384.
    pub ecdsa: bool,
    /// Ed25519: about 12 us.
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

/// Performs key operations in this process: slow ones on threads of its own, the others at once in `submit`.
///
/// RSA operations of one key size, of whatever keys, are performed up to two or four at a time in vector lanes where that
/// is faster on this machine, see [`BatchChoice`]. An operation waits for others only while more arrive than one thread
/// could perform one by one, and never longer than it takes by itself.
///
/// Operations wait in a bounded queue; one that was abandoned or whose deadline has passed when its turn comes is not
/// performed.
#[derive(Clone, Debug)]
pub struct BatchEngine {
    keystore: Arc<Keystore>,
    local: LocalEngine,
    /// `None`: everything is performed in `submit`.
    pool: Option<Pool>,
    statistics: Arc<BatchStatistics>,
}

/// The threads, by the sending end of their queue.
#[derive(Clone, Debug)]
struct Pool {
    queue: Sender<Job>,
    offload: Offload,
    threads: NonZeroUsize,
    /// Whether batches are allowed.
    simd: bool,
    /// How batches are performed. `None`: they are not allowed, or not supported by this processor.
    transform: Option<Transform>,
}

impl BatchEngine {
    /// Starts the threads, if anything is offloaded; they end when the last engine that shares them has gone and the
    /// queue is empty.
    ///
    /// The error is the operating system's, when it refuses a thread or a core.
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

    /// An engine for other keys on the same threads and queue: what a reload makes, while operations that are under
    /// way finish with the keys they were begun with.
    #[must_use]
    pub fn with_keystore(&self, keystore: Arc<Keystore>) -> Self {
        Self::of(keystore, self.pool.clone(), Arc::clone(&self.statistics))
    }

    /// Makes keys ready for batches now, so that no handshake waits for it.
    fn prepare_keys(&self) {
        let Some(transform) = self.transform() else { return };
        for rsa in self.keystore.keys().filter_map(|key| key.rsa()) {
            if let Some(instructions) = rsa.width().and_then(|width| (transform.choose)(width).instructions())
            {
                rsa.prepared(instructions);
            }
        }
    }

    /// How batches of RSA operations are performed, if at all.
    fn transform(&self) -> Option<Transform> {
        self.pool.as_ref().filter(|pool| pool.offload.rsa)?.transform
    }

    /// How RSA operations are performed with the keys of this engine, for each of their sizes that can share batches, the
    /// smallest first. Empty if batches are switched off, or not to be had on this processor.
    pub fn choices(&self) -> Vec<BatchChoice> {
        choices(&self.keystore, self.transform()).collect()
    }

    /// What the threads have done, and have to do; the same for all engines that share them.
    pub const fn statistics(&self) -> &Arc<BatchStatistics> {
        &self.statistics
    }

    fn start(&self, operation: KeyOperation) -> Result<PendingOperation, KeyError> {
        let key = self.keystore.get(operation.key)?;
        match &self.pool {
            Some(pool) if pool.offload.includes(key.algorithm()) => {
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
    /// Says in a line how RSA is performed, and why: `RSA on 2 threads: 2048 bits in batches of four with AVX-512 IFMA, 3.2
    /// times as fast as one by one`.
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

/// How RSA operations are performed with the keys of `keystore`, for each of their sizes that can share batches, the
/// smallest first.
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
        // Counted before a thread can take it, and be faster than this one.
        statistics.arrived();
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
