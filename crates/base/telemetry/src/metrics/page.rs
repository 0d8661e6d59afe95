//! Response to a scrape: names, labels and help texts of all metrics.

mod keys;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::encoder::Encoder;
use super::{Listening, Metrics, Refusal, Reload};
use crate::outcome::{EarlyRequest, MalformedReason, Side};

/// Renders all [`Metrics`] in the OpenMetrics text format. Allocates; for scrapes only.
pub(super) fn render(metrics: &Arc<Metrics>) -> String {
    let mut registry = Registry::with_prefix("brisk");
    registry.register_collector(Box::new(Page(Arc::clone(metrics))));
    let mut page = String::with_capacity(16 * 1024);
    // The registry is built per scrape: it only carries the prefix and the collector.
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
        requests(&mut page, &self.0)?;
        operation(&mut page, &self.0)?;
        // Features last: their order is that of registration, and the families above have a fixed place.
        self.0.collectors().iter().try_for_each(|collector| collector.collect(&mut page))
    }
}

fn build(page: &mut Encoder<'_, '_>) -> fmt::Result {
    let mut info = page.0.encode_descriptor("build", "The running program.", None, MetricType::Info)?;
    info.encode_info(&[("version", env!("CARGO_PKG_VERSION"))])
}

fn connections(page: &mut Encoder<'_, '_>, metrics: &Metrics) -> fmt::Result {
    let shards = &metrics.shards;
    // `closed` is read before `accepted`: a connection that opens and closes in between must not make the difference
    // negative.
    let counts = Listening::ALL.iter().map(|&listener| {
        let closed = shards.sum(|shard| &shard.closed[listener as usize]);
        (listener, shards.sum(|shard| &shard.accepted[listener as usize]), closed)
    });
    let counts: Vec<_> = counts.collect();
    let mut family = page.gauge("connections_open", "Open client connections, by listener.")?;
    for (listener, accepted, closed) in &counts {
        family.gauge(&[("listener", listener.name())], accepted.saturating_sub(*closed))?;
    }
    let mut family = page.counter("connections_accepted", "Connections accepted, by listener.")?;
    for (listener, accepted, _) in &counts {
        family.counter(&[("listener", listener.name())], *accepted)?;
    }
    let mut family = page.counter("connections_refused", "Connections refused by a limit, by reason.")?;
    for (reason, count) in Refusal::ALL.iter().zip(&metrics.refused) {
        family.counter(&[("reason", reason.name())], load(count))?;
    }
    let mut family =
        page.bytes_gauge("answers_held", "Response bytes that clients have not received yet.")?;
    family.gauge(&[], metrics.answers_held() as u64)?;
    let mut family = page.counter(
        "connections_shed",
        "Connections closed because buffered responses exceeded the memory limit.",
    )?;
    family.counter(&[], load(&metrics.shed))?;
    let mut family = page.bytes_counter("received", "Bytes received from clients.")?;
    family.counter(&[], shards.sum(|shard| &shard.received))?;
    let mut family = page.bytes_counter("sent", "Bytes sent to clients.")?;
    family.counter(&[], shards.sum(|shard| &shard.sent))
}

fn handshakes(page: &mut Encoder<'_, '_>, metrics: &Metrics) -> fmt::Result {
    let handshakes = &metrics.handshakes;
    let mut family = page.counter("handshakes", "Completed handshakes, by negotiated parameters.")?;
    for agreed in handshakes.agreed() {
        let labels = [
            ("version", agreed.version),
            ("suite", agreed.suite),
            ("group", agreed.group),
            ("scheme", agreed.scheme),
            ("resumption", agreed.resumption),
        ];
        family.counter(&labels, agreed.count)?;
    }
    let mut family = page.counter("handshakes_failed", "Failed handshakes, by outcome.")?;
    for (outcome, count) in handshakes.failures() {
        family.counter(&[("outcome", outcome.name())], count)?;
    }
    let mut family = page.counter("handshake_hello_retries", "Handshakes with a HelloRetryRequest.")?;
    family.counter(&[], handshakes.hello_retries())?;
    let mut family = page.counter(
        "resumption_failures",
        "Sessions that clients offered and that were not resumed, by reason.",
    )?;
    for (reason, count) in handshakes.resumption_failures() {
        family.counter(&[("reason", reason.name())], count)?;
    }
    let mut family = page.seconds("handshake", "Duration from ClientHello to the client's Finished.")?;
    for (version, group, resumption, totals) in handshakes.times() {
        let labels = [("version", version), ("group", group), ("resumption", resumption.name())];
        family.histogram(&labels, &totals)?;
    }
    Ok(())
}

fn early_data(page: &mut Encoder<'_, '_>, metrics: &Metrics) -> fmt::Result {
    let mut family = page.counter("early_data", "Connections with early data, by outcome.")?;
    for (outcome, count) in metrics.handshakes.early_data_outcomes() {
        family.counter(&[("outcome", outcome.name())], count)?;
    }
    let mut family = page.bytes_counter("early_data", "Bytes of accepted early data.")?;
    family.counter(&[], metrics.shards.sum(|shard| &shard.early_bytes))?;
    let mut family =
        page.counter("early_requests", "Requests received before the end of the handshake, by treatment.")?;
    for treatment in EarlyRequest::ALL {
        let count = metrics.shards.sum(|shard| &shard.early_requests[*treatment as usize]);
        family.counter(&[("treatment", treatment.name())], count)?;
    }
    Ok(())
}

/// Status codes with a label of their own: the IANA registry, and `499` of other gateways. An upstream can respond with any
/// code, and each label is a time series.
const LABELLED: [RangeInclusive<u16>; 13] = [
    100..=104,
    200..=208,
    226..=226,
    300..=305,
    307..=308,
    400..=418,
    421..=426,
    428..=429,
    431..=431,
    451..=451,
    499..=499,
    500..=508,
    510..=511,
];

fn status_label(status: u16) -> String {
    match status {
        0 => "none".to_owned(),
        status if LABELLED.iter().any(|range| range.contains(&status)) => status.to_string(),
        status => format!("{}xx", status / 100),
    }
}

fn requests(page: &mut Encoder<'_, '_>, metrics: &Metrics) -> fmt::Result {
    let shards = &metrics.shards;
    let mut family = page.counter("requests", "Requests, by status code; none without a response.")?;
    let mut labels = BTreeMap::new();
    for (status, count) in shards.statuses() {
        // Added up first, because several codes have one label and a series may occur once only.
        *labels.entry(status_label(status)).or_insert(0) += count;
    }
    for (status, count) in labels {
        family.counter(&[("status", &status)], count)?;
    }
    let mut family =
        page.counter("request_errors", "Failed requests, by the side that caused the failure.")?;
    for side in Side::ALL {
        family.counter(&[("side", side.name())], shards.sum(|shard| &shard.errors[*side as usize]))?;
    }
    let mut family = page.counter(
        "requests_malformed",
        "Requests refused because they were malformed, by reason; in no other metric.",
    )?;
    for (reason, count) in MalformedReason::ALL.iter().zip(&metrics.malformed) {
        family.counter(&[("reason", reason.name())], load(count))?;
    }
    let mut family = page.seconds("request", "Duration from the request head to the end of the response.")?;
    family.histogram(&[], &shards.totals(|shard| &shard.request_time))?;
    let mut family =
        page.seconds("upstream_response", "Duration until the response head of the upstream.")?;
    family.histogram(&[], &shards.totals(|shard| &shard.upstream_time))
}

fn operation(page: &mut Encoder<'_, '_>, metrics: &Metrics) -> fmt::Result {
    let mut family = page.counter("reloads", "Reloads of the configuration, by outcome.")?;
    for (outcome, count) in Reload::ALL.iter().zip(&metrics.reloads) {
        family.counter(&[("outcome", outcome.name())], load(count))?;
    }
    let mut family = page
        .seconds_gauge("certificate_expiry_timestamp", "End of validity of the certificate, as Unix time.")?;
    for certificate in metrics.certificates.load().iter() {
        let labels = [("host", certificate.host.as_str()), ("algorithm", certificate.algorithm.as_str())];
        family.gauge(&labels, certificate.not_after)?;
    }
    Ok(())
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_that_an_upstream_invents_share_a_label() {
        assert_eq!(
            ["0", "200", "404", "421", "511"].map(|code| code.parse().map(status_label).unwrap()),
            ["none", "200", "404", "421", "511"]
        );
        assert_eq!([299, 454, 599].map(status_label), ["2xx", "4xx", "5xx"]);
        let labels: BTreeSet<_> = (100..600).map(status_label).collect();
        assert!(labels.len() < 80, "{labels:?}");
    }
}
