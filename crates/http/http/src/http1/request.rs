//! Encoder of requests to upstreams: the head, and the framing of the body.

use std::cell::Cell;
use std::io::IoSlice;
use std::mem;

use bytes::{Buf as _, Bytes, BytesMut};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::cgi::{CgiProtocol, TooManyVariables, Variables, fastcgi, packets};
use crate::claims;
use crate::error::BodyError;
use crate::message::{HeaderList, Request};

/// Maximum length, in bytes, of data that is copied, so that one write contains it with the bytes around it.
const COPIED: usize = 4 << 10;

/// Maximum length, in bytes, of unsent output before which a further piece is accepted.
const GATHERED: usize = 16 << 10;

/// Maximum capacity in bytes of a buffer that is kept for the next request of the thread.
const KEPT: usize = 2 * GATHERED;

thread_local! {
    static SPARE: Cell<Option<BytesMut>> = const { Cell::new(None) };
}

/// Output in order. A large piece of a body is not copied; bytes behind it wait in `after`.
#[derive(Debug, Default)]
pub struct Output {
    before: BytesMut,
    piece: Bytes,
    after: BytesMut,
    /// Largest capacity of a buffer since all of them were empty without memory.
    capacity: usize,
}

impl Output {
    /// Whether a further piece may be written.
    pub fn has_room(&self) -> bool {
        self.piece.is_empty() && self.after.is_empty() && self.before.len() < GATHERED
    }

    /// Whether everything is sent.
    pub fn is_empty(&self) -> bool {
        self.before.is_empty() && self.piece.is_empty() && self.after.is_empty()
    }

    /// The whole output, if it is contiguous.
    pub fn only(&self) -> Option<&[u8]> {
        match (self.piece.is_empty(), self.before.is_empty()) {
            (true, _) if self.after.is_empty() => Some(&self.before),
            (false, true) if self.after.is_empty() => Some(&self.piece),
            _ => None,
        }
    }

    /// The whole output, for a vectored write.
    pub fn slices(&self) -> [IoSlice<'_>; 3] {
        [IoSlice::new(&self.before), IoSlice::new(&self.piece), IoSlice::new(&self.after)]
    }

    /// Removes the first `length` bytes, which are sent. Buffers are released at the end, since the response may take long: one of
    /// them to the next output of the thread, if it is small.
    pub fn advance(&mut self, length: usize) {
        self.capacity = self.capacity.max(self.before.capacity()).max(self.after.capacity());
        (&mut self.before).chain(&mut self.piece).chain(&mut self.after).advance(length);
        if self.is_empty() {
            let Self { before, capacity, .. } = mem::take(self);
            // Without capacity, only a piece was sent.
            if (1..=KEPT).contains(&capacity) {
                SPARE.set(Some(before));
            }
        } else if self.piece.is_empty() {
            self.piece = Bytes::new();
        }
    }

    /// Buffer for the next bytes.
    pub(crate) fn end(&mut self) -> &mut BytesMut {
        if !self.piece.is_empty() {
            return &mut self.after;
        }
        if self.before.capacity() == 0 {
            self.before = SPARE.take().unwrap_or_default();
        }
        &mut self.before
    }

    /// Writes a head in origin form (RFC 9112 section 3.2.1). It needs no checks: the types permit only valid values.
    pub fn head<B>(&mut self, head: &Request<B>) {
        let (method, headers) = (head.method().as_str(), head.headers());
        let target = head.uri().path_and_query().map_or("/", PathAndQuery::as_str);
        let lines: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        let end = self.end();
        end.reserve(method.len() + target.len() + lines + 14);
        for part in [method, " ", target, " HTTP/1.1\r\n"] {
            end.extend_from_slice(part.as_bytes());
        }
        self.lines(headers);
        self.end().extend_from_slice(b"\r\n");
    }

    fn lines<'a>(&mut self, headers: impl IntoIterator<Item = (&'a HeaderName, &'a HeaderValue)>) {
        let end = self.end();
        for (name, value) in headers {
            end.extend_from_slice(name.as_str().as_bytes());
            end.extend_from_slice(b": ");
            end.extend_from_slice(value.as_bytes());
            end.extend_from_slice(b"\r\n");
        }
    }

    /// Writes data. Requires [`Self::has_room`].
    fn data(&mut self, data: Bytes) {
        if data.len() <= COPIED {
            self.end().extend_from_slice(&data);
        } else {
            debug_assert!(self.piece.is_empty(), "there is no room for a second piece");
            self.piece = data;
        }
    }

    /// Writes data in records of FastCGI. Requires [`Self::has_room`].
    fn records(&mut self, mut data: Bytes) {
        let first = data.split_to(data.len().min(fastcgi::CONTENT));
        fastcgi::body_header(first.len(), self.end());
        self.data(first);
        // Pieces of a body have at most 64 KiB, so the rest is short.
        for rest in data.chunks(fastcgi::CONTENT) {
            fastcgi::body_header(rest.len(), self.end());
            self.end().extend_from_slice(rest);
        }
    }

    /// Writes the head of a request for an application server, whose body has `length` bytes, and the end of a body without
    /// bytes. `None` is an unknown length, which only FastCGI permits. `keeps`: whether the connection is to stay open after the
    /// response.
    ///
    /// # Errors
    ///
    /// [`TooManyVariables`] for uwsgi; nothing is written.
    pub fn variables(
        &mut self,
        protocol: CgiProtocol,
        variables: &Variables,
        length: Option<u64>,
        keeps: bool,
    ) -> Result<BodyWriter, TooManyVariables> {
        let end = self.end();
        match protocol {
            CgiProtocol::FastCgi => {
                fastcgi::begin(variables, keeps, end);
                if length == Some(0) {
                    fastcgi::body_header(0, end);
                    // Writes no second end, which a server could take for the begin of the next request.
                    return Ok(BodyWriter::Length(0));
                }
                return Ok(BodyWriter::Records(length));
            }
            CgiProtocol::Uwsgi => packets::uwsgi(variables, end)?,
            CgiProtocol::Scgi => packets::scgi(length.unwrap_or(0), variables, end),
        }
        Ok(BodyWriter::Length(length.unwrap_or(0)))
    }
}

/// Framing of a request body, and its state.
#[derive(Debug)]
pub enum BodyWriter {
    /// Remaining bytes of the announced length.
    Length(u64),
    /// Chunked, with trailers.
    Chunked,
    /// Remaining bytes of the announced length, in records of FastCGI. `None` without an announced length.
    Records(Option<u64>),
}

impl BodyWriter {
    /// Framing by `headers`: `Content-Length` if present, otherwise chunked.
    pub fn after(headers: &HeaderList) -> Self {
        let number = |length: &HeaderValue| length.to_str().ok().and_then(|length| length.parse().ok());
        match headers.get(header::CONTENT_LENGTH) {
            // A length that cannot be parsed means that there is no body.
            Some(length) => Self::Length(number(length).unwrap_or(0)),
            None => Self::Chunked,
        }
    }

    /// Writes a piece of the body. Fails if it exceeds the announced length.
    pub fn data(&mut self, data: Bytes, output: &mut Output) -> Result<(), BodyError> {
        match self {
            _ if data.is_empty() => {}
            Self::Length(left) => {
                *left = left.checked_sub(data.len() as u64).ok_or(BodyError::WrongLength)?;
                output.data(data);
            }
            Self::Chunked => {
                // The size, the data and the end of the chunk leave in one write: copied together, or as
                // three slices.
                output.end().extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
                output.data(data);
                output.end().extend_from_slice(b"\r\n");
            }
            Self::Records(left) => {
                if let Some(left) = left {
                    *left = left.checked_sub(data.len() as u64).ok_or(BodyError::WrongLength)?;
                }
                output.records(data);
            }
        }
        Ok(())
    }

    /// Writes the end of the body, with `trailers` except for fields that belong to the head (RFC 9110 section 6.5.1). A
    /// `Trailer` header is not required (section 6.6.2). Fails if bytes of the announced length are missing.
    pub fn end(&self, trailers: Option<&HeaderMap>, output: &mut Output) -> Result<(), BodyError> {
        match self {
            Self::Length(0) => Ok(()),
            Self::Records(None | Some(0)) => {
                fastcgi::body_header(0, output.end());
                Ok(())
            }
            Self::Length(_) | Self::Records(Some(_)) => Err(BodyError::WrongLength),
            Self::Chunked => {
                output.end().extend_from_slice(b"0\r\n");
                let trailers = trailers.into_iter().flatten();
                output.lines(trailers.filter(|(name, _)| !claims::belongs_to_head(name)));
                output.end().extend_from_slice(b"\r\n");
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(output: &mut Output) -> String {
        let bytes = output.slices().map(|slice| slice.to_vec()).concat();
        assert!(output.only().is_none_or(|only| only == bytes));
        output.advance(bytes.len());
        assert!(output.is_empty());
        String::from_utf8(bytes).expect("text")
    }

    fn headers<T: FromIterator<(HeaderName, HeaderValue)>>(lines: &[(&'static str, &'static str)]) -> T {
        let line = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn a_head_is_written_in_origin_form() {
        let request = Request::get("https://a.test/b?c").header("host", "a.test").header("x", "1").body(());
        let mut output = Output::default();
        output.head(&request.expect("a request"));
        assert_eq!(sent(&mut output), "GET /b?c HTTP/1.1\r\nhost: a.test\r\nx: 1\r\n\r\n");
    }

    #[test]
    fn the_end_of_an_empty_body_is_written_once() {
        let mut output = Output::default();
        let writer =
            output.variables(CgiProtocol::FastCgi, &Variables::default(), Some(0), true).expect("a head");
        let length = |output: &Output| output.slices().map(|slice| slice.len()).iter().sum::<usize>();
        let before = length(&output);
        writer.end(None, &mut output).expect("an end");
        assert_eq!(length(&output), before);
    }

    #[test]
    fn a_large_buffer_is_released_when_it_is_sent() {
        for (length, is_kept) in [(100, true), (KEPT, false)] {
            let value = "x".repeat(length);
            let request = Request::get("https://a.test/").header("x", value).body(()).expect("a request");
            let mut output = Output::default();
            output.head(&request);
            let all = output.before.len();
            output.advance(all - 10);
            output.advance(10);
            assert_eq!((output.capacity, output.before.capacity()), (0, 0), "{length}");
            assert_eq!(SPARE.take().is_some_and(|spare| spare.is_empty()), is_kept, "{length}");
        }
    }

    #[test]
    fn what_is_written_is_sent_in_order_wherever_it_is_cut() {
        for length in [1, COPIED, COPIED + 1, 3 * COPIED] {
            let lines = headers(&[("transfer-encoding", "chunked")]);
            let mut body = BodyWriter::after(&lines);
            let mut output = Output::default();
            let data = "x".repeat(length);
            body.data(Bytes::from(data.clone()), &mut output).expect("no error");
            body.end(None, &mut output).expect("no error");
            let mut written = Vec::new();
            while !output.is_empty() {
                let next: Vec<u8> = output.slices().iter().flat_map(|slice| slice.to_vec()).collect();
                let cut = next.len().min(1000);
                written.extend_from_slice(&next[..cut]);
                output.advance(cut);
            }
            assert_eq!(
                String::from_utf8(written).expect("text"),
                format!("{length:x}\r\n{data}\r\n0\r\n\r\n")
            );
        }
    }

    #[test]
    fn a_body_is_as_long_as_its_head_states() {
        let mut output = Output::default();
        let mut body = BodyWriter::after(&headers(&[("content-length", "5")]));
        body.data(Bytes::from("hel"), &mut output).expect("room");
        assert!(matches!(body.end(None, &mut output), Err(BodyError::WrongLength)));
        assert!(matches!(body.data(Bytes::from("lo!"), &mut output), Err(BodyError::WrongLength)));
        let mut body = BodyWriter::after(&headers(&[("content-length", "3")]));
        body.data(Bytes::from("abc"), &mut output).expect("no error");
        body.end(Some(&headers(&[("a", "b")])), &mut output).expect("no error");
        assert_eq!(sent(&mut output), "helabc");
    }

    #[test]
    fn a_body_without_a_length_is_chunked_and_has_trailers() {
        let mut output = Output::default();
        let lines = [("transfer-encoding", "chunked"), ("trailer", "A, host")];
        let mut body = BodyWriter::after(&headers(&lines));
        let long = "x".repeat(COPIED + 1);
        body.data(Bytes::from("hello"), &mut output).expect("no error");
        body.data(Bytes::new(), &mut output).expect("no error");
        assert!(output.has_room());
        let piece = Bytes::from(long.clone());
        body.data(piece.clone(), &mut output).expect("no error");
        assert!(!output.has_room() && !piece.is_unique());
        assert_eq!(sent(&mut output), format!("5\r\nhello\r\n1001\r\n{long}\r\n"));
        assert!(piece.is_unique(), "a piece that is sent takes no memory");
        let trailers = headers(&[("a", "1"), ("host", "other"), ("content-length", "4"), ("c", "3")]);
        body.end(Some(&trailers), &mut output).expect("no error");
        assert_eq!(sent(&mut output), "0\r\na: 1\r\nc: 3\r\n\r\n");
    }
}
