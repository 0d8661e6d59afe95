//! A connection with its I/O, shared by its task and its requests.
//!
//! The task reads and writes. Requests write their heads into its buffer, so all output of one turn of the worker is
//! sent with one system call.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use brisk_http::error::{ConnectionError, Http2Error};
use brisk_http_connection::body::request::RequestBody;
use brisk_net::DeadlineWheel;
use brisk_wire::h2::frame::Reason;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Request, Response};
use http_body::{Frame, SizeHint};
use tokio::io::AsyncWrite as _;
use tokio::time::timeout;
use tokio_util::io::poll_read_buf;

use super::Http2Limits;
use super::output::Destination;
use super::pulse::{Linger, Pulse};
use super::state::State;
use crate::io::UpstreamIo;
use crate::open::OpenConnection;

/// Size of a read in bytes: the first value initially, doubled after a full read up to the second.
const READ_FIRST: usize = 8 << 10;
const READ_MOST: usize = 64 << 10;

/// Maximum number of reads per turn, before other tasks run.
const READS: usize = 4;

/// Timeout for the last output of a closed connection.
const FAREWELL: Duration = Duration::from_secs(1);

/// A connection, shared by its task, its requests and the pool.
#[derive(Debug)]
pub(super) struct Link {
    wire: RefCell<Wire>,
    /// Requests using the connection, with or without an open stream.
    load: Cell<u32>,
    /// Whether a response timed out, so that the server may be unreachable. No further request uses the connection;
    /// requests in flight keep it open.
    is_retired: Cell<bool>,
    /// Whether the last request to end has failed. Repeated requests avoid the connection.
    is_shunned: Cell<bool>,
    /// Whether the pool has dropped the connection. It closes with the last of its requests.
    is_closing: Cell<bool>,
}

#[derive(Debug)]
struct Wire {
    /// `None` after the end of the connection.
    io: Option<UpstreamIo>,
    state: State,
    input: BytesMut,
    /// Size of the next read.
    piece: usize,
    /// Whether written bytes may need a flush, because TLS buffers records.
    is_unflushed: bool,
    pulse: Pulse,
    linger: Linger,
}

/// A request on a connection: before its stream is opened, while it waits, and as the body of its response. Dropping it
/// abandons the rest of the exchange.
#[derive(Debug)]
pub(crate) struct Exchange {
    link: Rc<Link>,
    place: Option<u32>,
}

/// A request without a response.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) error: ConnectionError,
    /// The request body, if the server has not processed the request and it can be repeated unchanged.
    pub(super) again: Option<RequestBody>,
}

impl Link {
    /// A connection over `io`. `streams`: the expected limit of concurrent streams before the server's settings arrive.
    pub(super) fn new(io: UpstreamIo, wheel: &DeadlineWheel, limits: Http2Limits, streams: u32) -> Rc<Self> {
        let wire = Wire {
            io: Some(io),
            state: State::new(limits.head_size, streams),
            input: BytesMut::new(),
            piece: READ_FIRST,
            is_unflushed: false,
            pulse: Pulse::new(wheel, limits),
            linger: Linger::new(wheel),
        };
        Rc::new(Self {
            wire: RefCell::new(wire),
            load: Cell::default(),
            is_retired: Cell::default(),
            is_shunned: Cell::default(),
            is_closing: Cell::default(),
        })
    }

    /// The connection's task: reads and writes until the connection ends.
    pub(super) async fn run(self: Rc<Self>, _open: OpenConnection) {
        poll_fn(|context| self.poll(context)).await;
        if let Some(error) = self.wire.borrow().state.failure {
            tracing::debug!(%error, "an HTTP/2 connection to an upstream ended");
        }
        let farewell = poll_fn(|context| self.wire.borrow_mut().poll_close(context));
        // An error only means that the server is gone.
        drop(timeout(FAREWELL, farewell).await);
        // Responses remain readable as far as they have arrived. The socket is closed before its permit is released.
        self.wire.borrow_mut().shut();
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut wire = self.wire.borrow_mut();
        wire.turn(context);
        let state = &mut wire.state;
        if state.failure.is_none() && state.numbers.len() == state.resets.abandoned() {
            let is_left = self.is_closing.get() && self.load.get() == 0;
            if is_left || state.last.is_some() {
                let reason = if is_left { Some(Reason::NO_ERROR) } else { None };
                state.fail(Http2Error::Ended, reason);
            }
        }
        if state.failure.is_some() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Registers a request on the connection.
    pub(super) fn take(self: &Rc<Self>) -> Exchange {
        self.load.set(self.load.get() + 1);
        Exchange { link: Rc::clone(self), place: None }
    }

    /// Number of requests on the connection, plus open streams of ended requests.
    pub(super) fn load(&self) -> u32 {
        self.load.get() + self.wire.borrow().state.leftovers
    }

    /// Whether further requests may use the connection.
    pub(super) fn is_usable(&self) -> bool {
        let is_worn_out = self.has_many_resets() && self.load() == 0;
        !self.is_retired.get() && !is_worn_out && self.wire.borrow().state.takes_requests()
    }

    /// Whether further requests should use other connections, because clients have canceled many on this one.
    pub(super) fn has_many_resets(&self) -> bool {
        self.wire.borrow().state.resets.are_used_up()
    }

    /// Whether another request may begin: within `most`, the server's limit of streams, and the windows.
    pub(super) fn has_room(&self, most: u32) -> bool {
        let state = &self.wire.borrow().state;
        let load = self.load.get() + state.leftovers;
        load < most.min(state.send.peer.max_streams) && !state.is_stuck() && state.has_window()
    }

    /// The server's limit of concurrent streams, once its settings have arrived.
    pub(super) fn streams(&self) -> Option<u32> {
        let state = &self.wire.borrow().state;
        state.recv.order.has_settings().then_some(state.send.peer.max_streams)
    }

    /// Whether the server currently accepts no streams at all.
    pub(super) fn takes_none(&self) -> bool {
        self.wire.borrow().state.send.peer.max_streams == 0
    }

    /// Whether the last request to end has failed.
    pub(super) fn is_shunned(&self) -> bool {
        self.is_shunned.get()
    }

    /// Closes the connection with the last of its requests.
    pub(super) fn close(&self) {
        self.is_closing.set(true);
        self.wire.borrow_mut().state.schedule();
    }

    /// Releases memory that an idle connection does not need.
    pub(super) fn rest(&self) {
        let mut wire = self.wire.borrow_mut();
        wire.state.send.rest();
        if wire.input.is_empty() {
            wire.input = BytesMut::new();
            wire.piece = READ_FIRST;
        }
    }
}

impl Wire {
    fn turn(&mut self, context: &mut Context<'_>) {
        self.state.begin_turn(context);
        self.read(context);
        self.state.run_uploads();
        self.linger.check(&mut self.state, context);
        let was_full = !self.state.may_read();
        if let Err(error) = self.write(context) {
            self.state.fail(Http2Error::Io(error.kind()), None);
        }
        self.pulse.check(&mut self.state, context);
        // No other event wakes the task for further input.
        if was_full && self.state.may_read() {
            context.waker().wake_by_ref();
        }
    }

    fn read(&mut self, context: &mut Context<'_>) {
        for _ in 0..READS {
            if !self.state.may_read() {
                return;
            }
            match self.poll_read(context) {
                Poll::Pending => return,
                Poll::Ready(Ok(0)) => {
                    let error = match self.state.farewell {
                        Reason::NO_ERROR => Http2Error::Ended,
                        reason => Http2Error::Goaway(reason),
                    };
                    return self.state.fail(error, None);
                }
                Poll::Ready(Ok(_)) => self.state.feed(&mut self.input),
                Poll::Ready(Err(error)) => return self.state.fail(Http2Error::Io(error.kind()), None),
            }
        }
        context.waker().wake_by_ref();
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.input.reserve(self.piece);
        let Some(io) = &mut self.io else { return Poll::Ready(Ok(0)) };
        let length = ready!(poll_read_buf(Pin::new(io), context, &mut self.input))?;
        if length >= self.piece {
            self.piece = (2 * self.piece).min(READ_MOST);
        } else if length < self.piece / 4 {
            self.piece = (self.piece / 2).max(READ_FIRST);
        }
        Poll::Ready(Ok(length))
    }

    fn write(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        let Self { io: Some(io), state, is_unflushed, .. } = self else { return Ok(()) };
        state.write(|bytes| {
            let written = Pin::new(&mut *io).poll_write(context, bytes);
            *is_unflushed |= written.is_ready();
            written
        })?;
        if *is_unflushed && Pin::new(io).poll_flush(context)?.is_ready() {
            *is_unflushed = false;
        }
        Ok(())
    }

    fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write(context)?;
        if self.state.send.waiting() > 0 {
            return Poll::Pending;
        }
        self.io.as_mut().map_or(Poll::Ready(Ok(())), |io| Pin::new(io).poll_shutdown(context))
    }

    fn shut(&mut self) {
        self.io = None;
        self.input = BytesMut::new();
        self.state.send.end();
    }

    /// Checks whether a connection without requests has ended, as far as the kernel has reported it.
    fn look(&mut self) {
        if self.state.numbers.is_empty()
            && let Some(task) = self.state.task().cloned()
        {
            self.read(&mut Context::from_waker(&task));
        }
    }
}

impl Exchange {
    /// Opens a stream for the request as soon as the server permits another, and takes the request's body.
    pub(super) fn poll_begin(
        &mut self,
        context: &mut Context<'_>,
        request: &mut Request<RequestBody>,
        to: Destination<'_>,
    ) -> Poll<Result<(), Unanswered>> {
        let mut wire = self.link.wire.borrow_mut();
        wire.look();
        let state = &mut wire.state;
        if !state.takes_requests() {
            // The error of other requests does not concern this one, which was not sent.
            let is_first = state.next == 1;
            let error = state.failure.filter(|_| is_first).unwrap_or(Http2Error::Refused);
            let body = mem::replace(request.body_mut(), RequestBody::Empty);
            return Poll::Ready(Err(Unanswered { error: error.into(), again: Some(body) }));
        }
        if !state.has_room() {
            state.wait_for_room(context.waker());
            return Poll::Pending;
        }
        self.place = Some(state.request(request, to));
        Poll::Ready(Ok(()))
    }

    /// Whether the server supports extended CONNECT (RFC 8441). Ready once its settings have arrived.
    pub(super) fn poll_offers_protocols(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        let mut wire = self.link.wire.borrow_mut();
        let state = &mut wire.state;
        if state.recv.order.has_settings() || !state.takes_requests() {
            return Poll::Ready(state.send.peer.connect_protocol);
        }
        state.wait_for_room(context.waker());
        Poll::Pending
    }

    /// The head of the response.
    pub(super) fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<Result<Response<()>, Unanswered>> {
        let mut wire = self.link.wire.borrow_mut();
        let Some(place) = self.place else { return Poll::Pending };
        let stream = wire.state.stream(place);
        let polled = stream.poll_head(context);
        if let Poll::Ready(answer) = &polled {
            self.link.is_shunned.set(answer.is_err());
        }
        polled.map_err(|error| Unanswered {
            error: stream.explain(error),
            again: stream.is_untouched.then(|| stream.take_request_body()),
        })
    }

    /// Takes the headers of the last 103 (RFC 8297).
    pub(super) fn take_hints(&mut self) -> Option<HeaderMap> {
        let mut wire = self.link.wire.borrow_mut();
        wire.state.stream(self.place?).hints.take()
    }

    /// See [`http_body::Body::poll_frame`].
    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionError>>> {
        let mut wire = self.link.wire.borrow_mut();
        let Some(place) = self.place else { return Poll::Ready(None) };
        let state = &mut wire.state;
        let stream = state.stream(place);
        let polled = stream.poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            let length = data.len() as u32;
            state.claim(length);
            state.claim_stream(place, length);
            return polled.map_err(ConnectionError::Http2);
        }
        polled.map_err(|error| stream.explain(error))
    }

    /// See [`http_body::Body::is_end_stream`].
    pub(crate) fn is_end_stream(&self) -> bool {
        let wire = self.link.wire.borrow();
        self.place.is_none_or(|place| wire.state.streams[place as usize].is_end_stream())
    }

    /// See [`http_body::Body::size_hint`].
    pub(crate) fn size_hint(&self) -> SizeHint {
        let wire = self.link.wire.borrow();
        let unread = self.place.and_then(|place| wire.state.streams[place as usize].unread);
        unread.map_or_else(SizeHint::default, SizeHint::with_exact)
    }

    /// Excludes the connection from further requests, because a response on it timed out.
    pub(crate) fn retire_connection(&self) {
        self.link.is_retired.set(true);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let link = &self.link;
        let mut wire = link.wire.borrow_mut();
        if let Some(place) = self.place {
            wire.state.release(place);
        }
        link.load.set(link.load.get() - 1);
        if link.load.get() == 0 && link.is_closing.get() {
            wire.state.schedule();
        }
    }
}
