//! HTTP/2 connections to one upstream server: few, each carrying many requests, each driven by a local task.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use brisk_net::Deadline;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper::rt::Executor;
use tokio::sync::Mutex;
use tokio::task::spawn_local;
use tokio::time::timeout;

use crate::body::{BodyProgress, RequestBody};
use crate::error::UpstreamError;
use crate::http1::{Failure, HeadWatch};
use crate::upstream::OpenConnection;
use crate::upstream_io::{HyperIo, UpstreamIo};

/// Requests on one connection before another is opened. Servers commonly allow 100 or 128.
const STREAMS: u32 = 100;

/// What a server may send of one response before the client has taken it; bounds the memory of a slow client.
const STREAM_WINDOW: u32 = 256 << 10;

/// The same for all responses on a connection.
const CONNECTION_WINDOW: u32 = 4 << 20;

/// The connections of one worker to one server.
#[derive(Debug, Default)]
pub(crate) struct Http2Pool {
    open: RefCell<Vec<Shared>>,
    /// Held while a connection is made, so that a burst of requests opens one and not one each.
    opening: Mutex<()>,
    attempts_failed: Cell<u64>,
}

#[derive(Debug)]
struct Shared {
    sender: http2::SendRequest<RequestBody>,
    streams: Rc<Cell<u32>>,
    idle_ticks: u32,
}

/// Room for one request on a connection.
#[derive(Debug)]
pub(crate) struct Http2 {
    sender: http2::SendRequest<RequestBody>,
    pub(crate) stream: Stream,
    /// It has carried a request before.
    reused: bool,
}

/// A request in flight; dropping it makes room for another.
#[derive(Debug)]
pub(crate) struct Stream(Rc<Cell<u32>>);

impl Http2Pool {
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
            // Somebody just found out that there is no connection to be had: the queue must not try one by one.
            return Err(UpstreamError::Connect(std::io::ErrorKind::ConnectionAborted.into()));
        }
        let opened = match open().await {
            Ok((io, open)) => Shared::new(io, open).await,
            Err(error) => Err(error),
        };
        opened.map(|shared| self.add(shared)).inspect_err(|_| self.attempts_failed.set(failed_before + 1))
    }

    /// Forgets connections that ended or were idle for `idle_ticks` sweeps. Called once a second.
    pub(crate) fn sweep(&self, idle_ticks: u32) {
        self.open.borrow_mut().retain_mut(|shared| {
            shared.idle_ticks = if shared.streams.get() == 0 { shared.idle_ticks + 1 } else { 0 };
            !shared.sender.is_closed() && shared.idle_ticks <= idle_ticks
        });
    }

    fn find(&self) -> Option<Http2> {
        let mut open = self.open.borrow_mut();
        open.retain(|shared| !shared.sender.is_closed());
        let shared = open.iter().find(|shared| shared.streams.get() < STREAMS)?;
        Some(shared.take(true))
    }

    fn add(&self, shared: Shared) -> Http2 {
        let taken = shared.take(false);
        self.open.borrow_mut().push(shared);
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
    async fn new(io: UpstreamIo, open: OpenConnection) -> Result<Self, UpstreamError> {
        let handshake = http2::Builder::new(LocalTasks)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(HyperIo::new(io));
        let (sender, connection) = timeout(Duration::from_secs(5), handshake)
            .await
            .map_err(|_| UpstreamError::ConnectTimeout)?
            .map_err(UpstreamError::Closed)?;
        spawn_local(async move {
            let _open = open;
            if let Err(error) = connection.await {
                tracing::debug!(%error, "an HTTP/2 connection to an upstream failed");
            }
        });
        Ok(Self { sender, streams: Rc::default(), idle_ticks: 0 })
    }

    fn take(&self, reused: bool) -> Http2 {
        self.streams.set(self.streams.get() + 1);
        Http2 { sender: self.sender.clone(), stream: Stream(Rc::clone(&self.streams)), reused }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Http2 {
    /// Sends `request` and waits for the head of the response, for at most `limit` without progress.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<RequestBody>,
        progress: Option<&BodyProgress>,
        deadline: &Deadline,
        limit: Duration,
    ) -> Result<Response<Incoming>, Box<Failure>> {
        let mut answer = pin!(self.sender.try_send_request(request));
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
            Ok(Err(error)) => Err(Box::new(Failure::sending(error, progress, reused))),
            Err(error) => Err(Box::new(Failure { error, unsent: None, reused })),
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
