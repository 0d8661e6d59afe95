//! Heads of requests, written before they are sent, and heads of responses.

use brisk_report::text::{printable, printable_value};
use brisk_wire::fields::{Fields, Name};
use brisk_wire::h3::frame::{self, FrameHead, kind};
use brisk_wire::h3::qpack::{self, CONSTANTS, Decoder};
use bytes::Bytes;

use crate::response::{Response, number};

/// Maximum size of a head: bytes of its fields with their overhead, and their number.
const SIZE: usize = 64 << 10;
const FIELDS: usize = 256;

/// The fields of a response that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptFields {
    /// None; the status is always kept.
    None,
    /// All, as text.
    All,
}

/// A request as `HEADERS` and `DATA` frames of its stream. A clone shares the [`Bytes`].
#[derive(Clone, Debug)]
pub struct EncodedRequest {
    pub(super) bytes: Bytes,
    /// Whether the method is `HEAD`, whose response has no body.
    pub(super) is_head: bool,
}

/// The head of a request.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    /// Method.
    pub method: &'a str,
    /// `https`.
    pub scheme: &'a str,
    /// Host, with the port unless it is the default.
    pub authority: &'a str,
    /// Path and query; begins with a slash.
    pub path: &'a str,
}

impl RequestHead<'_> {
    /// A request with `fields`, whose names are in lower case, and with `body`: one `HEADERS` frame, and one `DATA` frame
    /// unless `body` is empty.
    pub fn encode<'f>(
        &self,
        fields: impl IntoIterator<Item = (&'f [u8], &'f [u8])>,
        body: &[u8],
    ) -> EncodedRequest {
        let mut out = Vec::new();
        let at = frame::begin(kind::HEADERS, &mut out);
        qpack::begin(&mut out);
        let Self { method, scheme, authority, path } = self;
        let pseudo = [(":method", method), (":scheme", scheme), (":authority", authority), (":path", path)];
        for (name, value) in pseudo {
            qpack::field(name.as_bytes(), value.as_bytes(), &mut out);
        }
        for (name, value) in fields {
            qpack::field(name, value, &mut out);
        }
        frame::end(at, &mut out);
        if !body.is_empty() {
            FrameHead { kind: kind::DATA, length: body.len() as u64 }.write(&mut out);
            out.extend_from_slice(body);
        }
        EncodedRequest { bytes: out.into(), is_head: *method == "HEAD" }
    }
}

/// Reads a field section into `response`. Returns the length that `content-length` states.
pub(super) fn read(
    section: &[u8],
    decoder: &mut Decoder,
    kept_fields: KeptFields,
    response: &mut Response,
) -> Result<Option<u64>, String> {
    let mut fields = ResponseFields { kept_fields, response, length: None };
    let decoded = decoder.decode(section, FIELDS, SIZE, &mut fields).map_err(|error| error.to_string())?;
    if !decoded.is_whole {
        return Err(format!("its head has more than {FIELDS} fields or {SIZE} bytes"));
    }
    Ok(fields.length)
}

struct ResponseFields<'a> {
    kept_fields: KeptFields,
    response: &'a mut Response,
    length: Option<u64>,
}

#[derive(Clone)]
enum Line {
    Status(u16),
    Length(Option<u64>, Option<(String, String)>),
    Other(Option<(String, String)>),
}

impl ResponseFields<'_> {
    fn line(&self, name: &[u8], value: &[u8]) -> Line {
        let text = || String::from_utf8_lossy(value);
        let kept = || {
            let name = printable(&String::from_utf8_lossy(name));
            (self.kept_fields == KeptFields::All).then(|| (name, printable_value(&text())))
        };
        match name {
            // An invalid status becomes 0, which `Exchange::head` refuses.
            b":status" => Line::Status(number(value).unwrap_or_default()),
            b"content-length" => Line::Length(number(value), kept()),
            _ if self.kept_fields == KeptFields::None => Line::Other(None),
            _ => Line::Other(kept()),
        }
    }
}

impl Fields for ResponseFields<'_> {
    type Field = Line;

    fn constant(&mut self, index: usize) -> Line {
        let (name, value) = CONSTANTS[index];
        self.line(name.as_bytes(), value.as_bytes())
    }

    fn literal(&mut self, name: Name<'_, Line>, value: &[u8]) -> Line {
        match name {
            Name::Constant(index) => self.line(CONSTANTS[index].0.as_bytes(), value),
            // A name of the dynamic table, which has no capacity.
            Name::Of(_) => Line::Other(None),
            Name::New(name) => self.line(name, value),
        }
    }

    fn take(&mut self, field: Line) {
        let kept = match field {
            Line::Status(status) => {
                self.response.status = status;
                None
            }
            Line::Length(length, kept) => {
                self.length = length;
                kept
            }
            Line::Other(kept) => kept,
        };
        self.response.headers.extend(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_a_head_and_one_frame_with_its_body() {
        let head = RequestHead { method: "POST", scheme: "https", authority: "a.test", path: "/b" };
        let bytes = head.encode([(&b"x-a"[..], &b"1"[..])], b"hello").bytes;
        let body = [0, 5, b'h', b'e', b'l', b'l', b'o'];
        assert!(bytes.ends_with(&body), "{bytes:?}");
        let section = &bytes[3..bytes.len() - body.len()];
        assert_eq!(usize::from(u16::from_be_bytes([bytes[1], bytes[2]]) & 0x3fff), section.len());
        let mut response = Response::default();
        read(section, &mut Decoder::default(), KeptFields::All, &mut response).expect("fields");
        let wanted = [
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", "a.test"),
            (":path", "/b"),
            ("x-a", "1"),
        ];
        assert_eq!(response.headers, wanted.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn status_and_length_are_read_without_keeping_the_fields() {
        let mut section = Vec::new();
        qpack::begin(&mut section);
        qpack::status(404, &mut section);
        qpack::field(b"content-length", b"12", &mut section);
        let mut response = Response::default();
        let length = read(&section, &mut Decoder::default(), KeptFields::None, &mut response);
        assert_eq!((length, response.status, response.headers.len()), (Ok(Some(12)), 404, 0));
        section.clear();
        qpack::begin(&mut section);
        qpack::field(b":status", b"+200", &mut section);
        qpack::field(b"content-length", b"+12", &mut section);
        let length = read(&section, &mut Decoder::default(), KeptFields::None, &mut response);
        assert_eq!((length, response.status), (Ok(None), 0), "numbers have no sign");
    }
}
