//! Lines as JSON objects.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::SystemTime;

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

use super::clock;
use super::fields::{self, Fields};
use crate::display::changes_display;
use crate::outcome::HandshakeOutcome;
use crate::record::{ConnectionRecord, MalformedRecord, RequestRecord};

/// Appends the line of a request.
pub(super) fn request(line: &mut Vec<u8>, request: &RequestRecord<'_>, has_milestones: bool) {
    start(line, "request", request.connection);
    let mut object = Object(line);
    object.text("method", request.method.as_bytes());
    object.text("path", request.path.as_bytes());
    object.word("protocol", request.version.name());
    object.number("status", request.status.into());
    object.number("bytes_sent", request.bytes_sent);
    if let Some(user) = request.user {
        object.text("user", user.as_bytes());
    }
    if let Some(referer) = request.referer {
        object.text("referer", referer);
    }
    if let Some(user_agent) = request.user_agent {
        object.text("user_agent", user_agent);
    }
    fields::request(&mut object, request);
    if has_milestones {
        fields::milestones(&mut object, request.connection);
    }
    line.extend_from_slice(b"}\n");
}

/// Appends the line of a handshake that failed.
pub(super) fn handshake(
    line: &mut Vec<u8>,
    connection: &ConnectionRecord,
    outcome: HandshakeOutcome,
    has_milestones: bool,
) {
    start(line, "handshake", connection);
    fields::handshake(&mut Object(line), connection, outcome);
    if has_milestones {
        fields::milestones(&mut Object(line), connection);
    }
    line.extend_from_slice(b"}\n");
}

/// Appends the line of a malformed request.
pub(super) fn malformed(line: &mut Vec<u8>, request: &MalformedRecord<'_>, suppressed: u64) {
    start(line, "malformed", request.connection);
    let mut object = Object(line);
    object.text("excerpt", request.excerpt);
    object.number("status", request.status.into());
    fields::malformed(&mut object, request, suppressed);
    line.extend_from_slice(b"}\n");
}

fn start(line: &mut Vec<u8>, event: &'static str, connection: &ConnectionRecord) {
    line.extend_from_slice(b"{\"time\":\"");
    clock::rfc3339(line, SystemTime::now());
    line.push(b'"');
    let mut object = Object(line);
    object.word("event", event);
    object.key("client");
    // An address needs no escaping, and writing to a vector cannot fail.
    let _ = write!(object.0, "\"{}\"", connection.client.ip());
    object.number("client_port", connection.client.port().into());
}

/// An object whose first member is written.
struct Object<'a>(&'a mut Vec<u8>);

impl Object<'_> {
    fn key(&mut self, key: &str) {
        self.0.extend_from_slice(b",\"");
        self.0.extend_from_slice(key.as_bytes());
        self.0.extend_from_slice(b"\":");
    }
}

fn string(line: &mut Vec<u8>, value: &str) {
    // A string always serialises, and writing to a vector cannot fail.
    let _ = value.serialize(&mut Serializer::with_formatter(line, Visible));
}

/// Writes characters that change the display of a terminal as escapes.
struct Visible;

impl Formatter for Visible {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        writer: &mut W,
        mut fragment: &str,
    ) -> io::Result<()> {
        while let Some(place) = fragment.find(changes_display) {
            let (before, rest) = fragment.split_at(place);
            writer.write_all(before.as_bytes())?;
            let mut characters = rest.chars();
            for unit in
                characters.next().into_iter().flat_map(|found| found.encode_utf16(&mut [0; 2]).to_vec())
            {
                write!(writer, "\\u{unit:04x}")?;
            }
            fragment = characters.as_str();
        }
        writer.write_all(fragment.as_bytes())
    }
}

impl Fields for Object<'_> {
    /// Bytes that are no UTF-8 become U+FFFD.
    fn text(&mut self, key: &'static str, value: &[u8]) {
        self.key(key);
        let value = String::from_utf8_lossy(value);
        string(self.0, &value);
    }

    fn word(&mut self, key: &'static str, value: &str) {
        self.text(key, value.as_bytes());
    }

    fn number(&mut self, key: &'static str, value: u64) {
        self.key(key);
        self.0.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    fn time(&mut self, key: &'static str, value: SystemTime) {
        self.key(key);
        self.0.push(b'"');
        clock::rfc3339_micros(self.0, value);
        self.0.push(b'"');
    }

    fn numbers(&mut self, key: &'static str, values: impl Iterator<Item = (&'static str, u64)>) {
        self.key(key);
        self.0.push(b'{');
        for (place, (name, value)) in values.enumerate() {
            if place > 0 {
                self.0.push(b',');
            }
            string(self.0, name);
            self.0.push(b':');
            self.0.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        }
        self.0.push(b'}');
    }

    fn texts(&mut self, key: &'static str, values: &[(Arc<str>, Arc<str>)]) {
        self.key(key);
        self.0.push(b'{');
        for (place, (name, text)) in values.iter().enumerate() {
            if place > 0 {
                self.0.push(b',');
            }
            string(self.0, name);
            self.0.push(b':');
            string(self.0, text);
        }
        self.0.push(b'}');
    }
}
