//! Metrics of QUIC.

use std::fmt;
use std::sync::Arc;

use brisk_quic::QuicCounters;
use brisk_telemetry::metrics::{Collector, Encoder};

/// [`Collector`] of the counts of the drivers of all workers, as `brisk_quic_*`.
#[derive(Debug)]
pub(crate) struct QuicMetrics(pub(crate) Arc<QuicCounters>);

impl Collector for QuicMetrics {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let counters = &*self.0;
        let counts = [
            ("quic_retries", "Clients that had to prove their address with a Retry.", &counters.retries),
            (
                "quic_handshakes_over_limit",
                "First packets ignored because their client had its share of the handshakes in progress.",
                &counters.handshakes_over_limit,
            ),
            (
                "quic_datagrams_over_limit",
                "Datagrams dropped because too many waited for a suspended handshake.",
                &counters.datagrams_over_limit,
            ),
            (
                "quic_datagrams_passed",
                "Datagrams that reached the socket of another worker and were passed on.",
                &counters.datagrams_passed,
            ),
            ("quic_migrations", "Changes of the address or port of a client.", &counters.migrations),
            (
                "quic_packets_sent",
                "Packets sent, counted at the end of a connection.",
                &counters.packets_sent,
            ),
            (
                "quic_packets_lost",
                "Sent packets that were lost, counted at the end of a connection.",
                &counters.packets_lost,
            ),
        ];
        for (name, help, counter) in counts {
            page.counter(name, help)?.counter(&[], counter.get())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use brisk_telemetry::Metrics;

    use super::*;

    #[test]
    fn every_metric_of_quic_is_shown_and_documented() {
        let metrics = Metrics::new();
        let counters = Arc::<QuicCounters>::default();
        counters.packets_lost.add_all(3);
        metrics.register(QuicMetrics(counters));
        let page = metrics.render();
        assert!(page.contains("brisk_quic_packets_lost_total 3\n"), "{page}");
        let documentation = include_str!("../../../../../../docs/metrics.md");
        assert_eq!(metrics.undocumented(documentation), [""; 0]);
    }
}
