//! What the dashboard shows is read from here.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use brisk_certs::Care;
use brisk_keys::Engines;
use brisk_telemetry::{Metrics, Sink};
use brisk_visits::Visits;

/// Where a gateway's facts are. Reading them disturbs no worker.
#[derive(Clone)]
pub struct Sources {
    /// The counters and the problems.
    pub metrics: Arc<Metrics>,
    /// The recent connections.
    pub sink: Arc<Sink>,
    /// The certificates.
    pub care: Arc<Care>,
    /// The engines of private keys.
    pub engines: Arc<dyn Engines>,
    /// The visits that pages have reported.
    pub visits: Visits,
    /// How busy the workers are.
    pub workers: Arc<dyn Fn() -> Vec<WorkerLoad> + Send + Sync>,
}

/// How busy a worker is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkerLoad {
    /// The share of the last second in which it used the processor, 0 to 1.
    pub busy: f64,
    /// By how much its event loop was late, at worst in the last minute.
    pub delay: Duration,
    /// Whether its event loop is blocked.
    pub is_stuck: bool,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}
