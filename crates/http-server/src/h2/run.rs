//! Runs the streams: requests into answers, and the bodies of answers into pieces.

use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use brisk_http_connection::body::client::ClientBody;
use brisk_wire::h2::frame::Reason;
use http::Request;
use http_body::Body as _;

use super::state::{Answer, H2, Stream, Work};

/// What the body of an answer has next.
pub(super) enum Next {
    Data,
    /// Nothing yet.
    Pending,
    /// Nothing more, but perhaps trailers.
    End,
    Broken,
}

impl H2<'_> {
    /// Runs what was opened or woken, until nothing is left to do without waiting.
    pub(super) fn run(&mut self) {
        // What the frames of this turn have ended.
        self.dropped.clear();
        self.wakes.take(&mut self.runnable);
        let mut runnable = mem::take(&mut self.runnable);
        for place in runnable.drain(..) {
            self.run_one(place);
        }
        // Keeps its memory.
        runnable.append(&mut self.runnable);
        self.runnable = runnable;
        self.write_interims();
        self.dropped.clear();
    }

    fn run_one(&mut self, place: u32) {
        let waker = self.wakes.waker(place).clone();
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
                    self.begun(place, &waker);
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

    /// What answers a request, once it is run.
    pub(super) fn respond(&self, request: Request<ClientBody>) -> Work {
        let (service, connection) = (self.http.service.current(), Rc::clone(&self.http.connection));
        let flood = self.flood.clone();
        Work::Running(Box::pin(async move {
            // Requests that came together with the one that was too much are refused too.
            flood.heads(connection.multiplex().long_heads());
            if flood.exhausted_by().is_some() {
                return service.turn_away(&connection, request);
            }
            service.respond(&connection, request).await
        }))
    }

    /// Notes which stream of the connection the service has begun, when it was polled first.
    fn begun(&mut self, place: u32, waker: &Waker) {
        let begun = self.http.connection.multiplex().streams.take_begun();
        if let Some(stream) = self.stream(place) {
            stream.key = begun;
        }
        self.watch(place, waker);
    }

    fn poll_running(&mut self, place: u32, context: &mut Context<'_>) {
        let Some(stream) = self.stream(place) else { return };
        let Work::Running(future) = &mut stream.work else { return };
        let Poll::Ready(response) = future.as_mut().poll(context) else { return };
        let (head, body) = response.into_parts();
        stream.work = Work::Answer(Box::new(Answer { head: Some(head), body, chunk: None, trailers: None }));
        self.send.heads.push_back(place);
    }

    /// Writes the interim answers of this turn, but those whose requests have their answer by now.
    fn write_interims(&mut self) {
        for (key, headers) in self.http.connection.multiplex().take_interims() {
            let waits = |stream: &&Stream| stream.key == Some(key) && matches!(stream.work, Work::Running(_));
            let stream = self.places.iter().flatten().map(|stream| &**stream).find(waits);
            if let Some(number) = stream.map(|stream| stream.number) {
                self.send.interim(number, &headers);
            }
        }
    }

    /// The stream is woken through its task when it has taken too long.
    pub(super) fn watch(&mut self, place: u32, waker: &Waker) {
        let Some(key) = self.stream(place).and_then(|stream| stream.key) else { return };
        self.http.connection.multiplex().streams.run_by(key, waker);
    }

    /// Goes on with the body of an answer that has no piece left, and whose head was sent.
    pub(super) fn go_on(&mut self, place: u32, context: &mut Context<'_>) {
        match self.next(place, context) {
            Next::Data => {
                self.queue(place);
                self.watch(place, context.waker());
            }
            Next::Pending => self.watch(place, context.waker()),
            Next::End => self.write_end(place),
            Next::Broken => self.broken(place),
        }
    }

    /// The body of an answer failed.
    pub(super) fn broken(&mut self, place: u32) {
        if let Some(number) = self.stream(place).map(|stream| stream.number) {
            self.reset(number, Reason::INTERNAL_ERROR);
        }
    }

    /// Asks the body for its next piece.
    pub(super) fn next(&mut self, place: u32, context: &mut Context<'_>) -> Next {
        let Some(stream) = self.stream(place) else { return Next::Pending };
        let Work::Answer(answer) = &mut stream.work else { return Next::Pending };
        loop {
            let frame = match Pin::new(&mut answer.body).poll_frame(context) {
                Poll::Pending => return Next::Pending,
                Poll::Ready(None) => return Next::End,
                Poll::Ready(Some(Err(_))) => return Next::Broken,
                Poll::Ready(Some(Ok(frame))) => frame,
            };
            match frame.into_data() {
                Ok(data) if bytes::Buf::has_remaining(&data) => {
                    answer.chunk = Some(data);
                    return Next::Data;
                }
                Ok(_) if answer.body.is_end_stream() => return Next::End,
                Ok(_) => {}
                Err(frame) => {
                    answer.trailers = frame.into_trailers().ok();
                    return Next::End;
                }
            }
        }
    }
}
