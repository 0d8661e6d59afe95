//! Admission of requests to servers with `pool.max_connections`: immediately, after waiting in `pool.queue`, or never.

use std::net::IpAddr;

use brisk_upstream_group::UpstreamIo;
use brisk_upstream_group::places::{Grant, Next, Place, Waiting, Worker};
use tokio::time::timeout;

use crate::error::UpstreamError;
use crate::group::Server;
use crate::http1::Http1;
use crate::open::{AtLimit, OpenConnection};
use crate::proxied::Requester;

/// Result of [`Server::admit`].
#[derive(Debug)]
pub(crate) enum Admission {
    /// Permission to open a connection, with a permit if connections are limited.
    Open(Option<Place>),
    /// A connection that another request of this worker has just released.
    Connection(Box<Http1>),
}

impl Server {
    /// Waits for an open connection, or for permission to open one, at most for `queue.timeout` or else `timeouts.connect`.
    /// Without `max_connections`, permission is immediate. `client` has a share of the queue; `None` is an address of many clients.
    ///
    /// # Errors
    ///
    /// [`UpstreamError::QueueFull`], or [`UpstreamError::ConnectionLimit`] with [`AtLimit::Fail`], without a queue and after
    /// the time.
    pub(crate) async fn admit(
        &self,
        at_limit: AtLimit,
        client: Option<IpAddr>,
    ) -> Result<Admission, UpstreamError> {
        let Some(places) = self.state().places() else {
            return Ok(Admission::Open(None));
        };
        if let Some(place) = places.try_take() {
            return Ok(Admission::Open(Some(place)));
        }
        if at_limit == AtLimit::Fail {
            return Err(UpstreamError::ConnectionLimit);
        }
        let settings = self.group_settings();
        let queue = &settings.pool.queue;
        if queue.size == 0 {
            return Err(UpstreamError::ConnectionLimit);
        }
        let waiting = places.wait(self.worker(), client).ok_or(UpstreamError::QueueFull)?;
        let mut turn = Turn::new(self, waiting);
        // Idle connections of other workers hold permits; only their own worker can close them.
        self.group_state().ask_for_attention();
        let limit = queue.timeout.unwrap_or(settings.timeouts.connect);
        match timeout(limit, &mut turn.waiting).await {
            Ok(Grant::Place(place)) => Ok(Admission::Open(Some(place))),
            Ok(Grant::Connection) => {
                let handed = self.handed.borrow_mut().pop_front();
                handed.map(Admission::Connection).ok_or(UpstreamError::ConnectionLimit)
            }
            Ok(Grant::Refused) | Err(_) => Err(UpstreamError::ConnectionLimit),
        }
    }

    /// Opens a connection over HTTP/1.1, or to an application server, for a request of `client`, or takes one that another request has just released.
    pub(crate) async fn connect(
        &self,
        client: Requester<'_>,
        at_limit: AtLimit,
    ) -> Result<Box<Http1>, UpstreamError> {
        let place = match self.admit(at_limit, client.share()).await? {
            Admission::Connection(http1) => return Ok(http1),
            Admission::Open(place) => place,
        };
        let (io, open) = self.open(client, place).await?;
        let limits = self.group_settings().head.limits();
        let mut http1 = Http1::new(io, self.register_deadline(), open, limits, self.application());
        if self.state().proxy_protocol().is_some() {
            http1.belong_to(self.owner_of_proxied(client));
        }
        Ok(http1)
    }

    /// Opens a connection over HTTP/2 for a request of `client`. Fails with [`UpstreamError::ConnectionLimit`] if
    /// [`Admission::Connection`] is granted.
    pub(crate) async fn connect_http2(
        &self,
        client: Requester<'_>,
        at_limit: AtLimit,
    ) -> Result<(UpstreamIo, OpenConnection), UpstreamError> {
        match self.admit(at_limit, client.share()).await? {
            Admission::Open(place) => self.open(client, place).await,
            // A server with HTTP/2 keeps no HTTP/1.1 connections, so none is granted.
            Admission::Connection(_) => Err(UpstreamError::ConnectionLimit),
        }
    }

    /// Passes a reusable connection to the request that waits longest, or puts it into [`Server::pool`].
    pub(crate) fn keep(&self, http1: Box<Http1>) {
        let next = self.state().places().map_or(Next::Idle, |places| places.pass_on(self.worker()));
        match next {
            Next::Idle => self.pool().put(http1),
            Next::SameWorker => self.handed.borrow_mut().push_back(http1),
            // Dropping it closes the connection and grants its permit to the other worker.
            Next::OtherWorker => {}
        }
    }

    /// Closes idle connections while requests of other workers wait for their permits.
    pub(crate) fn yield_idle(&self) {
        let Some(places) = self.state().places() else { return };
        while places.waiting() > 0 {
            // A closed connection passes its permit on, which shortens the queue.
            if self.pool().close_oldest() {
                continue;
            }
            // The permit is released when the connection's task has ended.
            if self.http2().close_idle() {
                return;
            }
            // A login that is lost costs more than a connection.
            if !self.pool().close_oldest_private() {
                return;
            }
        }
    }

    /// Identity of the worker in the queue of a server.
    pub(crate) fn worker(&self) -> Worker {
        // Each worker has a `Server` of its own, whose address therefore identifies the worker.
        Worker(std::ptr::from_ref(self).addr())
    }
}

/// A request in the queue. If it is dropped, it passes on a [`Grant::Connection`] that arrived meanwhile.
struct Turn<'a> {
    server: &'a Server,
    waiting: Waiting,
}

impl<'a> Turn<'a> {
    fn new(server: &'a Server, waiting: Waiting) -> Self {
        server.state().metrics().wait_begun();
        Self { server, waiting }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.server.state().metrics().wait_ended();
        if let Some(Grant::Connection) = self.waiting.leave()
            && let Some(http1) = self.server.handed.borrow_mut().pop_front()
        {
            self.server.keep(http1);
        }
    }
}
