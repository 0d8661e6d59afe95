//! The service of a worker: finds the host and the route of each request, runs the stages of the route, and performs
//! its action.

mod action;
mod answers;
mod cgi;
mod internal;
mod site;
mod upstream_call;

use std::rc::Rc;
use std::sync::Arc;

use brisk_certs::challenge::{Challenges, HTTP_PATH};
use brisk_http::message::{Request, RequestParts, Response};
use brisk_http::validate::{self, Refusal, Target};
use brisk_http_connection::Connection;
use brisk_http_connection::body::client::ClientBody;
use brisk_telemetry::{MalformedReason, MalformedRecord, RequestIds, Source};
use brisk_transform::body::Body;
use brisk_upstream::Group;
use http::StatusCode;

use self::answers::{challenge, no_content, over_rate, refuse};
use self::site::Site;
use crate::client_address::ClientSource;
use crate::error::ServiceError;
use crate::exchange::{Exchange, RecordedBody, Telemetry};
use crate::forwarding::Forwarding;
use crate::head_limits::HeadLimits;
use crate::hosts::{Host, Hosts, Misdirected, Origin};
use crate::settings::{HttpsRedirect, ServiceSettings};
use crate::stage::{ClientRequest, RequestState, StageContext, StageTarget};
use crate::stages::RouteStages;

/// The hosts of one configuration on one worker.
#[derive(Debug)]
pub struct Service {
    hosts: Hosts<Site>,
    /// Stages of responses to requests that reach no host.
    hostless: RouteStages,
    forwarding: Rc<Forwarding>,
    redirect: HttpsRedirect,
    challenges: Option<Arc<Challenges>>,
    telemetry: Rc<Telemetry>,
    ids: RequestIds,
}

impl Service {
    /// Builds the service of one worker. `group` returns the worker's upstream group of a name.
    ///
    /// # Errors
    ///
    /// [`ServiceError`] without hosts, for invalid or contradictory host names, and for a route to an unknown group.
    /// Paths and status codes are not checked: the configuration reader checks them.
    pub fn new(
        settings: &ServiceSettings,
        telemetry: Telemetry,
        group: impl Fn(&str) -> Option<Rc<Group>>,
    ) -> Result<Self, ServiceError> {
        if settings.hosts.is_empty() {
            return Err(ServiceError::NoHost);
        }
        let forwarding = Forwarding::new(settings.trusted_proxies.clone(), settings.underscores);
        let forwarding = Rc::new(forwarding.reading(settings.client_header.clone()));
        let site = |index| Site::new(index, settings, &forwarding, &group, &telemetry.metrics);
        let sites: Result<Vec<_>, _> = (0..settings.hosts.len()).map(site).collect();
        Ok(Self {
            hosts: Hosts::new(settings, sites?)?,
            hostless: RouteStages::compile(&StageContext { host: None, target: StageTarget::Unrouted }),
            forwarding,
            redirect: settings.redirect,
            challenges: settings.challenges.clone(),
            telemetry: Rc::new(telemetry),
            ids: RequestIds::from_random_seed(),
        })
    }

    /// Responds to one request on `connection`.
    ///
    /// Every request is counted and logged exactly once: when the response body ends or is dropped, or when this future
    /// is dropped, which a cancelled request does.
    pub fn respond(
        &self,
        connection: &Rc<Connection>,
        request: Request<ClientBody>,
    ) -> impl Future<Output = Response<RecordedBody>> {
        let (head, body) = request.into_parts();
        // Outside of the future, which would have room for the parts beside the `ClientRequest`.
        let mut request = ClientRequest::new(head, body);
        async move {
            let mut exchange = self.begin(connection, &request.head);
            // An invented address must not use up the rate of its owner.
            if exchange.client().source == ClientSource::Unproven && connection.extras.limits_requests() {
                // Boxed: few requests wait, and the future of every request would have room for this one.
                Box::pin(exchange.hold_until_proven()).await;
            }
            if let Some(response) = over_rate(&mut exchange) {
                return exchange.respond(response);
            }
            // Before hosts and redirects: the authority expects the token at this URL (RFC 8555 section 8.3).
            if let Some(text) = self.challenge(connection, &request.head).await {
                return exchange.respond(challenge(&text));
            }
            let head = &request.head;
            let response = match self.admit(&mut exchange, head) {
                Ok(Destination::Host(host))
                    if !(connection.client.secure || is_served_plain(&host, head)) =>
                {
                    self.answer(head, Ok(self.redirect.answer(head)), &mut exchange)
                }
                Ok(Destination::Host(host)) => host.value().answer(self, &mut request, &mut exchange).await,
                Ok(Destination::Server) => self.answer(head, Ok(no_content()), &mut exchange),
                Err(refusal) => self.answer(head, Err(refusal), &mut exchange),
            };
            exchange.respond(response)
        }
    }

    /// Starts a request, and determines its client.
    fn begin(&self, connection: &Rc<Connection>, head: &RequestParts) -> Box<Exchange> {
        let mut exchange = Exchange::begin(&self.telemetry, connection, self.ids.next(), head);
        // Once, before all decisions: two features that determine the client could disagree about it.
        self.forwarding.name_client(&mut exchange, &head.headers);
        exchange
    }

    /// Responds to a request that reaches no host: with `answered`, or with the error page of a refusal.
    fn answer(
        &self,
        head: &RequestParts,
        answered: Result<Response<Body>, Refusal>,
        exchange: &mut Exchange,
    ) -> Response<Body> {
        let mut response = answered.unwrap_or_else(|refusal| refuse(refusal, head.version, exchange));
        self.hostless.response(exchange, &RequestState::new(head), &mut response);
        response
    }

    /// Refuses a request with `429` on a connection that is about to be closed because of a flood. The request is counted
    /// and logged like any other.
    pub fn turn_away(
        &self,
        connection: &Rc<Connection>,
        request: Request<ClientBody>,
    ) -> Response<RecordedBody> {
        let (head, _) = request.into_parts();
        let mut exchange = self.begin(connection, &head);
        let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "flood");
        let response = refuse(refusal, head.version, &mut exchange);
        exchange.respond(response)
    }

    /// Counts and logs bytes of a client that were refused before they became a request: with `status`, or 0 without a
    /// response. `line` is the request line, as far as it is known.
    pub fn malformed(&self, connection: &Connection, reason: MalformedReason, status: u16, line: &[u8]) {
        let record = connection.client.record.borrow();
        let metrics = &self.telemetry.metrics;
        metrics.malformed_request(reason);
        // A closure, because an example is rarely formed: frequent problems keep the last one.
        let example = || format!("{}, {}", record.client, String::from_utf8_lossy(line));
        metrics.problems().note(Source::Client, reason.name(), example);
        if let Some(log) = &self.telemetry.access_log {
            log.log_malformed(&MalformedRecord { connection: &record, reason, status, excerpt: line });
        }
    }

    /// Responds to one request over plain HTTP: to an ACME challenge, or with a redirect to HTTPS. With `unknown_host = "refuse"`,
    /// names of no host get `421`.
    pub async fn redirect(&self, connection: &Rc<Connection>, head: &RequestParts) -> Response<RecordedBody> {
        let mut exchange = self.begin(connection, head);
        let response = match over_rate(&mut exchange) {
            Some(response) => response,
            None => match self.challenge(connection, head).await {
                Some(text) => challenge(&text),
                None if self.is_for_no_host(head) => refuse(Misdirected.into(), head.version, &mut exchange),
                None => self.redirect.answer(head),
            },
        };
        exchange.respond(response)
    }

    /// The response to a validation request of a certificate authority, which sends it to port 80 (RFC 8555 section 8.3).
    async fn challenge(&self, connection: &Connection, head: &RequestParts) -> Option<Arc<str>> {
        let path = head.uri.path();
        if connection.client.secure || !path.starts_with(HTTP_PATH) {
            return None;
        }
        // Boxed: the future of every request includes this one.
        Box::pin(self.challenges.as_ref()?.http(path)).await
    }

    /// The metrics and the access log of the service.
    pub fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    /// Checks the limits of the connection and returns the destination of the request.
    fn admit(&self, exchange: &mut Exchange, head: &RequestParts) -> Result<Destination, Refusal> {
        let connection = &Rc::clone(exchange.connection());
        if let Some((settings, multiplexed)) = connection.settings().zip(connection.multiplexed()) {
            let size = HeadLimits::of(settings).check(head)?;
            multiplexed.head_received(size);
            exchange.hold_head(|| size)?;
        }
        if connection.must_refuse() {
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded"));
        }
        self.find(connection, head)
    }

    /// Whether a request over plain HTTP names a host that is not configured and not permitted.
    fn is_for_no_host(&self, head: &RequestParts) -> bool {
        let Ok(Target::Path { authority }) = validate::target(head) else { return false };
        !authority.is_empty() && self.hosts.find(authority, Origin::Plain).is_err()
    }

    fn find(&self, connection: &Connection, head: &RequestParts) -> Result<Destination, Refusal> {
        // RFC 9110 section 9.3.7: `OPTIONS *` addresses the server, not a resource of a host.
        let Target::Path { authority } = validate::target(head)? else {
            return Ok(Destination::Server);
        };
        let record = connection.client.record.borrow();
        let origin = if connection.client.secure {
            let server_name = record.tls.as_ref().and_then(|tls| tls.server_name.as_deref());
            Origin::Tls { server_name, demands: &connection.client.demands }
        } else {
            Origin::Plain
        };
        Ok(Destination::Host(self.hosts.find(authority, origin)?))
    }
}

/// Whether a request over plain HTTP gets the responses of HTTPS. A name that is decided at run time and has no decision yet does
/// not: the redirect leads to the handshake, which asks for one.
fn is_served_plain(host: &Host<Site>, head: &RequestParts) -> bool {
    host.value().serves_plain && host.has_decided(validate::authority_of(head))
}

/// Destination of a request.
enum Destination {
    Host(Rc<Host<Site>>),
    /// The server in general: `OPTIONS *`.
    Server,
}

impl From<Misdirected> for Refusal {
    fn from(_: Misdirected) -> Self {
        Self::new(StatusCode::MISDIRECTED_REQUEST, "misdirected")
    }
}

#[cfg(test)]
mod tests;
