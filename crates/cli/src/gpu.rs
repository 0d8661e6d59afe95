//! An NVIDIA GPU beside the processor. `no_gpu.rs` has the same items for a program that was built without it.

mod options;
mod speed;

use std::sync::Arc;
use std::time::Duration;

use brisk_keys::{BatchEngine, Keystore, Offload, PrivateKeyEngine};
use brisk_keys_cuda::{CudaEngine, CudaSettings, Tiered};
use brisk_telemetry::metrics::GpuFigures;

pub(crate) use options::Options;
pub(crate) use speed::run as speed;

/// How a GPU is used; `None` is not at all.
pub(crate) type Settings = Option<CudaSettings>;

/// The settings that `keys.cuda` and `cuda_wait` result in, beside a processor to which `offload` goes; or what is
/// wrong with `cuda`.
pub(crate) fn settings(
    wanted: bool,
    wait: Option<Duration>,
    offload: Offload,
) -> Result<Settings, &'static str> {
    if wanted && !offload.rsa {
        return Err("needs offload to name \"rsa\", so that there are threads beside the GPU");
    }
    let usual = CudaSettings::default();
    Ok(wanted.then(|| CudaSettings { wait: wait.unwrap_or(usual.wait), ..usual }))
}

/// The GPU, and the processor beside it.
#[derive(Debug)]
pub(crate) struct Gpu(Tiered);

impl Gpu {
    /// Makes the GPU ready for the keys of `processor`. Where it cannot be used the log says why.
    pub(crate) fn start(processor: &BatchEngine, settings: &Settings) -> Option<Self> {
        let settings = settings.as_ref()?;
        match CudaEngine::new(processor.clone(), settings) {
            Ok(engine) => {
                let engine = Tiered::new(engine, settings.wait);
                tracing::info!("{engine}");
                // The keys of the start are not kept beside those that are in use.
                Some(Self(engine.with_keystore(Arc::default())))
            }
            Err(error) => {
                tracing::warn!("keys.cuda: {error}. RSA goes on without it, on the processor");
                None
            }
        }
    }

    /// An engine for these keys, that chooses between processor and GPU.
    pub(crate) fn for_keys(&self, keystore: Arc<Keystore>) -> Arc<dyn PrivateKeyEngine> {
        Arc::new(self.0.with_keystore(keystore))
    }

    /// What the metrics ask at each scrape.
    pub(crate) fn figures(&self) -> impl Fn() -> GpuFigures + Send + Sync + use<> {
        let statistics = Arc::clone(self.0.statistics());
        move || GpuFigures {
            pending: statistics.pending() as u64,
            launches: statistics.launches(),
            faults: statistics.faults(),
            taken_over: statistics.taken_over(),
            is_lost: statistics.is_lost(),
        }
    }
}
