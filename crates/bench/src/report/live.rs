//! One line in the terminal, rewritten each second, while a run goes on.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::time::Duration;

use super::figures::{self, count, number};
use crate::result::{Interval, Unit};

/// Seconds that the sparkline goes back.
const HISTORY: usize = 24;

/// Shorter intervals are not shown.
const LEAST: Duration = Duration::from_millis(250);

const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// To the start of the line, and everything after it removed.
const REWRITE: &str = "\r\x1b[2K";

/// The line. For terminals only: it is rewritten in place and removed at the end.
#[derive(Debug)]
pub struct Live<W: Write> {
    terminal: W,
    unit: Unit,
    rates: VecDeque<f64>,
    errors: u64,
}

impl<W: Write> Live<W> {
    /// Nothing is written yet.
    pub fn new(terminal: W, unit: Unit) -> Self {
        Self { terminal, unit, rates: VecDeque::with_capacity(HISTORY), errors: 0 }
    }

    /// Shows what the last second came to.
    pub fn show(&mut self, interval: &Interval) -> io::Result<()> {
        self.errors += interval.errors;
        // The last interval may be too short to have a rate.
        if interval.length < LEAST {
            return Ok(());
        }
        let seconds = interval.length.as_secs_f64();
        if self.rates.len() == HISTORY {
            self.rates.pop_front();
        }
        self.rates.push_back(interval.operations as f64 / seconds);
        let line = self.line(interval);
        write!(self.terminal, "{REWRITE}{line}")?;
        self.terminal.flush()
    }

    /// Removes the line.
    pub fn finish(mut self) -> io::Result<()> {
        if self.rates.is_empty() {
            return Ok(());
        }
        write!(self.terminal, "{REWRITE}")?;
        self.terminal.flush()
    }

    fn line(&self, interval: &Interval) -> String {
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

/// A bar for each value, the highest as high as a line is; values that are all the same are of middle height.
pub fn sparkline(values: impl Iterator<Item = f64> + Clone) -> String {
    let highest = values.clone().fold(0.0_f64, f64::max);
    let bar = |value: f64| {
        let part = if highest > 0.0 { value / highest } else { 0.0 };
        BARS[((part * 7.0).round() as usize).min(7)]
    };
    values.map(bar).collect()
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
    fn a_sparkline_reaches_from_nothing_to_the_highest() {
        assert_eq!(sparkline([0.0, 50.0, 100.0].into_iter()), "▁▅█");
        assert_eq!(sparkline([0.0, 0.0].into_iter()), "▁▁");
        assert_eq!(sparkline(std::iter::empty()), "");
    }

    #[test]
    fn the_line_is_rewritten_fits_a_terminal_and_goes_away() {
        let mut written = Vec::new();
        let mut live = Live::new(&mut written, Unit::Handshake);
        for at in 0..40 {
            live.show(&second(at, 4000 + at)).unwrap();
        }
        live.finish().unwrap();
        let text = String::from_utf8(written).unwrap();
        let lines: Vec<_> = text.split(REWRITE).collect();
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
