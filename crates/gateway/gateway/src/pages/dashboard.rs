//! The dashboard of a gateway across reloads.

use std::sync::Arc;

use brisk_dashboard::{Dashboard, DashboardError, DashboardSettings, Prepared, Sources, WorkerLoad};
use brisk_server::WorkerLoads;
use brisk_visits::Visits;

use crate::shared::Shared;

/// The [`Dashboard`] that is served now, if any.
#[derive(Debug)]
pub(crate) struct Served {
    sources: Sources,
    present: Option<Dashboard>,
}

/// Prepared change of the dashboard.
pub(crate) enum Next {
    None,
    Same(Prepared),
    Other(Dashboard),
}

impl Served {
    /// Starts the dashboard of `settings`, if any.
    pub(crate) fn start(
        settings: Option<&DashboardSettings>,
        shared: &Shared,
        loads: WorkerLoads,
        visits: Visits,
    ) -> Result<Self, DashboardError> {
        let load = |load: brisk_server::WorkerLoad| WorkerLoad {
            busy: load.busy,
            delay: load.delay,
            is_stuck: load.is_stuck,
        };
        let sources = Sources {
            metrics: Arc::clone(&shared.metrics),
            upstreams: shared.metrics.collector(),
            sink: Arc::clone(&shared.sink),
            maintenance: Arc::clone(&shared.certificates.maintenance),
            engines: Arc::clone(&shared.certificates.engines),
            visits,
            pressure: Arc::clone(&shared.pressure),
            workers: Arc::new(move || loads.now().into_iter().map(load).collect()),
        };
        let start =
            |settings: &DashboardSettings| Dashboard::start_when_free(settings.clone(), sources.clone());
        let present = settings.map(start).transpose()?;
        Ok(Self { sources, present })
    }

    /// URL of the dashboard; `None` while no dashboard listens.
    pub(crate) fn url(&self) -> Option<String> {
        self.present.as_ref().and_then(Dashboard::url)
    }

    /// Prepares changed settings: binds a different address and reads certificates. The current dashboard is
    /// unaffected.
    pub(crate) fn prepare(&self, settings: Option<&DashboardSettings>) -> Result<Next, DashboardError> {
        let Some(settings) = settings else { return Ok(Next::None) };
        let other = match &self.present {
            // An address that stays cannot be bound a second time: only its settings are replaced.
            Some(present) if present.is_at(settings) => return Dashboard::prepare(settings).map(Next::Same),
            Some(present) => present.start_beside(settings.clone(), self.sources.clone()),
            None => Dashboard::start(settings.clone(), self.sources.clone()),
        };
        other.map(Next::Other)
    }

    /// Applies a prepared change.
    pub(crate) fn take_over(&mut self, next: Next) {
        match (next, &mut self.present) {
            (Next::None, present) => *present = None,
            (Next::Same(prepared), Some(present)) => present.take_over(prepared),
            // Unreachable: `Same` is prepared only for a running dashboard.
            (Next::Same(_), None) => {}
            (Next::Other(dashboard), present) => {
                tracing::info!(url = dashboard.url(), "the dashboard has moved");
                *present = Some(dashboard);
            }
        }
    }
}
