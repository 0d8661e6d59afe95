//! Metrics of mirrored requests.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use brisk_telemetry::metrics::{Collector, Encoder};
use brisk_telemetry::named;

named! {
    /// Result of a mirrored request.
    Mirrored {
        /// The response arrived and was discarded.
        Answered = "answered",
        /// No response arrived, or it broke off.
        Failed = "failed",
        /// The response did not end in time.
        TimedOut = "timed-out",
    }
}

named! {
    /// Reason for which a request that was to be mirrored was not.
    MirrorSkip {
        /// The body is larger than the limit.
        BodySize = "body-size",
        /// The client has its share of the memory for copies, or all of it is in use.
        Memory = "memory",
        /// The client has its share of the mirrored requests in progress, or all of them are in progress.
        Concurrency = "concurrency",
        /// The body did not arrive completely.
        Incomplete = "incomplete",
        /// The request asks for another protocol.
        Upgrade = "upgrade",
    }
}

/// Mirrored requests of the process by result, and requests that were not mirrored by reason.
#[derive(Debug, Default)]
pub struct MirrorMetrics {
    results: [AtomicU64; Mirrored::ALL.len()],
    skips: [AtomicU64; MirrorSkip::ALL.len()],
}

impl MirrorMetrics {
    /// Counts the end of a mirrored request.
    pub(super) fn mirrored(&self, result: Mirrored) {
        // Relaxed: a counter guards no other memory.
        self.results[result as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was not mirrored.
    pub(super) fn skipped(&self, reason: MirrorSkip) {
        self.skips[reason as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl Collector for MirrorMetrics {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let mut family =
            page.counter("mirrored_requests", "Mirrored requests that have ended, by result.")?;
        for (result, count) in Mirrored::ALL.iter().zip(&self.results) {
            family.counter(&[("result", result.name())], count.load(Ordering::Relaxed))?;
        }
        let mut family = page.counter("mirror_skips", "Requests that were not mirrored, by reason.")?;
        for (reason, count) in MirrorSkip::ALL.iter().zip(&self.skips) {
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
    fn mirrored_requests_are_counted_by_result_and_others_by_reason() {
        let metrics = Metrics::new();
        let mirror = metrics.collector::<MirrorMetrics>();
        mirror.mirrored(Mirrored::TimedOut);
        mirror.skipped(MirrorSkip::Memory);
        let page = metrics.render();
        for line in [
            "brisk_mirrored_requests_total{result=\"timed-out\"} 1\n",
            "brisk_mirrored_requests_total{result=\"answered\"} 0\n",
            "brisk_mirror_skips_total{reason=\"memory\"} 1\n",
        ] {
            assert!(page.contains(line), "{line} is not in {page}");
        }
    }

    #[test]
    fn every_metric_is_documented() {
        let metrics = Metrics::new();
        metrics.collector::<MirrorMetrics>();
        let documentation = include_str!("../../../../../../docs/metrics.md");
        assert_eq!(metrics.undocumented(documentation), [""; 0]);
    }
}
