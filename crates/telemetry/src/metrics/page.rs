//! The page that a scrape gets: names, labels and help texts of all metrics.

mod keys;
mod sessions;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::histogram::Totals;
use super::{Flood, Listening, Metrics, Refusal, Reload};
use crate::outcome::{EarlyRequest, Side};

/// All metrics as text. Allocates for everything it shows; for scrapes only.
pub(super) fn render(metrics: &Arc<Metrics>) -> String {
    let mut registry = Registry::with_prefix("brisk");
    registry.register_collector(Box::new(Page(Arc::clone(metrics))));
    let mut page = String::with_capacity(16 * 1024);
    text::encode(&mut page, &registry).expect("writing to a string cannot fail");
    page
}

#[derive(Debug)]
struct Page(Arc<Metrics>);

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Encoder(&mut encoder);
        build(&mut page)?;
        connections(&mut page, &self.0)?;
        handshakes(&mut page, &self.0)?;
        early_data(&mut page, &self.0)?;
        keys::operations(&mut page, &self.0.key_operations.all())?;
        if let Some(figures) = self.0.keys.figures() {
            keys::engine(&mut page, &figures)?;
        }
        requests(&mut page, &self.0)?;
        upstreams(&mut page, &self.0)?;
        if let Some(figures) = self.0.sessions.figures() {
            sessions::all(&mut page, &figures)?;
        }
        operation(&mut page, &self.0)
    }
}

fn build(page: &mut Encoder<'_, '_>) -> fmt::Result {
    let mut info = page.0.encode_descriptor("build", "The running program.", None, MetricType::Info)?;
    info.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])
}

fn connections(page: &mut Encoder<'_, '_>, metrics: &Metrics) -> fmt::Result {
    let shards = &metrics.shards;
    // Closed before accepted: a connection that comes and goes in between must not make the difference negative.
    let counts = Listening::ALL.iter().map(|&listener| {
        let closed = shards.sum(|shard| &shard.closed[listener as usize]);
        (listener, shards.sum(|shard| &shard.accepted[listener as usize]), closed)
    });
    let counts: Vec<_> = counts.collect();
    let mut family = page.gauge("connections_open", "Connections of clients open now, by listener.")?;
    for (listener, accepted, closed) in &counts {
        family.gauge(&[("listener", listener.name())], accepted.saturating_sub(*closed))?;
    }
    let mut family = page.counter("connections_accepted", "Connections accepted, by listener.")?;
    for (listener, accepted, _) in &counts {
        family.counter(&[("listener", listener.name())], *accepted)?;
    }
    let mut family = page.counter("connections_refused", "Connections closed by a limit, by reason.")?;
    for (reason, count) in Refusal::ALL.iter().zip(&metrics.refused) {
        family.counter(&[("reason", reason.name())], load(count))?;
    }
    let rates = metrics.rates.figures().unwrap_or_default();
    let mut family =
        page.counter("rate_refusals", "What clients did too often and were refused, by event.")?;
    for (event, count) in [
        ("connection", rates.connections),
        ("handshake", rates.handshakes),
        ("request", rates.requests),
        ("error", rates.errors),
    ] {
        family.counter(&[("event", event)], count)?;
    }
    let mut family =
        page.counter("http2_floods", "HTTP/2 connections closed for what their clients did too much of.")?;
    for (reason, count) in Flood::ALL.iter().zip(&metrics.floods) {
        family.counter(&[("reason", reason.name())], load(count))?;
    }
    let mut family = page.bytes_gauge("answers_held", "Answers that clients have not taken yet.")?;
    family.gauge(&[], metrics.answers_held() as u64)?;
    let mut family = page.bytes_gauge(
        "request_bodies_gathered",
        "Request bodies kept for upstreams that do not get them yet.",
    )?;
    family.gauge(&[], load(&metrics.bodies_gathered))?;
    let mut family =
        page.counter("connections_shed", "Connections closed because answers took too much memory.")?;
    family.counter(&[], load(&metrics.shed))?;
    let mut family = page.bytes_counter("received", "Bytes received from clients.")?;
    family.counter(&[], shards.sum(|shard| &shard.received))?;
    let mut family = page.bytes_counter("sent", "Bytes sent to clients.")?;
    family.counter(&[], shards.sum(|shard| &shard.sent))
}

fn handshakes(page: &mut Encoder<'_, '_>, metrics: &Metrics) -> fmt::Result {
    let handshakes = &metrics.handshakes;
    let mut family = page.counter("handshakes", "Handshakes that succeeded, by what they agreed on.")?;
    for agreed in handshakes.agreed() {
        let labels = [
            ("version", agreed.version),
            ("group", agreed.group),
            ("scheme", agreed.scheme),
            ("resumption", agreed.resumption),
        ];
        family.counter(&labels, agreed.count)?;
    }
    let mut family = page.counter("handshakes_failed", "Handshakes that failed, by outcome.")?;
    for (outcome, count) in handshakes.failures() {
        family.counter(&[("outcome", outcome.name())], count)?;
    }
    let mut family =
        page.counter("handshake_hello_retries", "Handshakes that asked for another key share.")?;
    family.counter(&[], handshakes.hello_retries())?;
    let mut family =
        page.counter("resumption_failures", "Sessions that clients asked for in vain, by reason.")?;
    for (reason, count) in handshakes.resumption_failures() {
        family.counter(&[("reason", reason.name())], count)?;
    }
    let mut family = page.seconds("handshake", "Time from ClientHello to the client's Finished.")?;
    for (version, resumption, totals) in handshakes.times() {
        family.histogram(&[("version", version), ("resumption", resumption.name())], &totals)?;
    }
    Ok(())
}

fn early_data(page: &mut Encoder<'_, '_>, metrics: &Metrics) -> fmt::Result {
    let mut family = page.counter("early_data", "Connections with early data, by what became of it.")?;
    for (outcome, count) in metrics.handshakes.early_data_outcomes() {
        family.counter(&[("outcome", outcome.name())], count)?;
    }
    let replays = metrics.sessions.figures().map_or(0, |figures| figures.early_data_replays);
    let mut family =
        page.counter("early_data_replays", "Early data refused because its session was used before.")?;
    family.counter(&[], replays)?;
    let mut family = page.bytes_counter("early_data", "Bytes of early data that were accepted.")?;
    family.counter(&[], metrics.shards.sum(|shard| &shard.early_bytes))?;
    let mut family =
        page.counter("early_requests", "Requests before the end of their handshake, by treatment.")?;
    for treatment in EarlyRequest::ALL {
        let count = metrics.shards.sum(|shard| &shard.early_requests[*treatment as usize]);
        family.counter(&[("treatment", treatment.name())], count)?;
    }
    Ok(())
}

fn requests(page: &mut Encoder<'_, '_>, metrics: &Metrics) -> fmt::Result {
    let shards = &metrics.shards;
    let mut family = page.counter("requests", "Requests, by status code; none if no response was sent.")?;
    for (status, count) in shards.statuses() {
        let status = if status == 0 { "none".to_owned() } else { status.to_string() };
        family.counter(&[("status", &status)], count)?;
    }
    let mut family = page.counter("request_errors", "Requests that failed, by who is to blame.")?;
    for side in Side::ALL {
        family.counter(&[("side", side.name())], shards.sum(|shard| &shard.errors[*side as usize]))?;
    }
    let mut family = page.seconds("request", "Time from a request's head to the end of its response.")?;
    family.histogram(&[], &shards.totals(|shard| &shard.request_time))?;
    let mut family = page.seconds("upstream_response", "Time until an upstream's response head.")?;
    family.histogram(&[], &shards.totals(|shard| &shard.upstream_time))
}

fn upstreams(page: &mut Encoder<'_, '_>, metrics: &Metrics) -> fmt::Result {
    let all = metrics.upstreams.all();
    let mut family = page.gauge("upstream_healthy", "1 if the server gets requests, 0 if not.")?;
    for upstream in &all {
        family.gauge(&server_labels(&upstream.group, &upstream.server), upstream.health())?;
    }
    let mut family = page.gauge("upstream_connections_open", "Connections to the server open now.")?;
    for upstream in &all {
        family.gauge(&server_labels(&upstream.group, &upstream.server), upstream.open_connections())?;
    }
    let mut family = page.counter("upstream_connections", "Connections made to the server.")?;
    for upstream in &all {
        family.counter(&server_labels(&upstream.group, &upstream.server), load(&upstream.connections))?;
    }
    let mut family = page.counter("upstream_requests", "Requests sent to the server.")?;
    for upstream in &all {
        family.counter(&server_labels(&upstream.group, &upstream.server), load(&upstream.requests))?;
    }
    let mut family = page.counter("upstream_failures", "Requests that the server failed.")?;
    for upstream in &all {
        family.counter(&server_labels(&upstream.group, &upstream.server), load(&upstream.failures))?;
    }
    Ok(())
}

fn server_labels<'a>(group: &'a str, server: &'a str) -> [(&'static str, &'a str); 2] {
    [("group", group), ("server", server)]
}

fn operation(page: &mut Encoder<'_, '_>, metrics: &Metrics) -> fmt::Result {
    let mut family = page.counter("reloads", "Reloads of the configuration, by outcome.")?;
    for (outcome, count) in Reload::ALL.iter().zip(&metrics.reloads) {
        family.counter(&[("outcome", outcome.name())], load(count))?;
    }
    let mut family =
        page.seconds_gauge("certificate_expiry_timestamp", "When a certificate ends, since 1970.")?;
    for certificate in metrics.certificates.load().iter() {
        let labels = [("host", certificate.host.as_str()), ("algorithm", certificate.algorithm.as_str())];
        family.gauge(&labels, certificate.not_after)?;
    }
    let mut family =
        page.counter("access_log_lost_lines", "Access log lines lost because the target did not keep up.")?;
    family.counter(&[], metrics.lost_lines())?;
    let mut family = page.gauge("workers_stuck", "Workers that do not turn, and accept nothing.")?;
    family.gauge(&[], metrics.stuck.figures().unwrap_or(0))?;
    let mut family =
        page.counter("log_dropped_lines", "Log lines dropped because standard error was not read.")?;
    family.counter(&[], metrics.log.figures().unwrap_or(0))
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Starts metric families; the library adds the prefix, the unit and `_total`.
struct Encoder<'a, 'b>(&'a mut DescriptorEncoder<'b>);

const BYTES: &Unit = &Unit::Bytes;
const SECONDS: &Unit = &Unit::Seconds;

impl Encoder<'_, '_> {
    fn counter<'s>(&'s mut self, name: &'static str, help: &str) -> Result<Family<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, MetricType::Counter).map(Family)
    }

    fn bytes_counter<'s>(&'s mut self, name: &'static str, help: &str) -> Result<Family<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, Some(BYTES), MetricType::Counter).map(Family)
    }

    fn seconds_counter<'s>(&'s mut self, name: &'static str, help: &str) -> Result<Family<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, Some(SECONDS), MetricType::Counter).map(Family)
    }

    fn gauge<'s>(&'s mut self, name: &'static str, help: &str) -> Result<Family<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, MetricType::Gauge).map(Family)
    }

    fn bytes_gauge<'s>(&'s mut self, name: &'static str, help: &str) -> Result<Family<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, Some(BYTES), MetricType::Gauge).map(Family)
    }

    fn seconds_gauge<'s>(&'s mut self, name: &'static str, help: &str) -> Result<Family<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, Some(SECONDS), MetricType::Gauge).map(Family)
    }

    fn seconds<'s>(&'s mut self, name: &'static str, help: &str) -> Result<Family<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, Some(SECONDS), MetricType::Histogram).map(Family)
    }
}

/// The series of one metric.
struct Family<'a>(MetricEncoder<'a>);

type Labels<'a> = [(&'static str, &'a str)];

impl Family<'_> {
    fn counter(&mut self, labels: &Labels<'_>, value: u64) -> fmt::Result {
        if labels.is_empty() {
            return self.0.encode_counter::<NoLabelSet, u64, f64>(&value, None);
        }
        self.0.encode_family(&labels)?.encode_counter::<NoLabelSet, u64, f64>(&value, None)
    }

    fn seconds_counter(&mut self, micros: u64) -> fmt::Result {
        self.0.encode_counter::<NoLabelSet, f64, f64>(&(micros as f64 / 1e6), None)
    }

    fn gauge(&mut self, labels: &Labels<'_>, value: impl EncodeGaugeValue + Copy) -> fmt::Result {
        if labels.is_empty() {
            return self.0.encode_gauge(&value);
        }
        self.0.encode_family(&labels)?.encode_gauge(&value)
    }

    fn histogram(&mut self, labels: &Labels<'_>, totals: &Totals) -> fmt::Result {
        let buckets: Vec<_> = totals.buckets().collect();
        let (sum, count) = (totals.sum_seconds(), totals.count());
        if labels.is_empty() {
            return self.0.encode_histogram::<NoLabelSet>(sum, count, &buckets, None);
        }
        self.0.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }
}
