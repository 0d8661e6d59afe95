//! Output of responses by priority (RFC 9218): heads first, then bodies as far as the transport accepts them.

use std::cell::Cell;
use std::mem;
use std::rc::Rc;
use std::task::Context;

use brisk_http_connection::chunk::Chunk;
use brisk_http_connection::interim::InterimResponse;
use brisk_wire::h3::error::Code;
use brisk_wire::h3::frame::{self, FrameHead, kind};
use brisk_wire::h3::qpack;
use brisk_wire::priority::Priority;
use bytes::Buf as _;
use http_body::Body as _;

use super::prices;
use super::state::{Cut, H3, Output, Part, Queueing};
use super::transport::{Transport, Write};
use crate::response::{self, Next, Work};

/// Maximum capacity, in bytes, of the kept buffer for heads; a larger one is freed.
const LARGEST: usize = 16 << 10;

thread_local! {
    /// Buffer of the worker in which heads are encoded before their length is known.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Encodes with a buffer of the worker, and returns an allocation of the exact size.
fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Box<[u8]> {
    let mut out = SPARE.take();
    encode(&mut out);
    let exact = out.as_slice().into();
    if out.capacity() <= LARGEST {
        out.clear();
        SPARE.set(out);
    }
    exact
}

impl H3 {
    /// Encodes the heads of all responses that are ready, and writes as much as `transport` accepts.
    pub(super) fn write(&mut self, transport: &mut impl Transport) {
        while let Some(place) = self.heads.pop_front() {
            self.write_head(place);
        }
        let mut has_written = false;
        let mut blocked = Vec::new();
        while let Some(place) = self.ready.pop() {
            has_written |= self.write_stream(place, transport);
            if self.places[place as usize]
                .as_deref()
                .is_some_and(|stream| stream.queueing == Queueing::Blocked)
            {
                blocked.push(place);
            }
        }
        if has_written {
            self.excuse(&blocked);
        }
    }

    /// Resets and stops the streams in [`H3::cuts`].
    pub(super) fn cut(&mut self, transport: &mut impl Transport) {
        for Cut { stream, code, part } in self.cuts.drain(..) {
            if part != Part::Response {
                transport.stop(stream, code);
            }
            if part != Part::Request {
                transport.reset(stream, code);
            }
        }
    }

    /// Restarts the timeouts of blocked streams, which share the limits of the connection with streams that were written. The
    /// connection as a whole then has to be read at the minimum rate.
    fn excuse(&self, blocked: &[u32]) {
        let streams = &self.http.connection.multiplex().streams;
        for place in blocked {
            let stream = self.places[*place as usize].as_deref();
            if let Some(key) = stream.and_then(|stream| stream.key) {
                streams.excuse(key);
            }
        }
    }

    fn write_head(&mut self, place: u32) {
        let waker = Rc::clone(self.wakes.waker(place));
        let Some(stream) = self.places[place as usize].as_deref_mut() else { return };
        let Work::Answer(answer) = &mut stream.work else { return };
        let Some(head) = answer.head.take() else { return };
        let is_last = answer.body.is_end_stream();
        let length = if is_last { None } else { answer.body.size_hint().exact() };
        // The first piece is polled before the head is encoded, so that both heads share an allocation.
        let next = if is_last { Next::End } else { answer.next(&mut Context::from_waker(&waker)) };
        let data = answer.chunk.as_ref().map(data_head);
        let http = &self.http;
        let block = encoded(|out| {
            let at = begin_section(out);
            qpack::status(head.status.as_u16(), out);
            http.service.date().with(http.deadline.now(), |date| {
                response::head_fields(&head.headers, length, date, |name, value| {
                    qpack::field(name, value, out);
                });
            });
            frame::end(at, out);
            if let Some(data) = data {
                data.write(out);
            }
        });
        self.add_frame(place, block);
        self.continue_body(place, next, data.is_some());
    }

    /// Continues a response after its body was polled. `has_frame`: the head of the `DATA` frame of its piece is written.
    pub(super) fn continue_body(&mut self, place: u32, next: Next, has_frame: bool) {
        match next {
            Next::Data => self.add_data(place, has_frame),
            Next::Pending => {}
            Next::End => self.write_end(place),
            Next::Broken => return self.reset(place, Code::INTERNAL_ERROR),
        }
        self.queue(place);
        self.watch(place);
    }

    /// Adds the available piece of a body to the output.
    fn add_data(&mut self, place: u32, has_frame: bool) {
        let Some(Work::Answer(answer)) = self.stream(place).map(|stream| &stream.work) else { return };
        let Some(chunk) = &answer.chunk else { return };
        let (head, bytes) = (data_head(chunk), chunk.share());
        if !has_frame {
            self.add_frame(place, encoded(|out| head.write(out)));
        }
        let output = self.held.output(bytes);
        if let Some(stream) = self.stream(place) {
            stream.out.push(output);
        }
    }

    /// Ends a response whose body is complete, with its trailers in a `HEADERS` frame if it has any.
    pub(super) fn write_end(&mut self, place: u32) {
        let Some(stream) = self.stream(place) else { return };
        let Work::Answer(answer) = &mut stream.work else { return };
        if let Some(trailers) = answer.trailers.take().filter(|trailers| !trailers.is_empty()) {
            let block = encoded(|out| {
                let at = begin_section(out);
                response::trailer_fields(&trailers, |name, value| qpack::field(name, value, out));
                frame::end(at, out);
            });
            self.add_frame(place, block);
        }
        self.end_output(place);
    }

    /// Writes an interim response.
    pub(super) fn write_interim(&mut self, place: u32, interim: &InterimResponse) {
        let block = encoded(|out| {
            let at = begin_section(out);
            qpack::status(interim.status.as_u16(), out);
            for (name, value) in &interim.headers {
                qpack::field(name.as_str().as_bytes(), value.as_bytes(), out);
            }
            frame::end(at, out);
        });
        self.add_frame(place, block);
        self.queue(place);
    }

    /// Writes a head that consists of `:status` only.
    pub(super) fn write_status(&mut self, place: u32, status: u16, is_last: bool) {
        let block = encoded(|out| {
            let at = begin_section(out);
            qpack::status(status, out);
            frame::end(at, out);
        });
        self.add_frame(place, block);
        if is_last {
            self.end_output(place);
        }
        self.queue(place);
    }

    fn add_frame(&mut self, place: u32, bytes: Box<[u8]>) {
        let length = bytes.len();
        let output = self.held.output(bytes);
        if let Some(stream) = self.stream(place) {
            stream.frames += length;
            stream.out.push(output);
        }
    }

    fn end_output(&mut self, place: u32) {
        if let Some(stream) = self.stream(place) {
            stream.output = Output::Last;
        }
    }

    /// Writes the output of a stream that was the next in its queue. Returns whether the transport has accepted any.
    fn write_stream(&mut self, place: u32, transport: &mut impl Transport) -> bool {
        let Some(stream) = self.places[place as usize].as_deref_mut() else { return false };
        stream.queueing = Queueing::None;
        if !mem::replace(&mut stream.rank.is_set, true) {
            transport.set_priority(stream.id, weight(stream.id, stream.rank.priority));
        }
        let mut written = 0;
        if !stream.out.is_empty() {
            match transport.write(stream.id, &mut stream.out) {
                Write::Written(bytes) => written = bytes,
                Write::Blocked => stream.queueing = Queueing::Blocked,
                Write::Stopped => {
                    self.stopped(place);
                    return false;
                }
            }
        }
        self.accepted(place, written);
        self.continue_output(place, transport);
        written > 0
    }

    /// Continues a stream after a write: with the rest of its output, the next piece of its body, or its end.
    fn continue_output(&mut self, place: u32, transport: &mut impl Transport) {
        let Some(stream) = self.stream(place) else { return };
        let priority = stream.rank.priority;
        if stream.out.is_empty() && stream.output != Output::Last {
            if matches!(&stream.work, Work::Answer(answer) if answer.head.is_none()) {
                let waker = Rc::clone(self.wakes.waker(place));
                self.go_on(place, &mut Context::from_waker(&waker));
            }
        } else if stream.out.is_empty() {
            return self.finish(place, transport);
        } else {
            self.queue(place);
        }
        let is_queued =
            self.places[place as usize].as_deref().is_some_and(|stream| stream.queueing == Queueing::Queued);
        if is_queued && !priority.incremental {
            self.ready.keep_first(place, priority);
        }
    }

    /// Ends a stream whose output was accepted entirely.
    fn finish(&mut self, place: u32, transport: &mut impl Transport) {
        let Some(stream) = self.stream(place) else { return };
        let id = stream.id;
        stream.output = Output::Finished;
        let work = mem::replace(&mut stream.work, Work::Done);
        transport.finish(id);
        self.unacknowledged.push(id);
        // Dropping it ends its exchange, which may let go of the rest of an upload: hence before the check below.
        drop(work);
        self.close_if_over(place);
    }

    /// Closes a stream with [`Output::Finished`], unless the rest of its request is being read.
    pub(super) fn close_if_over(&mut self, place: u32) {
        let Some(stream) = self.stream(place).filter(|stream| stream.output == Output::Finished) else {
            return;
        };
        let is_wanted = stream.inbox.as_ref().is_some_and(|inbox| !inbox.is_dropped());
        match stream.is_open {
            false => self.close(place),
            true if !is_wanted => self.stop(place),
            true => {}
        }
    }

    /// Processes the client's request to send no more of a response (`STOP_SENDING`).
    pub(super) fn stopped(&mut self, place: u32) {
        self.flood.charge(prices::CANCELLED);
        self.reset(place, Code::REQUEST_CANCELLED);
    }

    /// Processes the acceptance of `written` bytes of a stream's output.
    fn accepted(&mut self, place: u32, written: usize) {
        self.held.count(written, &self.http.connection);
        let Some(stream) = self.stream(place) else { return };
        stream.out.retain(|bytes| !bytes.is_empty());
        let frames = written.min(stream.frames);
        stream.frames -= frames;
        // A write of nothing is no progress of the client.
        if let Work::Answer(answer) = &mut stream.work
            && let Some(chunk) = &mut answer.chunk
            && written > frames
        {
            chunk.advance(written - frames);
            if !chunk.has_remaining() {
                answer.chunk = None;
            }
        }
    }
}

/// Head of the `DATA` frame of a piece.
fn data_head(chunk: &Chunk) -> FrameHead {
    FrameHead { kind: kind::DATA, length: chunk.remaining() as u64 }
}

/// Begins a `HEADERS` frame and its field section. Returns the position for [`frame::end`].
fn begin_section(out: &mut Vec<u8>) -> usize {
    let at = frame::begin(kind::HEADERS, out);
    qpack::begin(out);
    at
}

/// Priority of a response in the transport, which sends the highest first.
///
/// Responses that are not incremental are useful only as a whole: of one urgency, they are sent in the order of their requests,
/// before those whose parts take turns (RFC 9218 section 10).
fn weight(id: u64, priority: Priority) -> i32 {
    // 16 classes of 2^24 requests each fit in an `i32`.
    const REQUESTS: u64 = 1 << 24;
    let class = 2 * i32::from(priority.urgency) + i32::from(priority.incremental);
    let order = if priority.incremental { 0 } else { (id / 4).min(REQUESTS - 1) };
    -(class * REQUESTS as i32) - order as i32
}

#[cfg(test)]
mod weights {
    use super::*;

    #[test]
    fn urgent_and_whole_responses_have_more_weight() {
        let of = |id, urgency, incremental| weight(id, Priority { urgency, incremental });
        assert!(of(400, 0, true) > of(0, 1, false));
        assert!(of(0, 3, false) > of(4, 3, false) && of(u64::MAX, 3, false) > of(0, 3, true));
        assert_eq!(of(0, 3, true), of(4, 3, true));
        assert!(of(u64::MAX, 7, true) > i32::MIN);
    }
}
