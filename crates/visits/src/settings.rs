//! Settings of the store.

use std::sync::Arc;
use std::time::Duration;

use crate::network::Networks;

/// How visits are kept.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long samples of visits and hourly figures are kept.
    pub keep: Duration,
    /// Bytes that the database may have; when it comes near, the oldest go first.
    pub max_bytes: u64,
    /// Labels of networks.
    pub networks: Arc<Networks>,
    /// The share of page views that are to be measured, from 0 to 1.
    pub share: f64,
}

impl Default for Settings {
    /// 30 days, 1 GiB, no networks, every page view.
    fn default() -> Self {
        Self { keep: Duration::from_hours(30 * 24), max_bytes: 1 << 30, networks: Arc::default(), share: 1.0 }
    }
}
