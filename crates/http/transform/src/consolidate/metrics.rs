//! Metrics of rewriting, for the whole process.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use brisk_telemetry::metrics::{Collector, Encoder};

static ANSWERS: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);
static BROKEN: AtomicU64 = AtomicU64::new(0);

/// Counts a document whose URLs are changed.
pub(super) fn rewritten() {
    ANSWERS.fetch_add(1, Ordering::Relaxed);
}

/// Counts a document replaced by `503` because decoders have reached their memory limit.
pub(super) fn refused() {
    REFUSED.fetch_add(1, Ordering::Relaxed);
}

/// Counts a document truncated because it could not be decoded.
pub(super) fn broken() {
    BROKEN.fetch_add(1, Ordering::Relaxed);
}

/// Writes the metrics of rewriting.
#[derive(Clone, Copy, Debug)]
pub struct RewritingMetrics;

impl Collector for RewritingMetrics {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        for (name, help, count) in [
            ("rewritten_answers", "Documents whose URLs of consolidated origins were changed.", &ANSWERS),
            (
                "rewriting_refusals",
                "Documents answered with 503 because decoders took as much memory as they may.",
                &REFUSED,
            ),
            ("rewriting_failures", "Documents cut off because they could not be decoded.", &BROKEN),
        ] {
            page.counter(name, help)?.counter(&[], count.load(Ordering::Relaxed))?;
        }
        Ok(())
    }
}
