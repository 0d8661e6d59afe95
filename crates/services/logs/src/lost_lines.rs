//! Metrics of the lines that outputs have lost.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use brisk_telemetry::metrics::{Collector, Encoder};

use crate::access_log::AccessLog;

/// [`Collector`] of the lines that the outputs of the access logs of a process have lost, by output.
#[derive(Debug, Default)]
pub struct LostLines(Mutex<Vec<Lost>>);

/// Lines that one output has lost.
#[derive(Debug)]
struct Lost {
    output: Box<str>,
    /// Those of logs that have ended.
    ended: u64,
    running: Vec<Arc<AtomicU64>>,
}

impl LostLines {
    /// Shows how many lines each output of `log` loses. Logs attached before count on, so that the sums never fall.
    pub fn attach(&self, log: &AccessLog) {
        let mut outputs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (output, counter) in log.dropped_counters() {
            match outputs.iter_mut().find(|known| *known.output == *output) {
                Some(known) => known.attach(counter),
                None => outputs.push(Lost { output: output.into(), ended: 0, running: vec![counter] }),
            }
        }
    }
}

impl Lost {
    fn attach(&mut self, counter: Arc<AtomicU64>) {
        let ended = &mut self.ended;
        self.running.retain(|counter| {
            // The thread of an output holds its counter until its end.
            let runs = Arc::strong_count(counter) > 1;
            *ended += if runs { 0 } else { counter.load(Ordering::Relaxed) };
            runs
        });
        // Several at once: after a reload, the previous log writes its last lines while the new one runs.
        self.running.push(counter);
    }

    fn total(&self) -> u64 {
        self.ended + self.running.iter().map(|counter| counter.load(Ordering::Relaxed)).sum::<u64>()
    }
}

impl Collector for LostLines {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let mut family = page.counter(
            "access_log_lost_lines",
            "Access log lines that an output lost: its target was too slow or down.",
        )?;
        let outputs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for lost in &*outputs {
            family.counter(&[("output", &*lost.output)], lost.total())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use brisk_telemetry::Metrics;

    use super::*;

    #[test]
    fn the_metric_is_documented() {
        let metrics = Metrics::new();
        metrics.collector::<LostLines>();
        assert!(metrics.render().contains("# TYPE brisk_access_log_lost_lines counter"));
        assert_eq!(metrics.undocumented(include_str!("../../../../docs/metrics.md")), [""; 0]);
    }
}
