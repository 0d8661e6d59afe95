//! State of an HTTP/3 connection: its request streams.

use std::collections::VecDeque;
use std::mem;
use std::rc::Rc;

use brisk_http::fields::BodyLeft;
use brisk_http::message::Request;
use brisk_http_connection::body::inbox::{Inbox, Notices};
use brisk_http_connection::held::{Account, HeldBytes};
use brisk_http_connection::streams::StreamKey;
use brisk_http_connection::wakes::Wakes;
use brisk_net::TurnLimit;
use brisk_wire::h3::error::Code;
use brisk_wire::h3::order::RequestOrder;
use brisk_wire::h3::qpack;
use brisk_wire::h3::reader::FrameReader;
use brisk_wire::priority::Priority;
use bytes::Bytes;

use super::control::Control;
use super::held::Held;
use crate::driver::Http;
use crate::flood::FloodWatch;
use crate::ready::{ReadyStreams, UNSTATED};
use crate::response::Work;

/// State of a connection. [`H3::broken_rule`] states its invariants, `docs/stream-states.md` the states of a stream.
pub(super) struct H3 {
    pub(super) http: Http,
    pub(super) flood: FloodWatch,
    pub(super) notices: Rc<Notices>,
    pub(super) wakes: Wakes,
    pub(super) control: Control,
    pub(super) decoder: qpack::Decoder,
    pub(super) places: Vec<Option<Box<Stream>>>,
    pub(super) free: Vec<u32>,
    /// Pairs of stream ID and index into `places`, in ascending order.
    pub(super) numbers: Vec<(u64, u32)>,
    /// ID of the next request stream that the client opens.
    pub(super) next: u64,
    /// Work on the bytes of the client in this turn.
    pub(super) turn: TurnLimit,
    /// Streams to read, by index.
    pub(super) readable: Vec<u32>,
    /// Indices of new and woken streams that wait to be run.
    pub(super) runnable: Vec<u32>,
    /// Work to drop after the frames of this turn.
    pub(super) dropped: Vec<Work>,
    /// Streams with a head to send.
    pub(super) heads: VecDeque<u32>,
    /// Streams with output that the transport may accept.
    pub(super) ready: ReadyStreams,
    /// Ended responses that the client has not acknowledged entirely, by ID.
    pub(super) unacknowledged: Vec<u64>,
    /// Streams to reset or stop at the end of the turn.
    pub(super) cuts: Vec<Cut>,
    pub(super) held: Held,
    /// Sum of [`Stream::unread`].
    pub(super) unread: usize,
    /// Sum of [`Stream::partial`], in the account of the client.
    pub(super) partial: Option<HeldBytes>,
    /// Connection error, if one occurred.
    pub(super) failure: Option<Code>,
}

/// Abrupt end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) stream: u64,
    pub(super) code: Code,
    pub(super) part: Part,
}

/// Part of a request and its response that is abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Request,
    Response,
    Both,
}

/// Request and its response.
pub(super) struct Stream {
    pub(super) id: u64,
    pub(super) key: Option<StreamKey>,
    pub(super) work: Work,
    pub(super) reader: FrameReader<RequestOrder>,
    /// Whether the head of the request was received.
    pub(super) has_head: bool,
    /// Head of the request until the request begins: after its first data, or at the end of the bytes that arrived with it,
    /// which may be the end of the request.
    pub(super) head: Option<Box<Request<()>>>,
    /// Body of the request, until its end.
    pub(super) inbox: Option<Rc<Inbox>>,
    /// Whether the client may send more on the stream.
    pub(super) is_open: bool,
    /// Bytes in the inbox, and whether more have arrived and wait for their reader.
    pub(super) unread: usize,
    pub(super) is_paused: bool,
    /// Bytes of an incomplete field section.
    pub(super) partial: usize,
    pub(super) left: BodyLeft,
    /// Output that the transport has not accepted: encoded frames, then the piece of the body in `work`.
    pub(super) out: Vec<Bytes>,
    /// Bytes of `out` before the piece of the body.
    pub(super) frames: usize,
    pub(super) output: Output,
    pub(super) queueing: Queueing,
    pub(super) rank: Rank,
}

/// Progress of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// More output may follow.
    Open,
    /// The stream ends after its output.
    Last,
    /// The stream has ended, and the transport has accepted all output.
    Finished,
}

/// Order of a stream among others that have output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queueing {
    None,
    /// The stream is in [`H3::ready`].
    Queued,
    /// The transport refused the last write.
    Blocked,
}

/// Priority of a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rank {
    pub(super) priority: Priority,
    /// Whether the priority comes from `PRIORITY_UPDATE`, which takes precedence (RFC 9218 section 7).
    pub(super) is_updated: bool,
    /// Whether the transport knows the priority.
    pub(super) is_set: bool,
}

impl Stream {
    pub(super) fn new(id: u64, limit: u64) -> Box<Self> {
        Box::new(Self {
            id,
            key: None,
            work: Work::Done,
            reader: FrameReader::new(RequestOrder::new(limit)),
            has_head: false,
            head: None,
            inbox: None,
            is_open: true,
            unread: 0,
            is_paused: false,
            partial: 0,
            left: BodyLeft::default(),
            out: Vec::new(),
            frames: 0,
            output: Output::Open,
            queueing: Queueing::None,
            rank: Rank { priority: UNSTATED, is_updated: false, is_set: false },
        })
    }

    /// Whether output, or the end of the stream, may be written now.
    fn has_output(&self) -> bool {
        self.output == Output::Last || !self.out.is_empty()
    }
}

impl H3 {
    pub(super) fn new(http: Http) -> Self {
        let flood = FloodWatch::new(http.settings.h2_resets);
        let control = Control::new(&http.settings);
        Self {
            flood,
            notices: Rc::clone(&http.connection.multiplex().bodies),
            wakes: Wakes::default(),
            control,
            decoder: qpack::Decoder::default(),
            places: Vec::new(),
            free: Vec::new(),
            numbers: Vec::new(),
            next: 0,
            turn: TurnLimit::default(),
            readable: Vec::new(),
            runnable: Vec::new(),
            dropped: Vec::new(),
            heads: VecDeque::new(),
            ready: ReadyStreams::default(),
            unacknowledged: Vec::new(),
            cuts: Vec::new(),
            held: Held::default(),
            unread: 0,
            partial: HeldBytes::begin(&http.connection, Account::Heads),
            failure: None,
            http,
        }
    }

    /// Index of the open stream `id` in [`Self::places`].
    pub(super) fn find(&self, id: u64) -> Option<u32> {
        let at = self.numbers.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(self.numbers[at].1)
    }

    pub(super) fn stream(&mut self, place: u32) -> Option<&mut Stream> {
        self.places.get_mut(place as usize)?.as_deref_mut()
    }

    /// Adds a stream, whose ID is the highest so far. Returns its index.
    pub(super) fn open(&mut self, stream: Box<Stream>) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() as u32 - 1
        });
        self.numbers.push((stream.id, place));
        self.places[place as usize] = Some(stream);
        place
    }

    /// Forgets a stream. Its [`Work`] is dropped after the frames of this turn.
    pub(super) fn close(&mut self, place: u32) {
        let Some(mut stream) = self.places[place as usize].take() else { return };
        self.free.push(place);
        if let Ok(at) = self.numbers.binary_search_by_key(&stream.id, |(id, _)| *id) {
            self.numbers.remove(at);
        }
        if stream.queueing == Queueing::Queued {
            self.ready.remove(place, stream.rank.priority);
        }
        if matches!(&stream.work, Work::Answer(answer) if answer.head.is_some()) {
            self.heads.retain(|other| *other != place);
        }
        if let Some(inbox) = stream.inbox.take() {
            inbox.fail();
        }
        self.unread -= stream.unread;
        if let Some(partial) = &mut self.partial {
            partial.remove(stream.partial);
        }
        // The drop of `out` reports these bytes as released, so they have to be counted before.
        let abandoned = stream.out.iter().map(Bytes::len).sum();
        self.held.count(abandoned, &self.http.connection);
        if !matches!(stream.work, Work::Done) {
            self.dropped.push(stream.work);
        }
    }

    /// Abandons the rest of a request, and its response unless the transport has accepted all of it.
    pub(super) fn reset(&mut self, place: u32, code: Code) {
        let Some(stream) = self.stream(place) else { return };
        let part = if stream.output == Output::Finished { Part::Request } else { Part::Both };
        let cut = Cut { stream: stream.id, code, part };
        self.cuts.push(cut);
        self.flood.charge(super::prices::refused(code));
        self.close(place);
    }

    /// Abandons the rest of a request whose response is complete. RFC 9114 section 4.1: with `H3_NO_ERROR`.
    pub(super) fn stop(&mut self, place: u32) {
        let Some(id) = self.stream(place).map(|stream| stream.id) else { return };
        self.cuts.push(Cut { stream: id, code: Code::NO_ERROR, part: Part::Request });
        self.close(place);
    }

    /// Ends the connection with an error. The first error is kept.
    pub(super) fn fail(&mut self, code: Code) {
        self.failure = self.failure.or(Some(code));
    }

    /// Whether no more input is processed.
    pub(super) fn is_over(&self) -> bool {
        self.failure.is_some() || self.flood.exhausted_by().is_some()
    }

    /// Queues a stream in [`Self::ready`] if it has output that the transport may accept.
    pub(super) fn queue(&mut self, place: u32) {
        let Some(stream) = self.places[place as usize].as_deref_mut() else { return };
        if stream.queueing == Queueing::None && stream.has_output() {
            stream.queueing = Queueing::Queued;
            self.ready.push(place, stream.rank.priority);
        }
    }

    /// Continues the output of a stream with [`Queueing::Blocked`].
    pub(super) fn unblocked(&mut self, place: u32) {
        if let Some(stream) = self.stream(place)
            && stream.queueing == Queueing::Blocked
        {
            stream.queueing = Queueing::None;
        }
        self.queue(place);
    }

    /// Whether the transport has accepted the whole response of a stream.
    pub(super) fn is_finished(&self, place: u32) -> bool {
        self.places[place as usize].as_deref().is_some_and(|stream| stream.output == Output::Finished)
    }

    /// Processes the acknowledgement of a whole response.
    pub(super) fn acknowledged(&mut self, id: u64) {
        if let Some(at) = self.unacknowledged.iter().position(|other| *other == id) {
            self.unacknowledged.swap_remove(at);
        }
    }

    /// Abandons the part of a whole response that the client has not received. RFC 9000 section 3.5: without a reset, a client
    /// that discards the response never learns its length, and its window for the connection stays used.
    pub(super) fn stopped_after_its_end(&mut self, id: u64) {
        self.acknowledged(id);
        self.cuts.push(Cut { stream: id, code: Code::REQUEST_CANCELLED, part: Part::Response });
    }

    /// Changes the priority of a stream by `PRIORITY_UPDATE`, and moves it to the queue of its new urgency.
    pub(super) fn prioritize(&mut self, place: u32, priority: Priority) {
        let Some(stream) = self.stream(place) else { return };
        let before = mem::replace(&mut stream.rank, Rank { priority, is_updated: true, is_set: false });
        if stream.queueing == Queueing::Queued {
            stream.queueing = Queueing::None;
            self.ready.remove(place, before.priority);
            self.queue(place);
        }
    }
}

impl Drop for H3 {
    fn drop(&mut self) {
        self.http.connection.multiplex().discards.end();
        self.held.release_all(&self.http.connection);
        for stream in self.places.iter_mut().flatten() {
            if let Some(inbox) = stream.inbox.take() {
                inbox.fail();
            }
        }
    }
}
