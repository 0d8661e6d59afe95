//! Parser of request heads, including the framing of the body.

use std::mem::MaybeUninit;

use brisk_telemetry::MalformedReason;
use bytes::{Bytes, BytesMut};
use http::header::InvalidHeaderValue;
use http::uri::Uri;
use http::{HeaderName, HeaderValue, Method, StatusCode, Version, header};
use thiserror::Error;

use super::body::BodyReader;
use super::chunked::Chunked;
use super::shared_head::SharedHead;
use super::{HeadLimits, names, place};
use crate::message::{ADDED, HeaderList, Request};
use crate::target;

/// Number of headers that are parsed without an allocation.
const USUAL_LINES: usize = 100;

/// Maximum length in bytes of a head that is copied to the memory of earlier heads.
const USUAL_SIZE: usize = 4 << 10;

/// Maximum length of a target, in bytes: that of `http::Uri`.
const TARGET: usize = u16::MAX as usize - 1;

/// Connection preface of HTTP/2 (RFC 9113 section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Request head, with its consequences for the body and the connection.
#[derive(Debug)]
pub struct RequestHead {
    /// Method, target, version and headers.
    pub request: Request<()>,
    /// Body that follows.
    pub body: BodyReader,
    /// The client waits for `100 Continue` before it sends the body (RFC 9110 section 10.1.1).
    pub expects_continue: bool,
    /// The client accepts trailers (RFC 9110 section 6.5.1).
    pub takes_trailers: bool,
    /// The client keeps the connection open after the response (RFC 9112 section 9.3).
    pub persists: bool,
}

/// Reason why bytes from a client are not a valid request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MalformedRequest {
    /// A line has a syntax error.
    #[error("its head is not HTTP/1.1: {0}")]
    Head(httparse::Error),
    /// The method or the target has a syntax error.
    #[error("its method or its target is none")]
    Target,
    /// The target is longer than 65,534 bytes.
    #[error("its target is too long")]
    TargetTooLong,
    /// The head exceeds [`HeadLimits`].
    #[error("its head is too large")]
    HeadTooLarge,
    /// A line ends with `\n` instead of `\r\n`.
    #[error("a line of its head ends with a bare line feed")]
    LineFeed,
    /// `Content-Length` is not a number, or its values differ.
    #[error("its Content-Length is not one number")]
    Length,
    /// The last transfer coding is not `chunked`, or the request is of HTTP/1.0 (RFC 9112 section 6.1).
    #[error("its transfer coding does not end with `chunked`, or it is of HTTP/1.0, which has none")]
    TransferCoding,
    /// The bytes are the connection preface of HTTP/2.
    #[error("it is HTTP/2")]
    Http2,
}

impl MalformedRequest {
    /// Name of the fault in the access log and in metrics.
    pub fn reason(self) -> MalformedReason {
        match self {
            Self::Head(httparse::Error::HeaderName) => MalformedReason::HeaderName,
            Self::Head(httparse::Error::HeaderValue) => MalformedReason::HeaderValue,
            Self::Head(_) => MalformedReason::Head,
            Self::Target => MalformedReason::Target,
            Self::TargetTooLong => MalformedReason::TargetTooLong,
            Self::HeadTooLarge => MalformedReason::HeadTooLarge,
            Self::LineFeed => MalformedReason::LineFeed,
            Self::Length => MalformedReason::Length,
            Self::TransferCoding => MalformedReason::TransferCoding,
            Self::Http2 => MalformedReason::Http2,
        }
    }

    /// Status of the response; `None` if the client would not understand a response.
    pub fn status(self) -> Option<StatusCode> {
        match self {
            Self::Http2 => None,
            Self::HeadTooLarge => Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
            Self::TargetTooLong => Some(StatusCode::URI_TOO_LONG),
            _ => Some(StatusCode::BAD_REQUEST),
        }
    }
}

impl RequestHead {
    /// Parses a head at the front of `bytes`, including empty lines before it. Returns the head and its length in bytes, or
    /// `None` if it is incomplete.
    ///
    /// Costs one allocation for the headers. The bytes, which all values share, are copied to `memory`, which the caller keeps
    /// for the heads of one connection: that costs no allocation once the former head is dropped.
    ///
    /// # Errors
    ///
    /// Bytes that cannot become a head within the limits, as soon as this is certain.
    pub fn parse(
        bytes: &[u8],
        limits: HeadLimits,
        memory: &mut BytesMut,
    ) -> Result<Option<(Self, usize)>, MalformedRequest> {
        let mut usual = [const { MaybeUninit::uninit() }; USUAL_LINES];
        if let Some(lines) = usual.get_mut(..limits.lines) {
            return Self::parse_into(bytes, limits, lines, memory);
        }
        Self::parse_into(bytes, limits, &mut vec![MaybeUninit::uninit(); limits.lines], memory)
    }

    fn parse_into<'a>(
        bytes: &'a [u8],
        limits: HeadLimits,
        lines: &mut [MaybeUninit<httparse::Header<'a>>],
        memory: &mut BytesMut,
    ) -> Result<Option<(Self, usize)>, MalformedRequest> {
        let mut parsed = httparse::Request::new(&mut []);
        let config = httparse::ParserConfig::default();
        let length = match config.parse_request_with_uninit_headers(&mut parsed, bytes, lines) {
            Ok(httparse::Status::Complete(length)) if length <= limits.size => length,
            Ok(httparse::Status::Partial) if bytes.len() < limits.size => {
                // Refused at once: the client may regard this head as complete, and would wait for the
                // response.
                return if has_bare_line_feed(bytes) { Err(MalformedRequest::LineFeed) } else { Ok(None) };
            }
            Ok(_) | Err(httparse::Error::TooManyHeaders) => return Err(MalformedRequest::HeadTooLarge),
            Err(_) if bytes.starts_with(HTTP2_PREFACE) => return Err(MalformedRequest::Http2),
            Err(error) => return Err(MalformedRequest::Head(error)),
        };
        // httparse accepts a bare LF, as RFC 9112 section 2.2 permits.
        if has_bare_line_feed(&bytes[..length]) {
            return Err(MalformedRequest::LineFeed);
        }
        let head = SharedHead::new(copied(&bytes[..length], memory));
        let mut request = Request::new(());
        let target = parsed.path.unwrap_or_default().as_bytes();
        if target.len() > TARGET {
            return Err(MalformedRequest::TargetTooLong);
        }
        // RFC 9112 section 3.2: no target has a fragment, which `Uri` would drop silently.
        if target.contains(&b'#') {
            return Err(MalformedRequest::Target);
        }
        let method = Method::from_bytes(parsed.method.unwrap_or_default().as_bytes());
        *request.method_mut() = method.map_err(|_| MalformedRequest::Target)?;
        let uri = Uri::from_maybe_shared(head.part(place(target, bytes)));
        let uri = uri.map(|uri| {
            if target::names_server(request.method(), target) { target::of_server(uri) } else { uri }
        });
        // Characters are encoded only after `Uri` has refused the target, since most targets are valid.
        *request.uri_mut() = uri
            .ok()
            .or_else(|| Uri::from_maybe_shared(target::encoded(target)?).ok())
            .ok_or(MalformedRequest::Target)?;
        let is_old = parsed.version == Some(0);
        *request.version_mut() = if is_old { Version::HTTP_10 } else { Version::HTTP_11 };
        let mut facts = Facts::default();
        let headers = facts.read(parsed.headers, |value| head.value(place(value, bytes)))?;
        *request.headers_mut() = headers;
        let body = facts.body(request.headers_mut(), is_old)?;
        let has_body = !body.is_ended();
        let head = Self {
            request,
            body,
            // RFC 9110 section 10.1.1: the expectation is ignored in HTTP/1.0 and without a body.
            expects_continue: facts.expects_continue && has_body && !is_old,
            takes_trailers: facts.takes_trailers,
            persists: facts.persists.unwrap_or(!is_old) && !facts.means_two_things(),
        };
        Ok(Some((head, length)))
    }
}

/// A copy of a head, in `memory` unless the head is long.
fn copied(head: &[u8], memory: &mut BytesMut) -> Bytes {
    // Otherwise the connection would hold the memory of its longest head.
    if head.len() > USUAL_SIZE {
        return Bytes::copy_from_slice(head);
    }
    memory.extend_from_slice(head);
    memory.split().freeze()
}

/// Whether `bytes` contains a `\n` without a `\r` before it. A single pass without branches, which the compiler vectorizes.
#[expect(clippy::needless_bitwise_bool, reason = "lazy operators are branches")]
pub fn has_bare_line_feed(bytes: &[u8]) -> bool {
    let rest = bytes.get(1..).unwrap_or_default();
    let is_bare = |(before, byte): (&u8, &u8)| (*byte == b'\n') & (*before != b'\r');
    bytes.starts_with(b"\n") || bytes.iter().zip(rest).fold(false, |found, pair| found | is_bare(pair))
}

/// Headers that concern the message or its connection, recorded while the head is parsed.
#[derive(Debug, Default)]
struct Facts {
    length: Option<u64>,
    /// `None` without a transfer coding; otherwise whether the last one is `chunked`.
    is_chunked: Option<bool>,
    /// Whether the client states that the connection persists; HTTP/1.0 requires this (RFC 9112 section 9.3).
    persists: Option<bool>,
    expects_continue: bool,
    takes_trailers: bool,
}

impl Facts {
    fn read(
        &mut self,
        lines: &[httparse::Header<'_>],
        shared: impl Fn(&[u8]) -> Result<HeaderValue, InvalidHeaderValue>,
    ) -> Result<HeaderList, MalformedRequest> {
        let mut headers = HeaderList::with_capacity(lines.len() + ADDED);
        for line in lines {
            let name = names::parse(line.name.as_bytes())
                .map_err(|_| MalformedRequest::Head(httparse::Error::HeaderName))?;
            let value =
                shared(line.value).map_err(|_| MalformedRequest::Head(httparse::Error::HeaderValue))?;
            if self.note(&name, line.value)? {
                headers.append(name, value);
            }
        }
        Ok(headers)
    }

    /// Records a header. Returns whether to keep it: a repeated `Content-Length` with the same value is dropped.
    fn note(&mut self, name: &HeaderName, value: &[u8]) -> Result<bool, MalformedRequest> {
        match *name {
            header::CONTENT_LENGTH => {
                let length = number(value).ok_or(MalformedRequest::Length)?;
                if self.length.is_some_and(|before| before != length) {
                    return Err(MalformedRequest::Length);
                }
                let is_first = self.length.replace(length).is_none();
                return Ok(is_first);
            }
            header::TRANSFER_ENCODING => {
                // A value with other bytes than ASCII is no list of codings (RFC 9112 section 7).
                self.is_chunked = tokens(value).last().map(|last| value.is_ascii() && is(last, "chunked"));
            }
            header::CONNECTION => {
                for option in tokens(value) {
                    // RFC 9112 section 9.3: `close` prevails over `keep-alive`, in any order.
                    if is(option, "close") {
                        self.persists = Some(false);
                    } else if is(option, "keep-alive") {
                        self.persists.get_or_insert(true);
                    }
                }
            }
            header::EXPECT => self.expects_continue = is(value, "100-continue"),
            header::TE => self.takes_trailers |= tokens(value).any(|coding| is(coding, "trailers")),
            _ => {}
        }
        Ok(true)
    }

    /// Framing of the body (RFC 9112 section 6.3). Removes a `Content-Length` beside a transfer coding.
    fn body(&self, headers: &mut HeaderList, is_old: bool) -> Result<BodyReader, MalformedRequest> {
        let Some(is_chunked) = self.is_chunked else {
            return Ok(BodyReader::Length(self.length.unwrap_or(0)));
        };
        // RFC 9112 section 6.1: HTTP/1.0 has no transfer codings, and an intermediary may not have recognized this one.
        if is_old || !is_chunked {
            return Err(MalformedRequest::TransferCoding);
        }
        if self.length.is_some() {
            headers.remove(header::CONTENT_LENGTH);
        }
        Ok(BodyReader::Chunked(Chunked::default()))
    }

    /// Whether the request has both a length and a transfer coding; its connection is closed then (RFC 9112 section 6.1).
    fn means_two_things(&self) -> bool {
        self.length.is_some() && self.is_chunked.is_some()
    }
}

fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

fn is(token: &[u8], word: &str) -> bool {
    token.eq_ignore_ascii_case(word.as_bytes())
}

/// Parses a number of decimal digits only: no sign, no white space.
fn number(digits: &[u8]) -> Option<u64> {
    let valid = digits.iter().all(u8::is_ascii_digit);
    str::from_utf8(digits).ok().filter(|_| valid).and_then(|digits| digits.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits { size: 4096, lines: 100 };

    fn parse(text: &str) -> Result<Option<(RequestHead, usize)>, MalformedRequest> {
        let whole = RequestHead::parse(text.as_bytes(), LIMITS, &mut BytesMut::new());
        let end = whole.as_ref().ok().and_then(|head| head.as_ref().map(|(_, length)| *length));
        for length in 0..end.unwrap_or(0) {
            let part = RequestHead::parse(&text.as_bytes()[..length], LIMITS, &mut BytesMut::new());
            assert!(matches!(part, Ok(None)), "{length} bytes of {text:?}");
        }
        whole
    }

    #[track_caller]
    fn head(text: &str) -> RequestHead {
        let (head, length) = parse(text).expect("a head").expect("all of it");
        assert!(text[..length].ends_with("\r\n\r\n"));
        head
    }

    #[track_caller]
    fn refused(lines: &str) -> MalformedRequest {
        let text = format!("POST / HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
        parse(&text).expect_err(lines)
    }

    #[test]
    fn a_head_is_read_and_the_rest_is_left() {
        let text =
            "\r\nPUT /a?b HTTP/1.1\r\nHost: a.test\r\nX-A:  1 \r\nx-a: 2\r\nContent-Length: 3\r\n\r\nabcGET";
        let (head, length) = parse(text).expect("a head").expect("all of it");
        assert_eq!(&text[length..], "abcGET");
        assert_eq!((head.request.method(), head.request.uri()), (&Method::PUT, &Uri::from_static("/a?b")));
        assert_eq!(head.request.headers().get_all("x-a").collect::<Vec<_>>(), ["1", "2"]);
        assert!(matches!(head.body, BodyReader::Length(3)) && head.persists && !head.expects_continue);
        assert_eq!(head.request.version(), Version::HTTP_11);
    }

    #[test]
    fn options_without_a_path_names_the_server() {
        let uri =
            |line: &str| head(&format!("{line} HTTP/1.1\r\nHost: a.test\r\n\r\n")).request.uri().clone();
        for target in ["https://a.test", "HTTPS://a.test:443", "http://[::1]"] {
            let uri = uri(&format!("OPTIONS {target}"));
            assert_eq!((uri.path(), uri.query(), uri.authority().is_some()), ("*", None, true), "{target}");
        }
        for line in ["OPTIONS https://a.test/", "OPTIONS https://a.test?x", "GET https://a.test", "OPTIONS /"]
        {
            assert_eq!(uri(line).path(), "/", "{line}");
        }
        assert_eq!(uri("OPTIONS *").path(), "*");
    }

    #[test]
    fn what_follows_a_head_is_noted() {
        let asks = |lines: &str| head(&format!("POST / HTTP/1.1\r\n{lines}\r\n"));
        assert!(matches!(asks("Transfer-Encoding: Chunked\r\n").body, BodyReader::Chunked(_)));
        assert!(asks("").body.is_ended());
        assert!(asks("Expect: 100-Continue\r\nContent-Length: 1\r\n").expects_continue);
        assert!(!asks("Expect: 100-continue\r\n").expects_continue);
        assert!(asks("TE: gzip, Trailers\r\n").takes_trailers);
        assert!(!asks("Connection: a\r\nConnection: b , Close\r\n").persists);
        assert!(asks("Connection: closed\r\n").persists);
        // HTTP/1.0 persists where it asks for it, and expects nothing.
        let old = |lines: &str| head(&format!("POST / HTTP/1.0\r\n{lines}\r\n"));
        assert!(old("Connection: Keep-Alive\r\n").persists);
        assert!(!old("").persists && !old("Connection: keep-alive, close\r\n").persists);
        let expects = old("Content-Length: 1\r\nExpect: 100-continue\r\n");
        assert!(!expects.expects_continue && expects.request.version() == Version::HTTP_10);
    }

    #[test]
    fn a_length_beside_chunks_goes_and_closes_the_connection() {
        for lines in [
            "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        ] {
            let head = head(&format!("POST / HTTP/1.1\r\n{lines}\r\n"));
            assert!(matches!(head.body, BodyReader::Chunked(_)) && !head.persists);
            assert!(!head.request.headers().contains_key(header::CONTENT_LENGTH));
        }
    }

    #[test]
    fn a_length_that_is_no_number_is_refused() {
        for length in ["", "+4", "-1", "0x4", "4, 4", "4 4", "99999999999999999999", "4\r\nContent-Length: 5"]
        {
            assert_eq!(
                refused(&format!("Content-Length: {length}\r\n")),
                MalformedRequest::Length,
                "{length}"
            );
        }
        let twice = head("POST / HTTP/1.1\r\nContent-Length: 4\r\nContent-Length: 04\r\n\r\n");
        assert_eq!(twice.request.headers().get_all(header::CONTENT_LENGTH).collect::<Vec<_>>(), ["4"]);
    }

    #[test]
    fn a_body_whose_end_is_unknown_is_refused() {
        for coding in ["gzip", "chunked, gzip", "xchunked", "", "chunked\r\nTransfer-Encoding: identity"] {
            let refused = refused(&format!("Transfer-Encoding: {coding}\r\n"));
            assert_eq!(refused, MalformedRequest::TransferCoding, "{coding}");
        }
        let old = parse("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n");
        assert_eq!(old.expect_err("HTTP/1.0"), MalformedRequest::TransferCoding);
    }

    #[test]
    fn a_bare_line_feed_ends_no_line() {
        for text in [
            "GET / HTTP/1.1\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\n",
            "GET / HTTP/1.1\r\nHost: a\n",
            "\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "\r\n\nGET / HTTP/1.1\r\n\r\n",
        ] {
            assert_eq!(parse(text).expect_err(text), MalformedRequest::LineFeed);
        }
    }

    #[test]
    fn what_is_no_head_is_refused_as_soon_as_it_shows() {
        for text in [
            "GET / HTTP/2.0\r\n",
            "GET / HTTP/1.2\r\n",
            "GET  / HTTP/1.1\r\n",
            "G@T / HTTP/1.1\r\n",
            "GET / HTTP/1.1\r\nA: b\r\n folded\r\n\r\n",
            "GET / HTTP/1.1\r\nA : b\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\0\r\n\r\n",
            "GET / HTTP/1.1\r\nA: b\rc\r\n\r\n",
            "GET / HTTP/1.1\r\nA B: c\r\n\r\n",
            "GET / HTTP/1.1\r\nno colon\r\n\r\n",
            "\x16\x03\x01\x02\0",
        ] {
            let error = parse(text).expect_err(text);
            assert!(matches!(error, MalformedRequest::Head(_)), "{text:?}: {error:?}");
            assert_eq!(error.status(), Some(StatusCode::BAD_REQUEST));
        }
        let http2 = parse("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect_err("HTTP/2");
        assert_eq!(http2.status(), None);
        assert_eq!(parse("GET http:// HTTP/1.1\r\n\r\n").expect_err("no target"), MalformedRequest::Target);
    }

    #[test]
    fn a_head_takes_the_memory_of_a_former_one_that_is_dropped() {
        let memory = &mut BytesMut::new();
        let mut read = || {
            let head = RequestHead::parse(b"GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", LIMITS, memory);
            head.expect("a head").expect("all of it").0
        };
        let place = |head: &RequestHead| head.request.headers()["host"].as_bytes().as_ptr().addr();
        let (first, second) = (read(), read());
        assert_ne!(place(&first), place(&second), "both exist");
        assert_eq!(first.request.headers()["host"], "a.test");
        let former = place(&second);
        drop((first, second));
        assert_eq!(place(&read()), former);
    }

    #[test]
    fn a_head_has_limits() {
        let long = format!("GET / HTTP/1.1\r\nA: {}", "x".repeat(4096));
        assert_eq!(parse(&long).expect_err("too long"), MalformedRequest::HeadTooLarge);
        assert_eq!(parse(&format!("{long}\r\n\r\n")).expect_err("too long"), MalformedRequest::HeadTooLarge);
        for lines in [1, 100, 300] {
            let limits = HeadLimits { size: 1 << 20, lines };
            let most = format!("GET / HTTP/1.1\r\n{}", "a:b\r\n".repeat(lines));
            let memory = &mut BytesMut::new();
            let whole = RequestHead::parse(format!("{most}\r\n").as_bytes(), limits, memory);
            assert_eq!(whole.expect("a head").expect("whole").0.request.headers().len(), lines);
            let more = RequestHead::parse(format!("{most}a:b\r\n\r\n").as_bytes(), limits, memory);
            assert_eq!(more.expect_err("too many"), MalformedRequest::HeadTooLarge);
        }
        let target = |length: usize| {
            let text = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(length - 1));
            let limits = HeadLimits { size: 1 << 20, lines: 100 };
            RequestHead::parse(text.as_bytes(), limits, &mut BytesMut::new()).map(|_| ())
        };
        assert_eq!((target(TARGET), target(TARGET + 1)), (Ok(()), Err(MalformedRequest::TargetTooLong)));
    }
}
