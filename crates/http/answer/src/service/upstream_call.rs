//! The action that calls an upstream: from the client's head to the upstream's response or an error page.

use std::future::ready;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use brisk_http::cgi::Variables;
use brisk_http::hop_by_hop;
use brisk_http::message::{RequestParts, Response};
use brisk_http::validate::{self, Refusal};
use brisk_http_connection::Connection;
use brisk_http_connection::body::client::ClientBody;
use brisk_http_connection::body::gathered::Gathered;
use brisk_http_connection::body::request::RequestBody;
use brisk_http_connection::interim::InterimReceivers;
use brisk_limits::TimedBody;
use brisk_telemetry::Metrics;
use brisk_transform::body::Body;
use brisk_upstream::forward::{ForwardFacts, forward, tunnel};
use brisk_upstream::{Group, Server};
use brisk_upstream::{UpstreamBody, UpstreamError};
use brisk_upstream_group::settings::CgiSettings;
use http::uri::PathAndQuery;
use http::{HeaderValue, StatusCode, header};
use http_body::Body as _;
use tokio::time::{Instant, timeout_at};

use super::Service;
use super::answers::no_content;
use super::cgi::{self, CgiRequest, NoScript};
use super::site::{Route, Site};
use crate::error::ServiceError;
use crate::error_page::{error_page, of_upstream};
use crate::exchange::Exchange;
use crate::features::early_hints::RequestHints;
use crate::features::mirror::Mirror;
use crate::features::response_urls::ResponseUrls;
use crate::features::split::{Destination, Split};
use crate::forwarding;
use crate::head_limits::size_of_fields;
use crate::headers;
use crate::settings::{RouteSettings, RouteTimeouts, UpstreamAction, UpstreamPath};
use crate::stage::{ClientRequest, RequestState};

/// A route to an upstream group.
#[derive(Debug)]
pub(super) struct UpstreamRoute {
    to: Destination,
    path: UpstreamPath,
    split: Option<Box<Split>>,
    mirror: Option<Rc<Mirror>>,
    /// Maximum length of a request body in bytes; `u64::MAX` for no limit.
    body_limit: u64,
    /// Whether a request is sent only after its body has arrived completely.
    buffers: bool,
    timeouts: RouteTimeouts,
    /// URLs and cookies in the responses of both groups.
    urls: ResponseUrls,
}

impl UpstreamRoute {
    /// Compiles the route to the groups of `upstream`. Fails if `group` does not find one.
    pub(super) fn new(
        route: &RouteSettings,
        upstream: &UpstreamAction,
        group: &impl Fn(&str) -> Option<Rc<Group>>,
        metrics: &Metrics,
    ) -> Result<Self, ServiceError> {
        let group =
            |name: &String| group(name).ok_or_else(|| ServiceError::UnknownGroup { name: name.clone() });
        let split = route.split.as_ref().map(|split| {
            let group = group(&split.group)?;
            Ok::<_, ServiceError>(Box::new(Split::new(split, group)))
        });
        let mirror = route.mirror.as_ref().map(|mirror| {
            let group = group(&mirror.group)?;
            Ok::<_, ServiceError>(Mirror::new(mirror, group, metrics.collector()))
        });
        let to = group(&upstream.group)?;
        let split = split.transpose()?;
        let groups = [&*to].into_iter().chain(split.as_ref().map(|split| split.group()));
        let groups = groups.map(|group| group.state().settings());
        Ok(Self {
            urls: ResponseUrls::new(route, &upstream.path, groups),
            to: Destination::new(to),
            path: upstream.path.clone(),
            split,
            mirror: mirror.transpose()?,
            body_limit: route.body.limit.unwrap_or(u64::MAX),
            buffers: route.body.buffers,
            timeouts: route.timeouts,
        })
    }

    /// The scripts of the groups of the route, if one of them has application servers.
    pub(super) fn scripts(&self) -> Option<&CgiSettings> {
        let split = || self.split.as_ref().and_then(|split| cgi::scripts(split.group()));
        cgi::scripts(&self.to.group).or_else(split)
    }
}

/// The future of an upstream's response; a refusal if the request cannot be buffered.
type PendingResponse<'a> = Pin<Box<dyn Future<Output = Result<Response<Body>, Refusal>> + 'a>>;

/// The future of the variables of a request to an application server.
type Completing<'a> = Pin<Box<dyn Future<Output = Result<Variables, NoScript>> + 'a>>;

/// The response of `pending`, which ends within `limit`. A connection that switches protocols has no end, and the response to `HEAD`
/// no content that could be late.
async fn within(
    limit: Duration,
    is_head: bool,
    pending: PendingResponse<'_>,
) -> Result<Response<Body>, Refusal> {
    // One end for head and body: a late head leaves less time for the body.
    let end = Instant::now() + limit;
    let answered = timeout_at(end, pending).await;
    let response = answered.unwrap_or(Err(Refusal::new(StatusCode::GATEWAY_TIMEOUT, "request-timeout")))?;
    let is_switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if is_switched || is_head || response.body().is_end_stream() {
        return Ok(response);
    }
    Ok(response.map(|body| Body::boxed(TimedBody::new(body, end))))
}

/// One request to an upstream group.
pub(super) struct UpstreamCall<'a> {
    service: &'a Service,
    site: &'a Site,
    route: &'a Route,
    upstream: &'a UpstreamRoute,
    state: &'a RequestState,
    to: &'a Destination,
    /// Cookie of the route's split for a visitor without one.
    assignment: Option<Box<HeaderValue>>,
}

impl<'a> UpstreamCall<'a> {
    /// A request that passed the stages of `route`.
    pub(super) fn new(
        (service, site): (&'a Service, &'a Site),
        (route, upstream): (&'a Route, &'a UpstreamRoute),
        state: &'a RequestState,
    ) -> Self {
        Self { service, site, route, upstream, state, to: &upstream.to, assignment: None }
    }

    /// Starts forwarding a request. Refuses a path that cannot be translated for the upstream.
    pub(super) fn start(
        mut self,
        request: &mut ClientRequest,
        exchange: &'a mut Exchange,
    ) -> Result<PendingResponse<'a>, Refusal> {
        // Before the path: the URLs of the other group may have another path.
        if let Some(split) = &self.upstream.split {
            let (to, assignment) = split.choose(&request.head.headers, exchange.id());
            (self.to, self.assignment) = (to.unwrap_or(self.to), assignment);
        }
        let target = self.upstream.path.target(&self.to.base, &request.head, &request.path())?;
        if !headers::count_forward(&mut request.head)? {
            return Ok(Box::pin(ready(Ok(no_content()))));
        }
        // Before the request: hints are useful while the upstream works on the page.
        if let Some(hints) = &self.state.hints {
            hints.announce();
        }
        let is_tunnel = request.is_tunnel;
        let (head, body) = request.take();
        if is_tunnel {
            return Ok(Box::pin(self.tunnel(head, target, body, exchange)));
        }
        // These names concern trailers, which only a body can have.
        let mut named = Vec::new();
        if !body.is_end_stream() {
            named = hop_by_hop::named(&head.headers);
            // Not among the names of the route, because the head of a trusted proxy keeps this one.
            named.extend(self.service.forwarding.client_header().cloned());
        }
        // Most requests name nothing, and share the names of the route.
        let own_names = match &*named {
            [] => Rc::clone(&self.route.own_names),
            named => Rc::new(self.route.own_names.with(named)),
        };
        let body = RequestBody::new(body, exchange.connection(), self.upstream.body_limit, own_names);
        let (limit, is_head) = (self.upstream.timeouts.request, self.state.is_head);
        // The protocols of application servers state the length before the body.
        let needs_length =
            || cgi::needs_length(&self.to.group) && !head.headers.contains_key(header::CONTENT_LENGTH);
        let gathers = !body.is_end_stream() && (self.upstream.buffers || needs_length());
        let pending: PendingResponse<'a> = if gathers {
            Box::pin(self.gather_and_go(head, target, body, exchange))
        } else {
            Box::pin(self.go(head, target, body, exchange))
        };
        Ok(match limit {
            Some(limit) => Box::pin(within(limit, is_head, pending)),
            None => pending,
        })
    }

    /// Gathers the whole body, then forwards the request.
    async fn gather_and_go(
        self,
        mut head: RequestParts,
        target: PathAndQuery,
        body: RequestBody,
        exchange: &mut Exchange,
    ) -> Result<Response<Body>, Refusal> {
        let gathered = Gathered::from(body, exchange.connection()).await.map_err(|error| {
            tracing::debug!(%error, request = %exchange.id(), "a request body was not gathered");
            Refusal::new(error.status(), error.reason())
        })?;
        // The length is known now, so the upstream needs no chunked coding. Trailers need it (RFC 9112 section 7.1.2); application
        // servers get none.
        if !gathered.has_trailers() || cgi::is_application(&self.to.group) {
            head.headers.remove(header::TRANSFER_ENCODING);
            head.headers.insert(header::CONTENT_LENGTH, gathered.length().into());
        }
        self.go(head, target, RequestBody::Gathered(Box::new(gathered)), exchange).await
    }

    /// Forwards the request while its body arrives.
    fn go(
        self,
        mut head: RequestParts,
        target: PathAndQuery,
        body: RequestBody,
        exchange: &mut Exchange,
    ) -> impl Future<Output = Result<Response<Body>, Refusal>> {
        // Before `prepare`, because variables have the head as it arrived.
        let application = CgiRequest::begin(&self.to.group, exchange, &head).map(Box::new);
        // Outside of the future, which would have room for the head and the target twice.
        let connection = self.prepare(&mut head, target, exchange);
        async move {
            let variables = match application {
                None => None,
                Some(request) => {
                    let of_host = (&*exchange, &*self.site.names);
                    // `dyn`: code and state would be part of the future of every request.
                    let completing: Completing<'_> =
                        Box::pin(request.complete(&self.to.group, &head, of_host));
                    match completing.await {
                        Ok(variables) => {
                            // The variables wait for the response as the heads do.
                            exchange.hold_head(|| variables.size())?;
                            Some(Box::new(variables))
                        }
                        Err(NoScript::Refuse(refusal)) => return Err(refusal),
                        Err(NoScript::Redirect(response)) => return Ok(*response),
                    }
                }
            };
            // After `prepare`, so that the mirror gets the head for upstreams without claims of clients.
            let body = match &self.upstream.mirror {
                Some(mirror) => mirror.observe((&head, &self.to.base), body, exchange),
                None => body,
            };
            let forwarded = exchange.interim_forwarding(self.state.version);
            let hints = self.state.hints.as_deref().and_then(RequestHints::interim);
            let facts = ForwardFacts {
                connection: &connection,
                client: exchange.client().address,
                interims: InterimReceivers { hints, forwarded: forwarded.as_ref() },
                outcome: &exchange.outcome,
                timeouts: self.upstream.timeouts.upstream,
                variables: variables.as_deref(),
            };
            let answered = forward(&self.to.group, head, body, &facts).await;
            self.answered(answered, exchange)
        }
    }

    /// Connects a client's stream with an upstream that speaks the tunnelled protocol (RFC 8441).
    async fn tunnel(
        self,
        mut head: RequestParts,
        target: PathAndQuery,
        upload: ClientBody,
        exchange: &mut Exchange,
    ) -> Result<Response<Body>, Refusal> {
        let connection = self.prepare(&mut head, target, exchange);
        let facts = ForwardFacts {
            connection: &connection,
            client: exchange.client().address,
            interims: InterimReceivers::default(),
            outcome: &exchange.outcome,
            timeouts: self.upstream.timeouts.upstream,
            variables: None,
        };
        let answered = tunnel(&self.to.group, head, upload, &facts).await;
        // RFC 8441: any 2xx opens the tunnel.
        if answered.as_ref().is_ok_and(|response| response.status().is_success()) {
            exchange.switch();
        }
        self.answered(answered, exchange)
    }

    /// Converts the client's head into the head for the upstream.
    // The order matters: client headers that the gateway sets itself are removed first, the stages see the final set.
    fn prepare(&self, head: &mut RequestParts, target: PathAndQuery, exchange: &Exchange) -> Rc<Connection> {
        let connection = Rc::clone(exchange.connection());
        let forwarded = forwarding::described(exchange, validate::authority_of(head), &self.site.names);
        headers::prepare_request(head, &forwarded.authority, target);
        if exchange.is_early() {
            headers::mark_early(&mut head.headers);
        }
        self.service.forwarding.apply(&mut head.headers, exchange, &forwarded);
        self.route.own_names.remove_from(&mut head.headers);
        self.route.stages.forward(exchange, self.state, &mut head.headers);
        connection
    }

    fn answered(
        &self,
        answered: Result<Response<UpstreamBody>, UpstreamError>,
        exchange: &mut Exchange,
    ) -> Result<Response<Body>, Refusal> {
        match answered {
            Ok(response) => {
                exchange.hold_head(|| size_of_fields(response.headers()))?;
                exchange.hold_first(response.body().unread());
                if response.status() == StatusCode::SWITCHING_PROTOCOLS {
                    exchange.switch();
                }
                let mut response = of_upstream(response);
                self.route.stages.received(self.state, &mut response);
                self.upstream.urls.apply(response.headers_mut());
                exchange.named = headers::prepare_response(response.status(), response.headers_mut());
                // After the changes of the application's cookies, which must not concern this one.
                if let Some(assignment) = &self.assignment {
                    response.headers_mut().append(header::SET_COOKIE, HeaderValue::clone(assignment));
                }
                Ok(response)
            }
            Err(error) => Ok(self.failed(&error, exchange)),
        }
    }

    fn failed(&self, error: &UpstreamError, exchange: &mut Exchange) -> Response<Body> {
        let group = &self.to.group.state().settings().name;
        let server = exchange.outcome.server();
        let server = server.as_deref().map(Server::name);
        tracing::debug!(%error, group, server, request = %exchange.id(), "upstream gave no response");
        exchange.fail(error.side(), error.reason());
        error_page(error.status(), exchange.id())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stages recognize the body of an upstream, whose end returns the connection to the pool.
    #[tokio::test]
    async fn a_response_to_head_keeps_its_body() {
        let limit = Duration::from_mins(10);
        let pending = || -> PendingResponse<'static> { Box::pin(ready(Ok(Response::new(Body::full("x"))))) };
        let head = within(limit, true, pending()).await.expect("a response");
        assert!(matches!(head.body(), Body::Full(_)), "{head:?}");
        let get = within(limit, false, pending()).await.expect("a response");
        assert!(matches!(get.body(), Body::Boxed(_)), "{get:?}");
    }
}
