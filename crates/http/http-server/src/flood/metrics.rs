//! Metrics of connections that were closed because of a flood.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use brisk_telemetry::metrics::{Collector, Encoder};
use brisk_telemetry::named;

named! {
    /// Kind of excess on a multiplexed connection.
    Flood {
        /// The client reset streams before they were answered.
        Reset = "reset",
        /// The client made the server reset streams.
        StreamError = "stream-error",
        /// `PING`.
        Ping = "ping",
        /// Acknowledgements of a `PING` that was not sent.
        PingAck = "ping-ack",
        /// `SETTINGS`.
        Settings = "settings",
        /// `DATA` without data.
        EmptyData = "empty-data",
        /// `PRIORITY`, and `PRIORITY_UPDATE` over HTTP/3.
        Priority = "priority",
        /// `WINDOW_UPDATE` without data to match.
        WindowUpdate = "window-update",
        /// Decoded header fields that are far longer than the received bytes.
        HeaderSize = "header-size",
        /// Frames of types that are unknown or not for clients.
        OtherFrame = "other-frame",
    }
}

/// Connections of the process that were closed because of a flood, by kind, over HTTP/2 and HTTP/3. As a [`Collector`], it
/// writes `http2_floods`.
#[derive(Debug, Default)]
pub struct FloodMetrics([AtomicU64; Flood::ALL.len()]);

impl FloodMetrics {
    /// Counts a connection that was closed because its client did too much of `reason`.
    pub(crate) fn count(&self, reason: Flood) {
        self.0[reason as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl Collector for FloodMetrics {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let mut family =
            page.counter("http2_floods", "HTTP/2 connections closed because of a flood, by kind of flood.")?;
        for (reason, count) in Flood::ALL.iter().zip(&self.0) {
            family.counter(&[("reason", reason.name())], count.load(Ordering::Relaxed))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use brisk_telemetry::Metrics;

    use super::*;

    #[test]
    fn floods_are_counted_by_kind() {
        let metrics = Metrics::new();
        metrics.collector::<FloodMetrics>().count(Flood::PingAck);
        let page = metrics.render();
        assert!(page.contains("brisk_http2_floods_total{reason=\"ping-ack\"} 1\n"), "{page}");
        assert!(page.contains("brisk_http2_floods_total{reason=\"reset\"} 0\n"), "{page}");
    }

    #[test]
    fn every_metric_is_documented() {
        let metrics = Metrics::new();
        metrics.collector::<FloodMetrics>();
        let documentation = include_str!("../../../../../docs/metrics.md");
        assert_eq!(metrics.undocumented(documentation), [""; 0]);
    }
}
