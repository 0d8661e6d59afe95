//! How a request gets a connection to a server whose connections are limited: at once, after its turn in the queue, or
//! not at all.

use tokio::time::timeout;

use crate::error::UpstreamError;
use crate::group::Server;
use crate::http1::Http1;
use crate::places::{Grant, Next, Place, Waiting, Worker};

/// What a request does when its server has as many connections as it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtLimit {
    /// The request waits for its turn, as long as it would wait for a connection.
    Wait,
    /// The request fails, to be sent to another server.
    Fail,
}

/// How a request was admitted.
#[derive(Debug)]
pub(crate) enum Admission {
    /// The right to open a connection, counted if there is a limit.
    Open(Option<Place>),
    /// A connection that another request of this worker has just used.
    Connection(Box<Http1>),
}

impl Server {
    /// A connection that is open, or the right to open one.
    pub(crate) async fn admit(&self, at_limit: AtLimit) -> Result<Admission, UpstreamError> {
        let Some(places) = &self.state().places else {
            return Ok(Admission::Open(None));
        };
        if let Some(place) = places.try_take() {
            return Ok(Admission::Open(Some(place)));
        }
        if at_limit == AtLimit::Fail {
            return Err(UpstreamError::ConnectionLimit);
        }
        let waiting = places.wait(self.worker()).ok_or(UpstreamError::ConnectionLimit)?;
        let mut turn = Turn { server: self, waiting };
        self.group_state().ask_for_idle();
        let limit = self.group_settings().timeouts.connect;
        match timeout(limit, &mut turn.waiting).await {
            Ok(Grant::Place(place)) => Ok(Admission::Open(Some(place))),
            Ok(Grant::Connection) => {
                let handed = self.handed.borrow_mut().pop_front();
                handed.map(Admission::Connection).ok_or(UpstreamError::ConnectionLimit)
            }
            Err(_) => Err(UpstreamError::ConnectionLimit),
        }
    }

    /// Gives a reusable connection to the request that waits longest for one, or keeps it.
    pub(crate) fn keep(&self, http1: Box<Http1>) {
        let next = self.state().places.as_ref().map_or(Next::Idle, |places| places.pass_on(self.worker()));
        match next {
            Next::Idle => self.pool().put(http1),
            Next::SameWorker => self.handed.borrow_mut().push_back(http1),
            // Dropping it closes it, and its place goes to the other worker.
            Next::OtherWorker => {}
        }
    }

    /// Closes idle connections as long as requests of other workers wait for their places.
    pub(crate) fn yield_idle(&self) {
        let Some(places) = &self.state().places else { return };
        while places.waiting() > 0 {
            if self.pool().close_oldest() {
                continue;
            }
            // Its place is free as soon as its task has ended.
            self.http2().close_idle();
            return;
        }
    }

    fn worker(&self) -> Worker {
        Worker(std::ptr::from_ref(self).addr())
    }
}

/// A request in the queue. One that gives up passes on what it was granted meanwhile.
struct Turn<'a> {
    server: &'a Server,
    waiting: Waiting,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(Grant::Connection) = self.waiting.leave()
            && let Some(http1) = self.server.handed.borrow_mut().pop_front()
        {
            self.server.keep(http1);
        }
    }
}
