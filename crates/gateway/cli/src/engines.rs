//! Engines for private key operations, composed: the processor, an NVIDIA GPU, PKCS#11 tokens, key servers, and the
//! isolated key process.
//!
//! The gateway and the key server receive an [`Engines`] and depend on no engine themselves. The keystore records for each
//! key outside of this process (token, key server, isolation) the engine that performs its operations.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use brisk_config::{KeySettings, Running};
use brisk_isolation::{Isolation, IsolationMetrics};
use brisk_keyless::RemoteEngines;
use brisk_keys::turn::TurnFigures;
use brisk_keys::{
    BatchChoice, BatchEngine, BatchStatistics, EngineFigures, Engines, Gathered, Keystore, LanesUse, Metered,
    OperationObserver, OperationOutcome, OperationReport, Performer, PrivateKeyEngine,
};
use brisk_keys_pkcs11::Tokens;
use brisk_telemetry::Metrics;
use brisk_telemetry::metrics::{Collector, Encoder, KeyOperationFacts, KeyOutcome};
use brisk_tls::gather::{self, GatherFigures};

use crate::gpu::{self, Gpu};
use crate::tokens::{self, TokenMetrics};

/// Starts the [`Engines`] of `settings`. Measures batches with the keys of `keystore` and counts operations in `metrics`.
///
/// A GPU that cannot be used is logged, and the processor performs its operations. Fails only if the system refuses a thread
/// or a core.
pub(crate) fn start(
    settings: &KeySettings,
    keystore: &Arc<Keystore>,
    running: &Running,
    metrics: &Arc<Metrics>,
) -> io::Result<Arc<dyn Engines>> {
    start_counting(settings, keystore, running, metrics).map(|(engines, _)| engines)
}

/// Like [`start`], and also returns the statistics of the processor's threads.
pub(crate) fn start_counting(
    settings: &KeySettings,
    keystore: &Arc<Keystore>,
    running: &Running,
    metrics: &Arc<Metrics>,
) -> io::Result<(Arc<dyn Engines>, Arc<BatchStatistics>)> {
    let queue = settings.processor.queue;
    let processor = BatchEngine::new(Arc::clone(keystore), &settings.processor)?;
    if settings.isolation.is_none() {
        tracing::info!("{processor}");
    }
    // Measured at the start, so that the first handshake does not wait for it.
    tracing::info!("X25519 and ECDSA with P-256: {}", lanes(settings.processor.simd));
    // Before the keys are dropped below, with which the GPU is measured.
    let gpu = Gpu::start(&processor, settings.gpu.as_ref());
    let gpu_metrics = gpu.as_ref().map(Gpu::metrics);
    let elsewhere = Elsewhere {
        key_servers: running.key_servers.clone(),
        isolation: running.isolation.clone(),
        tokens: running.tokens.clone(),
    };
    tokens::log(&elsewhere.tokens);
    metrics.register(TokenMetrics(elsewhere.tokens.clone()));
    metrics.register(KeyMetrics { processor: Arc::clone(processor.statistics()), gpu: gpu_metrics });
    metrics.register(elsewhere.key_servers.metrics().clone());
    if let Some(isolation) = &elsewhere.isolation {
        metrics.register(IsolationMetrics(Arc::clone(isolation)));
    }
    let statistics = Arc::clone(processor.statistics());
    let described = Mutex::new(described(&processor).collect());
    // The keys of the start were needed for measuring only. Each configuration brings its own, and old keys should not stay
    // in memory.
    let processor = processor.with_keystore(Arc::default());
    let operations = Arc::new(KeyOperations(Arc::clone(metrics)));
    Ok((Arc::new(ThisMachine { processor, gpu, queue, described, elsewhere, operations }), statistics))
}

/// Engines for keys outside of this process.
#[derive(Debug)]
struct Elsewhere {
    key_servers: RemoteEngines,
    isolation: Option<Arc<Isolation>>,
    tokens: Tokens,
}

impl Elsewhere {
    fn troubles(&self) -> Vec<String> {
        let mut troubles = self.key_servers.troubles();
        troubles.extend(self.isolation.as_ref().and_then(|isolation| isolation.trouble()));
        troubles.extend(tokens::trouble(&self.tokens));
        troubles
    }
}

/// All engines, as a gateway or a key server on this machine uses them.
#[derive(Debug)]
struct ThisMachine {
    processor: BatchEngine,
    gpu: Option<Gpu>,
    queue: NonZeroUsize,
    /// Ways of performing operations, by key size, that were already logged.
    described: Mutex<BTreeSet<String>>,
    elsewhere: Elsewhere,
    operations: Arc<KeyOperations>,
}

impl Engines for ThisMachine {
    fn for_keys(&self, keystore: Arc<Keystore>) -> Arc<dyn PrivateKeyEngine> {
        // The threads and the queue stay: operations in progress with the old keys finish on them.
        let processor = self.processor.with_keystore(Arc::clone(&keystore));
        // A reload may bring keys of a new size; the way chosen for it is logged once.
        let mut described = self.described.lock().unwrap_or_else(PoisonError::into_inner);
        let before = described.len();
        described.extend(self::described(&processor));
        if described.len() > before {
            tracing::info!("{processor}");
        }
        drop(described);
        let here = match &self.gpu {
            Some(gpu) => gpu.for_keys(Arc::clone(&keystore)),
            None => Arc::new(processor),
        };
        // Outermost, so that the operations of all engines are counted in one place, and each once.
        Arc::new(Metered::new(keystore.with_elsewhere(here), Arc::clone(&self.operations) as _))
    }

    fn queue(&self) -> NonZeroUsize {
        self.queue
    }

    fn trouble(&self) -> Option<String> {
        let troubles = self.elsewhere.troubles();
        (!troubles.is_empty()).then(|| troubles.join("; "))
    }

    fn figures(&self) -> EngineFigures {
        let statistics = self.processor.statistics();
        let gathered = gathered_kinds(&gather::figures()).map(|(operation, of)| Gathered {
            operation,
            in_lanes: of.in_lanes,
            alone: of.alone,
            batches: of.batches,
        });
        EngineFigures {
            waiting: statistics.waiting() as u64,
            batches: statistics.performed().to_vec(),
            gathered: gathered.to_vec(),
        }
    }
}

/// Chosen ways of performing operations by `processor`, one for each key size.
fn described(processor: &BatchEngine) -> impl Iterator<Item = String> + use<> {
    processor.choices().into_iter().map(|choice| choice.to_string())
}

/// [`OperationObserver`] that counts the operations of all engines in [`Metrics`].
#[derive(Debug)]
struct KeyOperations(Arc<Metrics>);

impl OperationObserver for KeyOperations {
    fn observe(&self, report: &OperationReport) {
        let outcome = match report.outcome {
            OperationOutcome::Done => KeyOutcome::Ok,
            OperationOutcome::Overloaded => KeyOutcome::Overloaded,
            OperationOutcome::DeadlinePassed => KeyOutcome::DeadlinePassed,
            OperationOutcome::Failed => KeyOutcome::Failed,
            OperationOutcome::Abandoned => KeyOutcome::Abandoned,
        };
        let engine = report.performer.map(Performer::name);
        let OperationReport { algorithm, wait, compute, .. } = *report;
        self.0.key_operation(&KeyOperationFacts { engine, algorithm, outcome, wait, compute });
    }
}

/// [`Collector`] of the processor's and the GPU's queues, batches and faults.
#[derive(Debug)]
struct KeyMetrics {
    processor: Arc<BatchStatistics>,
    gpu: Option<gpu::Metrics>,
}

impl Collector for KeyMetrics {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let mut family = page.gauge("key_queue_length", "Key operations in the queue.")?;
        family.gauge(&[], self.processor.waiting() as u64)?;
        let mut family = page.counter(
            "key_batch_operations",
            "Key operations performed by the engine's threads, by size of the batch.",
        )?;
        for (size, count) in ["1", "2", "3", "4"].into_iter().zip(self.processor.performed()) {
            family.counter(&[("size", size)], count)?;
        }
        let mut family =
            page.counter("key_faults", "Results of batches that failed verification and were discarded.")?;
        let gathered = gather::figures();
        let faults = self.processor.faults() + gathered.faults;
        family.counter(&[], faults + self.gpu.as_ref().map_or(0, gpu::Metrics::faults))?;
        self::gathered(page, &gathered)?;
        batch_gains(page)?;
        self.gpu.as_ref().map_or(Ok(()), |gpu| gpu.collect(page))
    }
}

/// Description, for the log, of how X25519 and ECDSA are performed. The first call measures whether vector lanes are faster.
fn lanes(simd: bool) -> String {
    if !simd {
        return "one by one with AWS-LC, since simd = false".into();
    }
    let Some(lanes) = LanesUse::of_this_processor() else {
        return "one by one with AWS-LC, since this processor has no AVX-512 IFMA".into();
    };
    if !lanes.is_any() {
        return "one by one with AWS-LC, since batches of eight with AVX-512 IFMA are not faster here".into();
    }
    let LanesUse { exchanges, signatures } = lanes;
    format!("batches of eight with AVX-512 IFMA, from {exchanges} exchanges or {signatures} signatures on")
}

/// Figures of operations gathered by workers, by kind.
fn gathered_kinds(figures: &GatherFigures) -> [(&'static str, TurnFigures); 3] {
    let GatherFigures { exchanges, encapsulations, signatures, .. } = *figures;
    [("exchange", exchanges), ("encapsulation", encapsulations), ("signature", signatures)]
}

fn gathered(page: &mut Encoder<'_, '_>, figures: &GatherFigures) -> fmt::Result {
    let kinds = gathered_kinds(figures);
    let mut family = page.counter(
        "key_gathered_operations",
        "Operations that workers gathered in a turn of their event loop, by engine.",
    )?;
    for (operation, figures) in kinds {
        family.counter(&[("operation", operation), ("engine", "lanes")], figures.in_lanes)?;
        family.counter(&[("operation", operation), ("engine", "aws-lc")], figures.alone)?;
    }
    let mut family =
        page.counter("key_gathered_batches", "Batches of up to eight gathered operations, in vector lanes.")?;
    for (operation, figures) in kinds {
        family.counter(&[("operation", operation)], figures.batches)?;
    }
    let mut family = page.seconds_counter(
        "key_gathered_wait",
        "Time that gathered operations waited before they were performed.",
    )?;
    for (operation, figures) in kinds {
        family.seconds_counter(&[("operation", operation)], figures.wait)?;
    }
    Ok(())
}

/// Writes the measured gain of batches, for each key size in use.
fn batch_gains(page: &mut Encoder<'_, '_>) -> fmt::Result {
    let mut family = page.gauge(
        "key_batch_gain",
        "Throughput of full batches relative to single operations, measured on this machine.",
    )?;
    for choice in BatchChoice::measured() {
        if let (Some(engine), Some(gain)) = (choice.instructions_name(), choice.gain()) {
            family.gauge(&[("engine", engine), ("bits", &choice.bits().to_string())], gain)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_metrics_of_the_engines_are_documented_and_those_of_a_gpu_are_not_shown_without_one() {
        let metrics = Metrics::new();
        metrics.register(KeyMetrics { processor: Arc::default(), gpu: None });
        let page = metrics.render();
        for line in [
            "brisk_key_queue_length 0",
            "brisk_key_batch_operations_total{size=\"4\"} 0",
            "brisk_key_faults_total 0",
            "brisk_key_gathered_operations_total{operation=\"exchange\",engine=\"lanes\"} 0",
            "brisk_key_gathered_batches_total{operation=\"signature\"} 0",
            "brisk_key_gathered_wait_seconds_total{operation=\"encapsulation\"} 0.0",
        ] {
            assert!(page.lines().any(|shown| shown == line), "{line} is not in {page}");
        }
        assert!(!page.contains("brisk_key_gpu"));
        let documentation = include_str!("../../../../docs/metrics.md");
        assert_eq!(metrics.undocumented(documentation), [""; 0]);
    }
}
