//! The tables of one run.

use std::time::Duration;

use brisk_report::Table;
use brisk_report::figures::{bytes, count, duration, microseconds, number, percent, share};
use brisk_telemetry::Resumption;
use hdrhistogram::Histogram;

use crate::result::{Interval, RunResult, ServerUsage, Traffic, Unit, histogram};

/// Quantiles in all reports, with their names.
pub(super) const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// All non-empty tables in order.
pub(super) fn all(result: &RunResult) -> Vec<Table> {
    let tables = [
        summary(result),
        latency(result),
        steps(result),
        handshakes(result),
        negotiated(result),
        traffic(result),
        responses(result),
        server(result),
        alerts(result),
        errors(result),
    ];
    tables.into_iter().filter(|table| !table.is_empty()).collect()
}

fn summary(result: &RunResult) -> Table {
    let mut table = Table::new(&result.target).text("").text("");
    let unit = result.unit.name();
    let ended = if result.interrupted { ", interrupted" } else { "" };
    table.row(["time".to_owned(), format!("{}{ended}", duration(result.elapsed))]);
    table.row([
        unit.to_owned(),
        format!("{}, {} per second", count(result.operations), number(result.rate())),
    ]);
    if result.unit == Unit::Request {
        let name = if result.plain { "connections" } else { "handshakes" };
        let rate = number(result.connection_rate());
        table.row([name.to_owned(), format!("{}, {rate} per second", count(result.connection_count()))]);
    }
    let errors = result.error_count();
    let tried = errors + result.operations;
    let failed =
        if errors == 0 { "none".to_owned() } else { format!("{}, {}", count(errors), share(errors, tried)) };
    table.row(["errors".to_owned(), failed]);
    if result.unstarted > 0 {
        let note = format!("{}: their time came and nothing was free to start them", count(result.unstarted));
        table.row(["not started".to_owned(), note]);
    }
    if result.primed > 0 {
        let note = format!("{} full handshakes for sessions to resume, in no figure", count(result.primed));
        table.row(["prepared".to_owned(), note]);
    }
    let seconds = result.elapsed.as_secs_f64().max(1e-9);
    let bits = |bytes: u64| number(bytes as f64 * 8.0 / 1e6 / seconds);
    let rates =
        format!("{} Mbit/s in, {} Mbit/s out", bits(result.traffic.received), bits(result.traffic.sent));
    table.row(["throughput".to_owned(), rates]);
    table.row(["client CPU".to_owned(), client(result)]);
    table
}

fn client(result: &RunResult) -> String {
    let busy = result.client_cpu.as_secs_f64() / result.elapsed.as_secs_f64().max(1e-9);
    let operations = result.operations + result.error_count();
    let each = result.client_cpu.as_secs_f64() * 1e6 / operations as f64;
    format!("{} of one core, {} per {}", percent(busy), microseconds(each), singular(result.unit))
}

fn singular(unit: Unit) -> &'static str {
    match unit {
        Unit::Handshake => "handshake",
        Unit::Request => "request",
    }
}

/// The phases of an operation: quantiles, mean, standard deviation.
pub(super) fn latency(result: &RunResult) -> Table {
    let filled: Vec<_> =
        result.phases.all().into_iter().filter(|(_, histogram)| !histogram.is_empty()).collect();
    let longest = filled.iter().map(|(_, histogram)| histogram.max()).max().unwrap_or_default();
    let (unit, scale) = if longest < 100_000 { ("µs", 1.0) } else { ("ms", 1e3) };
    let mut table =
        Table::new(format!("Latency, {unit}")).text("step").figures(QUANTILES.map(|(name, _)| name));
    table = table.figures(["mean", "stdev", "max", "count"]);
    for (name, histogram) in filled {
        let shown = |value: f64| number(value / scale);
        let mut row = vec![name.to_owned()];
        row.extend(QUANTILES.map(|(_, quantile)| shown(histogram.value_at_quantile(quantile) as f64)));
        row.extend([histogram.mean(), histogram.stdev(), histogram.max() as f64].map(shown));
        row.push(count(histogram.len()));
        table.row(row);
    }
    table
}

/// One step of a ramp: the consecutive seconds with the same schedule.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// Scheduled operations per second; `None` in a closed loop.
    pub(super) offered: Option<f64>,
    /// Maximum number of concurrent operations.
    pub(super) concurrency: usize,
    /// Length of the step.
    pub(super) length: Duration,
    /// Operations that succeeded.
    pub(super) operations: u64,
    /// Failures.
    pub(super) errors: u64,
    /// Latencies of the operations.
    pub(super) latency: Histogram<u64>,
}

impl Step {
    /// The scheduled level: a rate, or a number of concurrent operations.
    pub(super) fn level(&self) -> f64 {
        self.offered.unwrap_or(self.concurrency as f64)
    }

    /// Successful operations per second.
    pub(super) fn rate(&self) -> f64 {
        self.operations as f64 / self.length.as_secs_f64().max(1e-9)
    }

    fn fits(&self, interval: &Interval) -> bool {
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-6 * a.abs().max(b.abs());
        match (self.offered, interval.offered) {
            (Some(own), Some(other)) => close(own, other),
            (None, None) => self.concurrency == interval.concurrency,
            _ => false,
        }
    }
}

/// The steps of a ramp in order; one if the schedule is constant.
pub(super) fn ramp(series: &[Interval]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for interval in series {
        if !steps.last().is_some_and(|step| step.fits(interval)) {
            steps.push(Step {
                offered: interval.offered,
                concurrency: interval.concurrency,
                length: Duration::ZERO,
                operations: 0,
                errors: 0,
                latency: histogram(),
            });
        }
        let step = steps.last_mut().expect("one was pushed");
        step.length += interval.length;
        step.operations += interval.operations;
        step.errors += interval.errors;
        step.latency.add(&interval.latency).expect("a histogram that grows takes every value");
    }
    steps
}

fn steps(result: &RunResult) -> Table {
    let steps = ramp(&result.series);
    let asked = if steps.iter().all(|step| step.offered.is_some()) { "asked for /s" } else { "at once" };
    let mut table = Table::new("Steps").figures(["from", asked, "done /s", "errors"]);
    table = table.figures(["p50 ms", "p90 ms", "p99 ms", "p99.9 ms"]);
    if steps.len() < 2 {
        return table;
    }
    let mut from = Duration::ZERO;
    for step in &steps {
        let mut row = vec![format!("{:.0} s", from.as_secs_f64()), number(step.level()), number(step.rate())];
        row.push(count(step.errors));
        let shown = |(_, quantile)| number(step.latency.value_at_quantile(quantile) as f64 / 1e3);
        row.extend(
            QUANTILES.map(|quantile| if step.latency.is_empty() { "–".to_owned() } else { shown(quantile) }),
        );
        table.row(row);
        from += step.length;
    }
    table
}

fn handshakes(result: &RunResult) -> Table {
    let mut table =
        Table::new("Handshakes").text("asked for").text("became").figures(["count", "share", "per second"]);
    let all = result.handshake_count();
    let mut kinds = result.handshakes.clone();
    kinds.sort_by_key(|kind| (place(kind.asked), place(kind.got)));
    let seconds = result.elapsed.as_secs_f64().max(1e-9);
    for kind in &kinds {
        let rate = number(kind.count as f64 / seconds);
        let words = [kind.asked.name().to_owned(), kind.got.name().to_owned()];
        table.row(words.into_iter().chain([count(kind.count), share(kind.count, all), rate]));
    }
    table
}

fn place(kind: Resumption) -> Option<usize> {
    Resumption::ALL.iter().position(|other| *other == kind)
}

fn negotiated(result: &RunResult) -> Table {
    let mut table = Table::new("Negotiated")
        .text("version, suite, group, signature, protocol")
        .figures(["count", "share"]);
    let all = result.negotiated.iter().map(|kind| kind.count).sum();
    for kind in &result.negotiated {
        table.row([kind.description.clone(), count(kind.count), share(kind.count, all)]);
    }
    table
}

fn traffic(result: &RunResult) -> Table {
    let (traffic, connections) = (&result.traffic, result.connection_count());
    let mut table = Table::new("On the wire, seen from the client").text("").figures(["sent", "received"]);
    table = table.figures(["packets sent", "packets received"]);
    if traffic.handshakes > 0 {
        let each = |value: u64| number(value as f64 / traffic.handshakes as f64);
        let row = [traffic.handshake_sent, traffic.handshake_received];
        let packets = [traffic.handshake_segments_sent, traffic.handshake_segments_received];
        let bytes = row.map(|value| format!("{} B", each(value)));
        table.row(["each handshake".to_owned()].into_iter().chain(bytes).chain(packets.map(each)));
    }
    if traffic.sent + traffic.received > 0 {
        if connections > 0 {
            let each = |value: u64| value as f64 / connections as f64;
            let sizes = [traffic.sent, traffic.received].map(|value| bytes(each(value)));
            let packets = [traffic.segments_sent, traffic.segments_received].map(|value| number(each(value)));
            table.row(["each connection".to_owned()].into_iter().chain(sizes).chain(packets));
        }
        let sizes = [traffic.sent, traffic.received].map(|value| bytes(value as f64));
        let packets = [traffic.segments_sent, traffic.segments_received].map(count);
        table.row(["in all".to_owned()].into_iter().chain(sizes).chain(packets));
    }
    if opens_fast(result) && traffic.handshakes > 0 {
        table.note(fast_open(traffic));
    }
    if traffic.reconnects > 0 {
        table.note(format!(
            "Kept connections that the server had closed before the next request, which then went over a new one: {}.",
            count(traffic.reconnects)
        ));
    }
    table
}

/// Whether TCP Fast Open was requested.
pub(super) fn opens_fast(result: &RunResult) -> bool {
    result.settings.iter().any(|(option, _)| *option == "--fast-open")
}

/// Benefit of TCP Fast Open. A server can start only with the whole `ClientHello`, so a part of it in the `SYN` has no
/// benefit.
fn fast_open(traffic: &Traffic) -> String {
    let Traffic { handshakes, syn_data, syn_whole, .. } = *traffic;
    if syn_data == 0 {
        return "TCP Fast Open: no SYN carried data. The server gave no cookie, or one of the two kernels has it off \
                (net.ipv4.tcp_fastopen)."
            .to_owned();
    }
    let all = count(handshakes);
    if syn_whole == syn_data {
        let went = count(syn_whole);
        return format!(
            "TCP Fast Open: {went} of {all} first flights went with their SYN, each a round trip less."
        );
    }
    let each = |bytes: u64| number((bytes as f64 / syn_data as f64).round());
    format!(
        "TCP Fast Open: {} of {all} SYNs carried data, {} of them the whole first flight. The others save no round trip: \
         of {} B, {} went with the SYN, and the server waits for the rest. Without X25519MLKEM768 the hello fits \
         (--group X25519).",
        count(syn_data),
        count(syn_whole),
        each(traffic.syn_flights),
        each(traffic.syn_bytes),
    )
}

fn responses(result: &RunResult) -> Table {
    let mut table = Table::new("Responses").text("status").figures(["count", "share"]);
    let all = result.responses.total();
    for (class, number) in (1..).zip(result.responses.classes) {
        if number > 0 {
            table.row([format!("{class}xx"), count(number), share(number, all)]);
        }
    }
    if all > 0 {
        table.note(format!("Bodies: {} in all.", bytes(result.responses.body_bytes as f64)));
    }
    table
}

fn server(result: &RunResult) -> Table {
    let mut table = Table::new("Server process, its threads and children included").text("").text("");
    let Some(usage) = &result.server else { return table };
    table.row(["CPU".to_owned(), format!("{} of one core", percent(busy(usage, result.elapsed)))]);
    let each = [("CPU per handshake", usage.cpu_per_handshake), ("CPU per request", usage.cpu_per_request)];
    for (name, time) in each {
        if let Some(time) = time {
            table.row([name.to_owned(), microseconds(time.as_secs_f64() * 1e6)]);
        }
    }
    table.row(["memory before".to_owned(), bytes(usage.memory_before as f64)]);
    table.row(["memory at most".to_owned(), bytes(usage.memory_peak as f64)]);
    table
}

/// Share of the time in which the server used a processor; may exceed one with several cores.
pub(super) fn busy(usage: &ServerUsage, elapsed: Duration) -> f64 {
    usage.cpu.as_secs_f64() / elapsed.as_secs_f64().max(1e-9)
}

fn alerts(result: &RunResult) -> Table {
    let mut table = Table::new("Alerts from the server").text("alert").figure("count");
    for (name, number) in &result.alerts {
        table.row([name.clone(), count(*number)]);
    }
    table
}

fn errors(result: &RunResult) -> Table {
    let mut table = Table::new("Errors").text("cause").figures(["count", "share"]).text("the first of them");
    let all = result.error_count() + result.operations;
    for error in &result.errors {
        let row = [
            error.cause.name().to_owned(),
            count(error.count),
            share(error.count, all),
            error.example.clone(),
        ];
        table.row(row);
    }
    table
}
