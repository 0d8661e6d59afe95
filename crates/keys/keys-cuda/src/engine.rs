//! [`CudaEngine`] for RSA on a GPU, with a [`BatchEngine`] of the processor for everything else.

use std::{
    fmt,
    num::NonZeroUsize,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use brisk_keys::{
    BatchEngine, KeyOperation, Keystore, PendingOperation, PrivateKeyEngine,
    device::{self, Job, PrivateKey, Width},
};
use crossbeam_channel::{Receiver, Sender};

use super::{
    collector::{CollectorTask, LaunchCollector},
    driver::{Device, Stream},
    error::CudaError,
    gpu_stream::GpuStream,
    keyed_stream::KeyedStream,
    rehearsal,
    source::Geometry,
    statistics::CudaStatistics,
};

/// Minimum interval between log lines about wrong results. Metrics count all of them.
const FAULT_LOG_INTERVAL: Duration = Duration::from_mins(1);

/// Settings of a [`CudaEngine`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaSettings {
    /// Index of the GPU, as counted by the driver. Default: 0.
    pub device: usize,
    /// Longest time that a `KeyOperation` waits for others. Default: 2 ms.
    pub wait: Duration,
    /// Number of streams, each with a thread. Default: 3, so that one computes, one copies and one collects.
    pub streams: NonZeroUsize,
    /// Operations that may wait for a launch; further ones are performed by the processor. Default: 65,536.
    pub queue: NonZeroUsize,
    /// GPU threads for each half of a `KeyOperation`: 1, 4, 8 or 16. Default: the fastest for the `Width`.
    pub threads: Option<u32>,
    /// GPU threads per block. Default: the fastest for the `Width`.
    pub block: Option<u32>,
    /// Bits of the exponent per multiplication. Default: the fastest for the `Width`.
    pub window: Option<u32>,
    /// Maximum number of operations in a launch. Default: as many as fit on the GPU at a time.
    pub wave: Option<NonZeroUsize>,
}

impl Default for CudaSettings {
    fn default() -> Self {
        let number = |number| NonZeroUsize::new(number).unwrap_or(NonZeroUsize::MIN);
        Self {
            device: 0,
            wait: Duration::from_millis(2),
            streams: number(3),
            queue: number(1 << 16),
            threads: None,
            block: None,
            window: None,
            wave: None,
        }
    }
}

impl CudaSettings {
    pub(super) fn geometry(&self, width: Width) -> Result<Geometry, CudaError> {
        let geometry = Geometry::new(width, self.threads, self.block);
        let geometry = geometry.and_then(|geometry| match self.window {
            Some(window) => geometry.with_window(window),
            None => Some(geometry),
        });
        geometry.ok_or(CudaError::Geometry { bits: width.bits() })
    }
}

/// Performs RSA operations with 2048, 3072 and 4096 bits on a GPU, thousands at a time, and everything else on the
/// processor.
///
/// Operations wait in a bounded queue until a wave is full or the first has waited [`CudaSettings::wait`]. The
/// processor's engine performs operations that find the queue full, those with a wrong result of the GPU, and all after
/// the loss of the GPU.
#[derive(Debug)]
pub struct CudaEngine {
    keystore: Arc<Keystore>,
    processor: BatchEngine,
    threads: Arc<Threads>,
    statistics: Arc<CudaStatistics>,
}

/// GPU threads and the [`Sender`] of their queue. The threads end with the last engine that shares them.
struct Threads {
    queue: Option<Sender<Job>>,
    handles: Vec<JoinHandle<()>>,
    gpu: String,
}

impl CudaEngine {
    /// Prepares the GPU for the keys of `processor`: compiles the kernels, uploads the keys and measures launches.
    /// Takes seconds. Kernels for a `Width` that a reload adds are compiled with its first operation, which waits for
    /// them.
    ///
    /// # Errors
    ///
    /// [`CudaError`] if the GPU cannot be used.
    pub fn new(processor: BatchEngine, settings: &CudaSettings) -> Result<Self, CudaError> {
        let device = Arc::new(Device::open(settings)?);
        let stream = |_| {
            let stream = Stream::new(Arc::clone(&device), settings.streams, settings.wave)?;
            Ok(Box::new(stream) as Box<dyn GpuStream>)
        };
        let streams = (0..settings.streams.get()).map(stream).collect::<Result<Vec<_>, CudaError>>()?;
        Self::with_streams(processor, settings, streams, device.to_string())
    }

    pub(super) fn with_streams(
        processor: BatchEngine,
        settings: &CudaSettings,
        streams: Vec<Box<dyn GpuStream>>,
        gpu: String,
    ) -> Result<Self, CudaError> {
        let keystore = Arc::clone(processor.keystore());
        let statistics = Arc::<CudaStatistics>::default();
        let (sender, queue) = crossbeam_channel::bounded(settings.queue.get());
        let mut streams: Vec<_> = streams.into_iter().map(KeyedStream::new).collect();
        upload(&mut streams, &keystore)?;
        if let Some(first) = streams.first_mut() {
            rehearsal::all(first, &keystore, &statistics)?;
        }
        // An engine without keys: the threads would otherwise keep keys alive that a reload has replaced.
        let keyless = processor.with_keystore(Arc::default());
        let launches = Arc::new(LaunchLoop::new(queue, settings.wait, keyless, Arc::clone(&statistics)));
        let mut threads = Threads { queue: Some(sender), handles: Vec::new(), gpu };
        for (number, stream) in streams.into_iter().enumerate() {
            let launches = Arc::clone(&launches);
            let thread = thread::Builder::new().name(format!("gpu-{number}"));
            let started = thread.spawn(move || launches.work(stream));
            threads.handles.push(started.map_err(|error| CudaError::Thread(error.to_string()))?);
        }
        Ok(Self { keystore, processor, threads: Arc::new(threads), statistics })
    }

    /// A `CudaEngine` for other keys on the same GPU, queue and threads, for a reload. Operations in progress end with
    /// their previous keys. Keys are uploaded with their first operation, and wiped from the GPU soon after their last
    /// use.
    #[must_use]
    pub fn with_keystore(&self, keystore: Arc<Keystore>) -> Self {
        Self {
            processor: self.processor.with_keystore(Arc::clone(&keystore)),
            keystore,
            threads: Arc::clone(&self.threads),
            statistics: Arc::clone(&self.statistics),
        }
    }

    /// [`CudaStatistics`] of the GPU, shared by all engines that use it.
    pub const fn statistics(&self) -> &Arc<CudaStatistics> {
        &self.statistics
    }

    /// The [`BatchEngine`] of the processor.
    pub const fn processor(&self) -> &BatchEngine {
        &self.processor
    }

    pub(super) const fn keystore(&self) -> &Arc<Keystore> {
        &self.keystore
    }

    /// Submits a [`KeyOperation`] for the GPU.
    fn start(&self, key: &Arc<PrivateKey>, operation: KeyOperation) -> PendingOperation {
        // Encoded in the calling thread, because the few GPU threads must not become the bottleneck.
        let (job, pending) = match self.processor.encoded_job(key, operation) {
            Ok(made) => made,
            Err(error) => return PendingOperation::refused(error),
        };
        let queue = self.threads.queue.as_ref().expect("it is there until all engines have gone");
        // Counted before it is queued: a GPU thread may finish it before `try_send` returns.
        self.statistics.arrived();
        if let Err(error) = queue.try_send(job) {
            self.statistics.left(1);
            self.statistics.take_over();
            self.processor.take_over(error.into_inner());
        }
        pending
    }
}

impl PrivateKeyEngine for CudaEngine {
    fn submit(&self, operation: KeyOperation) -> PendingOperation {
        match device::key(&self.keystore, operation.key) {
            Some(key) if key.width().is_some() && !self.statistics.is_lost() => self.start(key, operation),
            _ => self.processor.submit(operation),
        }
    }
}

impl fmt::Display for CudaEngine {
    /// Formats the name of the GPU.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.threads.gpu)
    }
}

impl Drop for Threads {
    /// Waits until the [`PrivateKey`]s on the GPU have been wiped.
    fn drop(&mut self) {
        self.queue = None;
        for handle in self.handles.drain(..) {
            // A thread that panicked has wiped its keys while unwinding.
            drop(handle.join());
        }
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("gpu", &self.gpu).finish_non_exhaustive()
    }
}

/// Uploads all keys of `keystore` to each [`KeyedStream`] in parallel; each key takes milliseconds.
fn upload(streams: &mut [KeyedStream], keystore: &Keystore) -> Result<(), CudaError> {
    thread::scope(|scope| {
        let upload = |stream: &mut KeyedStream| {
            Width::ALL.into_iter().try_for_each(|width| {
                stream.admit(width, device::keys(keystore).filter(|key| key.width() == Some(width)))
            })
        };
        let threads: Vec<_> = streams.iter_mut().map(|stream| scope.spawn(move || upload(stream))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Err(CudaError::Panicked)))
    })
}

/// State that the threads share.
struct LaunchLoop {
    collector: Mutex<LaunchCollector>,
    processor: BatchEngine,
    statistics: Arc<CudaStatistics>,
    fault_logged: Mutex<Option<Instant>>,
}

impl LaunchLoop {
    fn new(
        queue: Receiver<Job>,
        wait: Duration,
        processor: BatchEngine,
        statistics: Arc<CudaStatistics>,
    ) -> Self {
        let collector = Mutex::new(LaunchCollector::new(queue, wait, Arc::clone(&statistics)));
        Self { collector, processor, statistics, fault_logged: Mutex::new(None) }
    }

    /// Collects and launches until the queue is closed. After the loss of the GPU, operations are passed to the
    /// processor.
    fn work(&self, stream: KeyedStream) {
        let (mut stream, mut jobs) = (Some(stream), Vec::new());
        loop {
            let waves = Width::ALL.map(|width| stream.as_ref().map_or(1, |stream| stream.wave(width)));
            let mut collector = self.collector.lock().unwrap_or_else(PoisonError::into_inner);
            let task = collector.next(waves, &mut jobs);
            drop(collector);
            // Another thread may have lost the GPU. The drop of a stream wipes its keys.
            if self.statistics.is_lost() {
                stream = None;
            }
            let taken = jobs.len();
            // A panic must not leave operations without a result.
            let done = catch_unwind(AssertUnwindSafe(|| match (task, &mut stream) {
                (CollectorTask::Rest, Some(stream)) => stream.sweep(),
                (CollectorTask::Launch(width), Some(stream)) => self.launch(stream, width, &mut jobs),
                _ => Ok(()),
            }));
            if let Err(error) = done.unwrap_or(Err(CudaError::Panicked)) {
                self.lose(&error);
            }
            self.statistics.left(taken);
            self.hand_over(&mut jobs);
            if task == CollectorTask::End {
                return;
            }
        }
    }

    fn launch(&self, stream: &mut KeyedStream, width: Width, jobs: &mut Vec<Job>) -> Result<(), CudaError> {
        if jobs.is_empty() {
            return Ok(());
        }
        let count = jobs.len();
        let faults = stream.perform(width, jobs)?;
        self.statistics.launched(count - faults);
        if faults > 0 {
            self.log_faults(faults);
        }
        Ok(())
    }

    /// Passes each [`Job`] without a result to the processor.
    fn hand_over(&self, jobs: &mut Vec<Job>) {
        for job in jobs.drain(..) {
            self.statistics.take_over();
            self.processor.take_over(job);
        }
    }

    fn lose(&self, error: &CudaError) {
        if self.statistics.lose(error) {
            tracing::error!(%error, "the GPU is lost: the processor performs RSA until brisk is restarted");
        }
    }

    fn log_faults(&self, faults: usize) {
        let (faults, now) = (self.statistics.fault(faults), Instant::now());
        let mut logged = self.fault_logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|logged| now.duration_since(logged) >= FAULT_LOG_INTERVAL) {
            *logged = Some(now);
            tracing::warn!(
                faults,
                "a result of the GPU failed its check and was computed again on the processor. \
                 If this happens again, the GPU is defective"
            );
        }
    }
}
