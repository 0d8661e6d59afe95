//! Encoder of responses to clients: the head, and the framing of the body.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version, header};

use super::request_head::RequestHead;
use crate::claims;
use crate::message::HeaderList;

/// Properties of a request that determine the form of its response.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// The method is `HEAD`: the response has no body (RFC 9110 section 9.3.2).
    pub is_head: bool,
    /// The version is HTTP/1.0: the response must not be chunked (RFC 9112 section 6.1).
    pub is_old: bool,
    /// The client accepts trailers (RFC 9110 section 6.5.1).
    pub takes_trailers: bool,
}

impl Asked {
    /// Assumptions about a request that is not valid.
    pub const UNKNOWN: Self = Self { is_head: false, is_old: false, takes_trailers: false };

    /// Properties of the request with this head.
    pub fn by(head: &RequestHead) -> Self {
        Self {
            is_head: head.request.method() == Method::HEAD,
            is_old: head.request.version() == Version::HTTP_10,
            takes_trailers: head.takes_trailers,
        }
    }
}

/// Length of a body, as far as known before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// No body.
    None,
    /// Length in bytes.
    Known(u64),
    /// Unknown length.
    Unknown,
}

/// Framing of a response body, and its state.
#[derive(Debug, PartialEq, Eq)]
pub enum Framing {
    /// Remaining bytes of the announced length.
    Length(u64),
    /// Chunked, with trailers if the client accepts them.
    Chunked {
        /// Whether the client accepts trailers (RFC 9110 section 10.1.4).
        takes_trailers: bool,
    },
    /// All bytes until the connection is closed.
    UntilClose,
}

/// Result of writing a head.
#[derive(Debug, PartialEq, Eq)]
pub struct Written {
    /// Framing of the body that follows.
    pub framing: Framing,
    /// Whether the connection has to be closed after the response.
    pub closes: bool,
}

/// Writes the head of a response to `output`. `closes` marks the last response of a connection.
pub fn write_head(
    output: &mut Vec<u8>,
    (status, headers): (StatusCode, &HeaderList),
    extent: Extent,
    asked: Asked,
    closes: bool,
    date: &str,
) -> Written {
    status_line(output, status, asked.is_old);
    let may_have_body = !asked.is_head && may_have_length(status);
    let mut head = Head { output, extent, asked, may_have_body, length: None, date: false, closes: false };
    for (name, value) in headers {
        head.line(name, value);
    }
    let Head { length, date: has_date, closes: says_close, .. } = head;
    // RFC 9112 section 9.6. Not for HTTP/1.0, which closes by default.
    if closes && !says_close && !asked.is_old && status != StatusCode::SWITCHING_PROTOCOLS {
        output.extend_from_slice(b"connection: close\r\n");
    }
    let framing = match (length, extent) {
        (Some(length), _) => Framing::Length(length),
        (None, Extent::None | Extent::Known(0)) => {
            if may_have_body {
                output.extend_from_slice(b"content-length: 0\r\n");
            }
            Framing::Length(0)
        }
        (None, Extent::Known(length)) => {
            // RFC 9110 section 8.6: the response to `HEAD` has the length of the response to `GET`.
            if may_have_length(status) {
                write_length(output, length);
            }
            Framing::Length(length)
        }
        // RFC 9112 section 6.1: HTTP/1.0 has no transfer codings.
        (None, Extent::Unknown) if asked.is_old => Framing::UntilClose,
        (None, Extent::Unknown) => {
            if may_have_body {
                output.extend_from_slice(b"transfer-encoding: chunked\r\n");
            }
            Framing::Chunked { takes_trailers: asked.takes_trailers }
        }
    };
    let framing = if may_have_body { framing } else { Framing::Length(0) };
    let closes = closes || says_close || framing == Framing::UntilClose;
    // RFC 9112 section 9.3: a connection over HTTP/1.0 persists only if this is stated.
    if asked.is_old && !closes {
        output.extend_from_slice(b"connection: keep-alive\r\n");
    }
    // RFC 9110 section 6.6.1
    if !has_date {
        for part in ["date: ", date, "\r\n"] {
            output.extend_from_slice(part.as_bytes());
        }
    }
    output.extend_from_slice(b"\r\n");
    Written { framing, closes }
}

/// Writes an interim response to `output` (RFC 9110 section 15.2). `headers` must not contain hop-by-hop headers.
pub fn write_interim(output: &mut impl Extend<u8>, status: StatusCode, headers: &HeaderList) {
    let mut head = Vec::new();
    status_line(&mut head, status, false);
    for (name, value) in headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    head.extend_from_slice(b"\r\n");
    output.extend(head);
}

/// Head being written.
struct Head<'a> {
    output: &'a mut Vec<u8>,
    extent: Extent,
    asked: Asked,
    may_have_body: bool,
    /// Length already written.
    length: Option<u64>,
    date: bool,
    closes: bool,
}

impl Head<'_> {
    fn line(&mut self, name: &HeaderName, value: &HeaderValue) {
        match *name {
            header::CONTENT_LENGTH => return self.length(value),
            // The framing depends on the client's version, so the service's own field is dropped.
            header::TRANSFER_ENCODING => return,
            header::CONNECTION => {
                self.closes |= tokens(value).any(|option| option.eq_ignore_ascii_case(b"close"));
            }
            header::DATE => self.date = true,
            // The trailers that it names do not follow.
            header::TRAILER if !self.asked.takes_trailers || self.asked.is_old || !self.may_have_body => {
                return;
            }
            _ => {}
        }
        let (name, value) = (name.as_str().as_bytes(), value.as_bytes());
        self.output.reserve(name.len() + value.len() + 4);
        self.output.extend_from_slice(name);
        self.output.extend_from_slice(b": ");
        self.output.extend_from_slice(value);
        self.output.extend_from_slice(b"\r\n");
    }

    /// Writes a length once, and only if it is that of the body, or for `HEAD` that of the response to `GET`.
    fn length(&mut self, value: &HeaderValue) {
        let stated = || value.to_str().ok().and_then(|digits| digits.parse().ok());
        let length = match self.extent {
            Extent::Known(length) => Some(length),
            Extent::Unknown => stated(),
            Extent::None if self.asked.is_head => stated(),
            Extent::None => None,
        };
        if let (None, Some(length)) = (self.length, length) {
            self.length = Some(length);
            write_length(self.output, length);
        }
    }
}

fn status_line(output: &mut Vec<u8>, status: StatusCode, is_old: bool) {
    if status == StatusCode::OK && !is_old {
        return output.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    let version = if is_old { "HTTP/1.0 " } else { "HTTP/1.1 " };
    // Many clients expect a reason phrase, which RFC 9112 section 4 makes optional.
    for part in [version, status.as_str(), " ", status.canonical_reason().unwrap_or("<none>"), "\r\n"] {
        output.extend_from_slice(part.as_bytes());
    }
}

fn write_length(output: &mut Vec<u8>, length: u64) {
    output.extend_from_slice(b"content-length: ");
    output.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    output.extend_from_slice(b"\r\n");
}

/// Whether a response may have `Content-Length` (RFC 9110 section 8.6). Not in `304`, as section 15.4.5 recommends.
fn may_have_length(status: StatusCode) -> bool {
    !status.is_informational() && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
}

fn tokens(value: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

impl Framing {
    /// Whether nothing more may be sent.
    pub fn is_ended(&self) -> bool {
        *self == Self::Length(0)
    }

    /// Frames `length` bytes of data (not 0); `last` marks the end of the body. Writes the bytes before the data to
    /// `output`. Returns the number of data bytes to send, and the bytes after them.
    pub fn data(&mut self, length: usize, last: bool, output: &mut Vec<u8>) -> (usize, &'static [u8]) {
        match self {
            Self::UntilClose => (length, b""),
            // Excess bytes are dropped: the client would parse them as the next response.
            Self::Length(left) => {
                let length = usize::try_from(*left).unwrap_or(usize::MAX).min(length);
                *left -= length as u64;
                (length, b"")
            }
            Self::Chunked { .. } => {
                write_size(output, length);
                if !last {
                    return (length, b"\r\n");
                }
                // The end of the body is in the same write as its last data, so that the client need not wait
                // for the end.
                *self = Self::Length(0);
                (length, b"\r\n0\r\n\r\n")
            }
        }
    }

    /// Writes the end of the body to `output`, with `trailers` except for fields that belong to the head (RFC 9110 section 6.5.1). A
    /// `Trailer` header is not required (section 6.6.2).
    ///
    /// # Errors
    ///
    /// [`Incomplete`] if bytes of the announced length are missing.
    pub fn end(&self, trailers: Option<&HeaderMap>, output: &mut Vec<u8>) -> Result<(), Incomplete> {
        match self {
            Self::Length(0) | Self::UntilClose => {}
            Self::Length(_) => return Err(Incomplete),
            Self::Chunked { takes_trailers } => {
                output.extend_from_slice(b"0\r\n");
                let trailers = trailers.filter(|_| *takes_trailers).into_iter().flatten();
                for (name, value) in trailers.filter(|(name, _)| claims::may_be_trailer(name)) {
                    for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                        output.extend_from_slice(part);
                    }
                }
                output.extend_from_slice(b"\r\n");
            }
        }
        Ok(())
    }
}

/// Error: the body is shorter than the length in its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incomplete;

/// Writes the size line of a chunk.
fn write_size(output: &mut Vec<u8>, size: usize) {
    let digits = (usize::BITS - size.leading_zeros()).div_ceil(4).max(1);
    for digit in (0..digits).rev() {
        let digit = (size >> (4 * digit)) & 0xf;
        output.push(b"0123456789abcdef"[digit]);
    }
    output.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: Asked = Asked { is_head: false, is_old: false, takes_trailers: false };
    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn written(
        status: u16,
        lines: &[(&'static str, &'static str)],
        extent: Extent,
        asked: Asked,
        closes: bool,
    ) -> (String, Written) {
        let lines = lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        let headers: HeaderList = lines.collect();
        let status = StatusCode::from_u16(status).expect("a status");
        let mut output = Vec::new();
        let written = write_head(&mut output, (status, &headers), extent, asked, closes, DATE);
        let text = String::from_utf8(output).expect("text");
        let lines = text.strip_suffix("\r\n\r\n").expect("an empty line");
        (lines.replace(&format!("\r\ndate: {DATE}"), ""), written)
    }

    #[track_caller]
    fn head(lines: &[(&'static str, &'static str)], extent: Extent, asked: Asked) -> (String, Framing) {
        let (text, written) = written(200, lines, extent, asked, false);
        (text.split_once("\r\n").map_or(String::new(), |(_, lines)| lines.to_owned()), written.framing)
    }

    fn length(length: u64) -> Framing {
        Framing::Length(length)
    }

    #[test]
    fn a_head_states_how_its_body_ends() {
        for (lines, extent, expected) in [
            (&[][..], Extent::None, ("content-length: 0", length(0))),
            (&[], Extent::Known(5), ("content-length: 5", length(5))),
            (&[("content-length", "5")], Extent::Known(5), ("content-length: 5", length(5))),
            (&[("content-length", "7")], Extent::Unknown, ("content-length: 7", length(7))),
            // There is no body to which it would belong.
            (&[("content-length", "7")], Extent::None, ("content-length: 0", length(0))),
            (&[("transfer-encoding", "gzip")], Extent::Known(5), ("content-length: 5", length(5))),
            (
                &[("x", "y")],
                Extent::Unknown,
                ("x: y\r\ntransfer-encoding: chunked", Framing::Chunked { takes_trailers: false }),
            ),
        ] {
            assert_eq!(head(lines, extent, GET), (expected.0.to_owned(), expected.1), "{lines:?}");
        }
    }

    #[test]
    fn an_answer_without_a_body_has_none_whatever_its_head_says() {
        let asked = Asked { is_head: true, ..GET };
        let lines = &[("content-length", "7")][..];
        assert_eq!(head(lines, Extent::None, asked), ("content-length: 7".to_owned(), length(0)));
        assert_eq!(head(&[], Extent::None, asked), (String::new(), length(0)));
        assert_eq!(head(&[], Extent::Known(3), asked), ("content-length: 3".to_owned(), length(0)));
        assert_eq!(head(&[("trailer", "a")], Extent::Unknown, asked), (String::new(), length(0)));
        for status in [204, 304] {
            for extent in [Extent::None, Extent::Known(3), Extent::Unknown] {
                let (text, written) = written(status, &[], extent, GET, false);
                assert!(!text.contains("length") && !text.contains("chunked"), "{text}");
                assert_eq!(written.framing, length(0));
            }
        }
    }

    #[test]
    fn the_last_answer_says_so() {
        let (text, last) = written(404, &[], Extent::None, GET, true);
        assert_eq!(text, "HTTP/1.1 404 Not Found\r\nconnection: close\r\ncontent-length: 0");
        assert!(last.closes);
        let close = &[("connection", "Close")][..];
        let (text, last) = written(200, close, Extent::None, GET, true);
        assert_eq!(text, "HTTP/1.1 200 OK\r\nconnection: Close\r\ncontent-length: 0");
        assert!(last.closes);
        assert!(written(200, close, Extent::None, GET, false).1.closes);
        let (text, switched) = written(101, &[("connection", "upgrade")], Extent::None, GET, true);
        assert_eq!(text, "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade");
        assert_eq!(switched.framing, length(0));
    }

    #[test]
    fn http_1_0_gets_a_body_until_the_end_of_the_connection() {
        let old = Asked { is_old: true, ..GET };
        let (text, last) = written(200, &[("trailer", "a")], Extent::Unknown, old, true);
        assert_eq!(text, "HTTP/1.0 200 OK");
        assert_eq!(last, Written { framing: Framing::UntilClose, closes: true });
        assert!(written(200, &[], Extent::Unknown, old, false).1.closes);
    }

    #[test]
    fn http_1_0_learns_that_its_connection_persists() {
        let old = Asked { is_old: true, ..GET };
        let (text, next) = written(200, &[], Extent::Known(3), old, false);
        assert_eq!(text, "HTTP/1.0 200 OK\r\ncontent-length: 3\r\nconnection: keep-alive");
        assert_eq!(next, Written { framing: length(3), closes: false });
        assert_eq!(written(200, &[], Extent::Known(3), old, true).0, "HTTP/1.0 200 OK\r\ncontent-length: 3");
    }

    #[test]
    fn an_interim_response_has_a_status_and_its_headers() {
        let headers = [(header::LOCATION, HeaderValue::from_static("/u"))].into_iter().collect();
        let mut output = Vec::new();
        write_interim(&mut output, StatusCode::PROCESSING, &HeaderList::new());
        write_interim(&mut output, StatusCode::from_u16(104).expect("a status"), &headers);
        let expected = "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 104 <none>\r\nlocation: /u\r\n\r\n";
        assert_eq!(String::from_utf8(output).expect("text"), expected);
    }

    #[test]
    fn a_date_that_is_there_stays() {
        let headers = [(header::DATE, HeaderValue::from_static("then"))].into_iter().collect();
        let mut output = Vec::new();
        write_head(&mut output, (StatusCode::OK, &headers), Extent::None, GET, false, DATE);
        assert_eq!(
            String::from_utf8(output).expect("text").matches("date: ").collect::<Vec<_>>(),
            ["date: "]
        );
    }

    #[test]
    fn data_is_framed() {
        let mut output = Vec::new();
        let mut framing = Framing::Length(5);
        assert_eq!(framing.data(3, false, &mut output), (3, &b""[..]));
        assert_eq!(framing.end(None, &mut output), Err(Incomplete));
        assert_eq!(framing.data(3, true, &mut output), (2, &b""[..]), "what exceeds the length stays here");
        assert!(framing.is_ended() && framing.end(None, &mut output).is_ok() && output.is_empty());
        let mut framing = Framing::Chunked { takes_trailers: false };
        for (length, size) in [(1, "1"), (0xf, "f"), (0x10, "10"), (0xabc, "abc"), (0x1_0000, "10000")] {
            output.clear();
            assert_eq!(framing.data(length, false, &mut output), (length, &b"\r\n"[..]));
            assert_eq!(output, format!("{size}\r\n").as_bytes());
        }
        assert_eq!(framing.data(1, true, &mut output), (1, &b"\r\n0\r\n\r\n"[..]));
        assert!(framing.is_ended());
        assert_eq!(Framing::UntilClose.data(9, true, &mut output), (9, &b""[..]));
    }

    #[test]
    fn trailers_are_sent_to_clients_that_accept_them_also_without_announcement() {
        let takes = Asked { takes_trailers: true, ..GET };
        let trailers: HeaderMap = ["a", "host", "set-cookie", "content-length", "transfer-encoding", "c"]
            .map(|name| (HeaderName::from_static(name), HeaderValue::from_static("1")))
            .into_iter()
            .collect();
        let line = &[("trailer", "A")][..];
        for (lines, asked, expected) in [
            (line, takes, ("trailer: A\r\ntransfer-encoding: chunked", "0\r\na: 1\r\nc: 1\r\n\r\n")),
            (&[], takes, ("transfer-encoding: chunked", "0\r\na: 1\r\nc: 1\r\n\r\n")),
            (line, GET, ("transfer-encoding: chunked", "0\r\n\r\n")),
        ] {
            let (head, framing) = head(lines, Extent::Unknown, asked);
            let mut output = Vec::new();
            framing.end(Some(&trailers), &mut output).expect("complete");
            assert_eq!((head.as_str(), String::from_utf8(output).expect("text").as_str()), expected);
        }
    }
}
