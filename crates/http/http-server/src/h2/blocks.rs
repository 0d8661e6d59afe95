//! Conversion of header blocks to requests and trailers.

use std::rc::Rc;

use brisk_http::fields::{BodyLeft, Hpack, RequestHead};
use brisk_http::message::Request;
use brisk_http_connection::body::client::ClientBody;
use brisk_http_connection::body::inbox::Inbox;
use brisk_telemetry::MalformedReason;
use brisk_wire::h2::frame::Reason;
use brisk_wire::h2::hpack::Decoded;
use brisk_wire::h2::reader::{Fault, HeaderBlock};
use brisk_wire::priority::Priority;
use http::HeaderName;
use http::header::EXPECT;

use super::state::{Ended, Goaway, H2, Stream};
use crate::ready::UNSTATED;
use crate::response::Work;

/// Head of a request in HPACK.
type Head = RequestHead<Hpack>;

const PRIORITY: HeaderName = HeaderName::from_static("priority");

impl H2<'_> {
    /// Processes a complete header block: the head of a request, or trailers.
    pub(super) fn block(&mut self, block: &HeaderBlock<'_>) -> Result<(), Fault> {
        // Always decoded, even if ignored later, because each block changes the HPACK table (RFC 9113 section 4.3).
        let (head, decoded) = self.decode(&block.bytes)?;
        let begun = self.decoded(block, head, decoded);
        // The service counts the heads of requests; all other blocks are counted here.
        if !matches!(begun, Ok(true)) {
            self.http.connection.multiplex().head_received(decoded.size);
        }
        begun.map(|_| ())
    }

    /// Processes a decoded block. Returns whether the block began a request.
    fn decoded(&mut self, block: &HeaderBlock<'_>, head: Head, decoded: Decoded) -> Result<bool, Fault> {
        let HeaderBlock { stream: number, is_last, dependency, .. } = *block;
        if let Some(place) = self.find(number) {
            return self.trailers(place, is_last, head, decoded).map(|()| false);
        }
        if number <= self.recv.last {
            return match self.how_ended(number) {
                Some(Ended::Reset) => {
                    self.flood.ignored();
                    Ok(false)
                }
                Some(Ended::Over) => Err(Fault::Connection(Reason::STREAM_CLOSED)),
                // RFC 9113 section 5.1.1: stream numbers ascend.
                None => Err(Fault::Connection(Reason::PROTOCOL_ERROR)),
            };
        }
        // Also for a request that is refused below: its number is used, and must not be used again.
        self.recv.last = number;
        // RFC 9113 section 6.8: frames of streams above the announced last one may be ignored.
        if matches!(self.goaway, Goaway::Last(last) if number > last) {
            self.remember(number, Ended::Reset);
            self.flood.ignored();
            return Ok(false);
        }
        // RFC 7540 section 5.3.1: a stream cannot depend on itself.
        if dependency == Some(number) {
            return Err(Fault::Stream(number, Reason::PROTOCOL_ERROR));
        }
        // RFC 9113 section 5.1.2. `REFUSED_STREAM` means that the client may safely retry (section 8.7).
        if self.numbers.len() >= self.http.settings.h2_streams as usize {
            return Err(Fault::Stream(number, Reason::REFUSED_STREAM));
        }
        if !decoded.is_whole {
            self.http.refused(MalformedReason::HeadTooLarge, 431, head.line().as_bytes());
            self.refuse_head(number, is_last);
            return Ok(false);
        }
        self.request(number, is_last, head).map(|()| true)
    }

    fn decode(&mut self, block: &[u8]) -> Result<(Head, Decoded), Fault> {
        let settings = &self.http.settings;
        let mut head = Head::with_room(block.len());
        // Four pseudo-headers, and one header above the limit: such a request is refused where those of HTTP/1.1 are.
        let most = settings.headers.saturating_add(5);
        let decoded = self.recv.decoder.decode(block, most, settings.head_size, &mut head);
        decoded.map(|decoded| (head, decoded)).map_err(|_| Reason::COMPRESSION_ERROR.into())
    }

    fn trailers(&mut self, place: u32, is_last: bool, head: Head, decoded: Decoded) -> Result<(), Fault> {
        let Some(stream) = self.stream(place) else { return Ok(()) };
        let number = stream.number;
        // RFC 9113 section 5.1: after `END_STREAM` of the client, `HEADERS` on the stream is a stream error.
        if stream.inbox.is_none() {
            return Err(Fault::Stream(number, Reason::STREAM_CLOSED));
        }
        // RFC 9113 section 8.1: trailers end the stream.
        let trailers = head.into_trailers().filter(|_| is_last && decoded.is_whole);
        let trailers = trailers.ok_or(Fault::Stream(number, Reason::PROTOCOL_ERROR))?;
        self.end_body(number, Some(trailers).filter(|trailers| !trailers.is_empty()));
        Ok(())
    }

    fn request(&mut self, number: u32, is_last: bool, head: Head) -> Result<(), Fault> {
        let malformed = Fault::Stream(number, Reason::PROTOCOL_ERROR);
        let length = head.length();
        let request = head.into_request().map_err(|line| {
            self.http.refused(MalformedReason::Fields, 0, line.as_bytes());
            malformed
        })?;
        // RFC 9113 section 8.1.1: the body has the length that the head states.
        let left = BodyLeft::new(length);
        if is_last && !left.may_end() {
            let line = format!("{} {}", request.method(), request.uri().path());
            self.http.refused(MalformedReason::Length, 0, line.as_bytes());
            return Err(malformed);
        }
        let headers = request.headers();
        let stated = headers.get(PRIORITY).map(|value| Priority::read(value.as_bytes()));
        let expects =
            headers.get(EXPECT).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
        let inbox = (!is_last).then(|| Inbox::new(number, length, expects, &self.notices));
        self.begin(number, request, inbox, left, stated.unwrap_or(UNSTATED));
        Ok(())
    }

    fn begin(
        &mut self,
        number: u32,
        request: Request<()>,
        inbox: Option<Rc<Inbox>>,
        left: BodyLeft,
        priority: Priority,
    ) {
        let connection = &self.http.connection;
        let body = inbox
            .as_ref()
            .map_or(ClientBody::Empty, |inbox| ClientBody::Stream(Rc::clone(inbox), Rc::clone(connection)));
        let work = Work::respond(self.http, &self.flood, request.map(|()| body));
        let place = self.open(Box::new(Stream {
            number,
            key: None,
            work,
            inbox,
            recv_window: self.recv.initial_window.into(),
            unclaimed: 0,
            left,
            send_window: self.send.peer.initial_window.into(),
            priority,
            is_queued: false,
        }));
        self.runnable.push(place);
    }

    /// Responds with `431` to a request whose head exceeds the limits and was not decoded completely (RFC 6585 section 5).
    fn refuse_head(&mut self, number: u32, is_last: bool) {
        self.write_status(number, 431, true);
        if is_last {
            self.remember(number, Ended::Over);
        } else {
            // RFC 9113 section 8.1: the response is complete, and `NO_ERROR` stops the rest of the request.
            self.reset(number, Reason::NO_ERROR);
        }
    }

    /// Completes the body of a request with its `trailers`, or resets the stream if the body is shorter than `Content-Length`.
    pub(super) fn end_body(&mut self, number: u32, trailers: Option<http::HeaderMap>) {
        let Some(place) = self.find(number) else { return };
        let Some(stream) = self.stream(place) else { return };
        // RFC 9113 section 8.1.1: the body has the length that the head states.
        if !stream.left.may_end() {
            self.reset(number, Reason::PROTOCOL_ERROR);
            return;
        }
        let Some(inbox) = stream.inbox.take() else { return };
        inbox.end(trailers);
        let is_over = matches!(stream.work, Work::Done);
        if is_over {
            self.close(place, Ended::Over);
            self.notify_end();
        }
    }
}
