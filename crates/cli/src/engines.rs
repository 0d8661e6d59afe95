//! What performs key operations, composed of the engines that this program knows: the processor, and a GPU beside it.
//!
//! Whatever serves with private keys gets [`Engines`] and names none of them. Keys that a key server holds are one more
//! implementation, chosen in [`start`]; a key server is given what [`start`] returns, as the gateway is.

use std::io;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use brisk_keys::{BatchChoice, BatchEngine, BatchSettings, Engines, Keystore, PrivateKeyEngine};
use brisk_telemetry::Metrics;
use brisk_telemetry::metrics::{BatchGain, KeyFigures};

use crate::gpu::{self, Gpu};

/// Where and how key operations are performed: `[keys]`. Fixed at the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeySettings {
    /// The processor.
    pub(crate) processor: BatchSettings,
    /// The GPU beside it, if any.
    pub(crate) gpu: gpu::Settings,
}

/// Starts what the settings ask for, measures with the keys of `keystore`, and counts in `metrics`. Without a usable GPU
/// the log says why, and the processor performs everything. The error is the operating system's, when it refuses a thread
/// or a core.
pub(crate) fn start(
    settings: &KeySettings,
    keystore: &Arc<Keystore>,
    metrics: &Metrics,
) -> io::Result<Arc<dyn Engines>> {
    let queue = settings.processor.queue;
    let processor = BatchEngine::new(Arc::clone(keystore), &settings.processor)?;
    tracing::info!("{processor}");
    let gpu = Gpu::start(&processor, &settings.gpu);
    let (statistics, gpu_figures) = (Arc::clone(processor.statistics()), gpu.as_ref().map(Gpu::figures));
    metrics.set_key_source(move || KeyFigures {
        queue_length: statistics.waiting() as u64,
        by_batch: statistics.performed(),
        faults: statistics.faults(),
        batch_gains: batch_gains(),
        gpu: gpu_figures.as_ref().map(|figures| figures()),
    });
    let described = Mutex::new(processor.to_string());
    // The keys of the start are not kept beside those that are in use.
    let processor = processor.with_keystore(Arc::default());
    Ok(Arc::new(ThisMachine { processor, gpu, queue, described }))
}

/// The engines of this machine.
#[derive(Debug)]
struct ThisMachine {
    processor: BatchEngine,
    gpu: Option<Gpu>,
    queue: NonZeroUsize,
    /// The processor's way of performing the keys in use, as it was logged.
    described: Mutex<String>,
}

impl Engines for ThisMachine {
    fn for_keys(&self, keystore: Arc<Keystore>) -> Arc<dyn PrivateKeyEngine> {
        let processor = self.processor.with_keystore(Arc::clone(&keystore));
        // Keys of another size may have come, and with them another way.
        let now = processor.to_string();
        let mut described = self.described.lock().unwrap_or_else(PoisonError::into_inner);
        if *described != now {
            tracing::info!("{now}");
            *described = now;
        }
        drop(described);
        match &self.gpu {
            Some(gpu) => gpu.for_keys(keystore),
            None => Arc::new(processor),
        }
    }

    fn queue(&self) -> NonZeroUsize {
        self.queue
    }
}

/// What batches gain here with keys of the sizes that there are.
fn batch_gains() -> Vec<BatchGain> {
    let gain = |choice: BatchChoice| {
        let (engine, gain) = (choice.instructions_name()?, choice.gain()?);
        Some(BatchGain { bits: choice.bits(), engine, gain })
    };
    BatchChoice::measured().filter_map(gain).collect()
}
