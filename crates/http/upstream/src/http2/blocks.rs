//! Conversion of header blocks into heads of responses and trailers.

use brisk_http::error::Http2Error;
use brisk_http::fields::{self, Field, Hpack};
use brisk_http::message::{HeaderList, Response};
use brisk_wire::h2::frame::Reason;
use brisk_wire::h2::hpack::{Fields, Name};
use brisk_wire::h2::reader::{Fault, HeaderBlock};
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Version};

use super::state::State;
use super::stream::End;

/// The head of a response, or its trailers, while it is decoded.
#[derive(Debug, Default)]
struct Head {
    status: Option<StatusCode>,
    headers: HeaderList,
    length: Option<u64>,
    is_malformed: bool,
}

impl State {
    /// Processes a complete header block: the head of a response, an interim response or trailers. Decoding stops at the limits
    /// of [`HeadLimits`](brisk_http::http1::HeadLimits), beyond which the stream fails with [`Http2Error::HeadTooLarge`].
    pub(super) fn block(&mut self, block: &HeaderBlock<'_>) -> Result<(), Fault> {
        let HeaderBlock { stream: number, is_last, ref bytes, .. } = *block;
        let mut head = Head::with_room(bytes.len());
        let limits = self.recv.limits;
        // RFC 9113 section 4.3: a refused block must be decoded too, because it changes the dynamic table.
        let decoded = self.recv.decoder.decode(bytes, limits.lines + 1, limits.size, &mut head);
        let decoded = decoded.map_err(|_| Reason::COMPRESSION_ERROR)?;
        let Some(place) = self.find(number) else {
            // The stream has ended on this side. Many such blocks are a flood.
            self.allowance.spend(1);
            return Ok(());
        };
        let malformed = Fault::Stream(number, Reason::PROTOCOL_ERROR);
        if self.stream(place).is_abandoned {
            // Of an abandoned stream only the order of frames is followed: `DATA` requires a head.
            self.stream(place).has_head = true;
            if is_last {
                self.end_response(place);
            }
            return Ok(());
        }
        // RFC 9113 section 5.1: no `HEADERS` may follow `END_STREAM`.
        if self.stream(place).end != End::Open {
            return Err(Fault::Stream(number, Reason::STREAM_CLOSED));
        }
        if !decoded.is_whole {
            self.reset(number, Reason::CANCEL, Http2Error::HeadTooLarge);
            return Ok(());
        }
        if self.stream(place).has_head {
            let trailers = head.into_trailers().filter(|_| is_last).ok_or(malformed)?;
            self.stream(place).trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
            self.end_response(place);
            return Ok(());
        }
        let status = head.status.filter(|_| !head.is_malformed).ok_or(malformed)?;
        if status.is_informational() {
            self.allowance.spend(1);
            // RFC 9113 sections 8.1 and 8.6: an interim response must not end the stream, and 101 does not exist.
            if is_last || status == StatusCode::SWITCHING_PROTOCOLS {
                return Err(malformed);
            }
            let stream = self.stream(place);
            if stream.interims.add(status, head.headers, decoded.size) {
                stream.wake();
            } else {
                self.reset(number, Reason::ENHANCE_YOUR_CALM, Http2Error::Interim);
            }
            return Ok(());
        }
        self.respond(place, status, head, is_last).then_some(()).ok_or(malformed)
    }

    /// Records the head of a response. Returns `false` if `Content-Length` contradicts the end of the stream.
    fn respond(&mut self, place: u32, status: StatusCode, head: Head, is_last: bool) -> bool {
        let stream = self.stream(place);
        stream.has_head = true;
        stream.looked_at();
        // RFC 9110 section 6.4.1: these responses have no content, regardless of their `content-length`.
        stream.is_bodyless =
            stream.is_head || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED;
        stream.left = if stream.is_bodyless { Some(0) } else { head.length };
        // RFC 9113 section 8.1.1: a response without the stated content is malformed.
        if is_last && stream.left.is_some_and(|left| left > 0) {
            return false;
        }
        stream.unread = if is_last || stream.is_bodyless { Some(0) } else { head.length };
        let mut response = Response::new(());
        *response.status_mut() = status;
        *response.version_mut() = Version::HTTP_2;
        *response.headers_mut() = head.headers;
        stream.head = Some(response);
        if is_last {
            self.end_response(place);
        } else {
            stream.wake();
        }
        true
    }
}

impl Head {
    /// A head with capacity for the fields of a block of this length.
    fn with_room(block: usize) -> Self {
        let headers = if block < 16 { 6 } else { 12 };
        Self { headers: HeaderList::with_capacity(headers), ..Self::default() }
    }

    /// The trailers; `None` if they are malformed, for example because of a pseudo-header. The decoder has limited their number
    /// to less than the maximum of [`HeaderMap`].
    fn into_trailers(self) -> Option<HeaderMap> {
        (self.status.is_none() && !self.is_malformed).then(|| self.headers.into())
    }

    fn add(&mut self, name: HeaderName, value: HeaderValue) {
        // RFC 9113 section 8.2.1: a value must not begin or end with whitespace.
        let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
        self.is_malformed |= is_blank(value.as_bytes().first()) || is_blank(value.as_bytes().last());
        if name == CONTENT_LENGTH {
            let length = fields::length(&value);
            self.is_malformed |= length.is_none() || self.length.is_some_and(|other| Some(other) != length);
            self.length = length;
            // RFC 9110 section 8.6: repeated equal lengths are joined into one.
            if let Some(first) = self.headers.get_mut(&CONTENT_LENGTH) {
                *first = value;
                return;
            }
        }
        self.headers.append(name, value);
    }
}

impl Fields for Head {
    type Field = Field;

    fn constant(&mut self, index: usize) -> Field {
        Field::constant::<Hpack>(index)
    }

    fn literal(&mut self, name: Name<'_, Field>, value: &[u8]) -> Field {
        Field::literal::<Hpack>(&name, value)
    }

    fn take(&mut self, field: Field) {
        match field {
            // RFC 9113 section 8.3: pseudo-headers come first, each at most once.
            Field::Status(status) => {
                self.is_malformed |= self.status.replace(status).is_some() || !self.headers.is_empty();
            }
            Field::Header(name, value) => self.add(name, value),
            _ => self.is_malformed = true,
        }
    }
}
