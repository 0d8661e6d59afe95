//! Log records and spans of OTLP, the protocol of OpenTelemetry, in the encoding of Protocol Buffers.
//!
//! Workers append the field `log_records` or `spans` of an export request, which the thread of the output completes and an
//! [`Exporter`] sends.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::process;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brisk_telemetry::metrics::Listening;
use brisk_telemetry::{ConnectionEnd, ConnectionRecord, Milestone, RequestRecord, RequestSpan, Side};

use self::attributes::Attributes;
use self::protobuf::{bytes, fixed32, fixed64, message, number, read_varint};
use crate::event::Event;
use crate::settings::{OtlpSettings, OtlpSignal, Sample};

mod attributes;
mod http_exporter;
mod protobuf;

pub use http_exporter::connect_exporter;

/// `schema_url` of the semantic conventions that the attributes follow.
const SCHEMA: &str = "https://opentelemetry.io/schemas/1.37.0";

/// The field of `ScopeLogs` with log records, and of `ScopeSpans` with spans.
const RECORDS: u64 = 2;

/// The flag `sampled` of a recorded trace (W3C Trace Context).
const SAMPLED: u32 = 1;

/// Kinds of spans (`SpanKind`).
const INTERNAL: u64 = 1;
const SERVER: u64 = 2;
const CLIENT: u64 = 3;

/// Sends export requests over HTTP. Used by one thread, which may wait.
pub trait Exporter: fmt::Debug + Send {
    /// Sends the body of one request (`ExportLogsServiceRequest` or `ExportTraceServiceRequest`).
    fn export(&mut self, body: Vec<u8>) -> Exported;
}

/// The result of an export.
#[derive(Debug)]
pub enum Exported {
    /// The receiver accepted the request, with this response.
    Accepted(Vec<u8>),
    /// The receiver refused the request, which must not be repeated.
    Refused(String),
    /// The receiver cannot be reached or is overloaded; the request is repeated later.
    Unavailable(String),
}

/// Creates the [`Exporter`] of an output. An `Err` is the reason.
pub type Connect = fn(&OtlpSettings) -> Result<Box<dyn Exporter>, String>;

/// Spans of connections and requests.
#[derive(Debug)]
pub(crate) struct Spans {
    /// Share of the traces that begin here; `None` for all.
    sample: Option<Sample>,
    /// Source of the IDs of connections.
    random: RandomState,
}

/// A span without attributes.
struct Span<'a> {
    trace: u128,
    id: u64,
    parent: Option<u64>,
    kind: u64,
    name: &'a str,
    start: SystemTime,
    end: SystemTime,
    is_failed: bool,
}

impl Spans {
    pub(crate) fn new(settings: &OtlpSettings) -> Self {
        Self { sample: settings.sample, random: RandomState::new() }
    }

    /// Whether a trace that begins here is recorded.
    pub(crate) fn samples(&self, trace: u128) -> bool {
        // The last bytes of an ID are random.
        self.sample.is_none_or(|sample| sample.includes_random(trace as u64))
    }

    /// Appends the span of a request whose trace is recorded, and that of its upstream.
    pub(crate) fn request(&self, buffer: &mut Vec<u8>, request: &RequestRecord<'_>) {
        let Some(trace) = request.trace.filter(|trace| trace.is_sampled) else { return };
        let end = SystemTime::now();
        let start = end - request.duration;
        let span = Span {
            trace: trace.trace,
            id: trace.id,
            parent: trace.parent,
            kind: SERVER,
            name: request.method,
            start,
            end,
            is_failed: request.status >= 500 || request.error_side.is_some_and(|side| side != Side::Client),
        };
        span.append(buffer, |span| {
            Attributes::new(span, 9).request(request);
            let connection = self.of_connection(request.connection.id);
            if self.samples(connection.trace) {
                message(span, 13, |link| {
                    bytes(link, 1, &connection.trace.to_be_bytes());
                    bytes(link, 2, &connection.id.to_be_bytes());
                });
            }
        });
        let (Some(server), Some(after)) = (request.upstream, request.upstream_start) else { return };
        let start = start + after;
        let span = Span {
            trace: trace.trace,
            id: trace.upstream,
            parent: Some(trace.id),
            kind: CLIENT,
            name: request.method,
            start,
            end: request.upstream_time.map_or(end, |time| start + time),
            is_failed: request.error_side == Some(Side::Upstream),
        };
        span.append(buffer, |span| Attributes::new(span, 9).upstream(request, server));
    }

    /// Appends the spans of a connection and of its handshake.
    pub(crate) fn connection(&self, buffer: &mut Vec<u8>, connection: &ConnectionRecord, end: ConnectionEnd) {
        let ids = self.of_connection(connection.id);
        if !self.samples(ids.trace) {
            return;
        }
        let timeline = &connection.timeline;
        let start = timeline.time_of_day();
        let whole = Span {
            trace: ids.trace,
            id: ids.id,
            parent: None,
            kind: SERVER,
            name: "connection",
            start,
            end: start + timeline.started().elapsed(),
            is_failed: false,
        };
        let failure = match end {
            ConnectionEnd::HandshakeFailed(outcome) => Some(outcome.name()),
            _ => None,
        };
        let finished = timeline.offset(Milestone::HandshakeFinished);
        let whole_end = whole.end;
        whole.append(buffer, |span| {
            let mut attributes = Attributes::new(span, 9);
            attributes.connection(connection);
            attributes.number("brisk.connection.requests", connection.requests.into());
            attributes.number("network.io.received", connection.bytes_received);
            attributes.number("network.io.sent", connection.bytes_sent);
            attributes.text("brisk.connection.end", end.reason());
        });
        if connection.listener() != Listening::Https || (finished.is_none() && failure.is_none()) {
            return;
        }
        let facts = connection.tls.as_deref();
        let before = finished.zip(facts).map(|(end, facts)| end.saturating_sub(facts.handshake_time));
        let span = Span {
            trace: ids.trace,
            id: self.random.hash_one((connection.id, 3_u8)).max(1),
            parent: Some(ids.id),
            kind: INTERNAL,
            name: "TLS handshake",
            start: start + before.unwrap_or_default(),
            end: finished.map_or(whole_end, |end| start + end),
            is_failed: failure.is_some(),
        };
        span.append(buffer, |span| {
            let mut attributes = Attributes::new(span, 9);
            if let Some(facts) = facts {
                attributes.tls(facts);
            }
            if let Some(failure) = failure {
                attributes.text("error.type", failure);
            }
        });
    }

    /// The IDs of a connection's span.
    fn of_connection(&self, connection: u64) -> RequestSpan {
        // W3C Trace Context: an ID of zeros is invalid.
        let hash = |number: u8| self.random.hash_one((connection, number)).max(1);
        let trace = u128::from(hash(0)) << 64 | u128::from(hash(1));
        RequestSpan { trace, parent: None, id: hash(2), upstream: 0, is_sampled: true }
    }
}

impl Span<'_> {
    /// Appends the span with the fields that `more` appends.
    fn append(&self, buffer: &mut Vec<u8>, more: impl FnOnce(&mut Vec<u8>)) {
        message(buffer, RECORDS, |span| {
            bytes(span, 1, &self.trace.to_be_bytes());
            bytes(span, 2, &self.id.to_be_bytes());
            if let Some(parent) = self.parent {
                bytes(span, 4, &parent.to_be_bytes());
            }
            bytes(span, 5, self.name.as_bytes());
            number(span, 6, self.kind);
            fixed64(span, 7, nanoseconds(self.start));
            fixed64(span, 8, nanoseconds(self.end));
            more(span);
            if self.is_failed {
                // `STATUS_CODE_ERROR`.
                message(span, 15, |status| number(status, 3, 2));
            }
            fixed32(span, 16, SAMPLED);
        });
    }
}

/// Appends the log record of a line, which `line` appends with a line feed.
pub(crate) fn log_record(buffer: &mut Vec<u8>, event: Event<'_>, line: impl FnOnce(&mut Vec<u8>)) {
    let (severity, name) = severity(event);
    message(buffer, RECORDS, |record| {
        fixed64(record, 1, nanoseconds(SystemTime::now()));
        number(record, 2, severity);
        bytes(record, 3, name.as_bytes());
        message(record, 5, |body| {
            message(body, 1, |text| {
                line(text);
                text.pop();
            });
        });
        let mut attributes = Attributes::new(record, 6);
        match event {
            Event::Request(request) => attributes.request(request),
            Event::Handshake(connection, outcome) => {
                attributes.text("error.type", outcome.name());
                attributes.connection(connection);
            }
            Event::Malformed(malformed, _) => {
                attributes.text("error.type", malformed.reason.name());
                attributes.number("http.response.status_code", malformed.status.into());
                attributes.connection(malformed.connection);
            }
            Event::Stream(stream) => attributes.stream(stream),
        }
        if let Event::Request(RequestRecord { trace: Some(trace), .. }) = event {
            fixed32(record, 8, if trace.is_sampled { SAMPLED } else { 0 });
            bytes(record, 9, &trace.trace.to_be_bytes());
            bytes(record, 10, &trace.id.to_be_bytes());
        }
        bytes(record, 12, format!("brisk.{}", event.name()).as_bytes());
    });
}

/// `severity_number` and `severity_text`.
fn severity(event: Event<'_>) -> (u64, &'static str) {
    match event {
        Event::Request(request)
            if request.status >= 500 || request.error_side.is_some_and(|side| side != Side::Client) =>
        {
            (17, "ERROR")
        }
        Event::Stream(stream) if stream.end.side().is_some_and(|side| side != Side::Client) => (17, "ERROR"),
        Event::Request(_) | Event::Stream(_) => (9, "INFO"),
        Event::Handshake(..) | Event::Malformed(..) => (13, "WARN"),
    }
}

/// The body of an export request with these log records or spans.
pub(crate) fn export_request(settings: &OtlpSettings, records: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(records.len() + 512);
    message(&mut body, 1, |signals| {
        message(signals, 1, |resource| {
            let mut attributes = Attributes::new(resource, 1);
            attributes.text("service.name", &settings.service_name);
            attributes.text("service.version", env!("CARGO_PKG_VERSION"));
            attributes.text("host.name", rustix::system::uname().nodename().to_str().unwrap_or_default());
            attributes.number("process.pid", process::id().into());
        });
        message(signals, 2, |scope| {
            message(scope, 1, |scope| {
                bytes(scope, 1, b"brisk");
                bytes(scope, 2, env!("CARGO_PKG_VERSION").as_bytes());
            });
            scope.extend_from_slice(records);
            bytes(scope, 3, SCHEMA.as_bytes());
        });
    });
    body
}

/// The number of log records or spans that a response reports as rejected (`partial_success`).
pub(crate) fn rejected(response: &[u8]) -> u64 {
    let partial = field(response, 1 << 3 | 2).and_then(|rest| {
        let (length, size) = read_varint(rest)?;
        rest.get(size..size.checked_add(usize::try_from(length).ok()?)?)
    });
    let count = partial.and_then(|partial| read_varint(field(partial, 1 << 3)?));
    count.map_or(0, |(count, _)| count)
}

/// The content of a message that begins with this tag: the only field of a response, and the first one of its message.
fn field(message: &[u8], tag: u8) -> Option<&[u8]> {
    message.split_first().filter(|(first, _)| **first == tag).map(|(_, rest)| rest)
}

/// The length of the record at the start of `rest`, with its tag; `None` if the record is incomplete.
pub(crate) fn record_length(rest: &[u8]) -> Option<usize> {
    let (length, size) = read_varint(rest.get(1..)?)?;
    usize::try_from(length).ok()?.checked_add(1 + size)
}

fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The path of a signal below the endpoint.
impl OtlpSignal {
    /// `v1/logs` or `v1/traces`.
    pub fn path(self) -> &'static str {
        match self {
            Self::Logs => "v1/logs",
            Self::Traces => "v1/traces",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_log::tests::{connection, request};
    use crate::settings::{ExportHeaders, OtlpSignal};

    fn spans(share: Option<f64>) -> Spans {
        Spans::new(&OtlpSettings {
            endpoint: "http://127.0.0.1:4318".to_owned(),
            signal: OtlpSignal::Traces,
            service_name: "brisk".to_owned(),
            sample: share.and_then(Sample::new),
            ca: None,
            headers: ExportHeaders(vec![("key".to_owned(), "secret".to_owned())]),
            timeout: Duration::from_secs(1),
        })
    }

    /// The number of records, which must be all of the buffer.
    fn records(buffer: &[u8]) -> usize {
        let (mut at, mut count) = (0, 0);
        while at < buffer.len() {
            at += record_length(&buffer[at..]).expect("a length");
            count += 1;
        }
        assert_eq!(at, buffer.len());
        count
    }

    #[test]
    fn only_recorded_requests_have_spans() {
        let (connection, spans) = (connection(), spans(None));
        let place = RequestSpan { trace: 1, parent: Some(2), id: 3, upstream: 4, is_sampled: true };
        for (trace, upstream_start, expected) in [
            (None, None, 0),
            (Some(RequestSpan { is_sampled: false, ..place }), Some(Duration::ZERO), 0),
            (Some(place), None, 1),
            (Some(place), Some(Duration::ZERO), 2),
        ] {
            let mut buffer = Vec::new();
            spans.request(&mut buffer, &RequestRecord { upstream_start, trace, ..request(&connection) });
            assert_eq!(records(&buffer), expected);
        }
    }

    #[test]
    fn a_share_of_the_traces_is_recorded() {
        let spans = spans(Some(0.25));
        let chosen = (0..4000).filter(|number| spans.samples(spans.of_connection(*number).trace)).count();
        assert!((800..1200).contains(&chosen), "{chosen} of 4000");
    }

    #[test]
    fn rejected_records_of_a_response_are_counted() {
        assert_eq!(rejected(b""), 0);
        // `partial_success` with `rejected_spans = 300` and an error message.
        assert_eq!(rejected(&[0x0a, 6, 0x08, 0xac, 2, 0x12, 1, b'x']), 300);
        assert_eq!(rejected(&[0x0a, 3, 0x12, 1, b'x']), 0);
        for incomplete in [&[0x0a][..], &[0x0a, 9, 0x08], &[0x0a, 2, 0x08, 0xff], &[0xff; 20]] {
            assert_eq!(rejected(incomplete), 0);
        }
    }

    /// The sum of such a length and of its own bytes used to overflow, which ended the thread of the output.
    #[test]
    fn the_largest_lengths_are_incomplete() {
        let length = [0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(rejected(&length), 0);
        assert_eq!(record_length(&length), None);
    }

    #[test]
    fn no_header_of_exports_is_shown() {
        let settings = ExportHeaders(vec![("key".to_owned(), "secret".to_owned())]);
        assert_eq!(format!("{settings:?}"), "[\"key\"]");
    }
}
