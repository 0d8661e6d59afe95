//! Output of responses: heads as soon as there is space, data in turns by priority (RFC 9218 section 10).

use std::io;
use std::mem;
use std::rc::Rc;
use std::task::{Context, Poll};

use brisk_http::message::ResponseParts;
use brisk_http_connection::interim::InterimResponse;
use brisk_wire::h2::block;
use brisk_wire::h2::frame::{FrameHead, WriteFrames, flag, kind};
use brisk_wire::h2::settings::DEFAULT_FRAME;
use bytes::Buf as _;
use http::HeaderMap;
use http_body::Body as _;

use super::scratch;
use super::state::{H2, Sending};
use crate::response::{self, Next, Work};

/// Bytes gathered before they are written to TLS: four records.
const ROOM: usize = 64 << 10;

/// Pending output, in bytes, above which nothing is read: a client that does not read gets no further responses.
const BACKLOG: usize = 256 << 10;

/// Destination of the output of [`H2::write`]: TLS, or memory in tests.
pub(super) trait Sink {
    /// Number of bytes that the next [`Self::poll_write`] accepts. [`Poll::Pending`] if there are none; the task is then
    /// registered.
    fn poll_room(&mut self) -> Poll<io::Result<usize>>;

    /// Returns the number of accepted bytes, which may be less than `bytes`.
    fn poll_write(&mut self, bytes: &[u8]) -> Poll<io::Result<usize>>;
}

impl H2<'_> {
    /// Whether there is space for the responses to further frames of the client: fewer than [`BACKLOG`] bytes wait.
    pub(super) fn may_read(&self) -> bool {
        !self.is_over() && self.send.waiting() < BACKLOG
    }

    /// Writes available output as far as flow control and the client permit.
    ///
    /// Frames are produced only for the room in `sink`, so that streams which become ready while the client does not read are
    /// sent by their priority. Pending output registers the task for the next turn. Nothing follows the `GOAWAY` of a
    /// connection error.
    pub(super) fn write(&mut self, mut sink: impl Sink) -> io::Result<()> {
        let window = self.send.window;
        let mut is_blocked = false;
        while !is_blocked {
            // Called without output too: TLS then knows that nothing waits for it.
            let room = sink.poll_room();
            if !self.has_output() {
                break;
            }
            is_blocked = match room {
                Poll::Ready(room) => {
                    self.fill(room?.min(ROOM));
                    !self.send.flush(|bytes| sink.poll_write(bytes))?
                }
                Poll::Pending => true,
            };
            self.hold_output(self.send.waiting());
        }
        // A window that stays closed gives the client no data, and so excuses no stream from its timeout.
        let has_used_window = self.send.window <= 0 && self.send.window < window;
        if is_blocked || has_used_window {
            self.excuse_waiting();
        }
        self.send.rest();
        debug_assert_eq!(self.broken_rule(), None);
        Ok(())
    }

    /// Whether there is something to write that flow control permits.
    fn has_output(&self) -> bool {
        let Sending { heads, ready, window, .. } = &self.send;
        let may_fill = !heads.is_empty() || (*window > 0 && !ready.is_empty());
        self.send.waiting() > 0 || (self.failure.is_none() && may_fill)
    }

    /// Accounts `waiting` bytes of pending output as memory held by the responses, in place of [`Sending::held`].
    pub(super) fn hold_output(&mut self, waiting: usize) {
        let before = mem::replace(&mut self.send.held, waiting);
        let connection = &self.http.connection;
        if waiting > before {
            connection.answers.take(waiting - before);
        } else if waiting < before {
            connection.answers.free(before - waiting);
        }
        connection.worker_held(waiting.cast_signed() - before.cast_signed());
    }

    /// Produces frames until `room` is filled.
    fn fill(&mut self, room: usize) {
        while self.failure.is_none() && self.send.waiting() < room {
            if let Some(place) = self.send.heads.pop_front() {
                self.write_head(place);
            } else if self.send.window > 0
                && let Some(place) = self.send.ready.pop()
            {
                self.write_data(place);
            } else {
                break;
            }
        }
    }

    /// Restarts the timeouts of queued streams: other streams delay them, not the client. The connection as a whole then has
    /// to be read at the minimum rate.
    fn excuse_waiting(&mut self) {
        let streams = &self.http.connection.multiplex().streams;
        for place in self.send.ready.iter() {
            let stream = self.places[place as usize].as_deref();
            if let Some(key) = stream.and_then(|stream| stream.key) {
                streams.excuse(key);
            }
        }
    }

    fn write_head(&mut self, place: u32) {
        let Some(stream) = self.places[place as usize].as_deref_mut() else { return };
        let Work::Answer(answer) = &mut stream.work else { return };
        let Some(head) = answer.head.take() else { return };
        let is_last = answer.body.is_end_stream();
        let length = if is_last { None } else { answer.body.size_hint().exact() };
        let (http, number) = (self.http, stream.number);
        http.service
            .date()
            .with(http.deadline.now(), |date| self.send.head(number, &head, length, date, is_last));
        if is_last {
            return self.answered(place);
        }
        let waker = Rc::clone(self.wakes.waker(place));
        self.go_on(place, &mut Context::from_waker(&waker));
    }

    /// Writes one `DATA` frame of the permitted length, at most [`DEFAULT_FRAME`] bytes.
    fn write_data(&mut self, place: u32) {
        let Some(stream) = self.places[place as usize].as_deref_mut() else { return };
        stream.is_queued = false;
        let Work::Answer(answer) = &mut stream.work else { return };
        let Some(chunk) = &mut answer.chunk else { return };
        let allowed = stream.send_window.min(self.send.window).min(DEFAULT_FRAME.into()).max(0) as usize;
        let length = chunk.remaining().min(allowed);
        if length == 0 {
            return;
        }
        stream.send_window -= length.cast_signed() as i64;
        self.send.window -= length.cast_signed() as i64;
        let at = self.send.out.len();
        let head = FrameHead { length: length as u32, kind: kind::DATA, flags: 0, stream: stream.number };
        self.send.out.extend_from_slice(&head.to_bytes());
        self.send.out.extend_from_slice(&chunk.chunk()[..length]);
        chunk.advance(length);
        let is_empty = !chunk.has_remaining();
        if is_empty {
            answer.chunk = None;
        }
        let is_last = is_empty && answer.body.is_end_stream();
        let priority = stream.priority;
        // The flag of the last frame with data saves an empty frame after it.
        if is_last {
            self.send.out[at + 4] |= flag::END_STREAM;
        }
        self.flood.data_sent(length);
        if is_last {
            return self.answered(place);
        }
        if is_empty {
            return self.after_data(place, at);
        }
        self.queue(place);
        let is_queued = self.places[place as usize].as_deref().is_some_and(|stream| stream.is_queued);
        if is_queued && !priority.incremental {
            self.send.ready.keep_first(place, priority);
        }
        if !is_queued {
            self.watch(place);
        }
    }

    /// Continues after the last available piece, whose frame begins at `at`.
    fn after_data(&mut self, place: u32, at: usize) {
        let waker = Rc::clone(self.wakes.waker(place));
        let context = &mut Context::from_waker(&waker);
        match self.next(place, context) {
            Next::End if self.has_no_trailers(place) => {
                self.send.out[at + 4] |= flag::END_STREAM;
                self.answered(place);
            }
            Next::End => self.write_end(place),
            Next::Data => {
                self.queue(place);
                self.watch(place);
            }
            Next::Pending => self.watch(place),
            Next::Broken => self.broken(place),
        }
    }

    fn has_no_trailers(&self, place: u32) -> bool {
        match self.places[place as usize].as_deref().map(|stream| &stream.work) {
            Some(Work::Answer(answer)) => answer.trailers.is_none(),
            _ => true,
        }
    }

    /// Ends a response whose body is complete, with its trailers, or with an empty `DATA` frame if it has none.
    pub(super) fn write_end(&mut self, place: u32) {
        let Some(stream) = self.places[place as usize].as_deref_mut() else { return };
        let Work::Answer(answer) = &mut stream.work else { return };
        match answer.trailers.take() {
            Some(trailers) if !trailers.is_empty() => self.send.trailers(stream.number, &trailers),
            _ => self.send.out.frame(kind::DATA, flag::END_STREAM, stream.number, &[]),
        }
        self.answered(place);
    }

    /// Writes a head that consists of `:status` only.
    pub(super) fn write_status(&mut self, number: u32, status: u16, is_last: bool) {
        let at = self.send.begin_block();
        self.send.encoder.status(status, &mut self.send.out);
        self.send.end_block(at, number, is_last);
    }
}

impl Sending {
    pub(super) fn waiting(&self) -> usize {
        self.out.len() - self.written
    }

    /// Writes the output through `take`. Returns `Ok(false)` if `take` did not accept all of it.
    pub(super) fn flush(
        &mut self,
        mut take: impl FnMut(&[u8]) -> Poll<io::Result<usize>>,
    ) -> io::Result<bool> {
        while self.written < self.out.len() {
            match take(&self.out[self.written..]) {
                Poll::Ready(written) => self.written += written?,
                Poll::Pending => {
                    self.out.drain(..self.written);
                    self.written = 0;
                    return Ok(false);
                }
            }
        }
        self.out.clear();
        self.written = 0;
        Ok(true)
    }

    /// Releases the buffer to [`scratch`], so that an idle connection holds none.
    fn rest(&mut self) {
        if self.out.is_empty() && self.out.capacity() > 0 {
            scratch::give_back(mem::take(&mut self.out));
        }
    }

    fn head(&mut self, number: u32, head: &ResponseParts, length: Option<u64>, date: &str, is_last: bool) {
        let at = self.begin_block();
        let Self { encoder, out, .. } = self;
        encoder.status(head.status.as_u16(), out);
        response::head_fields(&head.headers, length, date, |name, value| encoder.field(name, value, out));
        self.end_block(at, number, is_last);
    }

    /// Writes an interim response, as `HEADERS` without `END_STREAM` (RFC 9113 section 8.1).
    pub(super) fn interim(&mut self, number: u32, interim: &InterimResponse) {
        let at = self.begin_block();
        self.encoder.status(interim.status.as_u16(), &mut self.out);
        for (name, value) in &interim.headers {
            self.encoder.field(name.as_str().as_bytes(), value.as_bytes(), &mut self.out);
        }
        self.end_block(at, number, false);
    }

    fn trailers(&mut self, number: u32, trailers: &HeaderMap) {
        let at = self.begin_block();
        let Self { encoder, out, .. } = self;
        response::trailer_fields(trailers, |name, value| encoder.field(name, value, out));
        self.end_block(at, number, true);
    }

    /// Reserves the head of a `HEADERS` frame for the header block that follows.
    fn begin_block(&mut self) -> usize {
        let at = block::begin(&mut self.out);
        self.encoder.begin(&mut self.out);
        at
    }

    fn end_block(&mut self, at: usize, stream: u32, is_last: bool) {
        block::end(&mut self.out, at, stream, is_last);
    }
}
