//! Lines as JSON objects.

use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use brisk_telemetry::changes_display;
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

use crate::clock;
use crate::event::Event;
use crate::fields::{self, Fields};

/// Appends a line.
pub(crate) fn line(line: &mut Vec<u8>, event: Event<'_>, has_milestones: bool) {
    line.extend_from_slice(b"{\"time\":\"");
    clock::rfc3339(line, SystemTime::now());
    line.push(b'"');
    fields::all(&mut Object(line), event, has_milestones);
    line.extend_from_slice(b"}\n");
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
            // RFC 8259 section 7: a character outside of the basic plane is written as two surrogates.
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
    /// Bytes that are no UTF-8 become `U+FFFD`.
    fn text(&mut self, key: &'static str, value: &[u8]) {
        self.key(key);
        // Borrows a valid value, so that only invalid ones cost an allocation.
        let value = String::from_utf8_lossy(value);
        string(self.0, &value);
    }

    fn word(&mut self, key: &'static str, value: &str) {
        self.text(key, value.as_bytes());
    }

    fn address(&mut self, key: &'static str, value: IpAddr) {
        self.key(key);
        // An address needs no escaping, and writing to a vector cannot fail.
        let _ = write!(self.0, "\"{value}\"");
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
