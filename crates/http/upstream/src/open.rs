//! Counting of open connections to upstreams, and behaviour at their limit.

use std::sync::Arc;

use brisk_upstream_group::metrics::UpstreamMetrics;
use brisk_upstream_group::places::Place;

/// An open connection in `max_connections` and the metrics. Counted as closed on drop.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    metrics: Arc<UpstreamMetrics>,
    _place: Option<Place>,
}

impl OpenConnection {
    /// Counts a connection that was just opened with the permit `place`, if connections are limited.
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

/// Behaviour of a request whose server has reached its connection limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtLimit {
    /// Wait in the queue, at most for `queue.timeout` or else `timeouts.connect`.
    Wait,
    /// Fail with [`UpstreamError::ConnectionLimit`](crate::UpstreamError::ConnectionLimit), so that the request can be sent to
    /// another server.
    Fail,
}
