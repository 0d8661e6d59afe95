//! Control stream of this side, and the unidirectional streams of a client (RFC 9114 section 6.2).

use std::mem;
use std::task::Context;

use brisk_http_connection::settings::HttpSettings;
use brisk_net::Deadline;
use brisk_wire::h3::error::Code;
use brisk_wire::h3::frame::{self, kind, stream};
use brisk_wire::h3::order::ControlOrder;
use brisk_wire::h3::qpack::instructions::{self, DecoderStream};
use brisk_wire::h3::reader::{FrameReader, Item};
use brisk_wire::h3::settings::{self, PeerSettings, id};
use brisk_wire::h3::varint::{self, Partial};
use brisk_wire::priority::Priority;
use bytes::Bytes;

use super::prices;
use super::state::{Cut, H3, Part};
use super::transport::{Direction, Read, Transport, Write};

/// Maximum number of priorities of requests that have not arrived. A client sends such a priority just before its request, and
/// QUIC may deliver both in another order (RFC 9218 section 7.2).
const EARLY: usize = 16;

/// Maximum number of requests by which `PRIORITY_UPDATE` may precede its request: the number of streams that QUIC permits.
const AHEAD: u64 = 1024;

/// State of the streams that concern the connection as a whole.
pub(super) struct Control {
    /// Our control stream, once the client permits one, and output that the transport has not accepted.
    stream: Option<u64>,
    out: Vec<Bytes>,
    /// Streams of the client.
    incoming: Vec<Incoming>,
    /// Types of streams that the client has opened, each at most once.
    seen: [bool; 4],
    push: Option<u64>,
    goaway: Option<u64>,
    /// Priorities of requests that have not arrived, at most [`EARLY`].
    early: Vec<(u64, Priority)>,
    pub(super) drain: Drain,
}

/// Progress of announcing the end of the connection (RFC 9114 section 5.2).
pub(super) enum Drain {
    None,
    /// `GOAWAY` with the largest stream ID, until this time, by which requests on their way have arrived.
    Announced(Option<Deadline>),
    /// The final `GOAWAY`: requests from this stream on are rejected.
    Last(u64),
}

/// Unidirectional stream of the client.
struct Incoming {
    id: u64,
    kind: Kind,
    is_readable: bool,
}

enum Kind {
    /// The type has not arrived entirely.
    Unknown(Partial),
    Control(FrameReader<ControlOrder>),
    Encoder,
    Decoder(DecoderStream),
}

/// Largest ID of a request stream.
const LARGEST: u64 = varint::LARGEST - 3;

/// The type of our control stream, and our `SETTINGS`.
pub(super) fn greeting(http: &HttpSettings) -> Bytes {
    let mut out = Vec::new();
    varint::write(stream::CONTROL, &mut out);
    let at = frame::begin(kind::SETTINGS, &mut out);
    let ours = [
        (id::MAX_FIELD_SECTION_SIZE, http.head_size as u64),
        // RFC 9220 section 3: permits WebSocket over HTTP/3.
        (id::ENABLE_CONNECT_PROTOCOL, 1),
    ];
    settings::write(&ours, &mut out);
    frame::end(at, &mut out);
    out.into()
}

impl Control {
    /// Creates the state with [`greeting`] as the first output.
    pub(super) fn new(http: &HttpSettings) -> Self {
        Self {
            stream: None,
            out: vec![greeting(http)],
            incoming: Vec::new(),
            seen: [false; 4],
            push: None,
            goaway: None,
            early: Vec::new(),
            drain: Drain::None,
        }
    }

    /// Continues on `stream`, on which [`greeting`] was sent except for `rest`.
    pub(super) fn greeted(&mut self, stream: u64, rest: Bytes) {
        self.stream = Some(stream);
        self.out = vec![rest];
        self.out.retain(|bytes| !bytes.is_empty());
    }

    /// Whether all output was accepted.
    pub(super) fn is_written(&self) -> bool {
        self.out.is_empty()
    }

    /// Writes output to the control stream, which the first call opens.
    ///
    /// # Errors
    ///
    /// [`Code::CLOSED_CRITICAL_STREAM`] if the client has stopped the stream.
    pub(super) fn write(&mut self, transport: &mut impl Transport) -> Result<(), Code> {
        while !self.out.is_empty() {
            if self.stream.is_none() {
                self.stream = transport.open();
                if let Some(stream) = self.stream {
                    // Before all responses: the stream has few bytes, and a client may wait for the settings.
                    transport.set_priority(stream, i32::MAX);
                }
            }
            let Some(stream) = self.stream else { break };
            match transport.write(stream, &mut self.out) {
                Write::Written(_) => self.out.retain(|bytes| !bytes.is_empty()),
                Write::Blocked => break,
                // RFC 9114 section 6.2.1: the peer must not ask for the end of the control stream.
                Write::Stopped => return Err(Code::CLOSED_CRITICAL_STREAM),
            }
        }
        Ok(())
    }

    fn send_goaway(&mut self, id: u64) {
        let mut out = Vec::new();
        frame::goaway(id, &mut out);
        self.out.push(out.into());
    }

    /// Takes the priority that arrived before the request `id`, if one did.
    pub(super) fn take_early(&mut self, id: u64) -> Option<Priority> {
        let at = self.early.iter().position(|(early, _)| *early == id)?;
        Some(self.early.swap_remove(at).1)
    }

    /// Whether the request `id` is rejected, because the connection ends ([`Drain::Last`]).
    pub(super) fn rejects(&self, id: u64) -> bool {
        matches!(self.drain, Drain::Last(last) if id >= last)
    }

    /// Begins the use of a stream of this type. RFC 9114 section 6.2 and RFC 9204 section 4.2: one of each type, no push.
    fn begin(&mut self, number: u64) -> Result<Option<Kind>, Code> {
        let kind = match number {
            stream::CONTROL => Kind::Control(FrameReader::new(ControlOrder::default())),
            stream::ENCODER => Kind::Encoder,
            stream::DECODER => Kind::Decoder(DecoderStream::default()),
            // RFC 9114 section 6.2.2: only servers push.
            stream::PUSH => return Err(Code::STREAM_CREATION_ERROR),
            _ => return Ok(None),
        };
        let is_repeated = mem::replace(&mut self.seen[number as usize], true);
        if is_repeated { Err(Code::STREAM_CREATION_ERROR) } else { Ok(Some(kind)) }
    }
}

impl H3 {
    /// Announces the end of the connection by `GOAWAY`: only requests already on their way are accepted.
    pub(super) fn drain(&mut self) {
        if matches!(self.control.drain, Drain::None) && self.failure.is_none() {
            self.control.drain = Drain::Announced(None);
            self.control.send_goaway(LARGEST);
        }
    }

    /// Sends the final `GOAWAY` after two round trips: the requests that the client sent before it read the announcement have
    /// arrived.
    pub(super) fn poll_drain(&mut self, transport: &impl Transport, cx: &mut Context<'_>) {
        let Drain::Announced(deadline) = &mut self.control.drain else { return };
        if deadline.is_none() && self.control.out.is_empty() {
            *deadline = self.http.connection.register_deadline();
            if let Some(deadline) = deadline {
                deadline.set(2 * transport.round_trip());
            }
        }
        if deadline.as_ref().is_some_and(|deadline| deadline.poll_expired(cx).is_ready()) {
            self.control.drain = Drain::Last(self.next);
            self.control.send_goaway(self.next);
            // Written in the next turn.
            cx.waker().wake_by_ref();
        }
    }

    /// Whether all requests before [`Drain::Last`] have ended and all output is acknowledged.
    pub(super) fn is_drained(&self) -> bool {
        matches!(self.control.drain, Drain::Last(_))
            && self.numbers.is_empty()
            && self.unacknowledged.is_empty()
            && self.control.is_written()
    }

    /// Marks a unidirectional stream as readable.
    pub(super) fn incoming_readable(&mut self, id: u64) {
        if let Some(incoming) = self.control.incoming.iter_mut().find(|incoming| incoming.id == id) {
            incoming.is_readable = true;
        }
    }

    /// Reads the unidirectional streams of the client.
    pub(super) fn read_incoming(&mut self, transport: &mut impl Transport) {
        while let Some(id) = transport.accept(Direction::Uni) {
            let kind = Kind::Unknown(Partial::default());
            self.control.incoming.push(Incoming { id, kind, is_readable: true });
        }
        let mut at = 0;
        while at < self.control.incoming.len() && !self.is_over() {
            let id = self.control.incoming[at].id;
            let mut is_wanted = true;
            if mem::take(&mut self.control.incoming[at].is_readable) {
                let read = transport.read(id, |bytes| match self.incoming_bytes(at, bytes) {
                    Ok(wanted) => {
                        is_wanted = wanted;
                        wanted && !self.is_over()
                    }
                    Err(code) => {
                        self.fail(code);
                        false
                    }
                });
                if !is_wanted {
                    // RFC 9114 section 6.2: a stream of unknown type is not read.
                    let code = Code::STREAM_CREATION_ERROR;
                    self.cuts.push(Cut { stream: id, code, part: Part::Request });
                    self.flood.charge(prices::USELESS);
                } else if matches!(read, Read::End | Read::Reset | Read::Closed) {
                    is_wanted = false;
                    // RFC 9114 section 6.2.1, RFC 9204 section 4.2. Section 6.2: a stream may end before its type.
                    if !matches!(self.control.incoming[at].kind, Kind::Unknown(_)) {
                        self.fail(Code::CLOSED_CRITICAL_STREAM);
                    }
                }
            }
            if is_wanted {
                at += 1;
            } else {
                self.control.incoming.swap_remove(at);
            }
        }
    }

    /// Processes bytes of a unidirectional stream. Returns `Ok(false)` for a stream of unknown type, which is not read.
    fn incoming_bytes(&mut self, at: usize, bytes: &[u8]) -> Result<bool, Code> {
        let mut rest = bytes;
        if let Kind::Unknown(number) = &mut self.control.incoming[at].kind {
            let Some(number) = number.read(&mut rest) else { return Ok(true) };
            let Some(kind) = self.control.begin(number)? else { return Ok(false) };
            self.control.incoming[at].kind = kind;
        }
        let instructions = match &mut self.control.incoming[at].kind {
            Kind::Encoder => instructions::encoder(rest)?,
            Kind::Decoder(stream) => stream.read(rest)?,
            Kind::Control(_) | Kind::Unknown(_) => return self.control_bytes(at, rest).map(|()| true),
        };
        for _ in 0..instructions {
            self.flood.charge(prices::USELESS);
        }
        Ok(true)
    }

    fn control_bytes(&mut self, at: usize, bytes: &[u8]) -> Result<(), Code> {
        let mut rest = bytes;
        while let Kind::Control(reader) = &mut self.control.incoming[at].kind {
            match reader.next(&mut rest)? {
                Some(Item::Head(head)) => {
                    tracing::debug!(kind = head.kind, length = head.length, "a frame of HTTP/3");
                    self.flood.charge(prices::frame(head));
                    if self.is_over() {
                        break;
                    }
                }
                Some(Item::Frame(kind, payload)) => self.control_frame(kind, &payload)?,
                Some(Item::Data(_) | Item::TooLong) => {}
                None => break,
            }
        }
        Ok(())
    }

    fn control_frame(&mut self, kind: u64, payload: &[u8]) -> Result<(), Code> {
        match kind {
            // No setting of a client changes the output of a server without a dynamic table.
            kind::SETTINGS => drop(PeerSettings::read(payload)?),
            kind::GOAWAY => {
                // RFC 9114 section 5.2: the ID of a push, which must not increase.
                let id = frame::id(payload)?;
                if self.control.goaway.is_some_and(|before| id > before) {
                    return Err(Code::ID_ERROR);
                }
                self.control.goaway = Some(id);
            }
            kind::MAX_PUSH_ID => {
                // RFC 9114 section 7.2.7: the limit must not be reduced.
                let id = frame::id(payload)?;
                if self.control.push.is_some_and(|before| id < before) {
                    return Err(Code::ID_ERROR);
                }
                self.control.push = Some(id);
            }
            // RFC 9114 section 7.2.3, RFC 9218 section 7.2: no push was promised.
            kind::CANCEL_PUSH => return frame::id(payload).and(Err(Code::ID_ERROR)),
            kind::PRIORITY_UPDATE_PUSH => {
                return frame::priority_update(payload).and(Err(Code::ID_ERROR));
            }
            kind::PRIORITY_UPDATE => self.priority_update(payload)?,
            _ => {}
        }
        Ok(())
    }

    fn priority_update(&mut self, payload: &[u8]) -> Result<(), Code> {
        let (id, value) = frame::priority_update(payload)?;
        // RFC 9218 section 7.2: a request stream within the limit.
        if id % 4 != 0 || id >= self.next.saturating_add(4 * AHEAD) {
            return Err(Code::ID_ERROR);
        }
        let priority = Priority::read(value);
        if let Some(place) = self.find(id) {
            self.prioritize(place, priority);
        } else if id >= self.next {
            // A repeated update replaces the former one, so that one request cannot use all slots.
            let _ = self.control.take_early(id);
            // The oldest makes room: a lost priority only changes the order of responses.
            if self.control.early.len() == EARLY {
                self.control.early.remove(0);
            }
            self.control.early.push((id, priority));
        }
        Ok(())
    }
}
