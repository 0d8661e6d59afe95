//! An NVIDIA GPU beside the processor. `no_gpu.rs` has the same items for a program built without the feature `cuda`.

use std::fmt;
use std::sync::Arc;

use brisk_config::GpuSettings;
use brisk_keys::{BatchEngine, Keystore, PrivateKeyEngine};
use brisk_keys_cuda::{CudaEngine, CudaSettings, CudaStatistics, Tiered};
use brisk_telemetry::metrics::{Collector, Encoder};

fn cuda_settings(settings: &GpuSettings) -> CudaSettings {
    let usual = CudaSettings::default();
    CudaSettings { wait: settings.wait.unwrap_or(usual.wait), ..usual }
}

/// [`Tiered`] engine: the processor performs operations at low load, the GPU at high load.
#[derive(Debug)]
pub(crate) struct Gpu(Tiered);

impl Gpu {
    /// Prepares the GPU for the keys of `processor`. Returns `None`, and logs the reason, if the GPU cannot be used.
    pub(crate) fn start(processor: &BatchEngine, settings: Option<&GpuSettings>) -> Option<Self> {
        let settings = cuda_settings(settings?);
        match CudaEngine::new(processor.clone(), &settings) {
            Ok(engine) => {
                let engine = Tiered::new(engine, settings.wait);
                tracing::info!("{engine}");
                // The keys of the start were needed for measuring only. Each configuration brings its own, and old keys
                // should not stay in memory.
                Some(Self(engine.with_keystore(Arc::default())))
            }
            Err(error) => {
                tracing::warn!("keys.cuda: {error}. RSA goes on without it, on the processor");
                None
            }
        }
    }

    /// Engine for the keys of `keystore` that chooses between processor and GPU for each operation.
    pub(crate) fn for_keys(&self, keystore: Arc<Keystore>) -> Arc<dyn PrivateKeyEngine> {
        Arc::new(self.0.with_keystore(keystore))
    }

    pub(crate) fn metrics(&self) -> Metrics {
        Metrics(Arc::clone(self.0.statistics()))
    }
}

/// [`Collector`] of the GPU's queue, launches and failures.
#[derive(Debug)]
pub(crate) struct Metrics(Arc<CudaStatistics>);

impl Metrics {
    /// Number of results that failed verification and were computed again.
    pub(crate) fn faults(&self) -> u64 {
        self.0.faults()
    }
}

impl Collector for Metrics {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let mut family = page.gauge("key_gpu_pending", "Key operations queued for or running on the GPU.")?;
        family.gauge(&[], self.0.pending() as u64)?;
        let mut family = page
            .counter("key_gpu_launches", "Kernel launches on the GPU, each for a batch of key operations.")?;
        family.counter(&[], self.0.launches())?;
        let mut family = page.counter(
            "key_gpu_taken_over",
            "Key operations that the processor performed in place of the GPU.",
        )?;
        family.counter(&[], self.0.taken_over())?;
        let mut family = page.gauge("key_gpu_lost", "1 after the GPU has failed, otherwise 0.")?;
        family.gauge(&[], u64::from(self.0.is_lost()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_operation_waits_for_others_for_two_milliseconds_unless_the_file_has_another_time() {
        let wait = |wait| cuda_settings(&GpuSettings { wait }).wait;
        assert_eq!(wait(None), Duration::from_millis(2));
        assert_eq!(wait(Some(Duration::from_millis(5))), Duration::from_millis(5));
    }

    #[test]
    fn the_metrics_of_a_gpu_are_shown_and_documented() {
        let metrics = brisk_telemetry::Metrics::new();
        metrics.register(Metrics(Arc::default()));
        let page = metrics.render();
        let documentation = include_str!("../../../../docs/metrics.md");
        for name in ["pending", "launches", "taken_over", "lost"].map(|name| format!("brisk_key_gpu_{name}"))
        {
            assert!(page.contains(&format!("# TYPE {name} ")), "{name} is not in {page}");
            assert!(documentation.contains(&format!("`{name}")), "{name} is not documented");
        }
    }
}
