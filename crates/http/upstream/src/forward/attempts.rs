//! Servers that a request is sent to, one after the other: the first one, and those after a failure.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use brisk_http::error::ConnectionError;
use brisk_http::message::Request;
use brisk_http_connection::body::request::RequestBody;
use brisk_upstream_group::Member;
use brisk_upstream_group::metrics::Repeat;
use http::StatusCode;
use tokio::sync::Notify;

use super::Journey;
use crate::error::UpstreamError;
use crate::group::Server;
use crate::head_watch::{Exit, HeadWait};
use crate::http1::Failure;
use crate::http2::Placement;
use crate::login::PrivateConnections;
use crate::open::AtLimit;

/// A server, and the connections to it that the attempt may use.
pub(super) struct Attempt {
    pub(super) server: Rc<Server>,
    pub(super) placement: Placement,
    pub(super) at_limit: AtLimit,
    pub(super) begun: Instant,
    /// Whether the request may join a pipeline.
    pub(super) may_pipeline: bool,
    /// Whether the request may leave a silent server.
    pub(super) may_leave: Cell<bool>,
    /// Whether a stale connection went before, whose end was perhaps that of its server.
    follows_stale: bool,
}

/// A server for a request that leaves another one for a [`Repeat`] reason.
pub(super) struct Refuge {
    server: Rc<Server>,
    reason: Repeat,
}

impl Attempt {
    /// An attempt that begins now.
    pub(super) fn new(server: Rc<Server>, placement: Placement, at_limit: AtLimit) -> Self {
        Self::since(Instant::now(), server, placement, at_limit)
    }

    fn since(begun: Instant, server: Rc<Server>, placement: Placement, at_limit: AtLimit) -> Self {
        let may_leave = Cell::new(true);
        Self { server, placement, at_limit, begun, may_pipeline: false, may_leave, follows_stale: false }
    }
}

impl Journey<'_> {
    pub(super) fn first(&self) -> Result<Attempt, UpstreamError> {
        // A login is valid at its server only, so it precedes `sticky` and the balance.
        let logged_in =
            PrivateConnections::of(self.connection).and_then(|private| private.server(self.group));
        // Another server knows neither the login nor the session.
        let is_assigned = logged_in.is_some() || self.assigned.is_some();
        let server = logged_in
            .or_else(|| self.assigned.clone())
            .or_else(|| self.group.choose(self.key, None))
            .ok_or(UpstreamError::NoServer)?;
        // Another server may have a free connection immediately.
        let at_limit = if !is_assigned && self.retries > 0 && self.group.servers().len() > 1 {
            AtLimit::Fail
        } else {
            AtLimit::Wait
        };
        // The clock was read for the request already.
        let attempt = Attempt::since(self.started, server, Placement::Kept, at_limit);
        Ok(Attempt { may_pipeline: true, ..attempt })
    }

    /// The next attempt after `failure`, or the error for the client. A stale connection without a sent byte costs no retry.
    pub(super) fn next(&mut self, last: Attempt, failure: Failure) -> Result<Attempt, UpstreamError> {
        let Failure { error, was_sent, reused } = failure;
        if let UpstreamError::Closed(ConnectionError::Neighbour) = error {
            // Costs no retry, because the request itself has not failed.
            return Ok(Attempt { may_pipeline: false, begun: Instant::now(), ..last });
        }
        if matches!(error, UpstreamError::ServerLimit) && self.is_bound() {
            return Err(error);
        }
        let closed = if let UpstreamError::Closed(closed) = &error { Some(closed) } else { None };
        let is_first = last.placement == Placement::Kept;
        let was_kept = is_first && reused;
        // A pooled connection may have reached its end, or another response may have broken it. Neither is evidence
        // against the server.
        let is_end = |closed: &ConnectionError| closed.is_of_another() || (reused && closed.is_end());
        let stale = is_first && closed.is_some_and(is_end);
        let refuge = self.refuge.take();
        let is_excluded = refuge.as_ref().is_some_and(|refuge| refuge.reason == Repeat::Excluded);
        // The failures of an excluded server are known already.
        if !stale && !is_excluded && error.blames_server() {
            last.server.failed(&error);
        }
        let afresh = |server| Attempt::new(server, Placement::Fresh, AtLimit::Wait);
        let elsewhere = |server| Attempt::new(server, Placement::Kept, AtLimit::Wait);
        if let Some(Refuge { server, reason }) = refuge {
            self.retries -= 1;
            last.server.state().metrics().repeat(reason);
            return Ok(elsewhere(server));
        }
        if stale && !was_sent {
            return Ok(afresh(last.server));
        }
        let may_repeat = !was_sent || (self.may_repeat && closed.is_some());
        // The retry was for the end of a connection, and now a new one to the server fails too: another server gets the request.
        let is_paid = last.follows_stale;
        if (self.retries == 0 && !is_paid) || !may_repeat {
            return Err(error);
        }
        self.retries -= u32::from(!is_paid);
        let left = Rc::clone(&last.server);
        let next = if stale {
            Attempt { follows_stale: true, ..afresh(last.server) }
        } else if let Some(server) = self.group.choose(self.key, Some(&last.server)) {
            elsewhere(server)
        } else if was_kept && closed.is_some() {
            // Without another server, a new connection to this one is worth an attempt, because the kept one
            // may have reached its end.
            afresh(last.server)
        } else {
            return Err(error);
        };
        left.state().metrics().repeat(if was_sent { Repeat::Closed } else { Repeat::Unsent });
        Ok(next)
    }

    /// The next attempt after a response whose status is a reason for one, if there is another server; `None` for a response that
    /// is sent to the client.
    pub(super) fn after_response(&mut self, last: &Attempt, status: StatusCode) -> Option<Attempt> {
        let reasons = self.group.state().settings().retry.reasons()?;
        if self.retries == 0 || !self.may_repeat || self.is_bound() || !reasons.statuses.contains(&status) {
            return None;
        }
        // Another server only, because the same one would probably respond with the same status.
        let server = self.group.choose(self.key, Some(&last.server))?;
        self.retries -= 1;
        last.server.state().metrics().repeat(Repeat::Status);
        Some(Attempt::new(server, Placement::Kept, AtLimit::Wait))
    }

    /// Whether the server knows the client's login, so that it is the only one for the request.
    fn is_bound(&self) -> bool {
        self.logs_in || PrivateConnections::of(self.connection).is_some()
    }

    /// Prepares a request that was sent for another server.
    pub(super) async fn prepare_repetition(&self, request: &mut Request<RequestBody>) {
        if let Some(body) = &self.body {
            *request.body_mut() = RequestBody::Gathered(Box::new(body.copy()));
        }
        // RFC 8470 section 4: a possible replay must not be repeated by the gateway as well.
        if let Some(handshake) = self.connection.client.handshake() {
            Box::pin(handshake.complete()).await;
        }
    }
}

/// The wait of a request for the response of an [`Attempt`].
pub(super) struct Stay<'a> {
    journey: &'a Journey<'a>,
    attempt: &'a Attempt,
}

impl<'a> Stay<'a> {
    pub(super) fn new(journey: &'a Journey<'a>, attempt: &'a Attempt) -> Self {
        Self { journey, attempt }
    }

    /// The limits of the wait. Only a request that may be repeated, in a group with several servers, may leave. With
    /// `retry.unsafe_methods`, a request that is not idempotent leaves after `timeouts.attempt` only.
    pub(super) fn head_wait(&self) -> HeadWait<'_> {
        let Self { journey, attempt } = self;
        let is_limited = self.attempt() < Duration::MAX;
        let may_leave = journey.may_repeat
            && (journey.is_idempotent || is_limited)
            && journey.retries > 0
            && journey.group.servers().len() > 1;
        let exit = may_leave.then_some(self as &dyn Exit);
        HeadWait { head: attempt.server.head_timeout(journey.timeouts), exit }
    }
}

impl Exit for Stay<'_> {
    fn attempt(&self) -> Duration {
        let general = self.journey.group.state().settings().timeouts.attempt;
        self.journey.timeouts.attempt.or(general).unwrap_or(Duration::MAX)
    }

    fn exclusions(&self) -> &Notify {
        self.attempt.server.exclusions()
    }

    fn leave(&self, reason: Repeat) -> bool {
        let Self { journey, attempt } = self;
        let server = &attempt.server;
        // RFC 8470 section 4: a possible replay must not be repeated by the gateway as well.
        let may_leave = attempt.may_leave.get() && journey.connection.client.is_confirmed();
        if !may_leave || journey.is_bound() {
            return false;
        }
        let credit = journey.group.leaving_credit();
        // The signal comes again and again, so a refusal has to be cheap. The server may still execute the request.
        if reason == Repeat::Excluded
            && (server.is_available() || !journey.is_idempotent || !credit.suffices())
        {
            return false;
        }
        let other = journey.group.choose(journey.key, Some(server)).filter(Member::is_available);
        let Some(other) = other else { return false };
        if !credit.spend() {
            // An excluded server gives the request further occasions.
            if reason == Repeat::Silent {
                server.state().metrics().repeat(Repeat::Budget);
            }
            return false;
        }
        journey.refuge.replace(Some(Refuge { server: other, reason }));
        true
    }
}
