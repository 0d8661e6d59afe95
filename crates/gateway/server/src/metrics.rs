//! Metrics of a server: workers and the program's log.

use std::fmt;
use std::sync::Arc;

use brisk_telemetry::metrics::{Collector, Encoder};

use crate::watchdog::Pulse;

/// [`Collector`] of the metrics of a server, independent of its service: `brisk_workers_stuck`, `brisk_worker_*` and
/// `brisk_log_dropped_lines`.
#[derive(Debug)]
pub struct ServerMetrics {
    pub(crate) pulse: Arc<Pulse>,
    pub(crate) dropped_log_lines: fn() -> u64,
}

impl Collector for ServerMetrics {
    fn collect(&self, page: &mut Encoder<'_, '_>) -> fmt::Result {
        let mut family =
            page.gauge("workers_stuck", "Workers whose event loop is blocked; they accept no connections.")?;
        family.gauge(&[], self.pulse.stuck().len() as u64)?;
        let loads: Vec<_> = self.pulse.loads().into_iter().enumerate().collect();
        let mut family =
            page.seconds_counter("worker_busy", "Processor time that the worker's thread has used.")?;
        for (number, load) in &loads {
            family.seconds_counter(&[("worker", &number.to_string())], load.busy_time)?;
        }
        let mut family = page.seconds_gauge(
            "worker_loop_delay",
            "By how much the worker's event loop was late when that was last measured, once a second.",
        )?;
        for (number, load) in &loads {
            family.gauge(&[("worker", &number.to_string())], load.delay.as_secs_f64())?;
        }
        let mut family =
            page.counter("log_dropped_lines", "Log lines dropped because standard error was not read.")?;
        family.counter(&[], (self.dropped_log_lines)())
    }
}
