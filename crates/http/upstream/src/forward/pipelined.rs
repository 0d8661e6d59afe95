//! Requests in pipelines.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use brisk_http::error::ConnectionError;
use brisk_http::message::{Request, Response};
use brisk_http_connection::body::request::RequestBody;
use http::{Method, StatusCode};

use super::{Attempt, Framing, Journey, Stay, frame_body, settle_length};
use crate::body::{UpstreamBody, release};
use crate::error::UpstreamError;
use crate::group::{Lease, Server};
use crate::http1::{Failure, GATHERED, Http1, Owner};
use crate::http2::Placement;
use crate::login;
use crate::login::PrivateConnections;
use crate::pipeline::{Position, Reached, Site, Time, Unanswered, pass};
use brisk_upstream_group::metrics::PipelineRepeat;

/// Reason of a [ban](crate::pipeline::Pipelines::ban).
const SURPLUS: &str = "it sends more than the responses";

impl Journey<'_> {
    /// Whether the request may join a pipeline: `GET` or `HEAD` without a body, of a client over HTTP/2 or HTTP/3, without a
    /// login or `Upgrade`. Early data is not sent in pipelines, because it must not be repeated (RFC 8470).
    pub(super) fn may_pipeline(&self, attempt: &Attempt, request: &Request<RequestBody>) -> bool {
        attempt.may_pipeline
            && attempt.server.pipelines().are_enabled()
            && attempt.placement == Placement::Kept
            && self.may_repeat
            && self.body.is_none()
            && matches!(*request.method(), Method::GET | Method::HEAD)
            && !self.logs_in
            && self.upgrade.is_empty()
            && self.connection.multiplexed().is_some()
            && self.connection.client.handshake().is_none()
            && PrivateConnections::of(self.connection).is_none()
    }

    /// Sends a request in a pipeline, or alone if the server or the resource does not suit one.
    pub(super) async fn send_pipelined(
        &self,
        attempt: &Attempt,
        request: &mut Request<RequestBody>,
    ) -> Result<Response<UpstreamBody>, Failure> {
        let server = &attempt.server;
        let site = Site::of(request);
        frame_body(request);
        match server.pipelines().enter(self.connection, request, site) {
            None => {
                let started = Instant::now();
                let response = self.send_http1(attempt, request).await?;
                let time = Time::Alone(started.elapsed());
                server.pipelines().note(site, time, response.body().left());
                Ok(response)
            }
            Some(Position::Behind(seat)) => {
                // Taken before the turn, because a waiting request counts for the balance too.
                let lease = Lease::new(server, self.timeouts);
                match seat.turn().await.ok_or_else(Failure::of_neighbour)? {
                    Reached::Connection(http1) => self.answer(http1, request, lease, site, None).await,
                    Reached::Response(mut response, body) => {
                        server.pipelines().understood();
                        server.pipelines().note(site, Time::Delay(Duration::ZERO), Some(body.len() as u64));
                        settle_length(&mut response);
                        Ok(response.map(|()| UpstreamBody::full(body)))
                    }
                }
            }
            Some(Position::First(first)) => {
                let lease = Lease::new(server, self.timeouts);
                let mut http1 = match kept(server) {
                    Some(http1) => http1,
                    None => server
                        .connect(self.requester(), attempt.at_limit)
                        .await
                        .map_err(Failure::connecting)?,
                };
                yield_to_neighbours().await;
                first.depart(&mut http1);
                self.answer(http1, request, lease, site, Some(attempt)).await
            }
        }
    }

    /// Waits for the response to a request that was sent, and passes the connection on with [`pass_on`]. `first` is the attempt of
    /// the first request; requests behind it have none.
    async fn answer(
        &self,
        http1: Box<Http1>,
        request: &Request<RequestBody>,
        lease: Lease,
        site: Site,
        first: Option<&Attempt>,
    ) -> Result<Response<UpstreamBody>, Failure> {
        let started = Instant::now();
        let (server, pipelines) = (lease.server(), lease.server().pipelines());
        let is_first = first.is_some();
        let stay = first.map(|attempt| Stay::new(self, attempt));
        let wait = stay.as_ref().map_or_else(|| server.head_timeout(self.timeouts).into(), Stay::head_wait);
        let was_shared = http1.has_followers();
        let unanswered = Unanswered::new(http1, request.method());
        let answered = unanswered.next_head(self.connection, wait, self.interims, is_first).await;
        let (mut http1, mut response) = answered.map_err(|failure| {
            // A server that closes before it has read all requests loses its responses too (RFC 9112 section 9.6).
            let is_end = matches!(&failure.error, UpstreamError::Closed(closed) if closed.is_end());
            if is_first && !(is_end && was_shared) {
                return failure;
            }
            if !is_first {
                accuse(server, &failure.error);
                pipelines.note(site, Time::Delay(started.elapsed()), None);
            }
            Failure::of_neighbour()
        })?;
        if !is_first {
            pipelines.understood();
        }
        if settle_length(&mut response) == Framing::Contradictory {
            http1.belong_to(Owner::None);
        }
        if login::is_challenge(response.status(), response.headers()) {
            http1.belong_to(self.owner());
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            // No request of a pipeline has `Upgrade` (`may_pipeline`).
            return Err(Failure::after_sending(UpstreamError::UnexpectedUpgrade));
        }
        let gave_up = was_shared && !http1.has_followers();
        let time = if is_first && !gave_up { Time::First } else { Time::Delay(started.elapsed()) };
        let left = http1.left();
        if !was_shared || (gave_up && left.is_none_or(|left| left > GATHERED as u64)) {
            pipelines.note(site, time, left);
            if !gave_up && left.is_some_and(|left| http1.unread() as u64 > left) {
                pipelines.ban(server.name(), SURPLUS);
            }
            http1.end_pipeline();
            return Ok(response.map(|()| UpstreamBody::over_http1(http1, lease)));
        }
        let gathered = http1.gather(self.connection).await;
        let (frames, rest) = gathered.map_err(|_| Failure::of_neighbour())?;
        let length = frames.length() as u64 + http1.left().unwrap_or_default();
        let is_slow = rest == Some(PipelineRepeat::Slow);
        let time = if is_slow { Time::Delay(started.elapsed()) } else { time };
        pipelines.note(site, time, Some(length));
        if let Some(reason) = rest {
            // Sent again too: the server may close the connection because of the requests behind, and cut the response.
            http1.send_followers_again(reason);
            return Err(Failure::of_neighbour());
        }
        pass_on(http1, lease);
        Ok(response.map(|()| UpstreamBody::gathered(frames)))
    }
}

/// Passes a connection, whose response has ended, to the requests behind it. A connection that cannot continue is closed,
/// and the requests behind are sent again.
fn pass_on(http1: Box<Http1>, lease: Lease) {
    if http1.can_continue()
        && let Some(http1) = pass(http1)
    {
        if http1.unread() > 0 {
            lease.server().pipelines().ban(lease.server().name(), SURPLUS);
        }
        release(http1, lease);
    }
}

/// An idle connection that the server has not closed, as far as is known.
fn kept(server: &Server) -> Option<Box<Http1>> {
    loop {
        let mut http1 = server.pool().take()?;
        if !http1.found_closed() {
            return Some(http1);
        }
    }
}

/// Lets the other requests of this turn join the pipeline: the task runs again after theirs.
async fn yield_to_neighbours() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if has_yielded {
            return Poll::Ready(());
        }
        has_yielded = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Records that a server did not answer a request behind the first one.
fn accuse(server: &Rc<Server>, error: &UpstreamError) {
    let reason = match error {
        UpstreamError::Closed(ConnectionError::Neighbour) => return server.pipelines().silent(server.name()),
        UpstreamError::Closed(_) => "it closes the connection between responses",
        _ => "a response behind the first one is malformed",
    };
    server.pipelines().ban(server.name(), reason);
}
