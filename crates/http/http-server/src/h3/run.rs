//! Execution of streams: from requests to responses, and from response bodies to pieces.

use std::mem;
use std::rc::Rc;
use std::task::{Context, Poll};

use brisk_wire::h3::error::Code;

use super::state::{H3, Stream};
use crate::response::{Answer, ROUNDS, Work};

impl H3 {
    /// Runs all new and woken streams until none can continue without waiting, at most [`ROUNDS`] times.
    pub(super) fn run(&mut self) {
        // Streams ended by the frames of this turn.
        self.dropped.clear();
        // The requests of a turn have arrived in one read, or nearly so.
        self.http.connection.flow.begin_batch();
        // Streams that others wake in this turn run in the same turn, so that their responses leave together.
        for _ in 0..ROUNDS {
            self.wakes.take(&mut self.runnable);
            if self.runnable.is_empty() {
                break;
            }
            let mut runnable = mem::take(&mut self.runnable);
            // The most urgent requests reach their upstreams first, so that their responses arrive before the others.
            runnable.sort_by_key(|place| self.urgency(*place));
            for place in runnable.drain(..) {
                self.run_one(place);
            }
            // Keeps the allocation.
            runnable.append(&mut self.runnable);
            self.runnable = runnable;
        }
        self.http.connection.flow.end_batch();
        self.write_interims();
        self.dropped.clear();
    }

    fn urgency(&self, place: u32) -> u8 {
        self.places[place as usize].as_deref().map_or(0, |stream| stream.rank.priority.urgency)
    }

    fn run_one(&mut self, place: u32) {
        let waker = Rc::clone(self.wakes.waker(place));
        let mut context = Context::from_waker(&waker);
        let Some(stream) = self.places[place as usize].as_deref_mut() else { return };
        let streams = &self.http.connection.multiplex().streams;
        if stream.key.is_some_and(|key| streams.ended(key).is_some()) {
            return self.reset(place, Code::REQUEST_CANCELLED);
        }
        match mem::replace(&mut stream.work, Work::Done) {
            Work::Running(future) => {
                stream.work = Work::Running(future);
                let is_new = stream.key.is_none();
                self.poll_running(place, &mut context);
                if is_new {
                    self.begun(place);
                }
            }
            Work::Answer(answer) => {
                let waits = answer.chunk.is_none() && answer.head.is_none();
                stream.work = Work::Answer(answer);
                if waits {
                    self.go_on(place, &mut context);
                }
            }
            Work::Done => {}
        }
    }

    /// Records the `StreamKey` that the service assigned to the stream when its future was first polled.
    fn begun(&mut self, place: u32) {
        let begun = self.http.connection.multiplex().streams.take_begun();
        if let Some(stream) = self.stream(place) {
            stream.key = begun;
        }
        self.watch(place);
    }

    fn poll_running(&mut self, place: u32, context: &mut Context<'_>) {
        let Some(stream) = self.stream(place) else { return };
        let Work::Running(future) = &mut stream.work else { return };
        let Poll::Ready(response) = future.as_mut().poll(context) else { return };
        stream.work = Work::Answer(Answer::new(response));
        self.heads.push_back(place);
    }

    /// Writes the interim responses of this turn, except for requests without [`Work::awaits_head`].
    fn write_interims(&mut self) {
        for interim in self.http.connection.extras.take_interims() {
            let waits = |stream: &Stream| stream.key == interim.stream && stream.work.awaits_head();
            let place = self.places.iter().position(|stream| stream.as_deref().is_some_and(waits));
            if let Some(place) = place {
                self.write_interim(place as u32, &interim);
            }
        }
    }

    /// Registers the task of the stream to be woken at the stream's timeout.
    pub(super) fn watch(&mut self, place: u32) {
        let Some(key) = self.stream(place).and_then(|stream| stream.key) else { return };
        self.http.connection.multiplex().streams.run_by(key, self.wakes.waker(place));
    }

    /// Continues a response body that has no piece left and whose head is written.
    pub(super) fn go_on(&mut self, place: u32, context: &mut Context<'_>) {
        let Some(stream) = self.stream(place) else { return };
        let Work::Answer(answer) = &mut stream.work else { return };
        let next = answer.next(context);
        self.continue_body(place, next, false);
    }

    /// Processes the notices of the readers of request bodies.
    pub(super) fn look_at_bodies(&mut self) {
        self.notices.take_read();
        for place in self.notices.take() {
            self.look_at_body(place);
        }
    }

    fn look_at_body(&mut self, place: u32) {
        let Some(stream) = self.places.get_mut(place as usize).and_then(Option::as_deref_mut) else { return };
        let Some(inbox) = &stream.inbox else { return };
        let notice = inbox.notice();
        let read = if notice.is_dropped { stream.unread } else { stream.unread.min(notice.read as usize) };
        stream.unread -= read;
        self.unread -= read;
        let is_answered = match &stream.work {
            Work::Done => true,
            Work::Answer(answer) => answer.head.is_none(),
            Work::Running(_) => false,
        };
        if read > 0 || notice.is_dropped {
            self.resume_paused(place);
        }
        if notice.asks && !is_answered {
            self.write_status(place, 100, false);
        }
        if notice.is_dropped {
            self.close_if_over(place);
        }
    }
}
