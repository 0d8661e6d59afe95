//! Metrics of the key process.

use std::fmt;
use std::sync::Arc;

use brisk_telemetry::metrics::{Collector, Encoder};

use crate::control::Figures;
use crate::isolation::Isolation;

/// [`Collector`] of `brisk_key_process_*`, the metrics of the key process of an [`Isolation`].
#[derive(Debug)]
pub struct IsolationMetrics(pub Arc<Isolation>);

impl Collector for IsolationMetrics {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let state = self.0.state();
        let (figures, starts) = (state.figures.clone(), state.starts);
        drop(state);
        collect(page, &figures, starts, self.0.trouble().is_none())
    }
}

fn collect(page: &mut Encoder<'_, '_>, figures: &Figures, starts: u64, is_up: bool) -> fmt::Result {
    let mut family = page.gauge("key_process_up", "Whether the key process performs operations.")?;
    family.gauge(&[], u64::from(is_up))?;
    let mut family = page.gauge("key_process_keys", "Private keys that the key process holds.")?;
    family.gauge(&[], figures.keys)?;
    let mut family = page.counter("key_process_starts", "Key processes that were started.")?;
    family.counter(&[], starts)?;
    let mut family = page.counter(
        "key_process_batch_operations",
        "Key operations performed by threads of the key process, by size of the batch.",
    )?;
    for (size, count) in ["1", "2", "3", "4"].into_iter().zip(figures.by_size) {
        family.counter(&[("size", size)], count)?;
    }
    let mut family = page.counter(
        "key_process_gathered_operations",
        "Signatures with P-256 that the key process gathered, by engine.",
    )?;
    for (engine, count) in ["lanes", "aws-lc"].into_iter().zip(figures.gathered) {
        family.counter(&[("engine", engine)], count)?;
    }
    let mut family = page.counter(
        "key_process_faults",
        "Results of the key process that failed verification and were discarded there.",
    )?;
    family.counter(&[], figures.faults)
}

#[cfg(test)]
mod tests {
    use brisk_telemetry::Metrics;

    use super::*;

    #[derive(Debug)]
    struct Shown;

    impl Collector for Shown {
        fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
            let figures = Figures { keys: 2, by_size: [1, 0, 0, 8], gathered: [7, 3], faults: 0 };
            collect(page, &figures, 3, true)
        }
    }

    #[test]
    fn the_metrics_of_the_key_process_are_documented() {
        let metrics = Metrics::new();
        metrics.register(Shown);
        let page = metrics.render();
        for line in [
            "brisk_key_process_up 1",
            "brisk_key_process_keys 2",
            "brisk_key_process_starts_total 3",
            "brisk_key_process_batch_operations_total{size=\"4\"} 8",
            "brisk_key_process_gathered_operations_total{engine=\"lanes\"} 7",
        ] {
            assert!(page.lines().any(|shown| shown == line), "{line} is not in {page}");
        }
        let documentation = include_str!("../../../../docs/metrics.md");
        for name in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()) {
            let of_process = name.starts_with("brisk_key_process");
            assert!(!of_process || documentation.contains(&format!("`{name}")), "{name} is not documented");
        }
    }
}
