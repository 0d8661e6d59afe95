//! An open connection to an upstream, as it is counted.

use std::sync::Arc;

use brisk_telemetry::metrics::UpstreamMetrics;

use crate::places::Place;

/// A connection as it is counted, for the limit and the metrics; dropping it counts its end.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    metrics: Arc<UpstreamMetrics>,
    _place: Option<Place>,
}

impl OpenConnection {
    /// Counts a connection that was just opened, in the place that was granted for it.
    pub(crate) fn new(metrics: &Arc<UpstreamMetrics>, place: Option<Place>) -> Self {
        metrics.connection_opened();
        Self { metrics: Arc::clone(metrics), _place: place }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.metrics.connection_closed();
    }
}
