//! HTTP/2 connections to one upstream server: few, each carrying many requests, each driven by a local task.

use std::cell::{Cell, RefCell};
use std::mem;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use brisk_net::Deadline;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::rt::Executor;
use hyper_util::rt::TokioTimer;
use tokio::sync::Mutex;
use tokio::task::spawn_local;
use tokio::time::timeout;

use crate::body::request::{BodyProgress, RequestBody};
use crate::error::{ConnectionError, UpstreamError};
use crate::upstream::http1::{Failure, HeadWatch, upstream_error};
use crate::upstream::io::{HyperIo, UpstreamIo};
use crate::upstream::open::OpenConnection;
use crate::upstream::settings::GroupSettings;

/// Requests on one connection before another is opened. Servers commonly allow 100 or 128.
const STREAMS: u32 = 100;

/// Bytes that a server may send of one response before the client has taken them; bounds the memory of a slow client.
const STREAM_WINDOW: u32 = 256 << 10;

/// The same for all responses on a connection.
const CONNECTION_WINDOW: u32 = 4 << 20;

/// The connections of one worker to one server.
#[derive(Debug)]
pub(crate) struct Http2Pool {
    limits: Http2Limits,
    open: RefCell<Vec<Shared>>,
    /// Held while a connection is made, so that a burst of requests opens one and not one each.
    opening: Mutex<()>,
    attempts_failed: Cell<u64>,
    /// No connection is kept any more.
    retired: Cell<bool>,
}

/// The limit on the head of a response, and the times of PINGs that check whether the server is alive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Http2Limits {
    /// Bytes of a response's head, as RFC 9113 section 6.5.2 counts them.
    head_size: u32,
    /// A PING is sent after this time without a frame, while requests are open.
    ping: Option<Duration>,
    /// The time for its answer.
    pong: Duration,
}

#[derive(Debug)]
struct Shared {
    sender: http2::SendRequest<RequestBody>,
    load: Rc<Load>,
    idle_ticks: u32,
}

/// The state that the requests on a connection share.
#[derive(Debug, Default)]
struct Load {
    streams: Cell<u32>,
    /// A response did not come in time: the server may be gone. No further request uses the connection; those in flight
    /// keep it open.
    retired: Cell<bool>,
}

/// Room for one request on a connection.
#[derive(Debug)]
pub(crate) struct Http2 {
    sender: http2::SendRequest<RequestBody>,
    pub(crate) stream: Stream,
    /// The connection has carried a request before.
    reused: bool,
}

/// A request in flight; dropping it makes room for another.
#[derive(Debug)]
pub(crate) struct Stream(Rc<Load>);

impl Http2Limits {
    pub(crate) fn of(settings: &GroupSettings) -> Self {
        let timeouts = &settings.timeouts;
        let head_size = u32::try_from(settings.head_size).unwrap_or(u32::MAX);
        Self { head_size, ping: timeouts.ping, pong: timeouts.connect }
    }
}

impl Http2Pool {
    /// A pool without connections.
    pub(crate) fn new(limits: Http2Limits) -> Self {
        Self {
            limits,
            open: RefCell::default(),
            opening: Mutex::default(),
            attempts_failed: Cell::new(0),
            retired: Cell::new(false),
        }
    }

    /// Room on an open connection, or on the one that `open` makes. `fresh` asks for the latter.
    pub(crate) async fn checkout<F>(&self, placement: Placement, open: F) -> Result<Http2, UpstreamError>
    where
        F: AsyncFnOnce() -> Result<(UpstreamIo, OpenConnection), UpstreamError>,
    {
        if let (Placement::Kept, Some(found)) = (placement, self.find()) {
            return Ok(found);
        }
        let failed_before = self.attempts_failed.get();
        let _opening = self.opening.lock().await;
        if let Some(found) = self.find() {
            return Ok(found);
        }
        if self.attempts_failed.get() != failed_before {
            // Another request has just found that no connection can be made: the queue must not try one by one.
            return Err(UpstreamError::Connect(std::io::ErrorKind::ConnectionAborted.into()));
        }
        let opened = match open().await {
            Ok((io, open)) => Shared::new(io, open, self.limits).await,
            Err(error) => Err(error),
        };
        opened.map(|shared| self.add(shared)).inspect_err(|_| self.attempts_failed.set(failed_before + 1))
    }

    /// A new connection for one request, which no other will use.
    pub(crate) async fn exclusive<F>(&self, open: F) -> Result<Http2, UpstreamError>
    where
        F: AsyncFnOnce() -> Result<(UpstreamIo, OpenConnection), UpstreamError>,
    {
        let (io, open) = open().await?;
        Shared::new(io, open, self.limits).await.map(|shared| shared.take(false))
    }

    /// Forgets connections that ended or were idle for `idle_ticks` sweeps. Called once a second.
    pub(crate) fn sweep(&self, idle_ticks: u32) {
        self.open.borrow_mut().retain_mut(|shared| {
            shared.idle_ticks = if shared.load.streams.get() == 0 { shared.idle_ticks + 1 } else { 0 };
            shared.is_usable() && shared.idle_ticks <= idle_ticks
        });
    }

    /// Closes a connection without requests, if there is one.
    pub(crate) fn close_idle(&self) {
        let mut open = self.open.borrow_mut();
        if let Some(index) = open.iter().position(|shared| shared.load.streams.get() == 0) {
            open.swap_remove(index);
        }
    }

    /// Gives up all connections, those that are being opened too: each closes with the last of its requests.
    pub(crate) fn retire(&self) {
        self.retired.set(true);
        self.open.borrow_mut().clear();
    }

    fn find(&self) -> Option<Http2> {
        let mut open = self.open.borrow_mut();
        open.retain(Shared::is_usable);
        let shared = open.iter().find(|shared| shared.load.streams.get() < STREAMS)?;
        Some(shared.take(true))
    }

    fn add(&self, shared: Shared) -> Http2 {
        let taken = shared.take(false);
        if !self.retired.get() {
            self.open.borrow_mut().push(shared);
        }
        taken
    }
}

/// Which connection a request may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// One that is kept, or a new one.
    Kept,
    /// A new one, because a kept one has just failed.
    Fresh,
}

impl Shared {
    async fn new(io: UpstreamIo, open: OpenConnection, limits: Http2Limits) -> Result<Self, UpstreamError> {
        let handshake = http2::Builder::new(LocalTasks)
            .timer(TokioTimer::new())
            .keep_alive_interval(limits.ping)
            .keep_alive_timeout(limits.pong)
            .max_header_list_size(limits.head_size)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(HyperIo::new(io));
        let (sender, connection) = timeout(Duration::from_secs(5), handshake)
            .await
            .map_err(|_| UpstreamError::ConnectTimeout)?
            .map_err(|error| UpstreamError::Closed(ConnectionError::Http2(error)))?;
        spawn_local(async move {
            let _open = open;
            if let Err(error) = connection.await {
                tracing::debug!(%error, "an HTTP/2 connection to an upstream failed");
            }
        });
        Ok(Self { sender, load: Rc::default(), idle_ticks: 0 })
    }

    fn take(&self, reused: bool) -> Http2 {
        self.load.streams.set(self.load.streams.get() + 1);
        Http2 { sender: self.sender.clone(), stream: Stream(Rc::clone(&self.load)), reused }
    }

    fn is_usable(&self) -> bool {
        !self.load.retired.get() && !self.sender.is_closed()
    }
}

impl Stream {
    /// Lets no further request use the connection: the server owed something on this stream and was silent.
    pub(crate) fn retire_connection(&self) {
        self.0.retired.set(true);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.streams.set(self.0.streams.get() - 1);
    }
}

impl Http2 {
    /// Sends `request` and waits for the head of the response, for at most `limit` without progress.
    pub(crate) async fn exchange(
        &mut self,
        request: &mut Request<RequestBody>,
        progress: Option<&BodyProgress>,
        deadline: &Deadline,
        limit: Duration,
    ) -> Result<Response<Incoming>, Failure> {
        let taken = mem::replace(request, Request::new(RequestBody::Empty));
        let mut answer = pin!(self.sender.try_send_request(taken));
        let mut watch = HeadWatch::start(deadline, progress, limit);
        let answered = std::future::poll_fn(|context| {
            if let Poll::Ready(answer) = answer.as_mut().poll(context) {
                return Poll::Ready(Ok(answer));
            }
            watch.poll_overdue(context).map(Err)
        });
        let reused = self.reused;
        match answered.await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(mut error)) => {
                let was_sent = match error.take_message() {
                    Some(unsent) => {
                        *request = unsent;
                        false
                    }
                    None => true,
                };
                let error = upstream_error(ConnectionError::Http2(error.into_error()), progress);
                Err(Failure { error, was_sent, reused })
            }
            Err(error) => {
                if matches!(error, UpstreamError::HeadTimeout) {
                    self.stream.retire_connection();
                }
                Err(Failure { error, was_sent: true, reused })
            }
        }
    }
}

/// Runs what hyper needs beside a connection on the worker's own thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalTasks;

impl<F> Executor<F> for LocalTasks
where
    F: Future + 'static,
{
    fn execute(&self, future: F) {
        // Ends with the connection; there is nothing to wait for.
        drop(spawn_local(async move {
            future.await;
        }));
    }
}
