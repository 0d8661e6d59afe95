//! State of an HTTP/2 connection: streams, flow control windows and HPACK tables.

use std::collections::VecDeque;
use std::mem;
use std::rc::Rc;

use brisk_http::fields::{BodyLeft, Field};
use brisk_http_connection::body::inbox::{Inbox, Notices};
use brisk_http_connection::streams::StreamKey;
use brisk_http_connection::wakes::Wakes;
use brisk_wire::h2::frame::{LARGEST_WINDOW, Reason, WriteFrames, kind};
use brisk_wire::h2::hpack::{DEFAULT_TABLE, Decoder, Encoder};
use brisk_wire::h2::reader::{DataFrame, FrameOrder};
use brisk_wire::h2::settings::{self, DEFAULT_WINDOW, PeerSettings, id};
use brisk_wire::priority::Priority;

use super::prices::{self, Owed};
use crate::driver::Http;
use crate::flood::FloodWatch;
use crate::ready::ReadyStreams;
use crate::response::Work;

/// Flow control window for uploads in bytes: of the connection from the start, and of each stream once the client has
/// acknowledged our
/// `SETTINGS`.
pub(super) const WINDOW: u32 = 1 << 20;

/// Payload of our `PING` before the last `GOAWAY`.
pub(super) const LAST_PING: [u8; 8] = *b"brisk:ok";

/// Number of ended streams that are remembered, because frames for a stream that was reset here may still arrive.
pub(super) const REMEMBERED: usize = 128;

/// State of a connection. [`H2::broken_rule`] states its invariants, `docs/stream-states.md` the states of a stream.
pub(super) struct H2<'a> {
    pub(super) http: &'a Http,
    pub(super) flood: FloodWatch,
    pub(super) owed: Owed,
    pub(super) notices: Rc<Notices>,
    pub(super) wakes: Wakes,
    pub(super) recv: Receiving,
    pub(super) send: Sending,
    pub(super) places: Vec<Option<Box<Stream>>>,
    pub(super) free: Vec<u32>,
    /// Pairs of stream number and index into `places`, in ascending order.
    pub(super) numbers: Vec<(u32, u32)>,
    /// Indices of new and woken streams that wait to be run.
    pub(super) runnable: Vec<u32>,
    /// Work to drop after the frames of this turn.
    pub(super) dropped: Vec<Work>,
    pub(super) ended: VecDeque<(u32, Ended)>,
    /// Highest number of the ended streams that are no longer remembered.
    pub(super) forgotten: u32,
    pub(super) goaway: Goaway,
    /// Connection error, if one occurred; nothing follows its `GOAWAY`.
    pub(super) failure: Option<Reason>,
}

/// State of receiving.
pub(super) struct Receiving {
    pub(super) expect: Expect,
    /// Bytes of an incomplete frame.
    pub(super) partial: Vec<u8>,
    pub(super) order: FrameOrder,
    pub(super) decoder: Decoder<Field>,
    /// Remaining window of the client for the connection, and bytes read since the last `WINDOW_UPDATE`, less bytes credited in
    /// advance.
    pub(super) window: i64,
    pub(super) unclaimed: i64,
    /// Initial window of new streams, as far as the client knows it: `DEFAULT_WINDOW` until it has acknowledged our `SETTINGS`.
    pub(super) initial_window: u32,
    /// Number of the last stream opened by the client.
    pub(super) last: u32,
    pub(super) is_acknowledged: bool,
}

/// State of sending.
pub(super) struct Sending {
    pub(super) encoder: Encoder,
    pub(super) peer: PeerSettings,
    pub(super) window: i64,
    /// Pending output, from index `written` on.
    pub(super) out: Vec<u8>,
    pub(super) written: usize,
    /// Bytes of `out` accounted as held by the connection's responses.
    pub(super) held: usize,
    /// Streams with a head to send.
    pub(super) heads: VecDeque<u32>,
    /// Streams with data to send and an open window.
    pub(super) ready: ReadyStreams,
}

/// Meaning of the next bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expect {
    /// Connection preface, from this byte on (RFC 9113 section 3.4).
    Preface(usize),
    Frame,
    /// Payload of a `DATA` frame.
    Data(DataFrame),
}

/// End of a stream, by which a late frame for it is an error or is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Both sides are complete, or the client sent `RST_STREAM`.
    Over,
    /// Reset by this side, or no longer remembered: further frames are ignored (RFC 9113 section 5.1).
    Reset,
}

/// Progress of announcing the end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goaway {
    None,
    /// A `GOAWAY` with the maximum stream number, and a `PING` after it (RFC 9113 section 6.8).
    Announced,
    /// The final `GOAWAY`, with this last stream.
    Last(u32),
}

/// Request and its response.
pub(super) struct Stream {
    pub(super) number: u32,
    pub(super) key: Option<StreamKey>,
    pub(super) work: Work,
    /// Body of the request, until its end.
    pub(super) inbox: Option<Rc<Inbox>>,
    /// Remaining window of the client, and bytes read since the last `WINDOW_UPDATE`.
    pub(super) recv_window: i64,
    pub(super) unclaimed: u32,
    /// Remaining bytes of the body, if the head states its length.
    pub(super) left: BodyLeft,
    pub(super) send_window: i64,
    pub(super) priority: Priority,
    /// Whether the stream is in [`Sending::ready`].
    pub(super) is_queued: bool,
}

impl<'a> H2<'a> {
    /// Creates the state with our `SETTINGS` as its first output.
    pub(super) fn new(http: &'a Http) -> Self {
        let mut out = Vec::with_capacity(256);
        let limit = u32::try_from(http.settings.head_size).unwrap_or(u32::MAX);
        let ours = settings::payload(&[
            (id::MAX_CONCURRENT_STREAMS, http.settings.h2_streams),
            (id::INITIAL_WINDOW_SIZE, WINDOW),
            (id::MAX_HEADER_LIST_SIZE, limit),
            // RFC 8441 section 3: permits WebSocket over HTTP/2.
            (id::ENABLE_CONNECT_PROTOCOL, 1),
            // RFC 9218 section 2.1: the priorities of RFC 7540 are ignored.
            (id::NO_RFC7540_PRIORITIES, 1),
        ]);
        out.frame(kind::SETTINGS, 0, 0, &ours);
        // RFC 9113 section 6.9.2: settings change the windows of streams only, not the connection's.
        out.window_update(0, WINDOW - DEFAULT_WINDOW);
        Self {
            http,
            flood: FloodWatch::new(http.settings.h2_resets),
            owed: Owed::new(),
            notices: Rc::clone(&http.connection.multiplex().bodies),
            wakes: Wakes::default(),
            recv: Receiving {
                expect: Expect::Preface(0),
                partial: Vec::new(),
                order: FrameOrder::default(),
                decoder: Decoder::new(DEFAULT_TABLE),
                window: WINDOW.into(),
                unclaimed: 0,
                initial_window: DEFAULT_WINDOW,
                last: 0,
                is_acknowledged: false,
            },
            send: Sending {
                encoder: Encoder::new(),
                peer: PeerSettings::default(),
                window: DEFAULT_WINDOW.into(),
                out,
                written: 0,
                held: 0,
                heads: VecDeque::new(),
                ready: ReadyStreams::default(),
            },
            places: Vec::new(),
            free: Vec::new(),
            numbers: Vec::new(),
            runnable: Vec::new(),
            dropped: Vec::new(),
            ended: VecDeque::new(),
            forgotten: 0,
            goaway: Goaway::None,
            failure: None,
        }
    }

    /// Index of the open stream `number` in [`Self::places`].
    pub(super) fn find(&self, number: u32) -> Option<u32> {
        let at = self.numbers.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(self.numbers[at].1)
    }

    pub(super) fn stream(&mut self, place: u32) -> Option<&mut Stream> {
        self.places.get_mut(place as usize)?.as_deref_mut()
    }

    /// Adds a stream, whose number is the highest so far. Returns its index.
    pub(super) fn open(&mut self, stream: Box<Stream>) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() as u32 - 1
        });
        self.numbers.push((stream.number, place));
        self.places[place as usize] = Some(stream);
        place
    }

    /// Closes a stream. Its [`Work`] is dropped after the frames of this turn.
    pub(super) fn close(&mut self, place: u32, ended: Ended) {
        let Some(mut stream) = self.places[place as usize].take() else { return };
        self.free.push(place);
        if let Ok(at) = self.numbers.binary_search_by_key(&stream.number, |(number, _)| *number) {
            self.numbers.remove(at);
        }
        self.remember(stream.number, ended);
        if stream.is_queued {
            self.send.ready.remove(place, stream.priority);
        }
        if let Work::Answer(answer) = &stream.work
            && answer.head.is_some()
        {
            self.send.heads.retain(|other| *other != place);
        }
        if let Some(inbox) = stream.inbox.take() {
            inbox.fail();
        }
        if !matches!(stream.work, Work::Done) {
            self.dropped.push(stream.work);
        }
    }

    pub(super) fn remember(&mut self, number: u32, ended: Ended) {
        if self.ended.len() == REMEMBERED
            && let Some((oldest, _)) = self.ended.pop_front()
        {
            self.forgotten = self.forgotten.max(oldest);
        }
        self.ended.push_back((number, ended));
    }

    /// The end of the stream `number`, which is not open; `None` if the stream was never opened.
    pub(super) fn how_ended(&self, number: u32) -> Option<Ended> {
        let found = self.ended.iter().rev().find(|(other, _)| *other == number).map(|(_, ended)| *ended);
        // More than [`REMEMBERED`] streams may be open, and then reset, at the same time.
        found.or((number <= self.forgotten).then_some(Ended::Reset))
    }

    /// Resets a stream, open or not.
    pub(super) fn reset(&mut self, number: u32, reason: Reason) {
        self.send.out.rst_stream(number, reason);
        self.flood.charge(prices::reset_sent(reason));
        match self.find(number) {
            Some(place) => self.close(place, Ended::Reset),
            None => self.remember(number, Ended::Reset),
        }
    }

    /// Announces the end of the connection by `GOAWAY` and `PING`: only requests already on their way are accepted.
    pub(super) fn drain(&mut self) {
        if self.goaway == Goaway::None && self.failure.is_none() {
            self.goaway = Goaway::Announced;
            self.send.out.goaway(LARGEST_WINDOW, Reason::NO_ERROR);
            self.send.out.frame(kind::PING, 0, 0, &LAST_PING);
            self.owed.ping_sent();
        }
    }

    /// Sends the final `GOAWAY`: the client has acknowledged the announcement, so it opens no further streams.
    pub(super) fn drain_last(&mut self) {
        if self.goaway == Goaway::Announced {
            self.goaway = Goaway::Last(self.recv.last);
            self.send.out.goaway(self.recv.last, Reason::NO_ERROR);
        }
    }

    /// Ends the connection with `GOAWAY`. The first error is kept.
    pub(super) fn fail(&mut self, reason: Reason) {
        if self.failure.is_none() {
            self.failure = Some(reason);
            self.send.out.goaway(self.last_stream(), reason);
        }
    }

    /// Last stream that gets a response. RFC 9113 section 6.8: an announced number must not increase.
    pub(super) fn last_stream(&self) -> u32 {
        if let Goaway::Last(last) = self.goaway { last } else { self.recv.last }
    }

    /// Whether no more input is processed.
    pub(super) fn is_over(&self) -> bool {
        self.failure.is_some() || self.flood.exhausted_by().is_some()
    }

    /// Adds the stream to the queue of its urgency, if it has data and an open window.
    pub(super) fn queue(&mut self, place: u32) {
        let Some(stream) = self.places[place as usize].as_deref_mut() else { return };
        let Work::Answer(answer) = &stream.work else { return };
        if stream.is_queued || answer.chunk.is_none() || stream.send_window <= 0 {
            return;
        }
        stream.is_queued = true;
        self.send.ready.push(place, stream.priority);
    }

    /// Changes the priority of a stream, and moves it to the queue of its new urgency.
    pub(super) fn prioritize(&mut self, place: u32, priority: Priority) {
        let Some(stream) = self.stream(place) else { return };
        let before = mem::replace(&mut stream.priority, priority);
        if before.urgency != priority.urgency && mem::take(&mut stream.is_queued) {
            self.send.ready.remove(place, before);
            self.queue(place);
        }
    }
}

impl Drop for H2<'_> {
    fn drop(&mut self) {
        self.hold_output(0);
        for stream in self.places.iter_mut().flatten() {
            if let Some(inbox) = stream.inbox.take() {
                inbox.fail();
            }
        }
    }
}
