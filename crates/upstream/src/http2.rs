//! HTTP/2 connections to one upstream server: few, each carrying many requests, each driven by a local task.

mod allowance;
mod blocks;
mod input;
mod link;
mod output;
mod pulse;
mod state;
mod stream;
#[cfg(any(test, fuzzing))]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod windows;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use brisk_http_connection::body::request::{BodyProgress, RequestBody};
use brisk_http_connection::interim::Interim;
use brisk_net::{Deadline, DeadlineWheel};
use http::header::LINK;
use http::{Request, Response};
use tokio::sync::Mutex;
use tokio::task::spawn_local;

use self::link::{Link, Unanswered};
use crate::error::UpstreamError;
use crate::http1::{Failure, HeadWatch, upstream_error};
use crate::io::UpstreamIo;
use crate::open::OpenConnection;
use crate::settings::GroupSettings;

pub(crate) use self::link::Exchange;
pub(crate) use self::output::Destination;

/// Requests on one connection before another is opened. Servers commonly allow 100 or 128.
const STREAMS: u32 = 100;

/// The connections of one worker to one server.
#[derive(Debug)]
pub(crate) struct Http2Pool {
    limits: Http2Limits,
    wheel: DeadlineWheel,
    open: RefCell<Vec<Shared>>,
    /// Held while a connection is made, so that a burst of requests opens one and not one each.
    opening: Mutex<()>,
    attempts_failed: Cell<u64>,
    /// Streams that the server takes at a time on a connection, as it has said last, up to [`STREAMS`].
    streams: Cell<u32>,
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

/// A connection that is kept. Dropping it closes it, with the last of its requests.
#[derive(Debug)]
struct Shared {
    link: Rc<Link>,
    idle_ticks: u32,
}

/// Why a request has no response.
enum Ended {
    Unanswered(Unanswered),
    Overdue(UpstreamError),
}

/// Room for one request on a connection.
#[derive(Debug)]
pub(crate) struct Http2 {
    exchange: Exchange,
    /// The connection has carried a request before.
    reused: bool,
}

impl Http2Limits {
    pub(crate) fn of(settings: &GroupSettings) -> Self {
        let timeouts = &settings.timeouts;
        let head_size = u32::try_from(settings.head_size).unwrap_or(u32::MAX);
        Self { head_size, ping: timeouts.ping, pong: timeouts.connect }
    }
}

impl Http2Pool {
    /// A pool without connections.
    pub(crate) fn new(limits: Http2Limits, wheel: &DeadlineWheel) -> Self {
        Self {
            limits,
            wheel: wheel.clone(),
            open: RefCell::default(),
            opening: Mutex::default(),
            attempts_failed: Cell::new(0),
            streams: Cell::new(STREAMS),
            retired: Cell::new(false),
        }
    }

    /// Room on an open connection, or on the one that `open` makes.
    pub(crate) async fn checkout<F>(&self, placement: Placement, open: F) -> Result<Http2, UpstreamError>
    where
        F: AsyncFnOnce() -> Result<(UpstreamIo, OpenConnection), UpstreamError>,
    {
        if let Some(found) = self.find(placement) {
            return Ok(found);
        }
        let failed_before = self.attempts_failed.get();
        let _opening = self.opening.lock().await;
        if let Some(found) = self.find(placement) {
            return Ok(found);
        }
        if self.attempts_failed.get() != failed_before {
            // Another request has just found that no connection can be made: the queue must not try one by one.
            return Err(UpstreamError::Connect(std::io::ErrorKind::ConnectionAborted.into()));
        }
        let opened = match open().await {
            Ok((io, open)) => return Ok(self.add(self.begin(io, open))),
            Err(error) => error,
        };
        if let (UpstreamError::ConnectionLimit, Some(found)) = (&opened, self.find(Placement::Kept)) {
            return Ok(found);
        }
        self.attempts_failed.set(failed_before + 1);
        Err(opened)
    }

    /// A new connection for one request, which no other will use.
    pub(crate) async fn exclusive<F>(&self, open: F) -> Result<Http2, UpstreamError>
    where
        F: AsyncFnOnce() -> Result<(UpstreamIo, OpenConnection), UpstreamError>,
    {
        let (io, open) = open().await?;
        Ok(self.begin(io, open).take(false))
    }

    /// Forgets connections that ended or were idle for `idle_ticks` sweeps, and idle ones beyond `most`. Called once a
    /// second.
    pub(crate) fn sweep(&self, most: usize, idle_ticks: u32) {
        let mut idle = 0;
        self.open.borrow_mut().retain_mut(|shared| {
            if shared.link.load() > 0 {
                shared.idle_ticks = 0;
            } else {
                idle += 1;
                shared.idle_ticks += 1;
                shared.link.rest();
            }
            let is_surplus = shared.idle_ticks > 0 && idle > most;
            shared.link.is_usable() && shared.idle_ticks <= idle_ticks && !is_surplus
        });
    }

    /// Closes a connection without requests, if there is one.
    pub(crate) fn close_idle(&self) {
        let mut open = self.open.borrow_mut();
        if let Some(index) = open.iter().position(|shared| shared.link.load() == 0) {
            open.swap_remove(index);
        }
    }

    /// Gives up all connections, those that are being opened too: each closes with the last of its requests.
    pub(crate) fn retire(&self) {
        self.retired.set(true);
        self.open.borrow_mut().clear();
    }

    /// A connection over `io`, with its task.
    fn begin(&self, io: UpstreamIo, open: OpenConnection) -> Shared {
        let link = Link::new(io, &self.wheel, self.limits, self.streams.get());
        // Ends with the connection; there is nothing to wait for.
        drop(spawn_local(Rc::clone(&link).run(open)));
        Shared { link, idle_ticks: 0 }
    }

    fn find(&self, placement: Placement) -> Option<Http2> {
        let mut open = self.open.borrow_mut();
        open.retain(|shared| {
            if let Some(streams) = shared.link.streams() {
                self.streams.set(streams.min(STREAMS));
            }
            shared.link.is_usable()
        });
        let is_meant = |shared: &&Shared| placement == Placement::Kept || !shared.link.is_shunned();
        let with_room = open.iter().filter(is_meant).find(|shared| shared.link.has_room(STREAMS));
        // A server that takes no streams for now takes none on other connections either: requests wait.
        let takes_none = open.iter().all(|shared| shared.link.takes_none());
        let shared = with_room.or_else(|| open.first().filter(|_| takes_none))?;
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
    /// One on which no request has just failed, or a new one: this request has failed on one.
    Fresh,
}

impl Shared {
    fn take(&self, reused: bool) -> Http2 {
        Http2 { exchange: self.link.take(), reused }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.link.close();
    }
}

impl Http2 {
    /// Sends `request` and waits for the head of the response, for at most `limit` without progress. What is sent of the
    /// request is its head as it is, and its body, which is taken from it. Hints that come before the answer (103) go to `interim`.
    pub(crate) async fn exchange(
        &mut self,
        request: &mut Request<RequestBody>,
        to: Destination<'_>,
        progress: Option<&BodyProgress>,
        deadline: &Deadline,
        limit: Duration,
        interim: Option<&Interim>,
    ) -> Result<Response<()>, Failure> {
        let exchange = &mut self.exchange;
        let mut has_begun = false;
        let mut watch = HeadWatch::start(deadline, progress, limit);
        let answered = poll_fn(|context| {
            if !has_begun && let Poll::Ready(begun) = exchange.poll_begin(context, request, to) {
                has_begun = true;
                begun.map_err(Ended::Unanswered)?;
            }
            if let Poll::Ready(answer) = exchange.poll_head(context) {
                return Poll::Ready(answer.map_err(Ended::Unanswered));
            }
            // Hints that come with the answer are of no use any more.
            if let Some(interim) = interim
                && let Some(hints) = exchange.take_hints()
            {
                interim.hint(hints.get_all(LINK));
            }
            watch.poll_overdue(context).map(|error| Err(Ended::Overdue(error)))
        });
        let ended = match answered.await {
            Ok(response) => return Ok(response),
            Err(ended) => ended,
        };
        let (error, was_sent) = match ended {
            Ended::Unanswered(Unanswered { error, again }) => {
                let was_sent = again.is_none();
                if let Some(body) = again {
                    *request.body_mut() = body;
                }
                (upstream_error(error, progress), was_sent)
            }
            Ended::Overdue(UpstreamError::HeadTimeout) if !has_begun => (UpstreamError::StreamLimit, false),
            Ended::Overdue(error) => {
                if matches!(error, UpstreamError::HeadTimeout) {
                    self.exchange.retire_connection();
                }
                (error, has_begun)
            }
        };
        Err(Failure { error, was_sent, reused: self.reused })
    }

    /// Whether the server takes streams of other protocols (RFC 8441). Waits for its settings, for at most `limit`.
    pub(crate) async fn offers_protocols(
        &mut self,
        deadline: &Deadline,
        limit: Duration,
    ) -> Result<bool, Failure> {
        deadline.set(limit);
        let offers = poll_fn(|context| match self.exchange.poll_offers_protocols(context) {
            Poll::Ready(offers) => Poll::Ready(Ok(offers)),
            Poll::Pending => deadline.poll_expired(context).map(|()| Err(UpstreamError::HeadTimeout)),
        });
        offers.await.map_err(Failure::connecting)
    }

    /// The response's body.
    pub(crate) fn into_body(self) -> Exchange {
        self.exchange
    }
}
