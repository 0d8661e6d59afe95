//! One run as JSON. `docs/bench.md` describes names and units. They are stable; fields may be added.

use std::collections::BTreeMap;

use brisk_report::Machine;
use brisk_report::json::{document, timestamp};
use hdrhistogram::Histogram;
use serde::Serialize;

use super::tables::{QUANTILES, busy, opens_fast};
use crate::result::{Interval, RunResult, ServerUsage};

/// Value of the field `schema`. Incremented when a field changes its meaning or is removed.
pub const SCHEMA: u32 = 1;

/// The run as an indented JSON object with a line break at its end. `program` is the name and version of the measuring
/// program.
pub fn text(result: &RunResult, machine: &Machine, program: &str) -> String {
    document(&Report::new(result, machine, program))
}

#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    program: &'a str,
    machine: &'a Machine,
    target: &'a str,
    started: String,
    elapsed_s: f64,
    interrupted: bool,
    settings: Vec<Setting<'a>>,
    unit: &'static str,
    operations: u64,
    rate_per_s: f64,
    /// `null` without TLS.
    handshakes_per_s: Option<f64>,
    unstarted: u64,
    primed: u64,
    latency_us: BTreeMap<String, Latency>,
    handshakes: Vec<Handshakes>,
    negotiated: Vec<Named<'a>>,
    responses: Responses,
    errors: Vec<Error<'a>>,
    alerts: Vec<Named<'a>>,
    traffic: WireTraffic,
    series: Vec<Second>,
    server: Option<Server>,
    client_cpu_s: f64,
}

#[derive(Serialize)]
struct Setting<'a> {
    option: &'a str,
    /// Empty for options without a value.
    value: &'a str,
}

/// Quantiles and moments of a histogram, in microseconds.
#[derive(Debug, Serialize)]
pub(crate) struct Latency {
    count: u64,
    mean: f64,
    stdev: f64,
    min: u64,
    p50: u64,
    p90: u64,
    p99: u64,
    p999: u64,
    max: u64,
}

#[derive(Serialize)]
struct Handshakes {
    asked: &'static str,
    got: &'static str,
    count: u64,
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
    count: u64,
}

#[derive(Serialize)]
struct Responses {
    #[serde(flatten)]
    classes: BTreeMap<String, u64>,
    body_bytes: u64,
}

#[derive(Serialize)]
struct Error<'a> {
    cause: &'static str,
    count: u64,
    example: &'a str,
}

#[derive(Serialize)]
struct WireTraffic {
    sent_bytes: u64,
    received_bytes: u64,
    packets_sent: u64,
    packets_received: u64,
    /// Kept connections that the server had closed before the next request.
    reconnects: u64,
    /// `null` without `--fast-open`.
    fast_open: Option<FastOpen>,
    /// Averages per handshake; `null` without handshakes.
    handshake: Option<PerHandshake>,
}

/// Handshakes whose `SYN` carried data, those whose `SYN` carried the whole first flight, and the bytes of both.
#[derive(Serialize)]
struct FastOpen {
    with_syn: u64,
    whole: u64,
    flight_bytes: u64,
    syn_bytes: u64,
}

#[derive(Serialize)]
struct PerHandshake {
    count: u64,
    sent_bytes: f64,
    received_bytes: f64,
    packets_sent: f64,
    packets_received: f64,
}

#[derive(Serialize)]
struct Second {
    at_s: f64,
    length_s: f64,
    operations: u64,
    requests: u64,
    handshakes: u64,
    errors: u64,
    offered_per_s: Option<f64>,
    concurrency: usize,
    in_flight: usize,
    backlog: usize,
    latency_us: Option<Latency>,
}

#[derive(Serialize)]
struct Server {
    cpu_s: f64,
    busy: f64,
    cpu_per_handshake_us: Option<f64>,
    cpu_per_request_us: Option<f64>,
    memory_before_bytes: u64,
    memory_peak_bytes: u64,
}

impl<'a> Report<'a> {
    fn new(result: &'a RunResult, machine: &'a Machine, program: &'a str) -> Self {
        let phases = result.phases.all();
        let phases =
            phases.into_iter().filter_map(|(name, all)| Some((name.replace(' ', "_"), Latency::of(all)?)));
        let handshakes = result.handshakes.iter();
        let errors = result.errors.iter();
        Self {
            schema: SCHEMA,
            program,
            machine,
            target: &result.target,
            started: timestamp(result.started),
            elapsed_s: result.elapsed.as_secs_f64(),
            interrupted: result.interrupted,
            settings: result.settings.iter().map(|(option, value)| Setting { option, value }).collect(),
            unit: result.unit.name(),
            operations: result.operations,
            rate_per_s: result.rate(),
            handshakes_per_s: (!result.plain).then(|| result.handshake_rate()),
            unstarted: result.unstarted,
            primed: result.primed,
            latency_us: phases.collect(),
            handshakes: handshakes
                .map(|kind| Handshakes { asked: kind.asked.name(), got: kind.got.name(), count: kind.count })
                .collect(),
            negotiated: named(result.negotiated.iter().map(|kind| (&*kind.description, kind.count))),
            responses: Responses::of(result),
            errors: errors
                .map(|error| Error { cause: error.cause.name(), count: error.count, example: &error.example })
                .collect(),
            alerts: named(result.alerts.iter().map(|(name, count)| (&**name, *count))),
            traffic: WireTraffic::of(result),
            series: result.series.iter().map(Second::of).collect(),
            server: result.server.as_ref().map(|usage| Server::of(usage, result)),
            client_cpu_s: result.client_cpu.as_secs_f64(),
        }
    }
}

fn named<'a>(all: impl Iterator<Item = (&'a str, u64)>) -> Vec<Named<'a>> {
    all.map(|(name, count)| Named { name, count }).collect()
}

impl Latency {
    /// `None` for an empty histogram.
    pub(crate) fn of(all: &Histogram<u64>) -> Option<Self> {
        let [p50, p90, p99, p999] = QUANTILES.map(|(_, quantile)| all.value_at_quantile(quantile));
        let (mean, stdev) = (all.mean(), all.stdev());
        let found =
            Self { count: all.len(), mean, stdev, min: all.min(), p50, p90, p99, p999, max: all.max() };
        (!all.is_empty()).then_some(found)
    }
}

impl Responses {
    fn of(result: &RunResult) -> Self {
        let classes = (1..).zip(result.responses.classes);
        let classes = classes.map(|(class, count)| (format!("{class}xx"), count)).collect();
        Self { classes, body_bytes: result.responses.body_bytes }
    }
}

impl WireTraffic {
    fn of(result: &RunResult) -> Self {
        let traffic = &result.traffic;
        let each = |value: u64| value as f64 / traffic.handshakes as f64;
        let handshake = PerHandshake {
            count: traffic.handshakes,
            sent_bytes: each(traffic.handshake_sent),
            received_bytes: each(traffic.handshake_received),
            packets_sent: each(traffic.handshake_segments_sent),
            packets_received: each(traffic.handshake_segments_received),
        };
        Self {
            sent_bytes: traffic.sent,
            received_bytes: traffic.received,
            packets_sent: traffic.segments_sent,
            packets_received: traffic.segments_received,
            reconnects: traffic.reconnects,
            fast_open: opens_fast(result).then_some(FastOpen {
                with_syn: traffic.syn_data,
                whole: traffic.syn_whole,
                flight_bytes: traffic.syn_flights,
                syn_bytes: traffic.syn_bytes,
            }),
            handshake: (traffic.handshakes > 0).then_some(handshake),
        }
    }
}

impl Second {
    fn of(interval: &Interval) -> Self {
        Self {
            at_s: interval.at.as_secs_f64(),
            length_s: interval.length.as_secs_f64(),
            operations: interval.operations,
            requests: interval.requests,
            handshakes: interval.handshakes,
            errors: interval.errors,
            offered_per_s: interval.offered,
            concurrency: interval.concurrency,
            in_flight: interval.in_flight,
            backlog: interval.backlog,
            latency_us: Latency::of(&interval.latency),
        }
    }
}

impl Server {
    fn of(usage: &ServerUsage, result: &RunResult) -> Self {
        let microseconds = |time: std::time::Duration| time.as_secs_f64() * 1e6;
        Self {
            cpu_s: usage.cpu.as_secs_f64(),
            busy: busy(usage, result.elapsed),
            cpu_per_handshake_us: usage.cpu_per_handshake.map(microseconds),
            cpu_per_request_us: usage.cpu_per_request.map(microseconds),
            memory_before_bytes: usage.memory_before,
            memory_peak_bytes: usage.memory_peak,
        }
    }
}
