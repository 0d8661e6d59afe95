//! [`Sink`], which passes each [`ConnectionRecord`] to the [`Metrics`], the [`RequestLog`] and the [`RecentConnections`].

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::metrics::{Listening, Metrics};
use crate::problems::Source;
use crate::recent::{RecentConnection, RecentConnections};
use crate::record::{ConnectionEnd, ConnectionRecord, RecordSink};
use crate::request_log::RequestLog;

/// Receiver of each [`ConnectionRecord`]. Shared by all workers.
#[derive(Debug)]
pub struct Sink {
    pub(crate) metrics: Arc<Metrics>,
    /// Twice an [`Arc`], because [`ArcSwapOption`] holds no trait object.
    access_log: ArcSwapOption<Arc<dyn RequestLog>>,
    recent: RecentConnections,
}

impl Sink {
    /// A sink without an access log.
    pub fn new(metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self { metrics, access_log: ArcSwapOption::empty(), recent: RecentConnections::new() })
    }

    /// Replaces the access log. `None` writes none.
    pub fn set_access_log(&self, log: Option<Arc<dyn RequestLog>>) {
        self.access_log.store(log.map(Arc::new));
    }

    /// Ends the access log after its remaining lines, for which it waits for at most two seconds. Called at the end of the
    /// process.
    pub fn close_access_log(&self) {
        // Removed first, so that no line is added to a log that is about to end.
        if let Some(log) = self.access_log.swap(None) {
            log.close();
        }
    }

    /// The access log, if there is one.
    pub fn access_log(&self) -> Option<Arc<dyn RequestLog>> {
        self.access_log.load().as_deref().cloned()
    }

    /// The connections that ended last, the latest first.
    pub fn recent(&self) -> Vec<Arc<RecentConnection>> {
        self.recent.latest()
    }

    /// Connections of the last minutes with the longest handshake or first response, the slowest first.
    pub fn slowest(&self) -> Vec<Arc<RecentConnection>> {
        self.recent.slowest()
    }
}

impl RecordSink for Sink {
    fn opened(&self, listener: Listening) {
        self.metrics.connection_opened(listener);
    }

    /// Takes a lock that only [`recent`](Self::recent) contends for.
    fn finished(&self, record: &ConnectionRecord, end: ConnectionEnd) {
        // Before the log, which may take longer: a scrape then never shows a logged connection as open.
        self.metrics.connection_closed(record);
        if let ConnectionEnd::HandshakeFailed(outcome) = end {
            self.metrics.problems().note(Source::Handshake, outcome.name(), || record.client.to_string());
            // A record with TLS facts is of a connection with accepted early data, which resumed.
            let resumption = record.resumption_failure.filter(|_| record.tls.is_none());
            self.metrics.handshake_failed(outcome, resumption);
            if let Some(log) = self.access_log.load().as_ref() {
                log.log_handshake(record, outcome);
            }
        }
        if let Some(log) = self.access_log.load().as_ref() {
            log.log_connection(record, end);
        }
        self.recent.push(RecentConnection::new(record, end));
    }
}
