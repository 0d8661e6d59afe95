//! Reading of request streams: from frames to requests, bodies and trailers.

use std::mem;
use std::rc::Rc;

use brisk_http::fields::{BodyLeft, Qpack, RequestHead};
use brisk_http::message::Request;
use brisk_http_connection::body::client::ClientBody;
use brisk_http_connection::body::inbox::Inbox;
use brisk_telemetry::MalformedReason;
use brisk_wire::fields::Decoded;
use brisk_wire::h3::error::Code;
use brisk_wire::h3::reader::Item;
use brisk_wire::priority::Priority;
use http::header::EXPECT;
use http::{HeaderMap, HeaderName, Method};

use super::prices;
use super::state::{Cut, H3, Part, Stream};
use super::transport::{Direction, Read, Transport};
use crate::response::Work;

/// Head of a request in QPACK.
type Head = RequestHead<Qpack>;

const PRIORITY: HeaderName = HeaderName::from_static("priority");

/// Bytes of a body that its reader has not taken, above which no more is read: the rest waits in the flow control windows of
/// QUIC.
const UNREAD: usize = 64 << 10;

/// As [`UNREAD`], for all bodies of a connection together, each of which may hold one packet more.
const UNREAD_TOGETHER: usize = 256 << 10;

/// Maximum number of bytes of incomplete field sections of a connection: a burst of requests of which a packet was lost.
const PARTIAL: usize = 256 << 10;

/// Error in a request: of the connection, or of its stream (RFC 9114 section 8).
enum Fault {
    /// Ends the connection.
    Connection(Code),
    /// Ends the stream.
    Stream(Code),
}

impl From<Code> for Fault {
    fn from(code: Code) -> Self {
        Self::Connection(code)
    }
}

impl H3 {
    /// Accepts new requests, and reads all request streams on which bytes have arrived, within [`H3::turn`].
    pub(super) fn read_requests(&mut self, transport: &mut impl Transport) {
        while let Some(id) = transport.accept(Direction::Both) {
            self.accept(id);
        }
        let mut readable = mem::take(&mut self.readable);
        for place in readable.drain(..) {
            if self.turn.is_reached() {
                self.readable.push(place);
            } else {
                self.read_request(place, transport);
            }
        }
        readable.append(&mut self.readable);
        self.readable = readable;
    }

    fn accept(&mut self, id: u64) {
        self.next = id + 4;
        let early = self.control.take_early(id);
        let is_full = self.numbers.len() >= self.http.settings.h2_streams as usize;
        let is_late = self.control.rejects(id);
        if is_late || is_full {
            // RFC 9114 section 4.1.1: the client may safely retry. QUIC permits more streams than `limits.h2_streams` may,
            // so a correct client can exceed this limit.
            self.cuts.push(Cut { stream: id, code: Code::REQUEST_REJECTED, part: Part::Both });
            self.flood.charge(prices::USELESS);
            return;
        }
        // Fields within the limit have a shorter section, since the limit counts 32 bytes for each.
        let limit = self.http.settings.head_size as u64;
        let mut stream = Stream::new(id, limit);
        if let Some(priority) = early {
            stream.rank.priority = priority;
            stream.rank.is_updated = true;
        }
        let place = self.open(stream);
        self.readable.push(place);
    }

    /// Marks a request stream as readable.
    pub(super) fn request_readable(&mut self, id: u64) {
        if let Some(place) = self.find(id) {
            self.readable.push(place);
        }
    }

    fn read_request(&mut self, place: u32, transport: &mut impl Transport) {
        if self.is_over() {
            return;
        }
        let wants_more = self.wants_more(place);
        let Some(stream) = self.stream(place).filter(|stream| stream.is_open) else { return };
        let id = stream.id;
        if !wants_more {
            stream.is_paused = true;
            return;
        }
        let mut fault = None;
        let read = transport.read(id, |bytes| {
            fault = self.bytes(place, bytes).err();
            fault.is_none() && self.wants_more(place) && !self.turn.is_reached()
        });
        let done = match (fault, read) {
            (Some(fault), _) => Err(fault),
            (None, Read::End) => self.end(place),
            (None, Read::Reset) => {
                self.flood.charge(prices::CANCELLED);
                Err(Fault::Stream(Code::REQUEST_CANCELLED))
            }
            (None, Read::Enough) => {
                if self.wants_more(place) {
                    self.readable.push(place);
                } else if let Some(stream) = self.stream(place) {
                    stream.is_paused = true;
                }
                self.begin_pending(place, true);
                Ok(())
            }
            (None, Read::Blocked) => {
                self.begin_pending(place, true);
                Ok(())
            }
            (None, Read::Closed) => Ok(()),
        };
        match done {
            Ok(()) => {}
            Err(Fault::Connection(code)) => self.fail(code),
            Err(Fault::Stream(code)) => self.reset(place, code),
        }
    }

    fn wants_more(&self, place: u32) -> bool {
        let Some(stream) = self.places[place as usize].as_deref() else { return false };
        let has_room = stream.unread < UNREAD && (stream.unread == 0 || self.unread < UNREAD_TOGETHER);
        has_room && !self.is_over()
    }

    /// Continues reading a stream after the reader of its body has taken bytes. A stream that waits for others
    /// ([`UNREAD_TOGETHER`]) has unread bytes too, so its own reader continues it.
    pub(super) fn resume_paused(&mut self, place: u32) {
        let Some(stream) = self.stream(place) else { return };
        if mem::take(&mut stream.is_paused) {
            self.readable.push(place);
        }
    }

    /// Processes bytes of a request stream.
    fn bytes(&mut self, place: u32, bytes: &[u8]) -> Result<(), Fault> {
        self.turn.take(bytes.len());
        let mut rest = bytes;
        while let Some(stream) = self.places[place as usize].as_deref_mut() {
            // Counts the frame: its bytes were counted above.
            self.turn.take(0);
            match stream.reader.next(&mut rest)? {
                Some(Item::Head(head)) => {
                    tracing::debug!(kind = head.kind, length = head.length, "a frame of HTTP/3");
                    self.flood.charge(prices::frame(head));
                    if self.is_over() {
                        break;
                    }
                }
                Some(Item::Data(part)) => self.data(place, part)?,
                Some(Item::Frame(_, section)) => self.section(place, &section)?,
                Some(Item::TooLong) => self.too_long(place)?,
                None => break,
            }
            debug_assert_eq!(self.broken_rule(), None);
        }
        self.count_partial(place)
    }

    /// Accounts the incomplete field section of a stream. Beyond [`PARTIAL`], the stream fails with `H3_EXCESSIVE_LOAD`.
    fn count_partial(&mut self, place: u32) -> Result<(), Fault> {
        let Some(stream) = self.places[place as usize].as_deref_mut() else { return Ok(()) };
        let held = stream.reader.held();
        if let Some(partial) = &mut self.partial {
            // The former count is removed first, so that a section that grows is counted once.
            partial.remove(mem::take(&mut stream.partial));
            // RFC 9114 section 10.5
            if partial.bytes() + held > PARTIAL || partial.add(held).is_err() {
                return Err(Fault::Stream(Code::EXCESSIVE_LOAD));
            }
            stream.partial = held;
        }
        Ok(())
    }

    /// Processes a field section: the head of a request, or trailers.
    fn section(&mut self, place: u32, section: &[u8]) -> Result<(), Fault> {
        let settings = &self.http.settings;
        let mut head = Head::with_room(section.len());
        // Four pseudo-headers, and one header above the limit: such a request is refused where those of HTTP/1.1 are.
        let most = settings.headers.saturating_add(5);
        let decoded = self.decoder.decode(section, most, settings.head_size, &mut head);
        let decoded = decoded.map_err(|_| Code::QPACK_DECOMPRESSION_FAILED)?;
        self.flood.block_received(section.len() as u64);
        let Some(stream) = self.stream(place) else { return Ok(()) };
        let begins = !mem::replace(&mut stream.has_head, true);
        // The service counts the heads of requests; all other sections are counted here.
        if !begins || !decoded.is_whole {
            self.http.connection.multiplex().head_received(decoded.size);
        }
        if begins { self.request(place, head, decoded) } else { self.trailers(place, head, decoded) }
    }

    fn request(&mut self, place: u32, head: Head, decoded: Decoded) -> Result<(), Fault> {
        if !decoded.is_whole {
            self.refuse_head(place, &head.line());
            return Ok(());
        }
        let length = head.length();
        let request = head.into_request().map_err(|line| {
            self.http.refused(MalformedReason::Fields, 0, line.as_bytes());
            Fault::Stream(Code::MESSAGE_ERROR)
        })?;
        let Some(stream) = self.stream(place) else { return Ok(()) };
        if let Some(value) = request.headers().get(PRIORITY).filter(|_| !stream.rank.is_updated) {
            stream.rank.priority = Priority::read(value.as_bytes());
        }
        if request.method() == Method::CONNECT {
            // RFC 9114 section 4.4.
            stream.reader.order.tunnel();
        }
        stream.left = BodyLeft::new(length);
        stream.head = Some(Box::new(request));
        Ok(())
    }

    fn trailers(&mut self, place: u32, head: Head, decoded: Decoded) -> Result<(), Fault> {
        let malformed = Fault::Stream(Code::MESSAGE_ERROR);
        self.begin_pending(place, true);
        let trailers = head.into_trailers().filter(|_| decoded.is_whole).ok_or(malformed)?;
        self.end_body(place, Some(trailers).filter(|trailers| !trailers.is_empty()))
    }

    /// Processes a field section that was too long to be decoded.
    fn too_long(&mut self, place: u32) -> Result<(), Fault> {
        let Some(stream) = self.stream(place) else { return Ok(()) };
        if mem::replace(&mut stream.has_head, true) {
            return Err(Fault::Stream(Code::EXCESSIVE_LOAD));
        }
        self.refuse_head(place, "");
        Ok(())
    }

    /// Responds with `431` to a request whose head exceeds the limits and was not decoded completely (RFC 6585 section 5).
    fn refuse_head(&mut self, place: u32, line: &str) {
        self.http.refused(MalformedReason::HeadTooLarge, 431, line.as_bytes());
        self.write_status(place, 431, true);
        if let Some(stream) = self.stream(place) {
            // The rest of the request is not needed (RFC 9114 section 4.1).
            let id = stream.id;
            stream.is_open = false;
            self.cuts.push(Cut { stream: id, code: Code::NO_ERROR, part: Part::Request });
        }
    }

    /// Processes a part of the body.
    fn data(&mut self, place: u32, part: &[u8]) -> Result<(), Fault> {
        self.begin_pending(place, true);
        let Some(stream) = self.stream(place) else { return Ok(()) };
        if !stream.left.receive(part.len()) {
            return Err(Fault::Stream(Code::MESSAGE_ERROR));
        }
        if let Some(inbox) = &stream.inbox
            && inbox.push(part, 0).is_continue()
        {
            stream.unread += part.len();
            self.unread += part.len();
        }
        Ok(())
    }

    /// Processes the end of a request stream.
    fn end(&mut self, place: u32) -> Result<(), Fault> {
        let Some(stream) = self.stream(place) else { return Ok(()) };
        stream.is_open = false;
        stream.reader.end()?;
        if stream.reader.order.is_before_head() {
            // RFC 9114 section 4.1
            return Err(Fault::Stream(Code::REQUEST_INCOMPLETE));
        }
        if let Some(request) = stream.head.as_deref().filter(|_| !stream.left.may_end()) {
            let line = format!("{} {}", request.method(), request.uri().path());
            self.http.refused(MalformedReason::Length, 0, line.as_bytes());
            return Err(Fault::Stream(Code::MESSAGE_ERROR));
        }
        self.begin_pending(place, false);
        self.end_body(place, None)
    }

    /// Begins the request whose head was received; with a body if `has_body`, otherwise with [`ClientBody::Empty`].
    fn begin_pending(&mut self, place: u32, has_body: bool) {
        let Some(stream) = self.places[place as usize].as_deref_mut() else { return };
        let Some(request) = stream.head.take() else { return };
        let connection = &self.http.connection;
        let body = if has_body {
            let expects = request.headers().get(EXPECT);
            let expects = expects.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"));
            let inbox = Inbox::new(place, stream.left.bytes(), expects, &self.notices);
            stream.inbox = Some(Rc::clone(&inbox));
            ClientBody::Stream(inbox, Rc::clone(connection))
        } else {
            ClientBody::Empty
        };
        let request: Request<ClientBody> = (*request).map(|()| body);
        stream.work = Work::respond(&self.http, &self.flood, request);
        self.runnable.push(place);
    }

    /// Completes the body of a request, if it has one.
    fn end_body(&mut self, place: u32, trailers: Option<HeaderMap>) -> Result<(), Fault> {
        let Some(stream) = self.stream(place) else { return Ok(()) };
        // RFC 9114 section 4.1.2: the body has the length that the head states. A request that has just begun is not run.
        if !stream.left.may_end() {
            return Err(Fault::Stream(Code::MESSAGE_ERROR));
        }
        if let Some(inbox) = stream.inbox.take() {
            inbox.end(trailers);
            // Nothing more is read for this body, so it delays no other one.
            let unread = mem::take(&mut stream.unread);
            self.unread -= unread;
        }
        self.close_if_over(place);
        Ok(())
    }
}
