//! The counters as values of a [`Reading`], for outputs other than scrapes, such as the dashboard.

use std::sync::atomic::Ordering;

use super::histogram::Totals;
use super::{Listening, Metrics};
use crate::outcome::{EarlyData, HandshakeOutcome, ResumptionFailure, Side};

/// Counts since the start of the process, from [`Metrics::reading`].
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections that are open.
    pub open: u64,
    /// Connections closed at once because of a limit: the sum over each [`Refusal`](super::Refusal).
    pub refused: u64,
    /// Requests by the first digit of the status code; the first without a response.
    pub requests: [u64; 6],
    /// Failed requests, by the side that caused the failure, in the order of [`Side::ALL`].
    pub errors: [u64; Side::ALL.len()],
    /// Durations of requests: upper bound in seconds and number of each bucket, the last one unbounded.
    pub request_times: Vec<(f64, u64)>,
    /// Completed handshakes by `version`, `group` and `resumption`, where there were any.
    pub handshakes: Vec<HandshakeCount>,
    /// Failed handshakes by outcome, where there were any.
    pub failures: Vec<(HandshakeOutcome, u64)>,
    /// Reasons for which sessions were not resumed, without reasons with a count of zero.
    pub resumption_failures: Vec<(ResumptionFailure, u64)>,
    /// Connections with early data by outcome, where there were any.
    pub early_data: Vec<(EarlyData, u64)>,
    /// Private-key operations by engine and algorithm.
    pub key_operations: Vec<KeyReading>,
}

/// Handshakes with one version, group and [`Resumption`](crate::outcome::Resumption).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandshakeCount {
    /// The version of TLS, such as `TLS 1.3`.
    pub version: &'static str,
    /// The key exchange group; `none` without a key exchange.
    pub group: &'static str,
    /// Name of the [`Resumption`](crate::outcome::Resumption).
    pub resumption: &'static str,
    /// Number of handshakes.
    pub count: u64,
}

/// Key operations of one engine with one algorithm.
#[derive(Debug, Clone)]
pub struct KeyReading {
    /// The engine; `none` for operations that no engine performed.
    pub engine: &'static str,
    /// The family of the key.
    pub algorithm: &'static str,
    /// Operations with a result.
    pub done: u64,
    /// Operations with another [`KeyOutcome`](super::KeyOutcome) than `Ok`.
    pub failed: u64,
    /// Total wait of operations in seconds.
    pub wait: f64,
    /// Total computing time of operations in seconds.
    pub compute: f64,
}

impl Metrics {
    /// The current counts. Costs a few microseconds and no lock.
    pub fn reading(&self) -> Reading {
        let shards = &self.shards;
        // `closed` is read before `accepted`: a connection that opens and closes in between must not make the
        // difference negative.
        let closed: u64 =
            Listening::ALL.iter().map(|kind| shards.sum(|shard| &shard.closed[*kind as usize])).sum();
        let accepted: u64 =
            Listening::ALL.iter().map(|kind| shards.sum(|shard| &shard.accepted[*kind as usize])).sum();
        let mut requests = [0; 6];
        for (status, count) in shards.statuses() {
            // In bounds: `statuses` yields 0 and 100 to 599 only.
            requests[usize::from(status / 100)] += count;
        }
        let mut errors = [0; Side::ALL.len()];
        for (error, side) in errors.iter_mut().zip(Side::ALL) {
            *error = shards.sum(|shard| &shard.errors[*side as usize]);
        }
        Reading {
            accepted,
            open: accepted.saturating_sub(closed),
            refused: self.refused.iter().map(|count| count.load(Ordering::Relaxed)).sum(),
            requests,
            errors,
            request_times: shards.totals(|shard| &shard.request_time).buckets().collect(),
            handshakes: self.handshake_counts(),
            failures: self.handshakes.failures().filter(|(_, count)| *count > 0).collect(),
            resumption_failures: self
                .handshakes
                .resumption_failures()
                .filter(|(_, count)| *count > 0)
                .collect(),
            early_data: self.handshakes.early_data_outcomes().filter(|(_, count)| *count > 0).collect(),
            key_operations: self.key_readings(),
        }
    }

    /// Suites and schemes add up.
    fn handshake_counts(&self) -> Vec<HandshakeCount> {
        let mut counts: Vec<HandshakeCount> = Vec::new();
        for agreed in self.handshakes.agreed() {
            // A search of the list, which has at most 120 entries, and only for a reader of the dashboard.
            let same = counts.iter_mut().find(|known| {
                (known.version, known.group, known.resumption)
                    == (agreed.version, agreed.group, agreed.resumption)
            });
            match same {
                Some(known) => known.count += agreed.count,
                None => counts.push(HandshakeCount {
                    version: agreed.version,
                    group: agreed.group,
                    resumption: agreed.resumption,
                    count: agreed.count,
                }),
            }
        }
        counts
    }

    fn key_readings(&self) -> Vec<KeyReading> {
        let all = self.key_operations.all();
        let reading = |series: &super::key_operations::KeySeries| {
            let (mut done, mut failed) = (0, 0);
            for (outcome, count) in series.outcomes() {
                *(if outcome == super::KeyOutcome::Ok { &mut done } else { &mut failed }) += count;
            }
            KeyReading {
                engine: series.engine,
                algorithm: series.algorithm,
                done,
                failed,
                wait: Totals::of([&series.wait]).sum_seconds(),
                compute: Totals::of([&series.compute]).sum_seconds(),
            }
        };
        all.iter().map(|series| reading(series)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::metrics::tests::facts;
    use crate::metrics::{KeyOperationFacts, KeyOutcome};
    use crate::outcome::Resumption;
    use crate::record::TlsFacts;

    #[test]
    fn a_reading_has_what_was_counted() {
        let metrics = Metrics::new();
        for (status, side) in [(200, None), (204, None), (502, Some(Side::Upstream)), (0, Some(Side::Client))]
        {
            metrics.request(status, side, None, Duration::from_millis(1));
        }
        metrics.handshake(&facts());
        metrics.handshake(&TlsFacts { resumption: Resumption::Psk, scheme: None, ..facts() });
        metrics.handshake_failed(HandshakeOutcome::NotTls, Some(ResumptionFailure::Expired));
        let operation = |outcome| KeyOperationFacts {
            engine: Some("ifma"),
            algorithm: "rsa",
            outcome,
            wait: Duration::from_millis(3),
            compute: Duration::from_millis(1),
        };
        metrics.key_operation(&operation(KeyOutcome::Ok));
        metrics.key_operation(&operation(KeyOutcome::Failed));
        let reading = metrics.reading();
        assert_eq!(reading.requests, [1, 0, 2, 0, 0, 1]);
        assert_eq!(reading.errors, [1, 1, 0]);
        let times: Vec<_> = reading.request_times.iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(times, [&(0.001, 4)]);
        assert_eq!(
            reading.handshakes.iter().filter(|kind| kind.resumption != Resumption::Full.name()).count(),
            1
        );
        assert_eq!(reading.failures, [(HandshakeOutcome::NotTls, 1)]);
        assert!(reading.resumption_failures.contains(&(ResumptionFailure::Expired, 1)));
        let [key] = &reading.key_operations[..] else { panic!("{:?}", reading.key_operations) };
        assert_eq!((key.engine, key.done, key.failed), ("ifma", 1, 1));
    }
}
