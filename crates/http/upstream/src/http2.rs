//! HTTP/2 connections to one upstream server, [`Http2Pool`]: few connections with many requests each, every [`Link`] driven by
//! a local task.

mod allowance;
mod blocks;
mod cancels;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod input;
mod link;
mod output;
mod pulse;
mod resets;
mod state;
mod stream;
#[cfg(test)]
mod tests;
mod windows;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use brisk_http::http1::HeadLimits;
use brisk_http::message::{Request, Response};
use brisk_http_connection::Connection;
use brisk_http_connection::body::request::{BodyProgress, RequestBody};
use brisk_http_connection::interim::InterimReceivers;
use brisk_net::{Deadline, DeadlineWheel};
use brisk_upstream_group::UpstreamIo;
use brisk_upstream_group::settings::GroupSettings;
use tokio::sync::Mutex;
use tokio::task::spawn_local;

use self::cancels::Cancels;
use self::link::{Audience, Link, Unanswered};
use crate::error::UpstreamError;
use crate::head_watch::{HeadWait, HeadWatch};
use crate::http1::{Failure, upstream_error};
use crate::interim::pass;
use crate::open::{AtLimit, OpenConnection};

pub(crate) use self::link::Exchange;
pub(crate) use self::output::Destination;

/// Maximum number of requests per connection before another is opened. Servers commonly allow 100 or 128.
const STREAMS: u32 = 100;

/// The HTTP/2 connections of one worker to one server.
#[derive(Debug)]
pub(crate) struct Http2Pool {
    limits: Http2Limits,
    wheel: DeadlineWheel,
    open: RefCell<Vec<Shared>>,
    /// Held while a connection is opened, so that a burst of requests opens one connection instead of one each.
    opening: Mutex<()>,
    attempts_failed: Cell<u64>,
    /// The server's last known limit of concurrent streams, at most [`STREAMS`].
    streams: Cell<u32>,
    /// Requests that clients have canceled, on all connections of the pool.
    cancels: Rc<Cancels>,
    /// Whether the pool keeps no more connections, after [`Self::retire`].
    retired: Cell<bool>,
}

/// The limit on the head of a response, and the times of liveness checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Http2Limits {
    /// Limits for a response's head, of which `size` is sent as `SETTINGS_MAX_HEADER_LIST_SIZE` (RFC 9113 section 6.5.2).
    head: HeadLimits,
    /// Time without a frame after which `PING` is sent, while requests are open: `timeouts.ping`; `None` for never.
    ping: Option<Duration>,
    /// Timeout for the reply to `PING`: `timeouts.connect`.
    pong: Duration,
}

/// A pooled [`Link`]. Dropping it closes the connection with the last of its requests.
#[derive(Debug)]
struct Shared {
    link: Rc<Link>,
    idle_ticks: u32,
}

/// Outcome of a request without a response.
enum Ended {
    Unanswered(Unanswered),
    Overdue(UpstreamError),
}

/// A slot for a request on a connection.
#[derive(Debug)]
pub(crate) struct Http2 {
    exchange: Exchange,
    /// Whether the connection has carried a request before.
    reused: bool,
}

impl Http2Limits {
    pub(crate) fn of(settings: &GroupSettings) -> Self {
        let timeouts = &settings.timeouts;
        Self { head: settings.head.limits(), ping: timeouts.ping, pong: timeouts.connect }
    }
}

impl Http2Pool {
    /// An empty pool.
    pub(crate) fn new(limits: Http2Limits, wheel: &DeadlineWheel) -> Self {
        Self {
            limits,
            wheel: wheel.clone(),
            open: RefCell::default(),
            opening: Mutex::default(),
            attempts_failed: Cell::new(0),
            streams: Cell::new(STREAMS),
            cancels: Rc::default(),
            retired: Cell::new(false),
        }
    }

    /// Returns a slot for a request of `client` on an open connection, or on a new one made by `open`. Clients that have
    /// canceled many requests use connections apart from those of others ([`Audience`]). A connection with many resets, or of
    /// the other [`Audience`], is used only if no other can be opened.
    ///
    /// # Errors
    ///
    /// The error of `open`, or [`UpstreamError::Connect`] if another request has failed to connect during the wait.
    pub(crate) async fn checkout<F>(
        &self,
        client: &Rc<Connection>,
        placement: Placement,
        at_limit: AtLimit,
        open: F,
    ) -> Result<Http2, UpstreamError>
    where
        F: AsyncFnOnce(AtLimit) -> Result<(UpstreamIo, OpenConnection), UpstreamError>,
    {
        let audience = if self.cancels.are_many(client.client.address(), Instant::now) {
            Audience::Canceling
        } else {
            Audience::Usual
        };
        let find = |is_meant: &dyn Fn(&Link) -> bool| self.find(client, is_meant);
        let is_meant = |link: &Link| placement.permits(link) && link.audience() == audience;
        if let Some(found) = find(&is_meant) {
            return Ok(found);
        }
        // Read before the wait, so that a failure during the wait is noticed.
        let failed_before = self.attempts_failed.get();
        let _opening = self.opening.lock().await;
        // The request that held the lock may have opened a connection.
        if let Some(found) = find(&is_meant) {
            return Ok(found);
        }
        if self.attempts_failed.get() != failed_before {
            // Another request has just failed to connect: the queued requests must not each try in turn.
            return Err(UpstreamError::Connect(std::io::ErrorKind::ConnectionAborted.into()));
        }
        // With a spare connection, the request need not wait for a permit. A request that has already failed
        // once needs a fresh connection.
        let spare = if placement == Placement::Kept { find(&|_| true) } else { None };
        let at_limit = if spare.is_some() { AtLimit::Fail } else { at_limit };
        let opened = match open(at_limit).await {
            Ok((io, open)) => return Ok(self.add(self.begin(io, open, audience), client)),
            Err(error) => error,
        };
        // Meanwhile an existing connection may have room again.
        if matches!(opened, UpstreamError::ConnectionLimit | UpstreamError::QueueFull)
            && let Some(found) = spare.or_else(|| find(&|_| true))
        {
            return Ok(found);
        }
        self.attempts_failed.set(failed_before + 1);
        Err(opened)
    }

    /// Opens a connection for one request of `client`, which is never in the pool: it ends with the request.
    pub(crate) async fn exclusive<F>(&self, client: &Rc<Connection>, open: F) -> Result<Http2, UpstreamError>
    where
        F: AsyncFnOnce() -> Result<(UpstreamIo, OpenConnection), UpstreamError>,
    {
        let (io, open) = open().await?;
        Ok(self.begin(io, open, Audience::Usual).take(client, false))
    }

    /// Drops connections that ended or were idle for `idle_ticks` sweeps, and idle connections beyond `most`. Called
    /// once a second.
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

    /// Whether there is no open connection.
    pub(crate) fn is_empty(&self) -> bool {
        self.open.borrow().is_empty()
    }

    /// Closes one connection without requests. Returns whether there was one.
    pub(crate) fn close_idle(&self) -> bool {
        let mut open = self.open.borrow_mut();
        let idle = open.iter().position(|shared| shared.link.load() == 0);
        if let Some(index) = idle {
            open.swap_remove(index);
        }
        idle.is_some()
    }

    /// Drops all connections, including those being opened. Each closes with the last of its requests.
    pub(crate) fn retire(&self) {
        self.retired.set(true);
        self.open.borrow_mut().clear();
    }

    /// A connection over `io`, with its task, which runs [`Link::run`].
    fn begin(&self, io: UpstreamIo, open: OpenConnection, audience: Audience) -> Shared {
        let link = Link::new(io, &self.wheel, self.limits, self.streams.get(), audience, &self.cancels);
        // The task ends with the connection; no caller waits for it.
        drop(spawn_local(Rc::clone(&link).run(open)));
        Shared { link, idle_ticks: 0 }
    }

    fn find(&self, client: &Rc<Connection>, is_meant: impl Fn(&Link) -> bool) -> Option<Http2> {
        let mut open = self.open.borrow_mut();
        open.retain(|shared| {
            if let Some(streams) = shared.link.streams() {
                // A new connection begins with the last known limit, because requests arrive before its
                // `SETTINGS`.
                self.streams.set(streams.min(STREAMS));
            }
            shared.link.is_usable()
        });
        let with_room = open.iter().find(|shared| is_meant(&shared.link) && shared.link.has_room(STREAMS));
        // A server that currently accepts no streams accepts none on other connections either, so requests wait.
        let takes_none = open.iter().all(|shared| shared.link.takes_none());
        let shared = with_room.or_else(|| open.first().filter(|_| takes_none))?;
        Some(shared.take(client, true))
    }

    fn add(&self, shared: Shared, client: &Rc<Connection>) -> Http2 {
        let taken = shared.take(client, false);
        if !self.retired.get() {
            self.open.borrow_mut().push(shared);
        }
        taken
    }
}

/// The connections that a request may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Any pooled connection or a new one.
    Kept,
    /// A connection without a recent failure, or a new one: this request has already failed once.
    Fresh,
}

impl Placement {
    fn permits(self, link: &Link) -> bool {
        !link.has_many_resets() && (self == Self::Kept || !link.is_shunned())
    }
}

impl Shared {
    fn take(&self, client: &Rc<Connection>, reused: bool) -> Http2 {
        Http2 { exchange: self.link.take(client), reused }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.link.close();
    }
}

impl Http2 {
    /// Sends `request` and waits for the head of the response, within `wait`: [`UpstreamError::StreamLimit`]
    /// if no stream was available, [`UpstreamError::HeadTimeout`] after the request was sent.
    ///
    /// Moves the body out of `request` and leaves the head unchanged, so that the request can be repeated. Interim
    /// responses are sent to `interims`.
    pub(crate) async fn exchange(
        &mut self,
        request: &mut Request<RequestBody>,
        to: Destination<'_>,
        progress: Option<&BodyProgress>,
        deadline: &Deadline,
        wait: HeadWait<'_>,
        interims: InterimReceivers<'_>,
    ) -> Result<Response<()>, Failure> {
        let exchange = &mut self.exchange;
        let mut has_begun = false;
        let mut watch = HeadWatch::start(deadline, progress, wait);
        let answered = poll_fn(|context| {
            if !has_begun && let Poll::Ready(begun) = exchange.poll_begin(context, request, to) {
                has_begun = true;
                begun.map_err(Ended::Unanswered)?;
            }
            let polled = exchange.poll_head(context);
            pass(exchange.take_interims(), interims, polled.is_ready());
            if let Poll::Ready(answer) = polled {
                return Poll::Ready(answer.map_err(Ended::Unanswered));
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
                // Other requests may still get responses on the connection of a request that has left.
                if matches!(error, UpstreamError::HeadTimeout) && !watch.has_left() {
                    self.exchange.retire_connection();
                }
                (error, has_begun)
            }
        };
        Err(Failure { error, was_sent, reused: self.reused })
    }

    /// Whether the server supports extended `CONNECT` (RFC 8441 section 3). Waits at most `limit` for its `SETTINGS`.
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

    /// The body of the response, after [`Self::exchange`].
    pub(crate) fn into_body(self) -> Exchange {
        self.exchange
    }
}
