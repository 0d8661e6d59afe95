//! The visit store as a [`Part`] of the process: opened at the start, configured by reloads, flushed at the end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brisk_config::VisitSettings;
use brisk_server::{Part, PartError};
use brisk_telemetry::Metrics;
use brisk_visits::Visits;

/// Timeout for writing the last visits when the process ends.
const LAST_VISITS: Duration = Duration::from_secs(5);

/// The [`Visits`] of the process, if the configuration enables them.
#[derive(Debug)]
pub(crate) struct KeptVisits {
    visits: Visits,
    folder: Option<PathBuf>,
}

impl KeptVisits {
    /// Opens the store. A failure to start its thread is logged, and the gateway runs without visits.
    pub(crate) fn start(settings: Option<&VisitSettings>, metrics: &Arc<Metrics>) -> Self {
        let opened =
            settings.map(|VisitSettings { folder, settings }| Visits::open(folder, settings.clone()));
        // No failure of the start: a gateway without charts of visits still serves.
        let visits = opened.transpose().unwrap_or_else(|error| {
            tracing::error!("visits are not kept: cannot start a thread: {error}");
            None
        });
        let visits = visits.unwrap_or_default();
        if let Some(collector) = visits.collector() {
            metrics.register(collector);
        }
        Self { visits, folder: settings.map(|settings| settings.folder.clone()) }
    }

    /// Handle to the store.
    pub(crate) fn visits(&self) -> Visits {
        self.visits.clone()
    }
}

impl Part for KeptVisits {
    type Settings = Option<VisitSettings>;
    type Prepared = Option<VisitSettings>;

    fn prepare(&self, settings: &Option<VisitSettings>) -> Result<Option<VisitSettings>, PartError> {
        Ok(settings.clone())
    }

    fn commit(&self, settings: Option<VisitSettings>) {
        if settings.as_ref().map(|settings| &settings.folder) != self.folder.as_ref() {
            let key =
                if settings.is_some() && self.folder.is_some() { "visits.folder" } else { "visits.enabled" };
            tracing::warn!(key, "changed, but takes effect only after a restart");
        }
        self.visits.mark_reload();
        if let Some(settings) = settings {
            self.visits.update(settings.settings);
        }
    }

    /// Writes the remaining visits.
    fn stop(&self, deadline: Instant) {
        // Within the time of all parts, of which a slow disk must not take everything.
        if !self.visits.close(LAST_VISITS.min(deadline.saturating_duration_since(Instant::now()))) {
            tracing::warn!("the last visits could not be stored");
        }
    }
}
