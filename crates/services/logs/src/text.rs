//! Lines as text: the combined log format of Apache and nginx, then `key=value` fields.

use std::io::Write;
use std::net::SocketAddr;
use std::time::SystemTime;

use brisk_telemetry::{ConnectionRecord, HandshakeOutcome, MalformedRecord, RequestRecord, StreamRecord};

use crate::clock;
use crate::event::Event;
use crate::fields;
use crate::pairs::{Pairs, Tail};

/// Appends a line.
pub(crate) fn line(line: &mut Vec<u8>, event: Event<'_>, has_milestones: bool) {
    match event {
        Event::Request(record) => request(line, record, has_milestones),
        Event::Handshake(record, outcome) => handshake(line, record, outcome, has_milestones),
        Event::Malformed(record, suppressed) => malformed(line, record, suppressed),
        Event::Stream(record) => stream(line, record, has_milestones),
    }
}

/// Appends the line of a [`RequestRecord`].
fn request(line: &mut Vec<u8>, request: &RequestRecord<'_>, has_milestones: bool) {
    start(line, request.client, request.user);
    line.extend_from_slice(b" \"");
    escape(line, request.method.as_bytes());
    line.push(b' ');
    escape(line, request.path.as_bytes());
    line.push(b' ');
    line.extend_from_slice(request.version.name().as_bytes());
    line.extend_from_slice(b"\" ");
    push_status(line, request.status);
    line.push(b' ');
    push_number(line, request.bytes_sent);
    push_header(line, request.referer);
    push_header(line, request.user_agent);
    fields::request(&mut Pairs::new(line, Tail), request);
    if has_milestones {
        fields::milestones(&mut Pairs::new(line, Tail), request.connection);
    }
    line.push(b'\n');
}

/// Appends the line of a handshake that failed: a request line of `-` with status `000`, so that log tools skip it.
fn handshake(
    line: &mut Vec<u8>,
    connection: &ConnectionRecord,
    outcome: HandshakeOutcome,
    has_milestones: bool,
) {
    start(line, connection.client, None);
    line.extend_from_slice(b" \"-\" 000 0 \"-\" \"-\"");
    fields::handshake(&mut Pairs::new(line, Tail), connection, outcome);
    if has_milestones {
        fields::milestones(&mut Pairs::new(line, Tail), connection);
    }
    line.push(b'\n');
}

/// Appends the line of a malformed request, with the excerpt in place of the request line.
fn malformed(line: &mut Vec<u8>, request: &MalformedRecord<'_>, suppressed: u64) {
    start(line, request.connection.client, None);
    push_header(line, Some(request.excerpt));
    line.push(b' ');
    push_status(line, request.status);
    line.extend_from_slice(b" 0 \"-\" \"-\"");
    fields::malformed(&mut Pairs::new(line, Tail), request, suppressed);
    line.push(b'\n');
}

/// Appends the line of a TCP connection: a request line of `-` with status `000`, and the bytes sent to the client.
fn stream(line: &mut Vec<u8>, stream: &StreamRecord<'_>, has_milestones: bool) {
    start(line, stream.connection.client, None);
    line.extend_from_slice(b" \"-\" 000 ");
    push_number(line, stream.bytes_sent);
    line.extend_from_slice(b" \"-\" \"-\"");
    fields::stream(&mut Pairs::new(line, Tail), stream);
    if has_milestones {
        fields::milestones(&mut Pairs::new(line, Tail), stream.connection);
    }
    line.push(b'\n');
}

/// `203.0.113.7 - - [21/Nov/2025:02:22:10 +0000]`, with the user in place of the second `-`.
fn start(line: &mut Vec<u8>, client: SocketAddr, user: Option<&str>) {
    // Writing to a vector cannot fail.
    let _ = write!(line, "{} - ", client.ip());
    // No quotes surround the name, so a space would end it.
    for (index, word) in user.unwrap_or("-").split(' ').enumerate() {
        line.extend_from_slice(if index > 0 { b"\\x20" } else { b"" });
        // The client chooses the user name: a quote or line feed in it must not forge a line.
        escape(line, word.as_bytes());
    }
    line.extend_from_slice(b" [");
    clock::common(line, SystemTime::now());
    line.push(b']');
}

pub(crate) fn push_status(line: &mut Vec<u8>, status: u16) {
    let digit = |power: u16| b'0' + (status / power % 10) as u8;
    line.extend_from_slice(&[digit(100), digit(10), digit(1)]);
}

pub(crate) fn push_number(line: &mut Vec<u8>, value: u64) {
    line.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

fn push_header(line: &mut Vec<u8>, value: Option<&[u8]>) {
    line.extend_from_slice(b" \"");
    match value {
        Some(value) if !value.is_empty() => escape(line, value),
        _ => line.push(b'-'),
    }
    line.push(b'"');
}

/// Appends `value` escaped so that it can neither end a quoted string or a line nor send control characters to a
/// terminal: quotes, backslashes and bytes outside printable ASCII become `\xHH`, as in nginx.
pub(crate) fn escape(line: &mut Vec<u8>, value: &[u8]) {
    let plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    // Nearly all values are plain and are copied at once.
    if value.iter().all(plain) {
        return line.extend_from_slice(value);
    }
    for byte in value {
        if plain(byte) {
            line.push(*byte);
        } else {
            let digit = |nibble: u8| b"0123456789ABCDEF"[usize::from(nibble)];
            line.extend_from_slice(&[b'\\', b'x', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}
