//! Execution of streams: from requests to responses, and from response bodies to pieces.

use std::mem;
use std::rc::Rc;
use std::task::{Context, Poll};

use brisk_defects::Defect;
use brisk_wire::h2::frame::Reason;

use super::state::{H2, Stream};
use crate::response::{Answer, Next, ROUNDS, Work};

impl H2<'_> {
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
        self.places[place as usize].as_deref().map_or(0, |stream| stream.priority.urgency)
    }

    fn run_one(&mut self, place: u32) {
        let waker = Rc::clone(self.wakes.waker(place));
        let mut context = Context::from_waker(&waker);
        let Some(stream) = self.places[place as usize].as_deref_mut() else { return };
        let streams = &self.http.connection.multiplex().streams;
        if stream.key.is_some_and(|key| streams.ended(key).is_some()) {
            let number = stream.number;
            return self.reset(number, Reason::CANCEL);
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
        let other = self.send.heads.back().copied();
        self.send.heads.push_back(place);
        if let Some(other) = other
            && brisk_defects::strikes(Defect::OtherStream)
        {
            self.exchange_answers(place, other);
        }
    }

    /// Gives each of two streams the response of the other, for [`Defect::OtherStream`].
    fn exchange_answers(&mut self, one: u32, other: u32) {
        let Some(stream) = self.stream(one) else { return };
        let first = mem::replace(&mut stream.work, Work::Done);
        let Some(stream) = self.stream(other) else { return };
        let second = mem::replace(&mut stream.work, first);
        if let Some(stream) = self.stream(one) {
            stream.work = second;
        }
    }

    /// Writes the interim responses of this turn, except for requests without [`Work::awaits_head`].
    fn write_interims(&mut self) {
        for interim in self.http.connection.extras.take_interims() {
            let waits = |stream: &&Stream| stream.key == interim.stream && stream.work.awaits_head();
            let stream = self.places.iter().flatten().map(|stream| &**stream).find(waits);
            if let Some(number) = stream.map(|stream| stream.number) {
                self.send.interim(number, &interim);
            }
        }
    }

    /// Registers the task of the stream to be woken at the stream's timeout.
    pub(super) fn watch(&mut self, place: u32) {
        let Some(key) = self.stream(place).and_then(|stream| stream.key) else { return };
        self.http.connection.multiplex().streams.run_by(key, self.wakes.waker(place));
    }

    /// Continues a response body that has no piece left and whose head is sent.
    pub(super) fn go_on(&mut self, place: u32, context: &mut Context<'_>) {
        match self.next(place, context) {
            Next::Data => {
                self.queue(place);
                self.watch(place);
            }
            Next::Pending => self.watch(place),
            Next::End => self.write_end(place),
            Next::Broken => self.broken(place),
        }
    }

    /// Resets a stream whose response body failed, with `INTERNAL_ERROR`, so that the client does not take it for complete.
    pub(super) fn broken(&mut self, place: u32) {
        if let Some(number) = self.stream(place).map(|stream| stream.number) {
            self.reset(number, Reason::INTERNAL_ERROR);
        }
    }

    /// Polls the response body for its next piece, see [`Answer::next`].
    pub(super) fn next(&mut self, place: u32, context: &mut Context<'_>) -> Next {
        let Some(stream) = self.stream(place) else { return Next::Pending };
        let Work::Answer(answer) = &mut stream.work else { return Next::Pending };
        answer.next(context)
    }
}
