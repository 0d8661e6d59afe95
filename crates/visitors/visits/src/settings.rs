//! Settings of the store.

use std::sync::Arc;
use std::time::Duration;

use crate::network::Networks;

/// Settings of [`Visits`](crate::Visits).
#[derive(Debug, Clone)]
pub struct Settings {
    /// Retention of samples of visits and hourly figures.
    pub keep: Duration,
    /// Maximum size of the database in bytes; the oldest data is removed before it is reached. Below
    /// [`Settings::smallest`] it does not hold a day.
    pub max_bytes: u64,
    /// Labels of networks.
    pub networks: Arc<Networks>,
    /// Share of page views to measure, 0 to 1.
    pub share: f64,
}

impl Default for Settings {
    /// 30 days, 1 GiB, no networks, every page view.
    fn default() -> Self {
        Self { keep: Duration::from_hours(30 * 24), max_bytes: 1 << 30, networks: Arc::default(), share: 1.0 }
    }
}
