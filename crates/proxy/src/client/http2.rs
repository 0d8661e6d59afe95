//! A client connection that speaks HTTP/2: its driver, and what runs its streams.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;

use crate::body::client::ClientBody;
use crate::connection::Connection;
use crate::connection::end::End;
use crate::connection::streams::StreamKey;

use super::driver::{Driver, Stop};
use super::flood::{FloodWatch, WatchedIo};
use super::turn::Turns;

/// Bytes of its answer that an HTTP/2 stream may hold while the client's window is closed. hyper's 400 KiB for each of
/// 128 streams would be 50 MiB that a client can take by not reading.
const H2_STREAM_BUFFER: usize = 64 * 1024;

/// Streams that a client may have reset while hyper has not looked at them yet. They are not requests yet, but take
/// memory.
const UNSEEN_RESETS: usize = 20;

impl Driver<'_> {
    /// Serves HTTP/2 until the connection closes.
    pub(super) async fn http2_turns(&self) -> Stop {
        let Self { io, http } = self;
        let flood = FloodWatch::new(http.settings.h2_resets);
        let service = service_fn(|request| {
            let (service, connection) = (http.service.current(), Rc::clone(&http.connection));
            let (request, flood) = (ClientBody::of_hyper(request), flood.clone());
            async move {
                // Requests that came together with the one that was too much are refused too.
                flood.heads(connection.multiplex().long_heads());
                if flood.exhausted_by().is_some() {
                    return Ok(service.turn_away(&connection, request));
                }
                Ok::<_, Infallible>(service.respond(&connection, request).await)
            }
        });
        let multiplexed = http.connection.multiplex();
        let mut hyper = pin!(
            http2::Builder::new(LocalExecutor::new(&http.connection))
                .max_concurrent_streams(http.settings.h2_streams)
                .max_header_list_size(u32::try_from(http.settings.head_size).unwrap_or(u32::MAX))
                .max_pending_accept_reset_streams(http.settings.h2_resets.min(UNSEEN_RESETS))
                .max_send_buf_size(H2_STREAM_BUFFER)
                .serve_connection(WatchedIo::new(io.clone(), flood.clone()), service)
        );
        let mut turns = Turns::new(true, http.connection.requests());
        let mut ending = None;
        let stop = poll_fn(|cx| {
            multiplexed.discards.begin_turn(cx);
            self.advance_handshake(cx);
            if turns.begins_to_drain(self) {
                hyper.as_mut().graceful_shutdown();
            }
            if let Poll::Ready(result) = hyper.as_mut().poll(cx) {
                return Poll::Ready(ending.map_or(self.finished(&result), Stop::Close));
            }
            multiplexed.discards.poll(cx);
            // What came just now may have been its last request.
            if turns.begins_to_drain(self) {
                hyper.as_mut().graceful_shutdown();
                cx.waker().wake_by_ref();
            }
            flood.earn(multiplexed.take_earned());
            flood.heads(multiplexed.long_heads());
            if let Some(reason) = flood.exhausted_by() {
                http.service.current().telemetry().metrics.flood(reason);
                self.say_goodbye(cx, &flood);
                return Poll::Ready(Stop::Close(End::Flood));
            }
            match turns.poll_end(cx, self) {
                // GOAWAY first; if that does not end it, the next deadline does.
                Poll::Ready(Stop::Close(end)) if ending.is_none() && end != End::Evicted => {
                    ending = Some(end);
                    hyper.as_mut().graceful_shutdown();
                    http.deadline.set(http.settings.timeouts.write);
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                stop => stop,
            }
        })
        .await;
        multiplexed.discards.end();
        stop
    }

    /// Writes GOAWAY past hyper, whose own would wait for the streams in flight.
    fn say_goodbye(&self, cx: &mut Context<'_>, flood: &FloodWatch) {
        if let Some(frame) = flood.goaway() {
            let mut stream = self.io.stream_mut();
            // Makes room. A client that does not read gets none.
            if stream.poll_drain(cx).is_ready() {
                let _ = stream.poll_write(cx, &[IoSlice::new(&frame)]);
            }
        }
    }
}

/// Runs the HTTP/2 streams of one connection. An answer that is ready at once never becomes a task; where answers have
/// to wait, for an upstream say, trying first would be work done twice, so after a few of them it is tried now and then.
#[derive(Clone, Debug)]
struct LocalExecutor {
    connection: Rc<Connection>,
    not_ready: Rc<Cell<u32>>,
}

impl LocalExecutor {
    /// Answers in a row that were not ready, before it is no longer tried each time.
    const TRIES: u32 = 4;
    /// One answer in this number is tried then.
    const SAMPLE: u32 = 32;

    fn new(connection: &Rc<Connection>) -> Self {
        Self { connection: Rc::clone(connection), not_ready: Rc::default() }
    }
}

impl<F: Future<Output = ()> + 'static> Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        let connection = Rc::clone(&self.connection);
        let mut task = StreamTask { future: Box::pin(future), connection, stream: None };
        let not_ready = self.not_ready.get();
        let tries = not_ready < Self::TRIES || not_ready.is_multiple_of(Self::SAMPLE);
        // A pending future is polled again by its task, with the waker that counts.
        if tries && Pin::new(&mut task).poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            self.not_ready.set(0);
            return;
        }
        self.not_ready.set(not_ready.wrapping_add(1));
        tokio::task::spawn_local(task);
    }
}

/// One stream, until it is finished or the driver ends it. Dropping hyper's future resets the stream.
struct StreamTask<F> {
    future: Pin<Box<F>>,
    connection: Rc<Connection>,
    stream: Option<StreamKey>,
}

impl<F: Future<Output = ()>> Future for StreamTask<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { future, connection, stream } = &mut *self;
        let streams = &connection.multiplex().streams;
        if stream.is_some_and(|stream| streams.ended(stream).is_some()) {
            return Poll::Ready(());
        }
        let polled = future.as_mut().poll(cx);
        if polled.is_pending() {
            // The service begins the stream when it is polled first.
            *stream = stream.or_else(|| streams.take_begun());
            if let Some(stream) = *stream {
                streams.run_by(stream, cx.waker());
            }
        }
        polled
    }
}
