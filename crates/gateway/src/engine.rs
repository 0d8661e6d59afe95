//! The engine that performs key operations for as long as the process lives, and what the metrics tell of it.

use std::sync::Arc;

use brisk_keys::{BatchChoice, BatchEngine, KeyOperation, Keystore, PendingOperation, PrivateKeyEngine};
#[cfg(feature = "cuda")]
use brisk_keys::{CudaEngine, Tiered};
#[cfg(feature = "cuda")]
use brisk_telemetry::metrics::CardFigures;
use brisk_telemetry::metrics::{BatchGain, KeyFigures, Metrics};

use crate::GatewayError;
use crate::settings::GatewaySettings;

/// What performs key operations.
#[derive(Debug)]
pub(crate) enum Engine {
    /// The processor, all of them.
    Processor(BatchEngine),
    /// The processor while few are under way, and a card while there are many.
    #[cfg(feature = "cuda")]
    Tiered(Tiered),
}

impl Engine {
    /// Starts what the settings ask for. Where a card cannot be had the log says why, and the processor does it all.
    pub(crate) fn start(settings: &GatewaySettings, metrics: &Metrics) -> Result<Self, GatewayError> {
        let processor = BatchEngine::new(Arc::clone(&settings.keystore), &settings.keys);
        let processor = processor.map_err(GatewayError::Threads)?;
        tracing::info!("{processor}");
        let engine = beside_card(processor, settings);
        let statistics = Arc::clone(engine.processor().statistics());
        #[cfg(feature = "cuda")]
        let card = engine.card_figures();
        metrics.set_key_source(move || KeyFigures {
            queue_length: statistics.waiting() as u64,
            by_batch: statistics.performed(),
            faults: statistics.faults(),
            batch_gains: batch_gains(),
            #[cfg(feature = "cuda")]
            card: card.as_ref().map(|figures| figures()),
            #[cfg(not(feature = "cuda"))]
            card: None,
        });
        Ok(engine)
    }

    /// For other keys, on the same threads and card.
    pub(crate) fn with_keystore(&self, keystore: Arc<Keystore>) -> Self {
        let before = self.processor().to_string();
        let engine = match self {
            Self::Processor(engine) => Self::Processor(engine.with_keystore(keystore)),
            #[cfg(feature = "cuda")]
            Self::Tiered(engine) => Self::Tiered(engine.with_keystore(keystore)),
        };
        // Keys of another size may have come, and with them another way.
        let now = engine.processor().to_string();
        if now != before {
            tracing::info!("{now}");
        }
        engine
    }

    fn processor(&self) -> &BatchEngine {
        match self {
            Self::Processor(engine) => engine,
            #[cfg(feature = "cuda")]
            Self::Tiered(engine) => engine.processor(),
        }
    }

    /// What tells of the card at each scrape.
    #[cfg(feature = "cuda")]
    fn card_figures(&self) -> Option<impl Fn() -> CardFigures + Send + Sync + use<>> {
        let Self::Tiered(engine) = self else { return None };
        let statistics = Arc::clone(engine.statistics());
        Some(move || CardFigures {
            pending: statistics.pending() as u64,
            launches: statistics.launches(),
            faults: statistics.faults(),
            taken_over: statistics.taken_over(),
            is_lost: statistics.is_lost(),
        })
    }
}

impl PrivateKeyEngine for Engine {
    fn submit(&self, operation: KeyOperation) -> PendingOperation {
        match self {
            Self::Processor(engine) => engine.submit(operation),
            #[cfg(feature = "cuda")]
            Self::Tiered(engine) => engine.submit(operation),
        }
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

#[cfg(not(feature = "cuda"))]
const fn beside_card(processor: BatchEngine, _: &GatewaySettings) -> Engine {
    Engine::Processor(processor)
}

#[cfg(feature = "cuda")]
fn beside_card(processor: BatchEngine, settings: &GatewaySettings) -> Engine {
    let Some(cuda) = &settings.cuda else { return Engine::Processor(processor) };
    match CudaEngine::new(processor.clone(), cuda) {
        Ok(engine) => {
            let engine = Tiered::new(engine, cuda.wait);
            tracing::info!("{engine}");
            Engine::Tiered(engine)
        }
        Err(error) => {
            tracing::warn!("keys.cuda: {error}. RSA goes on without it, on the processor");
            Engine::Processor(processor)
        }
    }
}
