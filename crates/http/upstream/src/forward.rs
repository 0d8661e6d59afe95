//! Forwarding of one request to an upstream group: [`forward`] chooses a server, sends the request and waits for the response's
//! head; both bodies stream.
//!
//! The head arrives rewritten; only changes that depend on the server's protocol are made here. A request is retried once,
//! according to [`Retry`]: if nothing of it was sent, or if it is idempotent (RFC 9110 section 9.2.2) and has no body, or one that
//! was gathered. Such a request also leaves a server that is silent or excluded (`HeadWait`).

mod attempts;
mod framing;
mod hedged;
mod outcome;
mod pipelined;
mod tunnel;

use std::cell::RefCell;
use std::future::pending;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

use brisk_defects::Defect;
use brisk_http::cgi::Variables;
use brisk_http::message::{Request, RequestParts, Response};
use brisk_http_connection::Connection;
use brisk_http_connection::body::gathered::Gathered;
use brisk_http_connection::body::request::{BodyProgress, RequestBody};
use brisk_http_connection::interim::InterimReceivers;
use brisk_upstream_group::retry::LEAVING_PERCENT;
use brisk_upstream_group::settings::{RequestTimeouts, Retry, ServerScheme};
use http::{HeaderValue, StatusCode, Version, header};
use http_body::Body as _;

use crate::body::UpstreamBody;
use crate::error::UpstreamError;
use crate::group::{Group, Lease, Server};
use crate::http1::{ExchangeFacts, Failure, Http1, Owner};
use crate::http2::{Destination, Placement};
use crate::login;
use crate::login::PrivateConnections;
use crate::proxied::{self, Requester};
use crate::upgrade::{PendingUpgrade, is_requested};

use self::attempts::{Attempt, Refuge, Stay};
use self::framing::{Framing, frame_body, settle_length, to_origin_form};
pub use self::outcome::{ForwardFacts, ForwardOutcome};
pub(crate) use self::tunnel::Tunnel;
pub use self::tunnel::tunnel;

/// Sends a request to a server of `group` and returns its response of [`Version::HTTP_11`], whose [`UpstreamBody`] streams.
///
/// A `101` response to a request with an `Upgrade` header leaves the upstream's transport in the client's [`Connection`].
/// Dropping the future, or later the body, abandons the exchange. The result is recorded in [`ForwardFacts::outcome`].
///
/// # Errors
///
/// [`UpstreamError`] of the last server if no server responds; [`UpstreamError::NoServer`] if the group has none.
pub fn forward<'a>(
    group: &'a Rc<Group>,
    mut head: RequestParts,
    body: RequestBody,
    facts: &'a ForwardFacts<'a>,
) -> impl Future<Output = Result<Response<UpstreamBody>, UpstreamError>> {
    let started = Instant::now();
    head.extensions.clear();
    let mut journey = Journey::new(group, &head, &body, facts, started);
    // Outside of the future, which would have room for the head beside the request.
    let mut request = Request::from_parts(head, body);
    async move {
        let mut attempt = match journey.first() {
            Err(UpstreamError::NoServer) => {
                Box::pin(group.await_servers()).await;
                // This wait is no time of a server.
                journey.started = Instant::now();
                journey.first()?
            }
            first => first?,
        };
        let mut hedge = journey.hedge(&request);
        if hedge.is_some() {
            // The interim responses of two servers would be mixed.
            journey.interims = InterimReceivers::default();
        }
        loop {
            facts.outcome.server.replace(Some(Rc::clone(&attempt.server)));
            let sent = match hedge.take() {
                None => journey.send(&attempt, &mut request).await,
                Some(settings) => {
                    let sent = Box::pin(journey.send_hedged(&attempt, &mut request, settings));
                    let (other, sent) = sent.await;
                    if let Some(other) = other {
                        facts.outcome.server.replace(Some(Rc::clone(&other.server)));
                        attempt = other;
                    }
                    sent
                }
            };
            match sent {
                Ok(mut response) => {
                    attempt.server.answered(response.status());
                    if let Some(next) = journey.after_response(&attempt, response.status()) {
                        // Dropped before the next attempt: the abandoned response must hold neither memory nor a
                        // stream meanwhile.
                        drop(response);
                        attempt = next;
                        journey.prepare_repetition(&mut request).await;
                        continue;
                    }
                    attempt.server.assign(journey.assigned.as_ref(), response.headers_mut());
                    facts.outcome.time.set(Some(started.elapsed()));
                    return Ok(response);
                }
                Err(failure) => {
                    let was_sent = failure.was_sent;
                    if was_sent && brisk_defects::strikes(Defect::EndlessRequest) {
                        // Before the wait, which would enlarge the future otherwise.
                        drop(failure);
                        return pending().await;
                    }
                    attempt = journey.next(attempt, failure)?;
                    if was_sent {
                        journey.prepare_repetition(&mut request).await;
                    }
                }
            }
        }
    }
}

/// Forwarding of one request to one or two servers.
struct Journey<'a> {
    group: &'a Group,
    connection: &'a Rc<Connection>,
    client: SocketAddr,
    /// Start of the first attempt.
    started: Instant,
    interims: InterimReceivers<'a>,
    timeouts: RequestTimeouts,
    key: u64,
    /// The server that the client's cookie of `sticky` names.
    assigned: Option<Rc<Server>>,
    retries: u32,
    /// Whether the request may be repeated after it was sent.
    may_repeat: bool,
    is_idempotent: bool,
    /// The gathered body of a request that may be repeated.
    body: Option<Box<Gathered>>,
    progress: Option<Rc<BodyProgress>>,
    /// The server to which the request goes from the present one.
    refuge: RefCell<Option<Refuge>>,
    /// Whether the request tries to authenticate its upstream connection (see [`login`]).
    logs_in: bool,
    /// The protocols that the client requests to switch to: the `Upgrade` fields.
    upgrade: Vec<HeaderValue>,
    /// See [`ForwardFacts::variables`].
    variables: Option<&'a Variables>,
}

impl<'a> Journey<'a> {
    fn new(
        group: &'a Group,
        head: &RequestParts,
        body: &RequestBody,
        facts: &ForwardFacts<'a>,
        started: Instant,
    ) -> Self {
        let retry = &group.state().settings().retry;
        let (retries, reasons) = (u32::from(!matches!(retry, Retry::Never)), retry.reasons());
        let is_idempotent = head.method.is_idempotent();
        let is_permitted =
            retries > 0 && (is_idempotent || reasons.is_some_and(|reasons| reasons.unsafe_methods));
        let gathered = match (reasons, body) {
            (Some(_), RequestBody::Gathered(body)) if is_permitted => Some(Box::new(body.copy())),
            _ => None,
        };
        let progress = body.progress().cloned();
        // Every request earns credit, so that the requests that leave stay a share of all.
        group.leaving_credit().earn(LEAVING_PERCENT);
        // A request after an internal redirect has no body: its record keeps the upload of the first. No deadline depends on this
        // record, so a redirect gives a client no time.
        if progress.is_some() {
            facts.outcome.progress.replace(progress.clone());
        }
        Self {
            group,
            connection: facts.connection,
            client: facts.client,
            started,
            interims: facts.interims,
            timeouts: facts.timeouts,
            key: group.key(head, || facts.client.ip()),
            assigned: group.assigned(head),
            retries,
            // A body that streams cannot be sent twice, whereas an empty one needs no copy.
            may_repeat: is_permitted && (body.is_end_stream() || gathered.is_some()),
            is_idempotent,
            body: gathered,
            progress,
            refuge: RefCell::default(),
            logs_in: login::is_attempt(&head.headers),
            upgrade: head.headers.get_all(header::UPGRADE).cloned().collect(),
            variables: facts.variables,
        }
    }

    fn requester(&self) -> Requester<'a> {
        Requester { connection: self.connection, address: self.client }
    }

    async fn send(
        &self,
        attempt: &Attempt,
        request: &mut Request<RequestBody>,
    ) -> Result<Response<UpstreamBody>, Failure> {
        let call = match attempt.server.begin_call(attempt.begun) {
            Some(call) => call,
            // Boxed, because few requests wait.
            None => Box::pin(attempt.server.wait_for_call(self.requester(), attempt.at_limit))
                .await
                .map_err(Failure::connecting)?,
        };
        let mut response = if attempt.server.state().multiplexes() {
            Box::pin(self.send_http2(attempt, request)).await?
        } else {
            // An application server gets variables: target and `Host` stay as they are.
            let is_application = attempt.server.is_application();
            let is_named = is_application || to_origin_form(request, &attempt.server);
            let sent = if !is_application && self.may_pipeline(attempt, request) {
                Box::pin(self.send_pipelined(attempt, request)).await
            } else {
                self.send_http1(attempt, request).await
            };
            sent.inspect_err(|_| {
                // The next server gets its own name.
                if !is_named {
                    request.headers_mut().remove(header::HOST);
                }
            })?
        };
        call.answered();
        // The version belongs to the upstream connection; the client's connection has its own.
        *response.version_mut() = Version::HTTP_11;
        Ok(response)
    }

    /// The [`Owner`] of a connection after a login or a challenge for one (see [`login`]): [`Owner::None`] if the client uses
    /// HTTP/2 or HTTP/3.
    fn owner(&self) -> Owner {
        match self.connection.multiplexed() {
            Some(_) => Owner::None,
            None => Owner::Client(Rc::downgrade(self.connection)),
        }
    }

    async fn send_http1(
        &self,
        attempt: &Attempt,
        request: &mut Request<RequestBody>,
    ) -> Result<Response<UpstreamBody>, Failure> {
        let server = &attempt.server;
        let lease = Lease::new(server, self.timeouts);
        let kept = match attempt.placement {
            Placement::Kept => {
                let private = PrivateConnections::of(self.connection);
                let own = private.and_then(|private| private.take(server));
                // Connections with a PROXY header are never in the pool.
                own.or_else(|| server.pool().take()).or_else(|| proxied::take(self.requester(), server))
            }
            Placement::Fresh => None,
        };
        let mut http1 = match kept {
            Some(http1) => http1,
            // Boxed, like other rare paths: each would enlarge the future of every request.
            None => Box::pin(server.connect(self.requester(), attempt.at_limit))
                .await
                .map_err(Failure::connecting)?,
        };
        let stay = Stay::new(self, attempt);
        // The body may have ended while the connection was opened: no earlier decision about its framing would hold.
        if !server.is_application() {
            frame_body(request);
        }
        let facts = ExchangeFacts {
            client: self.connection,
            progress: self.progress.as_deref(),
            interims: self.interims,
            variables: self.variables,
        };
        let mut response = http1.exchange(request, facts, stay.head_wait()).await?;
        if settle_length(&mut response) == Framing::Contradictory {
            http1.belong_to(Owner::None);
        }
        if self.logs_in || login::is_challenge(response.status(), response.headers()) {
            http1.belong_to(self.owner());
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Box::pin(self.upgrade(response, http1, lease)).await.map_err(Failure::after_sending);
        }
        Ok(response.map(|()| UpstreamBody::over_http1(http1, lease)))
    }

    async fn upgrade(
        &self,
        response: Response<()>,
        http1: Box<Http1>,
        lease: Lease,
    ) -> Result<Response<UpstreamBody>, UpstreamError> {
        if !is_requested(&self.upgrade, response.headers()) {
            return Err(UpstreamError::UnexpectedUpgrade);
        }
        let limit = self.group.state().settings().timeouts.head;
        let upgraded = http1.into_upgraded(limit).await?;
        PendingUpgrade::new(upgraded, lease).leave_to(self.connection);
        Ok(response.map(|()| UpstreamBody::default()))
    }

    async fn send_http2(
        &self,
        attempt: &Attempt,
        request: &mut Request<RequestBody>,
    ) -> Result<Response<UpstreamBody>, Failure> {
        let server = &attempt.server;
        let lease = Lease::new(server, self.timeouts);
        let open = async |at_limit| server.connect_http2(self.requester(), at_limit).await;
        let own = proxied::http2(self.requester(), server);
        let pool = own.as_deref().unwrap_or_else(|| server.http2());
        // A login concerns the whole connection, which other clients must not share.
        let checkout = if self.logs_in || server.closes_proxied() {
            pool.exclusive(self.connection, async || open(attempt.at_limit).await).await
        } else {
            pool.checkout(self.connection, attempt.placement, attempt.at_limit, open).await
        };
        let mut http2 = checkout.map_err(Failure::connecting)?;
        let url = server.state().url();
        let to = Destination {
            is_encrypted: url.scheme() == ServerScheme::Https,
            authority: url.authority(),
            protocol: None,
        };
        let deadline = server.register_deadline();
        let stay = Stay::new(self, attempt);
        let mut response = http2
            .exchange(request, to, self.progress.as_deref(), &deadline, stay.head_wait(), self.interims)
            .await?;
        settle_length(&mut response);
        let body = UpstreamBody::over_http2(http2.into_body(), deadline, lease);
        Ok(response.map(|()| body))
    }
}

#[cfg(test)]
mod tests;
