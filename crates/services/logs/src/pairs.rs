//! Fields as pairs of a key and a value in printable ASCII: after the combined format, in structured data, in the journal.

use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use crate::clock;
use crate::fields::Fields;
use crate::text::{escape, push_number};

/// A line that takes [`Fields`] in the form of the [`Style`] `S`.
#[derive(Debug)]
pub(crate) struct Pairs<'a, S> {
    line: &'a mut Vec<u8>,
    style: S,
}

/// Form of a pair. The value between the two calls is printable ASCII without quotes and backslashes, except those of
/// [`escape`].
pub(crate) trait Style {
    /// Appends everything before a value. `is_quoted`: the value may contain spaces.
    fn begin(&self, line: &mut Vec<u8>, key: &str, is_quoted: bool);

    /// Appends everything after a value that begins at `value`; the pair begins at `pair`.
    fn end(&self, line: &mut Vec<u8>, pair: usize, value: usize, is_quoted: bool);
}

/// ` key=value` or ` key="value"`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tail;

impl Style for Tail {
    fn begin(&self, line: &mut Vec<u8>, key: &str, is_quoted: bool) {
        line.push(b' ');
        line.extend_from_slice(key.as_bytes());
        line.extend_from_slice(if is_quoted { b"=\"" } else { b"=" });
    }

    fn end(&self, line: &mut Vec<u8>, _pair: usize, _value: usize, is_quoted: bool) {
        if is_quoted {
            line.push(b'"');
        }
    }
}

impl<'a, S: Style> Pairs<'a, S> {
    pub(crate) fn new(line: &'a mut Vec<u8>, style: S) -> Self {
        Self { line, style }
    }

    fn pair(&mut self, key: &str, is_quoted: bool, value: impl FnOnce(&mut Vec<u8>)) {
        let pair = self.line.len();
        self.style.begin(self.line, key, is_quoted);
        let start = self.line.len();
        value(self.line);
        self.style.end(self.line, pair, start, is_quoted);
    }

    /// Several values in one, each appended by `append`.
    fn joined<T>(
        &mut self,
        key: &str,
        separator: &[u8],
        values: impl Iterator<Item = T>,
        append: impl Fn(&mut Vec<u8>, T),
    ) {
        self.pair(key, true, |line| {
            for (place, value) in values.enumerate() {
                line.extend_from_slice(if place > 0 { separator } else { b"" });
                append(line, value);
            }
        });
    }
}

impl<S: Style> Fields for Pairs<'_, S> {
    fn text(&mut self, key: &'static str, value: &[u8]) {
        self.pair(key, true, |line| escape(line, value));
    }

    fn word(&mut self, key: &'static str, value: &str) {
        self.pair(key, false, |line| line.extend_from_slice(value.as_bytes()));
    }

    fn address(&mut self, key: &'static str, value: IpAddr) {
        // Writing to a vector cannot fail.
        self.pair(key, false, |line| drop(write!(line, "{value}")));
    }

    fn number(&mut self, key: &'static str, value: u64) {
        self.pair(key, false, |line| push_number(line, value));
    }

    fn time(&mut self, key: &'static str, value: SystemTime) {
        self.pair(key, false, |line| clock::rfc3339_micros(line, value));
    }

    fn numbers(&mut self, key: &'static str, values: impl Iterator<Item = (&'static str, u64)>) {
        self.joined(key, b" ", values, |line, (name, value)| {
            line.extend_from_slice(name.as_bytes());
            line.push(b'=');
            push_number(line, value);
        });
    }

    fn texts(&mut self, key: &'static str, values: &[(Arc<str>, Arc<str>)]) {
        self.joined(key, b"; ", values.iter(), |line, (name, text)| {
            line.extend_from_slice(name.as_bytes());
            line.extend_from_slice(b": ");
            escape(line, text.as_bytes());
        });
    }
}
