//! Lines in a form of the operator: text with variables in braces.

use std::fmt::Display;
use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use brisk_telemetry::{ConnectionRecord, RequestRecord, StreamRecord};

use crate::clock;
use crate::event::Event;
use crate::fields::micros;
use crate::text::{escape, push_number, push_status};

/// Maximum length of a [`LogTemplate`] in bytes, and number of the headers in it.
const LONGEST: usize = 4 << 10;
const MOST_HEADERS: usize = 16;

/// Headers whose values are credentials.
const SECRET: [&str; 3] = ["authorization", "cookie", "proxy-authorization"];

/// The line of a log: text with variables in braces such as `{client.address}`; `{{` is a brace.
///
/// A variable without a value is `-`. Quotes, backslashes and all bytes that are not printable ASCII appear as `\xHH`, so that no
/// client can end a line or a quoted field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogTemplate {
    parts: Box<[Part]>,
    headers: Box<[Box<str>]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(Box<str>),
    Field(Field),
    /// Index of a header of the request.
    Header(usize),
}

/// Defines the variables with their names.
macro_rules! fields {
    ($($variant:ident = $name:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Field {
            $($variant,)*
        }

        const NAMES: &[(&str, Field)] = &[$(($name, Field::$variant),)*];
    };
}

fields! {
    ClientAddress = "client.address",
    ClientPort = "client.port",
    ClientSubject = "client.certificate.subject",
    ServerAddress = "server.address",
    ServerPort = "server.port",
    Connection = "connection",
    ConnectionRequests = "connection.requests",
    User = "user",
    Time = "time",
    CommonTime = "time.common",
    UnixTime = "time.unix",
    Id = "request.id",
    Line = "request.line",
    Method = "request.method",
    Scheme = "request.scheme",
    Host = "request.host",
    Path = "request.path",
    Query = "request.query",
    Target = "request.target",
    Version = "request.version",
    BytesReceived = "request.bytes",
    Trace = "request.trace",
    Status = "response.status",
    BytesSent = "response.bytes",
    Duration = "duration",
    DurationMicros = "duration_us",
    Upstream = "upstream.address",
    UpstreamTime = "upstream.time",
    UpstreamMicros = "upstream.time_us",
    TlsVersion = "tls.version",
    TlsCipher = "tls.cipher",
    TlsServerName = "tls.server_name",
    ClientFingerprint = "tls.client.fingerprint",
    Ja4 = "ja4",
    TlsResumption = "tls.resumption",
    Error = "error",
}

/// The facts of one line.
struct Facts<'a> {
    connection: &'a ConnectionRecord,
    request: Option<&'a RequestRecord<'a>>,
    stream: Option<&'a StreamRecord<'a>>,
    /// Request line as far as it is known.
    excerpt: Option<&'a [u8]>,
    status: u16,
    error: Option<&'a str>,
    duration: Option<Duration>,
}

impl LogTemplate {
    /// Reads a template.
    ///
    /// # Errors
    ///
    /// The reason, with the correction: an unknown variable, a missing closing brace, too many headers, or a text that is
    /// empty, longer than 4 KiB or not printable ASCII.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > LONGEST || !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err("a template is one line of ASCII with at most 4096 characters".to_owned());
        }
        let (mut parts, mut headers) = (Vec::new(), Vec::new());
        let mut literal = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            literal.push_str(before);
            rest = after;
            if let Some(after) = rest.strip_prefix('{') {
                literal.push('{');
                rest = after;
            } else if rest.starts_with(|first: char| first.is_ascii_lowercase()) {
                let (name, after) = rest.split_once('}').ok_or_else(|| {
                    format!("\"{{{rest}\" has no closing brace; write \"{{{{\" for a brace before a letter")
                })?;
                if !literal.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut literal).into()));
                }
                parts.push(part(name, &mut headers)?);
                rest = after;
            } else {
                literal.push('{');
            }
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Text(literal.into()));
        }
        Ok(Self { parts: parts.into(), headers: headers.into() })
    }

    /// Whether a line has JA4 of the client, and the fingerprint of its certificate.
    pub fn fingerprints(&self) -> (bool, bool) {
        let has = |field| self.parts.contains(&Part::Field(field));
        (has(Field::Ja4), has(Field::ClientFingerprint))
    }

    /// Names of the request headers that a line needs, in lower case. [`RequestRecord::headers`] has their values in this order.
    pub fn headers(&self) -> &[Box<str>] {
        &self.headers
    }

    /// The same template with its headers at their places in `headers`, to which missing ones are added.
    pub(crate) fn sharing(&self, headers: &mut Vec<Box<str>>) -> Self {
        let mut shared = |own: usize| {
            let name = &self.headers[own];
            headers.iter().position(|known| known == name).unwrap_or_else(|| {
                headers.push(name.clone());
                headers.len() - 1
            })
        };
        let parts = self.parts.iter().map(|part| match part {
            Part::Header(own) => Part::Header(shared(*own)),
            part => part.clone(),
        });
        Self { parts: parts.collect(), headers: self.headers.clone() }
    }

    /// Appends a line.
    pub(crate) fn line(&self, line: &mut Vec<u8>, event: Event<'_>) {
        self.append(line, &Facts::of(event), "-");
        line.push(b'\n');
    }

    /// Appends the text for `request` without the end of a line. A variable without a value is empty.
    pub(crate) fn value(&self, out: &mut Vec<u8>, request: &RequestRecord<'_>) {
        self.append(out, &Facts::of(Event::Request(request)), "");
    }

    /// Appends the text, with `missing` for each variable without a value.
    fn append(&self, line: &mut Vec<u8>, facts: &Facts<'_>, missing: &str) {
        for part in &self.parts {
            let before = line.len();
            match part {
                Part::Text(text) => {
                    line.extend_from_slice(text.as_bytes());
                    continue;
                }
                Part::Field(field) => facts.append(*field, line),
                Part::Header(index) => {
                    let headers = facts.request.map_or(&[][..], |request| request.headers);
                    if let Some(value) = headers.get(*index).copied().flatten() {
                        // An empty header stays empty, as in nginx.
                        escape(line, value);
                        continue;
                    }
                }
            }
            if line.len() == before {
                line.extend_from_slice(missing.as_bytes());
            }
        }
    }
}

fn part(name: &str, headers: &mut Vec<Box<str>>) -> Result<Part, String> {
    if let Some((_, field)) = NAMES.iter().find(|(known, _)| *known == name) {
        return Ok(Part::Field(*field));
    }
    let Some(header) = name.strip_prefix("request.header.") else {
        let known: Vec<_> = NAMES.iter().map(|(name, _)| format!("{{{name}}}")).collect();
        return Err(format!(
            "{{{name}}} is no variable of the access log; known: {}, {{request.header.NAME}}",
            known.join(", ")
        ));
    };
    let header = header.to_ascii_lowercase();
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if header.is_empty() || !header.bytes().all(is_token) {
        return Err(format!(
            "{{{name}}} lacks the name of a header: write one as {{request.header.referer}}"
        ));
    }
    if SECRET.contains(&header.as_str()) {
        return Err(format!("{{{name}}} would write credentials into the log"));
    }
    if let Some(index) = headers.iter().position(|known| **known == *header) {
        return Ok(Part::Header(index));
    }
    if headers.len() == MOST_HEADERS {
        return Err(format!("more than {MOST_HEADERS} different headers"));
    }
    headers.push(header.into());
    Ok(Part::Header(headers.len() - 1))
}

impl<'a> Facts<'a> {
    fn of(event: Event<'a>) -> Self {
        let none = Self::none(event.connection());
        match event {
            Event::Request(request) => {
                let (status, error, duration) = (request.status, request.error, Some(request.duration));
                Self { request: Some(request), status, error, duration, ..none }
            }
            Event::Handshake(connection, outcome) => {
                let duration = Some(connection.timeline.started().elapsed());
                Self { error: Some(outcome.name()), duration, ..none }
            }
            Event::Malformed(malformed, _) => {
                let error = Some(malformed.reason.name());
                Self { excerpt: Some(malformed.excerpt), status: malformed.status, error, ..none }
            }
            Event::Stream(stream) => {
                let error = stream.end.side().map(|_| stream.end.name());
                Self { stream: Some(stream), error, duration: Some(stream.duration), ..none }
            }
        }
    }

    fn none(connection: &'a ConnectionRecord) -> Self {
        let (request, stream, excerpt, error, duration) = (None, None, None, None, None);
        Self { connection, request, stream, excerpt, status: 0, error, duration }
    }

    fn client(&self) -> SocketAddr {
        self.request.map_or(self.connection.client, |request| request.client)
    }

    /// Appends the value of a variable; nothing if there is none.
    fn append(&self, field: Field, line: &mut Vec<u8>) {
        let tls = self.connection.tls.as_deref();
        let fingerprints = tls.and_then(|tls| tls.fingerprints.as_deref());
        match field {
            Field::ClientAddress => shown(line, self.client().ip().to_canonical()),
            Field::ClientPort => match self.client().port() {
                0 => {}
                port => push_number(line, port.into()),
            },
            Field::ServerAddress => shown(line, self.connection.local.ip().to_canonical()),
            Field::ServerPort => push_number(line, self.connection.local.port().into()),
            Field::Connection => push_number(line, self.connection.id),
            Field::ConnectionRequests => push_number(line, self.connection.requests.into()),
            Field::UnixTime => seconds(line, SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()),
            Field::Time => clock::rfc3339(line, SystemTime::now()),
            Field::CommonTime => clock::common(line, SystemTime::now()),
            Field::Status => push_status(line, self.status),
            Field::Error => text(line, self.error),
            Field::Duration => seconds(line, self.duration),
            Field::DurationMicros => number(line, self.duration.map(micros)),
            Field::ClientSubject => text(line, tls.and_then(|tls| tls.client_subject.as_deref())),
            Field::ClientFingerprint => text(line, fingerprints.and_then(|all| all.certificate.as_deref())),
            Field::Ja4 => text(line, fingerprints.and_then(|all| all.ja4.as_deref())),
            Field::TlsVersion => text(line, tls.and_then(|tls| tls.version.name())),
            Field::TlsCipher => text(line, tls.and_then(|tls| tls.suite.name())),
            Field::TlsServerName => {
                let passed = self.stream.and_then(|stream| stream.server_name);
                text(line, tls.and_then(|tls| tls.server_name.as_deref()).or(passed));
            }
            Field::TlsResumption => text(line, tls.map(|tls| tls.resumption.name())),
            // As in the combined format: no response has no body.
            Field::BytesSent => {
                let of_stream = self.stream.map_or(0, |stream| stream.bytes_sent);
                push_number(line, self.request.map_or(of_stream, |request| request.bytes_sent));
            }
            Field::Line => match (self.request, self.excerpt) {
                (Some(request), _) => {
                    escape(line, request.method.as_bytes());
                    line.push(b' ');
                    escape(line, request.path.as_bytes());
                    line.push(b' ');
                    line.extend_from_slice(request.version.name().as_bytes());
                }
                (None, excerpt) => escape(line, excerpt.unwrap_or_default()),
            },
            _ => {
                if let Some(request) = self.request {
                    of_request(request, field, line);
                }
                if let Some(stream) = self.stream {
                    of_stream(stream, field, line);
                }
            }
        }
    }
}

fn of_request(request: &RequestRecord<'_>, field: Field, line: &mut Vec<u8>) {
    let (path, query) =
        request.path.split_once('?').map_or((request.path, None), |(path, query)| (path, Some(query)));
    match field {
        Field::User => text(line, request.user),
        Field::Id => line.extend_from_slice(&request.id.digits()),
        Field::Method => text(line, Some(request.method)),
        Field::Scheme => text(line, Some(if request.connection.tls.is_some() { "https" } else { "http" })),
        Field::Host => {
            let host = without_port(request.host);
            text(line, Some(&host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()));
        }
        Field::Path => text(line, Some(path)),
        Field::Query => text(line, query),
        Field::Target => text(line, Some(request.path)),
        Field::Version => line.extend_from_slice(request.version.name().as_bytes()),
        Field::BytesReceived => push_number(line, request.bytes_received),
        Field::Trace => {
            if let Some(trace) = request.trace {
                // A vector takes all bytes.
                let _ = write!(line, "{:032x}", trace.trace);
            }
        }
        Field::Upstream => text(line, request.upstream),
        Field::UpstreamTime => seconds(line, request.upstream_time),
        Field::UpstreamMicros => number(line, request.upstream_time.map(micros)),
        _ => {}
    }
}

fn of_stream(stream: &StreamRecord<'_>, field: Field, line: &mut Vec<u8>) {
    match field {
        Field::BytesReceived => push_number(line, stream.bytes_received),
        Field::Upstream => text(line, stream.upstream),
        Field::UpstreamTime => seconds(line, stream.upstream_time),
        Field::UpstreamMicros => number(line, stream.upstream_time.map(micros)),
        _ => {}
    }
}

fn text(line: &mut Vec<u8>, value: Option<&str>) {
    escape(line, value.unwrap_or_default().as_bytes());
}

fn number(line: &mut Vec<u8>, value: Option<u64>) {
    if let Some(value) = value {
        push_number(line, value);
    }
}

/// Seconds with milliseconds, as nginx writes them.
fn seconds(line: &mut Vec<u8>, value: Option<Duration>) {
    if let Some(value) = value {
        // A vector takes all bytes.
        let _ = write!(line, "{}.{:03}", value.as_secs(), value.subsec_millis());
    }
}

fn shown(line: &mut Vec<u8>, value: impl Display) {
    // A vector takes all bytes.
    let _ = write!(line, "{value}");
}

/// The host without its port; an IPv6 address keeps its brackets.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if !name.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access_log::tests::{connection, request, secure_connection};
    use brisk_telemetry::{HandshakeOutcome, MalformedReason, MalformedRecord, RequestSpan};

    const COMBINED: &str = "{client.address} - {user} [{time.common}] \"{request.line}\" {response.status} {response.bytes} \
                            \"{request.header.referer}\" \"{request.header.user-agent}\"";

    fn line(text: &str, request: &RequestRecord<'_>) -> String {
        let mut line = Vec::new();
        LogTemplate::new(text).expect(text).line(&mut line, Event::Request(request));
        String::from_utf8(line).expect("ASCII")
    }

    #[test]
    fn a_line_has_the_values_of_its_variables() {
        let connection = secure_connection();
        let trace = RequestSpan { trace: 0xab, parent: None, id: 1, upstream: 2, is_sampled: true };
        let record = RequestRecord { host: "[::1]:8443", trace: Some(trace), ..request(&connection) };
        for (text, expected) in [
            ("{client.address}:{client.port}", "203.0.113.7:51234"),
            ("{request.method} {request.path} {request.query} {request.target}", "GET /a b=c /a?b=c"),
            ("{request.scheme} {connection.requests}", "https 3"),
            ("{request.host} {request.version} {request.id}", "[::1] HTTP/2.0 0000000000000abc"),
            ("{response.status} {response.bytes} {request.bytes}", "200 1234 5"),
            ("{duration} {duration_us} {upstream.time} {upstream.time_us}", "0.003 3100 0.002 2900"),
            ("{upstream.address} {error} {user}", "http://127.0.0.1:8080 - -"),
            (
                "{tls.version}/{tls.cipher}/{tls.server_name}/{tls.resumption}",
                "TLS 1.3/TLS_AES_128_GCM_SHA256/example.com/full",
            ),
            ("{client.certificate.subject}", "CN=a \\x22b\\x22"),
            ("{request.trace}", "000000000000000000000000000000ab"),
            ("{{request.id} {\"a\":1}", "{request.id} {\"a\":1}"),
        ] {
            assert_eq!(line(text, &record), format!("{expected}\n"), "{text}");
        }
    }

    #[test]
    fn no_client_forges_a_line_or_a_field() {
        let connection = connection();
        let template =
            "\"{request.line}\" \"{request.header.x}\" \"{request.header.y}\" \"{request.header.z}\"";
        let headers = [Some(&b"a\" b\r\n\\\x1b[31m\xff"[..]), None, Some(b"")];
        let record = RequestRecord { path: "/\"", headers: &headers, ..request(&connection) };
        let expected = "\"GET /\\x22 HTTP/2.0\" \"a\\x22 b\\x0D\\x0A\\x5C\\x1B[31m\\xFF\" \"-\" \"\"\n";
        assert_eq!(line(template, &record), expected);
    }

    #[test]
    fn failed_handshakes_and_malformed_requests_have_lines() {
        let connection = connection();
        let template = LogTemplate::new(COMBINED).expect("a template");
        assert_eq!(
            template.headers().iter().map(|name| &**name).collect::<Vec<_>>(),
            ["referer", "user-agent"]
        );
        let mut lines = Vec::new();
        template.line(&mut lines, Event::Handshake(&connection, HandshakeOutcome::TimedOut));
        let excerpt = b"GET /\n";
        let malformed =
            MalformedRecord { connection: &connection, reason: MalformedReason::Head, status: 400, excerpt };
        template.line(&mut lines, Event::Malformed(&malformed, 0));
        let lines = String::from_utf8(lines).expect("ASCII");
        let ends: Vec<_> =
            lines.lines().filter_map(|line| line.split_once("] ")).map(|(_, end)| end).collect();
        assert_eq!(ends, ["\"-\" 000 0 \"-\" \"-\"", "\"GET /\\x0A\" 400 0 \"-\" \"-\""]);
    }

    #[test]
    fn a_wrong_template_is_refused_with_the_correction() {
        let many: Vec<_> = (0..=MOST_HEADERS).map(|number| format!("{{request.header.x{number}}}")).collect();
        let many = many.concat();
        for (text, reason) in [
            ("", "one line of ASCII"),
            ("a\nb", "one line of ASCII"),
            ("{status}", "{status} is no variable of the access log; known: {client.address}"),
            ("{request.header.}", "lacks the name of a header"),
            ("{request.header.Authorization}", "credentials"),
            ("{request.header.cookie}", "credentials"),
            ("{client.address", "has no closing brace"),
            (&many, "more than 16"),
        ] {
            let error = LogTemplate::new(text).expect_err(text);
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
