//! Rates of the last minutes, one row per second, recorded with or without clients.

use std::collections::VecDeque;
use std::iter::repeat;
use std::time::Duration;

use brisk_telemetry::Resumption;
use brisk_telemetry::metrics::Reading;
use serde_json::{Value, json};

use crate::sources::WorkerLoad;

/// Number of stored seconds.
const KEPT: usize = 600;

/// Columns of a row: time in ms since 1970; open connections; rates per second; median and 99th percentile of the durations of
/// requests in ms, empty without a request; processor use of the busiest worker and of all workers in percent.
const FIELDS: [&str; 13] = [
    "time", "open", "requests", "errors", "accepted", "full", "resumed", "early", "failed", "median", "p99",
    "busiest", "mean",
];

/// Number of rates, which follow the first two columns.
const RATES: usize = 7;

/// Counters at the end of a second, in the order of the rates.
type Counts = [u64; RATES];

/// Values of one second in the order of [`FIELDS`]. Empty ones are NaN.
type Row = [f64; FIELDS.len()];

pub(super) struct History {
    before: Counts,
    times_before: Vec<(f64, u64)>,
    rows: VecDeque<Row>,
}

impl History {
    /// An empty history. Counts of `reading` are excluded from the first row.
    pub(super) fn new(reading: &Reading) -> Self {
        let times_before = reading.request_times.clone();
        Self { before: counts(reading), times_before, rows: VecDeque::with_capacity(KEPT) }
    }

    /// Appends the rates since the last call, `passed` ago, and the present [`WorkerLoad`]s.
    pub(super) fn add(&mut self, now: u64, passed: Duration, reading: &Reading, workers: &[WorkerLoad]) {
        let counts = counts(reading);
        let seconds = passed.as_secs_f64().max(0.001);
        let mut row = [0.0; FIELDS.len()];
        (row[0], row[1]) = (now as f64, reading.open as f64);
        for ((rate, now), before) in row[2..].iter_mut().zip(counts).zip(self.before) {
            *rate = rounded(now.saturating_sub(before) as f64 / seconds, 10.0);
        }
        let times = durations(&self.times_before, &reading.request_times);
        let busy = workers.iter().map(|worker| 100.0 * worker.busy);
        row[2 + RATES..].copy_from_slice(&[
            rounded(1e3 * quantile(&times, 0.5), 1e3),
            rounded(1e3 * quantile(&times, 0.99), 1e3),
            rounded(busy.clone().fold(0.0, f64::max), 10.0),
            rounded(busy.sum::<f64>() / workers.len().max(1) as f64, 10.0),
        ]);
        self.before = counts;
        self.times_before.clone_from(&reading.request_times);
        if self.rows.len() == KEPT {
            self.rows.pop_front();
        }
        self.rows.push_back(row);
    }

    /// The row of the last second.
    pub(super) fn last(&self) -> Value {
        self.rows.back().map_or(Value::Null, shown)
    }

    /// All rows, the oldest first.
    pub(super) fn json(&self) -> Value {
        json!({ "fields": FIELDS, "rows": self.rows.iter().map(shown).collect::<Vec<_>>() })
    }
}

/// Integers are written without a fraction, which makes most values shorter. NaN becomes `null`.
fn shown(row: &Row) -> Value {
    let number = |value: &f64| if value.fract() == 0.0 { json!(*value as u64) } else { json!(value) };
    row.iter().map(number).collect()
}

fn rounded(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

/// Buckets of the durations that were added since `before`.
fn durations(before: &[(f64, u64)], now: &[(f64, u64)]) -> Vec<(f64, u64)> {
    let old = before.iter().map(|(_, count)| *count).chain(repeat(0));
    now.iter().zip(old).map(|((bound, count), old)| (*bound, count.saturating_sub(old))).collect()
}

/// The quantile in seconds, interpolated within its bucket. NaN without durations; the last bound for longer ones.
fn quantile(buckets: &[(f64, u64)], part: f64) -> f64 {
    let rank = part * buckets.iter().map(|(_, count)| *count).sum::<u64>() as f64;
    let (mut below, mut low) = (0.0, 0.0);
    for (bound, count) in buckets {
        let count = *count as f64;
        if count > 0.0 && below + count >= rank {
            let high = if bound.is_finite() { *bound } else { low };
            return low + (high - low) * (rank - below) / count;
        }
        (below, low) = (below + count, *bound);
    }
    f64::NAN
}

fn counts(reading: &Reading) -> Counts {
    let (full, early) = (Resumption::Full.name(), Resumption::EarlyData.name());
    let of = |wanted: &dyn Fn(&str) -> bool| {
        let kinds = reading.handshakes.iter().filter(|kind| wanted(kind.resumption));
        kinds.map(|kind| kind.count).sum()
    };
    [
        reading.requests.iter().sum(),
        reading.errors.iter().sum(),
        reading.accepted,
        of(&|kind| kind == full),
        of(&|kind| kind != full && kind != early),
        of(&|kind| kind == early),
        reading.failures.iter().map(|(_, count)| count).sum(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_what_was_counted_in_the_time_that_passed() {
        let mut reading = Reading { accepted: 100, ..Reading::default() };
        let mut history = History::new(&reading);
        reading.accepted = 130;
        reading.open = 3;
        reading.requests[2] = 5;
        let workers = [0.25, 0.5].map(|busy| WorkerLoad { busy, ..WorkerLoad::default() });
        history.add(1000, Duration::from_secs(2), &reading, &workers);
        assert_eq!(history.last(), json!([1000, 3, 2.5, 0, 15, 0, 0, 0, 0, null, null, 50, 37.5]));
        history.add(2000, Duration::from_secs(1), &reading, &[]);
        assert_eq!(history.json()["rows"][1], json!([2000, 3, 0, 0, 0, 0, 0, 0, 0, null, null, 0, 0]));
    }

    #[test]
    fn quantiles_are_of_the_requests_of_the_last_second() {
        let times = |first, second, last| vec![(0.001, first), (0.002, second), (f64::INFINITY, last)];
        let mut reading = Reading { request_times: times(1000, 0, 0), ..Reading::default() };
        let mut history = History::new(&reading);
        reading.request_times = times(1000, 100, 0);
        history.add(1000, Duration::from_secs(1), &reading, &[]);
        assert_eq!([&history.last()[9], &history.last()[10]], [&json!(1.5), &json!(1.99)]);
        reading.request_times = times(1000, 100, 1);
        history.add(2000, Duration::from_secs(1), &reading, &[]);
        assert_eq!(history.last()[9], json!(2), "the last bound");
    }

    #[test]
    fn the_oldest_second_gives_way() {
        let mut history = History::new(&Reading::default());
        for second in 0..KEPT as u64 + 5 {
            history.add(second, Duration::from_secs(1), &Reading::default(), &[]);
        }
        let rows = history.json()["rows"].as_array().expect("rows").clone();
        assert_eq!((rows.len(), &rows[0][0]), (KEPT, &json!(5)));
    }
}
