//! Sources of the displayed data.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use brisk_certs::Maintenance;
use brisk_keys::Engines;
use brisk_pressure::Pressure;
use brisk_telemetry::{Metrics, Sink};
use brisk_upstream_group::metrics::Upstreams;
use brisk_visits::Visits;

/// Sources of the displayed data. Reading them does not delay workers.
#[derive(Clone)]
pub struct Sources {
    /// Counters and problems.
    pub metrics: Arc<Metrics>,
    /// Upstream servers.
    pub upstreams: Arc<Upstreams>,
    /// Recent connections.
    pub sink: Arc<Sink>,
    /// Certificates.
    pub maintenance: Arc<Maintenance>,
    /// Private key engines.
    pub engines: Arc<dyn Engines>,
    /// Reported visits.
    pub visits: Visits,
    /// Overload of the process.
    pub pressure: Arc<Pressure>,
    /// Load of the workers.
    pub workers: Arc<dyn Fn() -> Vec<WorkerLoad> + Send + Sync>,
}

/// Load of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkerLoad {
    /// Share of the last second in which the worker's thread used the processor, from 0 to 1.
    pub busy: f64,
    /// Largest delay of the worker's event loop in the last minute.
    pub delay: Duration,
    /// Whether the worker's event loop is blocked now.
    pub is_stuck: bool,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}
