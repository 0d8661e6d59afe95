//! The store of visits as the program has it: opened at its start, configured by reloads, written to the end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brisk_config::VisitSettings;
use brisk_telemetry::Metrics;
use brisk_visits::Visits;

/// How long the end of the process waits for the last visits to be written.
const LAST_VISITS: Duration = Duration::from_secs(5);

/// The store, if there is one.
#[derive(Debug)]
pub(crate) struct KeptVisits {
    visits: Visits,
    folder: Option<PathBuf>,
}

impl KeptVisits {
    /// Opens the store that the configuration asks for. That there can be no thread for it is logged.
    pub(crate) fn start(settings: Option<&VisitSettings>, metrics: &Arc<Metrics>) -> Self {
        let opened =
            settings.map(|VisitSettings { folder, settings }| Visits::open(folder, settings.clone()));
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

    /// The store.
    pub(crate) fn visits(&self) -> Visits {
        self.visits.clone()
    }

    /// Brings a new configuration into force.
    pub(crate) fn configure(&self, settings: Option<&VisitSettings>) {
        if settings.map(|settings| &settings.folder) != self.folder.as_ref() {
            let key =
                if settings.is_some() && self.folder.is_some() { "visits.folder" } else { "visits.enabled" };
            tracing::warn!(key, "changed, but takes effect only after a restart");
        }
        if let Some(settings) = settings {
            self.visits.update(settings.settings.clone());
        }
    }

    /// Writes what is left.
    pub(crate) fn end(&self) {
        if !self.visits.close(LAST_VISITS) {
            tracing::warn!("the last visits could not be stored");
        }
    }
}
