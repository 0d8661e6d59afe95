//! State of one HTTP/2 connection to an upstream, without I/O: streams, windows and tables.

use std::collections::VecDeque;
use std::mem;
use std::task::{Context, Waker};

use brisk_http::error::Http2Error;
use brisk_http::fields::Field;
use brisk_http::http1::HeadLimits;
use brisk_http_connection::wakes::Wakes;
use brisk_wire::h2::frame::{LARGEST_WINDOW, PREFACE, Reason, WriteFrames, kind};
use brisk_wire::h2::hpack::{DEFAULT_TABLE, Decoder, Encoder};
use brisk_wire::h2::reader::{DataFrame, FrameOrder};
use brisk_wire::h2::settings::{self, DEFAULT_WINDOW, PeerSettings, id};

use super::allowance::Allowance;
use super::resets::Resets;
use super::stream::{End, Released, Stream};

/// Receive window of a response in bytes. Bounds the memory of a response whose client is slow.
pub(super) const STREAM_WINDOW: u32 = 256 << 10;

/// Receive window of a connection in bytes: that of 16 streams. See [`State::has_window`] for slow clients.
pub(super) const CONNECTION_WINDOW: u32 = 4 << 20;

/// State of a connection.
#[derive(Debug)]
pub(super) struct State {
    pub(super) recv: Receiving,
    pub(super) send: Sending,
    pub(super) streams: Vec<Stream>,
    free: Vec<u32>,
    /// Open streams as pairs of number and slot, in ascending order.
    pub(super) numbers: Vec<(u32, u32)>,
    /// Number of the next stream.
    pub(super) next: u32,
    /// Open streams whose requests have ended.
    pub(super) leftovers: u32,
    /// Requests waiting for permission to open a stream.
    waiting: Vec<Waker>,
    /// Wakers of request bodies, by slot.
    pub(super) wakes: Wakes,
    pub(super) allowance: Allowance,
    pub(super) resets: Resets,
    /// Highest stream number that the server accepts, after `GOAWAY`.
    pub(super) last: Option<u32>,
    /// Error code of `GOAWAY`.
    pub(super) farewell: Reason,
    /// Error that ended the connection; `None` while it is open.
    pub(super) failure: Option<Http2Error>,
    task: Option<Waker>,
    is_scheduled: bool,
}

/// State of the receiving side.
#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) expect: Expect,
    pub(super) order: FrameOrder,
    pub(super) decoder: Decoder<Field>,
    /// Limits for a response's head (RFC 9113 section 6.5.2).
    pub(super) limits: HeadLimits,
    /// Receive window, and the bytes read since the last `WINDOW_UPDATE`.
    pub(super) window: i64,
    pub(super) unclaimed: u32,
    /// Bytes that may still arrive on streams that were reset.
    pub(super) stray: i64,
    /// Whether anything was received since the last check of the time.
    pub(super) is_heard: bool,
}

/// State of the sending side.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) encoder: Encoder,
    pub(super) peer: PeerSettings,
    pub(super) window: i64,
    /// Output, pending from `written` on.
    pub(super) out: Vec<u8>,
    pub(super) written: usize,
    /// Number of bytes written before those in `out`.
    pub(super) before: u64,
    /// Streams whose request bodies can continue.
    pub(super) ready: VecDeque<u32>,
    /// Streams whose data waits for the window of the connection.
    pub(super) held: Vec<u32>,
    pub(super) woken: Vec<u32>,
}

/// Kind of the next input.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expect {
    Frame,
    /// Payload of `DATA`.
    Data(DataFrame),
}

impl State {
    /// A connection whose preface and `SETTINGS` are in the output. `limits` are those for heads of responses. Opens
    /// at most `streams` streams at a time until the server's `SETTINGS` arrive.
    pub(super) fn new(limits: HeadLimits, streams: u32) -> Self {
        let mut out = Vec::with_capacity(256);
        out.extend_from_slice(PREFACE);
        let ours = settings::payload(&[
            (id::ENABLE_PUSH, 0),
            (id::INITIAL_WINDOW_SIZE, STREAM_WINDOW),
            (id::MAX_HEADER_LIST_SIZE, u32::try_from(limits.size).unwrap_or(u32::MAX)),
        ]);
        out.frame(kind::SETTINGS, 0, 0, &ours);
        out.window_update(0, CONNECTION_WINDOW - DEFAULT_WINDOW);
        Self {
            recv: Receiving {
                expect: Expect::Frame,
                order: FrameOrder::default(),
                decoder: Decoder::new(DEFAULT_TABLE),
                limits,
                window: CONNECTION_WINDOW.into(),
                unclaimed: 0,
                stray: 0,
                is_heard: false,
            },
            send: Sending {
                encoder: Encoder::new(),
                peer: PeerSettings { max_streams: streams, ..PeerSettings::default() },
                window: DEFAULT_WINDOW.into(),
                out,
                written: 0,
                before: 0,
                ready: VecDeque::new(),
                held: Vec::new(),
                woken: Vec::new(),
            },
            streams: Vec::new(),
            free: Vec::new(),
            numbers: Vec::new(),
            next: 1,
            leftovers: 0,
            waiting: Vec::new(),
            wakes: Wakes::default(),
            allowance: Allowance::default(),
            resets: Resets::default(),
            last: None,
            farewell: Reason::NO_ERROR,
            failure: None,
            task: None,
            is_scheduled: false,
        }
    }

    /// Begins a turn of the connection's task, whose waker is that of `context`.
    pub(super) fn begin_turn(&mut self, context: &Context<'_>) {
        self.is_scheduled = false;
        self.wakes.register(context);
        if !self.task.as_ref().is_some_and(|task| task.will_wake(context.waker())) {
            self.task = Some(context.waker().clone());
        }
    }

    /// Schedules the connection's task to write. Before its first turn the task runs anyway.
    pub(super) fn schedule(&mut self) {
        if !mem::replace(&mut self.is_scheduled, true)
            && let Some(task) = &self.task
        {
            task.wake_by_ref();
        }
    }

    /// The waker of the connection's task.
    pub(super) fn task(&self) -> Option<&Waker> {
        self.task.as_ref()
    }

    /// Whether further requests may use the connection.
    pub(super) fn takes_requests(&self) -> bool {
        self.failure.is_none() && self.last.is_none() && self.next <= LARGEST_WINDOW
    }

    /// Whether a stream may be opened now: fewer are open than the server's `SETTINGS_MAX_CONCURRENT_STREAMS`.
    pub(super) fn has_room(&self) -> bool {
        self.numbers.len() < self.send.peer.max_streams as usize
    }

    /// Wakes `waker` when another stream may be possible.
    pub(super) fn wait_for_room(&mut self, waker: &Waker) {
        if !self.waiting.iter().any(|other| other.will_wake(waker)) {
            self.waiting.push(waker.clone());
        }
    }

    /// Wakes all waiting requests; they check again.
    pub(super) fn wake_waiting(&mut self) {
        self.waiting.drain(..).for_each(Waker::wake);
    }

    /// The slot of an open stream.
    pub(super) fn find(&self, number: u32) -> Option<u32> {
        let at = self.numbers.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(self.numbers[at].1)
    }

    pub(super) fn stream(&mut self, place: u32) -> &mut Stream {
        &mut self.streams[place as usize]
    }

    /// Opens the next stream and returns its slot.
    pub(super) fn open(&mut self) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.streams.push(Stream::default());
            self.streams.len() as u32 - 1
        });
        let number = self.next;
        self.next += 2;
        self.numbers.push((number, place));
        let (window, at) = (self.send.peer.initial_window.into(), self.send.position());
        self.stream(place).begin(number, window, at);
        place
    }

    /// Removes a stream from [`State::numbers`]: both sides are complete, or one has reset it.
    pub(super) fn close(&mut self, place: u32) {
        let number = self.stream(place).number;
        if let Ok(at) = self.numbers.binary_search_by_key(&number, |(number, _)| *number) {
            self.numbers.remove(at);
        }
        self.stop_upload(place);
        let stream = self.stream(place);
        let under_way = if stream.end == End::Whole { 0 } else { stream.recv_window.max(0) };
        let is_abandoned = mem::take(&mut stream.is_abandoned);
        self.recv.stray = (self.recv.stray + under_way).min(CONNECTION_WINDOW.into());
        if is_abandoned {
            self.resets.closed(number);
        }
        if !self.stream(place).is_held {
            self.leftovers -= 1;
            self.set_free(place);
        }
        // Some of the waiting requests may have ended, so all are woken.
        if self.has_room() {
            self.wake_waiting();
        }
    }

    fn stop_upload(&mut self, place: u32) {
        let stream = self.stream(place);
        stream.end_upload();
        if mem::take(&mut stream.is_queued) {
            self.send.ready.retain(|other| *other != place);
            self.send.held.retain(|other| *other != place);
        }
    }

    /// Closes a stream if both directions are complete.
    pub(super) fn close_if_over(&mut self, place: u32) {
        let stream = self.stream(place);
        if stream.end != End::Open && stream.upload.is_none() {
            self.close(place);
        }
    }

    fn set_free(&mut self, place: u32) {
        let unread = self.stream(place).clear();
        self.claim(unread);
        self.free.push(place);
    }

    /// Releases a stream whose [`Exchange`](super::Exchange) has ended or was dropped.
    pub(super) fn release(&mut self, place: u32) -> Released {
        let stream = self.stream(place);
        stream.is_held = false;
        let number = stream.number;
        // `END_STREAM` may arrive a packet after the last byte of the body; a reset would be unnecessary.
        let is_whole = stream.end == End::Whole || (stream.has_whole_body() && stream.upload.is_none());
        if self.find(number) != Some(place) {
            self.set_free(place);
            return Released::Ended;
        }
        self.leftovers += 1;
        if is_whole || self.stream(place).is_abandoned {
            // The rest of the request is still sent.
            let unread = self.stream(place).clear_response();
            self.claim(unread);
            self.schedule();
            return Released::Ended;
        }
        self.cancel(place, Http2Error::Ended);
        self.schedule();
        Released::Canceled
    }

    /// Cancels the streams that were already without a request at the last call, and resets those abandoned before, as
    /// far as the rate of resets permits.
    pub(super) fn end_leftovers(&mut self) {
        while let Some(number) = self.resets.due() {
            self.reset(number, Reason::CANCEL, Http2Error::Ended);
        }
        for index in (0..self.numbers.len()).rev() {
            let (_, place) = self.numbers[index];
            let stream = self.stream(place);
            if !stream.is_held && !stream.is_abandoned && mem::replace(&mut stream.is_overdue, true) {
                self.cancel(place, Http2Error::Ended);
            }
        }
    }

    /// Resets the stream of a request that has ended early. Above the rate of [`Resets`] it is abandoned instead.
    pub(super) fn cancel(&mut self, place: u32, error: Http2Error) {
        let number = self.stream(place).number;
        if self.resets.may_reset() {
            return self.reset(number, Reason::CANCEL, error);
        }
        self.stream(place).abandon(error);
        self.stop_upload(place);
        self.resets.abandon(number);
        if !self.stream(place).is_held {
            let unread = self.stream(place).clear_response();
            self.claim(unread);
        }
    }

    /// Resets a stream, open or not, with `RST_STREAM`. An open stream fails with `error`.
    pub(super) fn reset(&mut self, number: u32, reason: Reason, error: Http2Error) {
        self.resets.sent();
        self.send.out.rst_stream(number, reason);
        if let Some(place) = self.find(number) {
            self.stream(place).looked_at();
            self.end_stream(place, End::Failed(error));
        }
    }

    /// Ends a stream early, from either side.
    pub(super) fn end_stream(&mut self, place: u32, end: End) {
        let stream = self.stream(place);
        if stream.end == End::Open {
            stream.end = end;
        }
        stream.wake();
        self.close(place);
    }

    /// Ends the connection. Requests in flight fail with `error`; unwritten ones are removed from the output and may be
    /// repeated. Only `GOAWAY` with `reason` follows, if given.
    pub(super) fn fail(&mut self, error: Http2Error, reason: Option<Reason>) {
        self.fail_by(0, error, reason);
    }

    /// Like [`fail`](Self::fail), because of the response on stream `guilty`. If that stream is open, the others fail
    /// with [`Http2Error::Neighbour`].
    pub(super) fn fail_by(&mut self, guilty: u32, error: Http2Error, reason: Option<Reason>) {
        if self.failure.is_some() {
            return;
        }
        self.failure = Some(error);
        let others = if self.find(guilty).is_some() { Http2Error::Neighbour } else { error };
        let written = self.send.before + self.send.written as u64;
        let mut kept = self.send.out.len();
        for (number, place) in mem::take(&mut self.numbers) {
            let before = self.send.before;
            let stream = self.stream(place);
            if written <= stream.begins {
                // Unwritten, so the request may be sent elsewhere.
                kept = kept.min((stream.begins - before) as usize);
            } else {
                stream.looked_at();
            }
            self.end_stream(place, End::Failed(if number == guilty { error } else { others }));
        }
        self.send.out.truncate(kept);
        if let Some(reason) = reason {
            // The server has opened no streams, so the last stream number is 0.
            self.send.out.goaway(0, reason);
        }
        self.wake_waiting();
        self.schedule();
    }

    /// Handles `GOAWAY` (RFC 9113 section 6.8): streams above `last` fail with [`Http2Error::Refused`].
    pub(super) fn announced(&mut self, last: u32, reason: Reason) {
        let last = self.last.map_or(last, |before| before.min(last));
        self.last = Some(last);
        self.farewell = reason;
        let refused: Vec<_> = self.numbers.iter().filter(|(number, _)| *number > last).copied().collect();
        for (_, place) in refused {
            self.end_stream(place, End::Failed(Http2Error::Refused));
        }
        self.wake_waiting();
    }
}

impl Sending {
    /// Number of bytes waiting to be written.
    pub(super) fn waiting(&self) -> usize {
        self.out.len() - self.written
    }

    /// Position of the next frame among all bytes ever written.
    fn position(&self) -> u64 {
        self.before + self.out.len() as u64
    }
}
