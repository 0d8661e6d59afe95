//! Rates of the last minutes, one row per second, recorded with or without clients.

use std::collections::VecDeque;
use std::time::Duration;

use brisk_telemetry::Resumption;
use brisk_telemetry::metrics::Reading;
use serde_json::{Value, json};

/// Number of stored seconds.
const KEPT: usize = 600;

/// Columns of a row: time in ms since 1970, open connections, and rates per second.
const FIELDS: [&str; 9] =
    ["time", "open", "requests", "errors", "accepted", "full", "resumed", "early", "failed"];

/// Counters at the end of a second, in the order of the last seven columns.
type Counts = [u64; FIELDS.len() - 2];

/// Values of one second.
type Row = [f64; FIELDS.len()];

pub(super) struct History {
    before: Counts,
    rows: VecDeque<Row>,
}

impl History {
    /// An empty history. Counts of `reading` are excluded from the first row.
    pub(super) fn new(reading: &Reading) -> Self {
        Self { before: counts(reading), rows: VecDeque::with_capacity(KEPT) }
    }

    /// Appends the rates since the last call, `passed` ago.
    pub(super) fn add(&mut self, now: u64, passed: Duration, reading: &Reading) {
        let counts = counts(reading);
        let seconds = passed.as_secs_f64().max(0.001);
        let mut row = [now as f64, reading.open as f64, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        for ((rate, now), before) in row[2..].iter_mut().zip(counts).zip(self.before) {
            *rate = (now.saturating_sub(before) as f64 / seconds * 10.0).round() / 10.0;
        }
        self.before = counts;
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

/// Integers are written without a fraction, which makes most values shorter.
fn shown(row: &Row) -> Value {
    let number = |value: &f64| if value.fract() == 0.0 { json!(*value as u64) } else { json!(value) };
    row.iter().map(number).collect()
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
        history.add(1000, Duration::from_secs(2), &reading);
        assert_eq!(history.last(), json!([1000, 3, 2.5, 0, 15, 0, 0, 0, 0]));
        history.add(2000, Duration::from_secs(1), &reading);
        assert_eq!(history.json()["rows"][1], json!([2000, 3, 0, 0, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn the_oldest_second_gives_way() {
        let mut history = History::new(&Reading::default());
        for second in 0..KEPT as u64 + 5 {
            history.add(second, Duration::from_secs(1), &Reading::default());
        }
        let rows = history.json()["rows"].as_array().expect("rows").clone();
        assert_eq!((rows.len(), &rows[0][0]), (KEPT, &json!(5)));
    }
}
