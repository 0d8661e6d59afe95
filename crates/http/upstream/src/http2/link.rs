//! A connection with its I/O, shared by its task and its requests.
//!
//! The task reads and writes. Requests write their heads into its buffer, so all output of one turn of the worker is
//! sent with one system call.

mod exchange;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use brisk_http::error::Http2Error;
use brisk_http_connection::Connection;
use brisk_net::{DeadlineWheel, TurnLimit};
use brisk_upstream_group::UpstreamIo;
use brisk_wire::h2::frame::Reason;
use bytes::BytesMut;
use tokio::io::AsyncWrite as _;
use tokio::time::timeout;
use tokio_util::io::poll_read_buf;

pub(crate) use self::exchange::Exchange;
pub(super) use self::exchange::Unanswered;
use super::Http2Limits;
use super::cancels::Cancels;
use super::pulse::{Linger, Pulse};
use super::state::State;
use crate::open::OpenConnection;

/// Size of a read in bytes: the first value initially, doubled after a full read up to the second.
const READ_FIRST: usize = 8 << 10;
const READ_MOST: usize = 64 << 10;

/// Timeout for the last output of a closed connection.
const FAREWELL: Duration = Duration::from_secs(1);

/// A connection, shared by its task, its [`Exchange`]s and the pool.
#[derive(Debug)]
pub(super) struct Link {
    wire: RefCell<Wire>,
    /// Requests using the connection, with or without an open stream.
    load: Cell<u32>,
    /// Whether a response timed out ([`Exchange::retire_connection`]), so that the server may be unreachable. No further
    /// request uses the connection; requests in flight keep it open.
    is_retired: Cell<bool>,
    /// Whether the last request to end has failed. Repeated requests avoid the connection (`Placement::Fresh`).
    is_shunned: Cell<bool>,
    /// Whether the pool has dropped the connection. It closes with the last of its requests.
    is_closing: Cell<bool>,
    audience: Audience,
    /// Requests that clients have canceled on all connections to the server.
    cancels: Rc<Cancels>,
}

/// The clients whose requests share a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Audience {
    Usual,
    /// Clients that have canceled many requests (see [`Cancels::are_many`]).
    Canceling,
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

impl Link {
    /// A connection over `io`. `streams`: the expected limit of concurrent streams before the server's `SETTINGS` arrive.
    pub(super) fn new(
        io: UpstreamIo,
        wheel: &DeadlineWheel,
        limits: Http2Limits,
        streams: u32,
        audience: Audience,
        cancels: &Rc<Cancels>,
    ) -> Rc<Self> {
        let wire = Wire {
            io: Some(io),
            state: State::new(limits.head, streams),
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
            audience,
            cancels: Rc::clone(cancels),
        })
    }

    /// The connection's task: reads and writes until the connection ends, then writes the rest of the output within
    /// [`FAREWELL`].
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
        // Abandoned streams alone do not keep the connection open.
        if state.failure.is_none() && state.numbers.len() == state.resets.abandoned() {
            let is_left = self.is_closing.get() && self.load.get() == 0;
            if is_left || state.last.is_some() {
                let reason = if is_left { Some(Reason::NO_ERROR) } else { None };
                state.fail(Http2Error::Ended, reason);
            }
        }
        if state.failure.is_some() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Registers a request of `client` on the connection.
    pub(super) fn take(self: &Rc<Self>, client: &Rc<Connection>) -> Exchange {
        self.load.set(self.load.get() + 1);
        Exchange { link: Rc::clone(self), place: None, client: Some(Rc::clone(client)) }
    }

    /// The clients whose requests share the connection.
    pub(super) fn audience(&self) -> Audience {
        self.audience
    }

    /// Number of requests on the connection, plus open streams of ended requests (`State::leftovers`).
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

    /// Whether another request may begin: within `most`, the server's `SETTINGS_MAX_CONCURRENT_STREAMS`, and the windows.
    pub(super) fn has_room(&self, most: u32) -> bool {
        let state = &self.wire.borrow().state;
        let load = self.load.get() + state.leftovers;
        load < most.min(state.send.peer.max_streams) && !state.is_stuck() && state.has_window()
    }

    /// The server's limit of concurrent streams; `None` until its `SETTINGS` have arrived.
    pub(super) fn streams(&self) -> Option<u32> {
        let state = &self.wire.borrow().state;
        state.recv.order.has_settings().then_some(state.send.peer.max_streams)
    }

    /// Whether the server currently accepts no streams at all: `SETTINGS_MAX_CONCURRENT_STREAMS` is 0.
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
        let mut turn = TurnLimit::default();
        if self.state.may_read() {
            // Frames that the last turn has left.
            self.state.feed(&mut self.input, &mut turn);
        }
        while turn.poll_more(context).is_ready() {
            if !self.state.may_read() {
                return;
            }
            match self.poll_read(context) {
                Poll::Pending => return,
                Poll::Ready(Ok(0)) => {
                    // The error of an earlier `GOAWAY` explains the end better than the end itself.
                    let error = match self.state.farewell {
                        Reason::NO_ERROR => Http2Error::Ended,
                        reason => Http2Error::Goaway(reason),
                    };
                    return self.state.fail(error, None);
                }
                Poll::Ready(Ok(_)) => {
                    self.state.recv.is_heard = true;
                    self.state.feed(&mut self.input, &mut turn);
                }
                Poll::Ready(Err(error)) => return self.state.fail(Http2Error::Io(error.kind()), None),
            }
        }
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

    /// Checks whether a connection without requests has ended, as far as the kernel has reported it. Then the request goes to
    /// another connection unsent, instead of failing on this one.
    fn look(&mut self) {
        if self.state.numbers.is_empty()
            && let Some(task) = self.state.task().cloned()
        {
            self.read(&mut Context::from_waker(&task));
        }
    }
}
