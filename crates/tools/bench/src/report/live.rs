//! Figures in the terminal, updated each second during a run: progress, rate, latency, errors, charts.

use std::collections::VecDeque;
use std::io::{Stderr, Write};
use std::time::Duration;

use brisk_report::figures::{self, count, number, shortened};
use brisk_report::terminal::{StatusLine, columns, size};
use hdrhistogram::Histogram;

use crate::result::{Interval, Unit, histogram};
use crate::settings::Settings;

/// Seconds of the chart of rates.
const HISTORY: usize = 120;

/// Least [`Interval::length`] of which figures are shown.
const LEAST: Duration = Duration::from_millis(250);

/// Widest lines.
const WIDEST: usize = 100;

/// Rows of a terminal that has room for the charts.
const TALL: usize = 22;

/// Rows of the chart of rates.
const ROWS: usize = 5;

/// Bars of the distribution of latencies.
const BUCKETS: usize = 6;

/// Width of names and numbers left of the charts.
const NAMES: usize = 12;

/// The figures of a run in progress.
#[derive(Debug)]
pub struct LiveFigures<W: Write = Stderr> {
    status: StatusLine<W>,
    unit: Unit,
    /// Measured time and number of operations after which the run ends.
    limits: (Option<Duration>, Option<u64>),
    /// Columns and rows of the terminal; asked each second.
    size: fn() -> Option<(usize, usize)>,
    rates: VecDeque<f64>,
    operations: u64,
    errors: u64,
    /// Latencies since the start.
    latency: Histogram<u64>,
}

impl LiveFigures {
    /// Uses standard error if it is a terminal; otherwise nothing is written.
    pub fn on_stderr(settings: &Settings) -> Self {
        let schedule = &settings.schedule;
        let time = schedule.end().map(|end| end.saturating_sub(schedule.warmup()));
        Self::new(StatusLine::on_stderr(), settings.unit(), (time, schedule.count()), size)
    }
}

impl<W: Write> LiveFigures<W> {
    fn new(
        status: StatusLine<W>,
        unit: Unit,
        limits: (Option<Duration>, Option<u64>),
        size: fn() -> Option<(usize, usize)>,
    ) -> Self {
        let rates = VecDeque::with_capacity(HISTORY);
        Self { status, unit, limits, size, rates, operations: 0, errors: 0, latency: histogram() }
    }

    /// Shows the figures of the last [`Interval`].
    pub fn show(&mut self, interval: &Interval) {
        self.operations += interval.operations;
        self.errors += interval.errors;
        // Both histograms have the range of `histogram`.
        let _ = self.latency.add(&interval.latency);
        // The last interval may be too short for a meaningful rate.
        if interval.length < LEAST {
            return;
        }
        if self.rates.len() == HISTORY {
            self.rates.pop_front();
        }
        self.rates.push_back(interval.operations as f64 / interval.length.as_secs_f64());
        let (width, height) = (self.size)().unwrap_or((80, TALL));
        let width = width.clamp(NAMES + 10, WIDEST);
        let mut lines = self.figures(interval, width);
        if height >= TALL {
            lines.extend(self.rate_chart(width));
            lines.extend(self.distribution(width));
        }
        let lines: Vec<_> = lines.iter().map(|line| shortened(line, width - 1)).collect();
        self.status.show(&lines.join("\n"));
    }

    /// Removes the figures.
    pub fn finish(mut self) {
        self.status.clear();
    }

    /// Progress, rate, latencies of the last second and of the run, errors.
    fn figures(&self, interval: &Interval, width: usize) -> Vec<String> {
        let (now, unit) = (interval.at + interval.length, self.unit.name());
        let progress = format!(
            "{:>5.0} s{}  {} of {} running",
            now.as_secs_f64(),
            self.progress(now, width),
            count(interval.in_flight as u64),
            count(interval.concurrency as u64),
        );
        let rate = self.rates.back().copied().unwrap_or_default();
        let offered =
            interval.offered.map(|rate| format!(" of {} offered", number(rate))).unwrap_or_default();
        let mean = self.operations as f64 / now.as_secs_f64().max(0.001);
        let waiting = if interval.backlog > 0 {
            format!(", {} late", count(interval.backlog as u64))
        } else {
            String::new()
        };
        vec![
            progress,
            format!("  rate      {} {unit}/s{offered}, mean {}/s", number(rate), number(mean)),
            format!("  last s    {}", quantiles(&interval.latency)),
            format!("  all       {}", quantiles(&self.latency)),
            format!("  total     {} {unit}, {} errors{waiting}", count(self.operations), count(self.errors)),
        ]
    }

    /// End of the run and the part of it that is over; empty without an end.
    fn progress(&self, now: Duration, width: usize) -> String {
        let (time, number) = self.limits;
        let of_time = time.map(|time| now.as_secs_f64() / time.as_secs_f64().max(0.001));
        let of_number = number.map(|number| self.operations as f64 / number.max(1) as f64);
        let parts = [of_time, of_number].into_iter().flatten();
        let Some(part) =
            parts.fold(None, |most: Option<f64>, part| Some(most.map_or(part, |most| most.max(part))))
        else {
            return String::new();
        };
        let part = part.min(1.0);
        let end = match (time, number) {
            (Some(time), _) => format!(" of {:.0} s", time.as_secs_f64()),
            (None, Some(number)) => format!(", {} of {}", count(self.operations), count(number)),
            (None, None) => String::new(),
        };
        let bar = width.saturating_sub(48).clamp(8, 40);
        let filled = (part * bar as f64).round() as usize;
        format!("{end}  {}{}  {:>3.0} %", "█".repeat(filled), "░".repeat(bar - filled), 100.0 * part)
    }

    /// Rates of the last seconds as columns.
    fn rate_chart(&self, width: usize) -> Vec<String> {
        let room = width.saturating_sub(NAMES + 2);
        let skipped = self.rates.len().saturating_sub(room);
        let shown: Vec<f64> = self.rates.iter().skip(skipped).copied().collect();
        let highest = number(shown.iter().copied().fold(0.0, f64::max));
        let mut lines = vec![String::new()];
        for (row, line) in columns(&shown, ROWS).into_iter().enumerate() {
            let name = if row == 0 { highest.as_str() } else { "" };
            lines.push(format!("{name:>NAMES$} {}", line.trim_end()));
        }
        lines.push(format!("{:>NAMES$} {}/s, one column per second", 0, self.unit.name()));
        lines
    }

    /// Distribution of the latencies of the run: bars between its quantiles 0 and 99.9 %, in steps of equal ratios.
    fn distribution(&self, width: usize) -> Vec<String> {
        if self.latency.is_empty() {
            return Vec::new();
        }
        // Edges are ratios, so the least one must not be 0.
        let (least, most) = (self.latency.min().max(1), self.latency.value_at_quantile(0.999));
        let ratio = (most.max(least + 1) as f64 / least as f64).powf(1.0 / BUCKETS as f64);
        let edge = |bucket: usize| least as f64 * ratio.powf(bucket as f64);
        let room = width.saturating_sub(NAMES + 12);
        let mut lines = vec![String::new()];
        let mut before = 0;
        for bucket in 0..BUCKETS {
            let end = if bucket + 1 == BUCKETS { most } else { edge(bucket + 1) as u64 };
            let until = self.latency.count_between(0, end);
            let share = until.saturating_sub(before) as f64 / self.latency.len() as f64;
            before = until.max(before);
            let name = format!("≤ {}", figures::microseconds(end as f64));
            let bar = "█".repeat((share * room as f64).round() as usize);
            lines.push(format!("{name:>NAMES$} {bar} {:.1} %", 100.0 * share));
        }
        lines
    }
}

fn quantiles(latency: &Histogram<u64>) -> String {
    if latency.is_empty() {
        return "no latency".to_owned();
    }
    let at = |quantile| figures::microseconds(latency.value_at_quantile(quantile) as f64);
    let longest = figures::microseconds(latency.max() as f64);
    format!("p50 {}  p90 {}  p99 {}  p99.9 {}  max {longest}", at(0.5), at(0.9), at(0.99), at(0.999))
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// The panels of a run of 40 s in a terminal of this size.
    fn panels(size: fn() -> Option<(usize, usize)>) -> Vec<String> {
        let mut written = Vec::new();
        let status = StatusLine::new(&mut written);
        let mut live = LiveFigures::new(status, Unit::Handshake, (Some(Duration::from_secs(40)), None), size);
        for at in 0..40 {
            live.show(&second(at, 4000 + at));
        }
        live.finish();
        let text = String::from_utf8(written).unwrap();
        let panels = text.split("\r\x1b[2K").filter(|part| !part.is_empty() && *part != "\x1b[1A");
        panels.map(|panel| panel.replace("\x1b[1A", "")).collect()
    }

    #[test]
    fn a_panel_each_second_has_figures_and_charts_that_fit() {
        let panels = panels(|| Some((80, 24)));
        assert_eq!(panels.len(), 40);
        let last = panels.last().unwrap();
        for line in [
            "   40 s of 40 s  ████████████████████████████████  100 %  24 of 24 running",
            "  rate      4,039 handshakes/s of 5,000 offered, mean 4,020/s",
            "  last s    p50 2.00 ms  p90 2.00 ms  p99 2.00 ms  p99.9 2.00 ms  max 2.00 ms",
            "  total     160,780 handshakes, 40 errors, 3 late",
            "           0 handshakes/s, one column per second",
        ] {
            assert!(last.lines().any(|found| found == line), "no {line:?} in {last}");
        }
        assert!(last.lines().all(|line| line.chars().count() < 80) && last.lines().count() < 24, "{last}");
        assert!(last.contains("≤ 2.00 ms") && last.contains("100.0 %"), "{last}");
    }

    #[test]
    fn a_small_terminal_gets_the_figures_alone() {
        for panel in panels(|| Some((60, 10))) {
            assert_eq!(panel.lines().count(), 5, "{panel}");
            assert!(panel.lines().all(|line| line.chars().count() < 60), "{panel}");
        }
    }
}
