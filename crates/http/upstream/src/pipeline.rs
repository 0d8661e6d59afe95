//! Pipelines: safe requests of one client connection that arrive in one turn share a connection over HTTP/1.1, and
//! their heads leave in one write (RFC 9112 section 9.3.2).
//!
//! The connection passes from request to request in the order of sending. Each request parses its own response, which it
//! reads completely before it passes the connection on, so that a client that reads slowly delays no other. When the
//! connection cannot continue, or a response is late or large, the requests behind it are sent again elsewhere.
//!
//! All requests of a pipeline are of one client connection: if a faulty server mixes up its responses, they stay with
//! their client.

mod followers;
mod pace;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brisk_http::http1::request::Output;
use brisk_http::message::Request;
use brisk_http_connection::Connection;

pub(crate) use self::followers::{Followers, Reached, Seat, Unanswered, pass};
use self::pace::Paces;
pub(crate) use self::pace::{Site, Time};
use crate::http1::Http1;
use brisk_upstream_group::metrics::UpstreamMetrics;

/// Time without pipelines after an incorrect response to one, see [`Pipelines::ban`].
const BAN: Duration = Duration::from_mins(10);

/// Consecutive pipelines with an unanswered second request that count as an incorrect response.
const SILENT: u8 = 3;

/// The pipelines of one worker to one server.
#[derive(Debug)]
pub(crate) struct Pipelines {
    /// Maximum number of requests in a pipeline: `pipeline` of the group. 1 means no pipelines.
    depth: usize,
    gathering: RefCell<Vec<Gathering>>,
    next_number: Cell<u64>,
    paces: RefCell<Paces>,
    banned_until: Cell<Option<Instant>>,
    silent: Cell<u8>,
    metrics: Arc<UpstreamMetrics>,
}

/// A pipeline before its requests are sent.
#[derive(Debug)]
struct Gathering {
    number: u64,
    /// Address of the client's connection.
    client: *const Connection,
    heads: Output,
    followers: Followers,
}

/// The position of a request in its pipeline.
#[derive(Debug)]
pub(crate) enum Position {
    /// Provides the connection and sends the requests.
    First(First),
    /// Waits for the connection, with [`Seat::turn`].
    Behind(Seat),
}

/// The first request of a pipeline that gathers. If it is dropped before [`Self::depart`], the others are sent again.
#[derive(Debug)]
pub(crate) struct First {
    pipelines: Rc<Pipelines>,
    number: u64,
}

impl Pipelines {
    pub(crate) fn new(depth: usize, metrics: &Arc<UpstreamMetrics>) -> Rc<Self> {
        Rc::new(Self {
            depth,
            gathering: RefCell::default(),
            next_number: Cell::new(0),
            paces: RefCell::default(),
            banned_until: Cell::new(None),
            silent: Cell::new(0),
            metrics: Arc::clone(metrics),
        })
    }

    /// Whether the server's requests may be sent in pipelines.
    pub(crate) const fn are_enabled(&self) -> bool {
        self.depth > 1
    }

    /// Adds a request of `client`, whose head is final, to a pipeline. `None` during a [ban](Self::ban), or if the responses of
    /// `site` are slow or large.
    pub(crate) fn enter<B>(
        self: &Rc<Self>,
        client: &Rc<Connection>,
        request: &Request<B>,
        site: Site,
    ) -> Option<Position> {
        if self.is_banned() || !self.paces.borrow().suits(site) {
            return None;
        }
        // The address identifies the connection, which lives at least as long as the first request of its
        // pipeline.
        let client = Rc::as_ptr(client);
        let mut all = self.gathering.borrow_mut();
        let has_room = |gathering: &&mut Gathering| {
            // The first request is not among the followers, but counts for the depth.
            gathering.client == client && gathering.followers.len() + 1 < self.depth
        };
        if let Some(gathering) = all.iter_mut().find(has_room) {
            gathering.heads.head(request);
            return Some(Position::Behind(gathering.followers.add(request.method())));
        }
        let mut heads = Output::default();
        heads.head(request);
        let number = self.next_number.replace(self.next_number.get() + 1);
        all.push(Gathering { number, client, heads, followers: Followers::new(&self.metrics) });
        Some(Position::First(First { pipelines: Rc::clone(self), number }))
    }

    /// Records a response of `site`: its time, and the length of the body, if known.
    pub(crate) fn note(&self, site: Site, time: Time, length: Option<u64>) {
        self.paces.borrow_mut().note(site, time, length);
    }

    /// Records that the server answered a request behind the first one.
    pub(crate) fn understood(&self) {
        self.silent.set(0);
    }

    /// Records that the server did not answer a request behind the first one in time. The third time in succession is a
    /// [ban](Self::ban).
    pub(crate) fn silent(&self, server: &str) {
        self.silent.set(self.silent.get() + 1);
        if self.silent.get() >= SILENT {
            self.silent.set(0);
            self.ban(server, "it does not answer the requests behind the first one");
        }
    }

    /// Sends no pipelines for ten minutes.
    pub(crate) fn ban(&self, server: &str, reason: &str) {
        self.banned_until.set(Some(Instant::now() + BAN));
        tracing::warn!(
            server,
            reason,
            "upstream server cannot answer pipelined requests: none for ten minutes"
        );
    }

    fn is_banned(&self) -> bool {
        let banned = self.banned_until.get().is_some_and(|until| Instant::now() < until);
        // Cleared, so that further requests need not read the clock.
        if !banned {
            self.banned_until.set(None);
        }
        banned
    }

    fn take(&self, number: u64) -> Option<Gathering> {
        let mut all = self.gathering.borrow_mut();
        let index = all.iter().position(|gathering| gathering.number == number)?;
        Some(all.swap_remove(index))
    }
}

impl First {
    /// Gives the gathered requests to `http1`, which sends them in one write.
    pub(crate) fn depart(self, http1: &mut Http1) {
        let Some(Gathering { heads, followers, .. }) = self.pipelines.take(self.number) else { return };
        if !followers.is_empty() {
            self.pipelines.metrics.pipeline(followers.len() as u64 + 1);
        }
        http1.begin_all(heads, followers);
    }
}

impl Drop for First {
    fn drop(&mut self) {
        // The followers wake when they are dropped, after the borrow has ended.
        drop(self.pipelines.take(self.number));
    }
}
