//! The engine that performs RSA on a GPU, and has the processor do what the GPU does not.

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
    desk::{Desk, Task},
    driver::{Device, Stream},
    error::CudaError,
    gpu_stream::GpuStream,
    rehearsal,
    source::Geometry,
    station::Station,
    statistics::CudaStatistics,
};

/// The least time between two faults in the log; the metrics count them all.
const FAULT_LOG_INTERVAL: Duration = Duration::from_mins(1);

/// How a [`CudaEngine`] is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CudaSettings {
    /// Which GPU, as the driver counts them. Default: 0, the first.
    pub device: usize,
    /// How long an operation waits for others at most. Default: 2 ms.
    pub wait: Duration,
    /// Streams, each with a thread. Default: 3, so that one computes while another copies and the third gathers.
    pub streams: NonZeroUsize,
    /// Operations that may wait for a launch; beyond it, the processor has them. Default: 65,536.
    pub queue: NonZeroUsize,
    /// Threads of the GPU for each half of an operation: 1, 4, 8 or 16. Default: what the kernels do best with.
    pub threads: Option<u32>,
    /// Threads of the GPU to a block. Default: what the kernels do best with.
    pub block: Option<u32>,
    /// Bits of an exponent to one multiplication. Default: what the kernels do best with.
    pub window: Option<u32>,
    /// Operations in a launch at most. Default: as many as the GPU has room for at a time.
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

/// Performs RSA operations of 2048, 3072 and 4096 bits on a GPU, thousands at a time, and everything else on the
/// processor.
///
/// Operations wait in a bounded queue until there is a wave of them or the first has waited long enough. The processor's
/// engine performs what finds the queue full, what the GPU computed wrongly, and everything once the GPU is lost.
#[derive(Debug)]
pub struct CudaEngine {
    keystore: Arc<Keystore>,
    processor: BatchEngine,
    threads: Arc<Threads>,
    statistics: Arc<CudaStatistics>,
}

/// The threads, by the sending end of their queue. They end with the last engine that shares them.
struct Threads {
    queue: Option<Sender<Job>>,
    handles: Vec<JoinHandle<()>>,
    gpu: String,
}

impl CudaEngine {
    /// Prepares the GPU for the keys that `processor` has: compiles the kernels for keys of their sizes, uploads the
    /// keys, measures. Takes some seconds. The kernels for a size that a reload brings are compiled with its first
    /// operation, which waits.
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
        let mut stations: Vec<_> = streams.into_iter().map(Station::new).collect();
        upload(&mut stations, &keystore)?;
        if let Some(first) = stations.first_mut() {
            rehearsal::all(first, &keystore, &statistics)?;
        }
        // Without keys, or the threads would keep them when a reload has replaced them.
        let keyless = processor.with_keystore(Arc::default());
        let turns = Arc::new(Turns::new(queue, settings.wait, keyless, Arc::clone(&statistics)));
        let mut threads = Threads { queue: Some(sender), handles: Vec::new(), gpu };
        for (number, station) in stations.into_iter().enumerate() {
            let turns = Arc::clone(&turns);
            let thread = thread::Builder::new().name(format!("gpu-{number}"));
            let started = thread.spawn(move || turns.work(station));
            threads.handles.push(started.map_err(|error| CudaError::Thread(error.to_string()))?);
        }
        Ok(Self { keystore, processor, threads: Arc::new(threads), statistics })
    }

    /// An engine for other keys on the same GPU, queue and threads: what a reload makes, while operations that are
    /// under way finish with the keys they were begun with. A key is uploaded with the first operation that needs it,
    /// and wiped from the GPU soon after its last use has ended.
    #[must_use]
    pub fn with_keystore(&self, keystore: Arc<Keystore>) -> Self {
        Self {
            processor: self.processor.with_keystore(Arc::clone(&keystore)),
            keystore,
            threads: Arc::clone(&self.threads),
            statistics: Arc::clone(&self.statistics),
        }
    }

    /// What the GPU has done, and has to do; the same for all engines that share it.
    pub const fn statistics(&self) -> &Arc<CudaStatistics> {
        &self.statistics
    }

    /// The engine that does what the GPU does not.
    pub const fn processor(&self) -> &BatchEngine {
        &self.processor
    }

    pub(super) const fn keystore(&self) -> &Arc<Keystore> {
        &self.keystore
    }

    /// Submits an operation whose key has a place on the GPU.
    fn start(&self, key: &Arc<PrivateKey>, operation: KeyOperation) -> PendingOperation {
        // Encoded here: the threads of the GPU have no time for it.
        let (job, pending) = match self.processor.encoded_job(key, operation) {
            Ok(made) => made,
            Err(error) => return PendingOperation::refused(error),
        };
        let queue = self.threads.queue.as_ref().expect("it is there until all engines have gone");
        // Counted before a thread can take it, and be faster than this one.
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
    /// Names the GPU.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.threads.gpu)
    }
}

impl Drop for Threads {
    /// Waits until the keys on the GPU are wiped.
    fn drop(&mut self) {
        self.queue = None;
        for handle in self.handles.drain(..) {
            // A thread that panicked has wiped its keys while it unwound.
            drop(handle.join());
        }
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("gpu", &self.gpu).finish_non_exhaustive()
    }
}

/// Uploads all keys to all stations, side by side: it takes milliseconds for each of them.
fn upload(stations: &mut [Station], keystore: &Keystore) -> Result<(), CudaError> {
    thread::scope(|scope| {
        let upload = |station: &mut Station| {
            Width::ALL.into_iter().try_for_each(|width| {
                station.admit(width, device::keys(keystore).filter(|key| key.width() == Some(width)))
            })
        };
        let threads: Vec<_> =
            stations.iter_mut().map(|station| scope.spawn(move || upload(station))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Err(CudaError::Panicked)))
    })
}

/// What the threads share.
struct Turns {
    desk: Mutex<Desk>,
    processor: BatchEngine,
    statistics: Arc<CudaStatistics>,
    fault_logged: Mutex<Option<Instant>>,
}

impl Turns {
    fn new(
        queue: Receiver<Job>,
        wait: Duration,
        processor: BatchEngine,
        statistics: Arc<CudaStatistics>,
    ) -> Self {
        let desk = Mutex::new(Desk::new(queue, wait, Arc::clone(&statistics)));
        Self { desk, processor, statistics, fault_logged: Mutex::new(None) }
    }

    /// Gathers and launches until nothing will come any more. Without its station, what comes goes to the processor.
    fn work(&self, station: Station) {
        let (mut station, mut jobs) = (Some(station), Vec::new());
        loop {
            let waves = Width::ALL.map(|width| station.as_ref().map_or(1, |station| station.wave(width)));
            let mut desk = self.desk.lock().unwrap_or_else(PoisonError::into_inner);
            let task = desk.next(waves, &mut jobs);
            drop(desk);
            if self.statistics.is_lost() {
                station = None;
            }
            let taken = jobs.len();
            // Operations whose thread died of a panic would never be answered.
            let done = catch_unwind(AssertUnwindSafe(|| match (task, &mut station) {
                (Task::Rest, Some(station)) => station.sweep(),
                (Task::Launch(width), Some(station)) => self.launch(station, width, &mut jobs),
                _ => Ok(()),
            }));
            if let Err(error) = done.unwrap_or(Err(CudaError::Panicked)) {
                self.lose(&error);
            }
            self.statistics.left(taken);
            self.hand_over(&mut jobs);
            if task == Task::End {
                return;
            }
        }
    }

    fn launch(&self, station: &mut Station, width: Width, jobs: &mut Vec<Job>) -> Result<(), CudaError> {
        if jobs.is_empty() {
            return Ok(());
        }
        let count = jobs.len();
        let faults = station.perform(width, jobs)?;
        self.statistics.launched(count - faults);
        if faults > 0 {
            self.log_faults(faults);
        }
        Ok(())
    }

    /// Gives what has no result to the processor.
    fn hand_over(&self, jobs: &mut Vec<Job>) {
        for job in jobs.drain(..) {
            self.statistics.take_over();
            self.processor.take_over(job);
        }
    }

    fn lose(&self, error: &CudaError) {
        if self.statistics.lose(error) {
            tracing::error!(%error, "RSA goes on without the GPU, on the processor alone, until brisk is started again");
        }
    }

    fn log_faults(&self, faults: usize) {
        let (faults, now) = (self.statistics.fault(faults), Instant::now());
        let mut logged = self.fault_logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|logged| now.duration_since(logged) >= FAULT_LOG_INTERVAL) {
            *logged = Some(now);
            tracing::warn!(
                faults,
                "a result of the GPU did not stand its check; it was not used but computed again on the processor. \
                 If this happens again, the GPU is not to be trusted"
            );
        }
    }
}
