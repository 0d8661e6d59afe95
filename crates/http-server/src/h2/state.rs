//! One connection over HTTP/2: its streams, windows and tables.

use std::collections::VecDeque;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;

use brisk_answer::RecordedBody;
use brisk_http::http2::field::Field;
use brisk_http_connection::body::http2::{Inbox, Notices};
use brisk_http_connection::chunk::Chunk;
use brisk_http_connection::streams::StreamKey;
use brisk_http_connection::wakes::Wakes;
use brisk_wire::h2::frame::{LARGEST_WINDOW, Reason, WriteFrames, kind};
use brisk_wire::h2::hpack::{DEFAULT_TABLE, Decoder, Encoder};
use brisk_wire::h2::priority::{self, Priority};
use brisk_wire::h2::reader::{DataFrame, FrameOrder};
use brisk_wire::h2::settings::{self, DEFAULT_WINDOW, PeerSettings, id};
use http::response::Parts;
use http::{HeaderMap, Response};

use crate::driver::Http;
use crate::flood::FloodWatch;

/// The window of uploads, of a stream and of the connection, once the client has seen our settings.
pub(super) const WINDOW: u32 = 1 << 20;

/// What our PING carries that goes before the last GOAWAY.
pub(super) const LAST_PING: [u8; 8] = *b"brisk:ok";

/// Streams that have ended and are remembered: frames for those that were reset here may still come.
const REMEMBERED: usize = 128;

/// The state of a connection.
pub(super) struct H2<'a> {
    pub(super) http: &'a Http,
    pub(super) flood: FloodWatch,
    pub(super) notices: Rc<Notices>,
    pub(super) wakes: Wakes,
    pub(super) recv: Receiving,
    pub(super) send: Sending,
    pub(super) places: Vec<Option<Box<Stream>>>,
    pub(super) free: Vec<u32>,
    /// The places of the streams by their numbers, in ascending order.
    pub(super) numbers: Vec<(u32, u32)>,
    /// Streams that were opened or woken and wait to be run.
    pub(super) runnable: Vec<u32>,
    /// What is to be dropped when the frames of this turn have been read.
    pub(super) dropped: Vec<Work>,
    pub(super) ended: VecDeque<(u32, Ended)>,
    /// The highest number of the streams that have ended and are not remembered any more.
    pub(super) forgotten: u32,
    pub(super) goaway: Goaway,
    /// The error that ends the connection.
    pub(super) failure: Option<Reason>,
}

/// What comes from the client.
pub(super) struct Receiving {
    pub(super) expect: Expect,
    /// A frame that is not complete.
    pub(super) partial: Vec<u8>,
    pub(super) order: FrameOrder,
    pub(super) decoder: Decoder<Field>,
    /// Bytes that the client may send, and those that were read since its window was opened last, less those counted ahead.
    pub(super) window: i64,
    pub(super) unclaimed: i64,
    /// The window of new streams: what the client knows of ours.
    pub(super) initial_window: u32,
    /// The last stream that the client opened.
    pub(super) last: u32,
    pub(super) is_acknowledged: bool,
}

/// What goes to the client.
pub(super) struct Sending {
    pub(super) encoder: Encoder,
    pub(super) peer: PeerSettings,
    pub(super) window: i64,
    /// Bytes to be written, from `written` on.
    pub(super) out: Vec<u8>,
    pub(super) written: usize,
    /// Bytes of `out` that are counted as held by the answers of the connection.
    pub(super) held: usize,
    /// Streams with a head to be sent.
    pub(super) heads: VecDeque<u32>,
    /// Streams with data that their windows allow to send, by urgency.
    pub(super) ready: [VecDeque<u32>; 8],
}

/// What the next bytes are.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expect {
    /// The preface from this byte on.
    Preface(usize),
    Frame,
    /// The payload of `DATA`.
    Data(DataFrame),
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Both sides have sent all, or the client has reset it.
    Over,
    /// It was reset here, or it is not known any more how it ended: what still comes is ignored.
    Reset,
}

/// How far the end of the connection has been announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goaway {
    None,
    /// A GOAWAY for no stream at all, and a PING after it.
    Announced,
    /// The last one, after this stream.
    Last(u32),
}

/// A request and its answer.
pub(super) struct Stream {
    pub(super) number: u32,
    pub(super) key: Option<StreamKey>,
    pub(super) work: Work,
    /// The body of the request until it has ended.
    pub(super) inbox: Option<Rc<Inbox>>,
    /// Bytes that the client may send, and those that were read since the window was opened last.
    pub(super) recv_window: i64,
    pub(super) unclaimed: u32,
    /// Bytes of the body to come, where the head states it.
    pub(super) left: Option<u64>,
    pub(super) send_window: i64,
    pub(super) priority: Priority,
    /// It is in a queue of [`Sending::ready`].
    pub(super) is_queued: bool,
}

/// What is done with a stream.
pub(super) enum Work {
    Running(Pin<Box<dyn Future<Output = Response<RecordedBody>>>>),
    Answer(Box<Answer>),
    /// All was sent.
    Done,
}

/// An answer on its way.
pub(super) struct Answer {
    /// Until it is sent.
    pub(super) head: Option<Parts>,
    pub(super) body: RecordedBody,
    /// A piece that waits for a window.
    pub(super) chunk: Option<Chunk>,
    pub(super) trailers: Option<HeaderMap>,
}

impl<'a> H2<'a> {
    /// A connection that has sent its settings.
    pub(super) fn new(http: &'a Http) -> Self {
        let mut out = Vec::with_capacity(256);
        let limit = u32::try_from(http.settings.head_size).unwrap_or(u32::MAX);
        let ours = settings::payload(&[
            (id::MAX_CONCURRENT_STREAMS, http.settings.h2_streams),
            (id::INITIAL_WINDOW_SIZE, WINDOW),
            (id::MAX_HEADER_LIST_SIZE, limit),
            (id::ENABLE_CONNECT_PROTOCOL, 1),
            (id::NO_RFC7540_PRIORITIES, 1),
        ]);
        out.frame(kind::SETTINGS, 0, 0, &ours);
        out.window_update(0, WINDOW - DEFAULT_WINDOW);
        Self {
            http,
            flood: FloodWatch::new(http.settings.h2_resets),
            notices: Rc::default(),
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
                ready: Default::default(),
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

    /// The place of a stream that has not ended.
    pub(super) fn find(&self, number: u32) -> Option<u32> {
        let at = self.numbers.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(self.numbers[at].1)
    }

    pub(super) fn stream(&mut self, place: u32) -> Option<&mut Stream> {
        self.places.get_mut(place as usize)?.as_deref_mut()
    }

    /// Adds a stream with the highest number of all.
    pub(super) fn open(&mut self, stream: Box<Stream>) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() as u32 - 1
        });
        self.numbers.push((stream.number, place));
        self.places[place as usize] = Some(stream);
        place
    }

    /// Forgets a stream. What it was doing ends after the frames that have come were read.
    pub(super) fn close(&mut self, place: u32, ended: Ended) {
        let Some(mut stream) = self.places[place as usize].take() else { return };
        self.free.push(place);
        if let Ok(at) = self.numbers.binary_search_by_key(&stream.number, |(number, _)| *number) {
            self.numbers.remove(at);
        }
        self.remember(stream.number, ended);
        if stream.is_queued {
            self.send.ready[usize::from(stream.priority.urgency)].retain(|other| *other != place);
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

    /// How a stream ended that is not open; `None` if it never was.
    pub(super) fn how_ended(&self, number: u32) -> Option<Ended> {
        let found = self.ended.iter().rev().find(|(other, _)| *other == number).map(|(_, ended)| *ended);
        // More streams than are remembered may be open, and reset, at a time.
        found.or((number <= self.forgotten).then_some(Ended::Reset))
    }

    /// Resets a stream, whether it is open or not.
    pub(super) fn reset(&mut self, number: u32, reason: Reason) {
        self.send.out.rst_stream(number, reason);
        self.flood.reset_sent(reason);
        match self.find(number) {
            Some(place) => self.close(place, Ended::Reset),
            None => self.remember(number, Ended::Reset),
        }
    }

    /// No request is taken from now on but those on their way.
    pub(super) fn drain(&mut self) {
        if self.goaway == Goaway::None && self.failure.is_none() {
            self.goaway = Goaway::Announced;
            self.send.out.goaway(LARGEST_WINDOW, Reason::NO_ERROR);
            self.send.out.frame(kind::PING, 0, 0, &LAST_PING);
            self.flood.ping_sent();
        }
    }

    /// The client has seen that the connection ends: what it has sent before is all that is answered.
    pub(super) fn drain_last(&mut self) {
        if self.goaway == Goaway::Announced {
            self.goaway = Goaway::Last(self.recv.last);
            self.send.out.goaway(self.recv.last, Reason::NO_ERROR);
        }
    }

    /// Ends the connection with an error.
    pub(super) fn fail(&mut self, reason: Reason) {
        if self.failure.is_none() {
            self.failure = Some(reason);
            self.send.out.goaway(self.last_stream(), reason);
        }
    }

    /// The last stream that is answered. RFC 9113 section 6.8: once announced it does not become higher.
    pub(super) fn last_stream(&self) -> u32 {
        if let Goaway::Last(last) = self.goaway { last } else { self.recv.last }
    }

    /// Whether nothing more is to be read.
    pub(super) fn is_over(&self) -> bool {
        self.failure.is_some() || self.flood.exhausted_by().is_some()
    }

    /// Puts the stream where its data waits to be sent, if its window allows.
    pub(super) fn queue(&mut self, place: u32) {
        let Some(stream) = self.places[place as usize].as_deref_mut() else { return };
        let Work::Answer(answer) = &stream.work else { return };
        if stream.is_queued || answer.chunk.is_none() || stream.send_window <= 0 {
            return;
        }
        stream.is_queued = true;
        self.send.ready[usize::from(stream.priority.urgency)].push_back(place);
    }

    /// Changes the priority of a stream, wherever it waits.
    pub(super) fn prioritize(&mut self, place: u32, priority: Priority) {
        let Some(stream) = self.stream(place) else { return };
        let before = mem::replace(&mut stream.priority, priority);
        if before.urgency != priority.urgency && mem::take(&mut stream.is_queued) {
            self.send.ready[usize::from(before.urgency)].retain(|other| *other != place);
            self.queue(place);
        }
    }
}

/// The priority of a request that states none: turns with the others, since its client may not know of priorities.
pub(super) const UNSTATED: Priority = Priority { incremental: true, ..priority::DEFAULT };

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
