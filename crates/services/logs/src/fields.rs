//! Fields that both formats share, in their order and under their names.

use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use brisk_telemetry::{
    ConnectionRecord, HandshakeOutcome, MalformedRecord, RequestRecord, Side, StreamRecord, TlsFacts,
};

use crate::event::Event;

/// A line that takes fields. Implementations must ensure that no value can end the field or the line.
pub(crate) trait Fields {
    /// A value that strangers or the configuration chose.
    fn text(&mut self, key: &'static str, value: &[u8]);
    /// A word of brisk's own or a registered name: letters, digits and `-_./`.
    fn word(&mut self, key: &'static str, value: &str);
    /// An address.
    fn address(&mut self, key: &'static str, value: IpAddr);
    /// A number.
    fn number(&mut self, key: &'static str, value: u64);
    /// A time of day, in microseconds.
    fn time(&mut self, key: &'static str, value: SystemTime);
    /// Numbers with names of brisk's own.
    fn numbers(&mut self, key: &'static str, values: impl Iterator<Item = (&'static str, u64)>);
    /// Names, which are letters, digits, `-` and `_`, each with a text that the configuration chose.
    fn texts(&mut self, key: &'static str, values: &[(Arc<str>, Arc<str>)]);
}

/// All fields of a line except its time, as [`Event`] has them.
pub(crate) fn all(line: &mut impl Fields, event: Event<'_>, has_milestones: bool) {
    let connection = event.connection();
    line.word("event", event.name());
    let client = event.client();
    line.address("client", client.ip());
    // Behind a proxy that reports no port, the port is unknown and has the value 0.
    if client.port() != 0 {
        line.number("client_port", client.port().into());
    }
    match event {
        Event::Request(record) => {
            line.text("method", record.method.as_bytes());
            line.text("path", record.path.as_bytes());
            line.word("protocol", record.version.name());
            line.number("status", record.status.into());
            line.number("bytes_sent", record.bytes_sent);
            let user = record.user.map(str::as_bytes);
            for (key, value) in
                [("user", user), ("referer", record.referer), ("user_agent", record.user_agent)]
            {
                if let Some(value) = value {
                    line.text(key, value);
                }
            }
            request(line, record);
        }
        Event::Handshake(record, outcome) => handshake(line, record, outcome),
        Event::Malformed(record, suppressed) => {
            line.text("excerpt", record.excerpt);
            line.number("status", record.status.into());
            malformed(line, record, suppressed);
        }
        Event::Stream(record) => {
            line.number("bytes_sent", record.bytes_sent);
            stream(line, record);
        }
    }
    if has_milestones {
        milestones(line, connection);
    }
}

/// The fields of a [`RequestRecord`] that the combined format lacks.
pub(crate) fn request(line: &mut impl Fields, request: &RequestRecord<'_>) {
    line.text("host", request.host.as_bytes());
    line.word("id", str::from_utf8(&request.id.digits()).unwrap_or_default());
    if let Some(trace) = request.trace {
        line.word("trace", &format!("{:032x}", trace.trace));
    }
    line.number("bytes_received", request.bytes_received);
    line.number("duration_us", micros(request.duration));
    if let Some(upstream) = request.upstream {
        line.text("upstream", upstream.as_bytes());
    }
    if let Some(time) = request.upstream_time {
        line.number("upstream_us", micros(time));
    }
    if let Some(early) = request.early {
        line.word("early", early.name());
    }
    if let Some(error) = request.error {
        line.word("error", error);
    }
    if let Some(side) = request.error_side {
        line.word("error_side", side.name());
    }
    if let Some(end) = request.upgraded_end {
        line.word("upgraded_end", end.name());
    }
    if !request.labels.is_empty() {
        line.texts(request.label_field, request.labels);
    }
    connection(line, request.connection);
}

/// The [`HandshakeOutcome`] of a failed handshake and the last milestone that it reached.
pub(crate) fn handshake(line: &mut impl Fields, record: &ConnectionRecord, outcome: HandshakeOutcome) {
    line.word("outcome", outcome.name());
    if let Some((milestone, _)) = record.timeline.reached().last() {
        line.word("reached", milestone.name());
    }
    line.number("duration_us", micros(record.timeline.started().elapsed()));
    // After early data that was accepted the facts have it.
    if let Some(reason) = record.resumption_failure.filter(|_| record.tls.is_none()) {
        line.word("resumption_failure", reason.name());
    }
    connection(line, record);
}

/// The fault of a malformed request, and the number of `suppressed` lines before this one.
pub(crate) fn malformed(line: &mut impl Fields, request: &MalformedRecord<'_>, suppressed: u64) {
    line.word("error", request.reason.name());
    line.word("error_side", Side::Client.name());
    if suppressed > 0 {
        line.number("suppressed", suppressed);
    }
    connection(line, request.connection);
}

/// The facts of a TCP connection that the combined format lacks.
pub(crate) fn stream(line: &mut impl Fields, record: &StreamRecord<'_>) {
    line.text("tcp", record.service.as_bytes());
    line.word("outcome", record.end.name());
    line.number("bytes_received", record.bytes_received);
    line.number("duration_us", micros(record.duration));
    if let Some(upstream) = record.upstream {
        line.text("upstream", upstream.as_bytes());
    }
    if let Some(time) = record.upstream_time {
        line.number("upstream_us", micros(time));
    }
    if let Some(side) = record.end.side() {
        line.word("error_side", side.name());
    }
    if let Some(name) = record.server_name {
        line.text("server_name", name.as_bytes());
    }
    line.number("connection", record.connection.id);
    connection_facts(line, record.connection);
}

/// The start of a connection, and the time from there to each milestone that it reached.
pub(crate) fn milestones(line: &mut impl Fields, record: &ConnectionRecord) {
    line.time("connected", record.timeline.time_of_day());
    let reached = record.timeline.reached();
    line.numbers("milestones_us", reached.map(|(milestone, at)| (milestone.name(), micros(at))));
}

fn connection(line: &mut impl Fields, record: &ConnectionRecord) {
    line.number("connection", record.id);
    line.number("connection_requests", record.requests.into());
    connection_facts(line, record);
}

fn connection_facts(line: &mut impl Fields, record: &ConnectionRecord) {
    if let Some(rtt) = record.rtt {
        line.number("rtt_us", micros(rtt));
    }
    if let Some(facts) = &record.tls {
        tls(line, facts);
    }
    if record.early_bytes > 0 {
        line.number("early_bytes", record.early_bytes);
    }
}

fn tls(line: &mut impl Fields, facts: &TlsFacts) {
    // Only versions that have a name are ever agreed on.
    line.text("tls", facts.version.name().unwrap_or("unknown").as_bytes());
    code_point(line, "suite", facts.suite.name(), facts.suite);
    if let Some(group) = facts.group {
        code_point(line, "group", group.name(), group);
    }
    if let Some(scheme) = facts.scheme {
        code_point(line, "scheme", scheme.name(), scheme);
    }
    line.word("resumption", facts.resumption.name());
    if let Some(reason) = facts.resumption_failure {
        line.word("resumption_failure", reason.name());
    }
    if let Some(outcome) = facts.early_data {
        line.word("early_data", outcome.name());
    }
    line.number("handshake_us", micros(facts.handshake_time));
    line.number("hello_retry", facts.hello_retry.into());
    if let Some(name) = &facts.server_name {
        line.text("server_name", name.as_bytes());
    }
    if let Some(protocol) = facts.alpn {
        line.word("alpn", protocol.alpn());
    }
    if let Some(subject) = &facts.client_subject {
        line.text("client_subject", subject.as_bytes());
    }
}

fn code_point(line: &mut impl Fields, key: &'static str, name: Option<&str>, code_point: impl Display) {
    match name {
        Some(name) => line.word(key, name),
        // A number as `0x1234`: rare enough for an allocation.
        None => line.word(key, &code_point.to_string()),
    }
}

pub(crate) fn micros(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000).saturating_add(time.subsec_micros().into())
}
