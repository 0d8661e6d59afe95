//! A status line in the terminal, updated each second during a run.

use std::collections::VecDeque;
use std::io::{Stderr, Write};
use std::time::Duration;

use brisk_report::figures::{self, count, number};
use brisk_report::terminal::{StatusLine, sparkline};

use crate::result::{Interval, Unit};

/// Seconds covered by the sparkline.
const HISTORY: usize = 24;

/// Shorter intervals are not shown.
const LEAST: Duration = Duration::from_millis(250);

/// The line: rate, latency and errors of the last second, and a sparkline of the previous rates.
#[derive(Debug)]
pub struct LiveLine<W: Write = Stderr> {
    line: StatusLine<W>,
    unit: Unit,
    rates: VecDeque<f64>,
    errors: u64,
}

impl LiveLine {
    /// Uses standard error if it is a terminal; otherwise nothing is written.
    pub fn on_stderr(unit: Unit) -> Self {
        Self::new(StatusLine::on_stderr(), unit)
    }
}

impl<W: Write> LiveLine<W> {
    fn new(line: StatusLine<W>, unit: Unit) -> Self {
        Self { line, unit, rates: VecDeque::with_capacity(HISTORY), errors: 0 }
    }

    /// Shows the figures of the last second.
    pub fn show(&mut self, interval: &Interval) {
        self.errors += interval.errors;
        // The last interval may be too short for a meaningful rate.
        if interval.length < LEAST {
            return;
        }
        let seconds = interval.length.as_secs_f64();
        if self.rates.len() == HISTORY {
            self.rates.pop_front();
        }
        self.rates.push_back(interval.operations as f64 / seconds);
        let line = self.text(interval);
        self.line.show(&line);
    }

    /// Removes the line.
    pub fn finish(mut self) {
        self.line.clear();
    }

    fn text(&self, interval: &Interval) -> String {
        let rate = self.rates.back().copied().unwrap_or_default();
        let end = interval.at + interval.length;
        let quantile = |q| figures::microseconds(interval.latency.value_at_quantile(q) as f64);
        let latency = if interval.latency.is_empty() {
            "no latency".to_owned()
        } else {
            format!("p50 {}  p99 {}", quantile(0.5), quantile(0.99))
        };
        let offered = interval.offered.map(|rate| format!(" of {}", number(rate))).unwrap_or_default();
        let waiting = if interval.backlog > 0 {
            format!("  {} late", count(interval.backlog as u64))
        } else {
            String::new()
        };
        format!(
            "{:>4.0} s  {}{offered} {}/s  {latency}  {} errors{waiting}  {}",
            end.as_secs_f64(),
            number(rate),
            self.unit.name(),
            count(self.errors),
            sparkline(self.rates.iter().copied()),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::histogram;

    fn second(at: u64, operations: u64) -> Interval {
        let mut latency = histogram();
        latency.record_n(2000, operations.max(1)).unwrap();
        Interval {
            at: Duration::from_secs(at),
            length: Duration::from_secs(1),
            operations,
            requests: 0,
            handshakes: operations,
            errors: 1,
            offered: Some(5000.0),
            concurrency: 24,
            in_flight: 24,
            backlog: 3,
            latency,
        }
    }

    #[test]
    fn the_line_is_rewritten_fits_a_terminal_and_goes_away() {
        let mut written = Vec::new();
        let mut live = LiveLine::new(StatusLine::new(&mut written), Unit::Handshake);
        for at in 0..40 {
            live.show(&second(at, 4000 + at));
        }
        live.finish();
        let text = String::from_utf8(written).unwrap();
        let lines: Vec<_> = text.split("\r\x1b[2K").collect();
        assert_eq!(lines.len(), 42, "one line a second, and its removal");
        let last = lines[40];
        assert!(
            last.starts_with(
                "  40 s  4,039 of 5,000 handshakes/s  p50 2.00 ms  p99 2.00 ms  40 errors  3 late  "
            ),
            "{last}"
        );
        assert!(last.chars().count() <= 110, "{last}");
        assert_eq!(lines[41], "");
        assert!(!text.contains('\n'));
    }
}
