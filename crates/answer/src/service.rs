//! Answers requests: finds the host and the route of each, and does what the route says.

mod answers;
mod passage;
mod route;

use std::rc::Rc;
use std::time::Duration;

use brisk_http::error::BodyError;
use brisk_http::http2::Protocol;
use brisk_http::path::RequestPath;
use brisk_http::validate;
use brisk_http::validate::{Refusal, Target};
use brisk_http_connection::Connection;
use brisk_http_connection::body::client::ClientBody;
use brisk_http_connection::body::upload::Upload;
use brisk_telemetry::{RequestId, RequestIds, Throttle};
use brisk_upstream::Group;
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body::Body as _;
use ipnet::IpNet;

use self::answers::{fixed, found, no_content, over_rate, preconnected, refuse, said};
use self::passage::{Passage, upstream_target};
use self::route::{Prepared, Route};
use crate::body::Body;
use crate::client_cert::ClientCert;
use crate::consolidate::Consolidated;
use crate::error::ServiceError;
use crate::exchange::{Exchange, RecordedBody, Telemetry};
use crate::experiments::HostExperiments;
use crate::files::in_room;
use crate::forwarding::Forwarding;
use crate::head_limits::HeadLimits;
use crate::hints;
use crate::hosts::{Host, Hosts, Misdirected, Names, Origin};
use crate::redirect;
use crate::redirect::HttpsRedirect;
use crate::route::Routes;
use crate::settings::{Preconnect, RouteSettings, ServiceSettings};
use crate::stages::{OfHost, Stages};
use crate::visits::{Own, SiteVisits};

/// Answers requests to the hosts of one configuration, on one worker.
#[derive(Debug)]
pub struct Service {
    hosts: Hosts<Site>,
    forwarding: Forwarding,
    telemetry: Rc<Telemetry>,
    ids: RequestIds,
    /// Limits the rate of warnings that no request can be gathered.
    full_warnings: Throttle,
}

/// One host: its routes and what its answers need.
#[derive(Debug)]
struct Site {
    names: Names,
    client_cert: ClientCert,
    routes: Routes<Route>,
    headers: OfHost,
    preconnect: Option<Preconnect>,
    /// `None` where no visits are measured.
    visits: Option<Rc<SiteVisits>>,
    /// `None` where there are none.
    experiments: Option<HostExperiments>,
}

impl Service {
    /// Makes one worker's service; `group` finds its upstream groups by name. Paths and status codes are taken as they
    /// are; names of hosts and groups are checked.
    pub fn new(
        settings: &ServiceSettings,
        telemetry: Telemetry,
        group: impl Fn(&str) -> Option<Rc<Group>>,
    ) -> Result<Self, ServiceError> {
        if settings.hosts.is_empty() {
            return Err(ServiceError::NoHost);
        }
        let trusted: Rc<[_]> = settings.trusted_proxies.clone().into();
        let site = |place| Site::new(place, settings, &trusted, &group);
        let sites: Result<Vec<_>, _> = (0..settings.hosts.len()).map(site).collect();
        Ok(Self {
            hosts: Hosts::new(settings, sites?)?,
            forwarding: Forwarding::new(settings.trusted_proxies.clone(), settings.underscores),
            telemetry: Rc::new(telemetry),
            ids: RequestIds::from_random_seed(),
            full_warnings: Throttle::new(Duration::from_secs(1)),
        })
    }

    /// Answers one request that came on `connection`. Every request is counted and logged once: when the body of its response
    /// has ended or is dropped, or when this future is dropped.
    pub async fn respond(
        &self,
        connection: &Rc<Connection>,
        request: Request<ClientBody>,
    ) -> Response<RecordedBody> {
        let (head, body) = request.into_parts();
        let body = Upload::new(body, connection, head.version);
        let mut exchange = Exchange::begin(&self.telemetry, connection, self.ids.next(), &head);
        if let Some(response) = over_rate(connection, &mut exchange) {
            return exchange.respond(response);
        }
        let (version, mut stages) = (head.version, Stages::of(&head));
        let mut host = None;
        let answered = match self.admit(connection, &head) {
            Ok(Found::Server) => Ok(no_content()),
            Ok(Found::Site(found)) => {
                host.insert(found).value().answer(self, head, body, &mut exchange, &mut stages).await
            }
            Err(refusal) => Err(refusal),
        };
        let mut response = answered.unwrap_or_else(|refusal| refuse(refusal, version, &mut exchange));
        let headers = host.as_ref().map(|host| &host.value().headers);
        stages.finish(&exchange, headers, &mut response);
        exchange.respond(response)
    }

    /// Refuses a request on a connection that is about to be closed for a flood. Counted and logged as any other.
    pub fn turn_away(
        &self,
        connection: &Rc<Connection>,
        request: Request<ClientBody>,
    ) -> Response<RecordedBody> {
        let (head, _) = request.into_parts();
        let mut exchange = Exchange::begin(&self.telemetry, connection, self.ids.next(), &head);
        let refusal = Refusal::new(StatusCode::TOO_MANY_REQUESTS, "flood");
        let response = refuse(refusal, head.version, &mut exchange);
        exchange.respond(response)
    }

    /// Answers one request over plain HTTP: with `text`, for an authority that asks for it, or with a redirect to HTTPS.
    pub fn redirect(
        &self,
        redirect: HttpsRedirect,
        text: Option<&str>,
        connection: &Rc<Connection>,
        head: &Parts,
    ) -> Response<RecordedBody> {
        let mut exchange = Exchange::begin(&self.telemetry, connection, self.ids.next(), head);
        let answer = || text.map_or_else(|| redirect.answer(head), said);
        let response = over_rate(connection, &mut exchange).unwrap_or_else(answer);
        exchange.respond(response)
    }

    /// Metrics and access log of the service.
    pub fn telemetry(&self) -> &Telemetry {
        &self.telemetry
    }

    fn not_gathered(&self, error: &BodyError, request: RequestId) {
        let passed = matches!(error, BodyError::NoRoom).then(|| self.full_warnings.pass()).flatten();
        if let Some(more) = passed {
            tracing::warn!(%request, more, "limits.buffered_requests is used up: requests that are to be buffered get 503");
        }
        tracing::debug!(%error, %request, "a request body was not gathered");
    }

    fn admit(&self, connection: &Connection, head: &Parts) -> Result<Found, Refusal> {
        if let Some((settings, multiplexed)) = connection.settings().zip(connection.multiplexed()) {
            multiplexed.head_received(HeadLimits::of(settings).check(head)?);
        }
        if connection.is_overloaded() {
            return Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "overloaded"));
        }
        self.find(connection, head)
    }

    fn find(&self, connection: &Connection, head: &Parts) -> Result<Found, Refusal> {
        let Target::Path { authority } = validate::target(head)? else {
            return Ok(Found::Server);
        };
        let record = connection.record.borrow();
        let origin = if connection.secure {
            let server_name = record.tls.as_ref().and_then(|tls| tls.server_name.as_deref());
            Origin::Tls { server_name, demands: &connection.demands }
        } else {
            Origin::Plain
        };
        Ok(Found::Site(self.hosts.find(authority, origin)?))
    }
}

enum Found {
    Site(Rc<Host<Site>>),
    /// `OPTIONS *`
    Server,
}

impl Site {
    /// The host at `place`.
    fn new(
        place: usize,
        all: &ServiceSettings,
        trusted: &Rc<[IpNet]>,
        group: &impl Fn(&str) -> Option<Rc<Group>>,
    ) -> Result<Self, ServiceError> {
        let host = &all.hosts[place];
        let measured = host.visits.as_ref().zip(all.beacons.as_ref());
        let experiments = HostExperiments::new(&all.experiments, place);
        let ids: Vec<_> = experiments.all().iter().map(|(id, _)| *id).collect();
        let prepared = |route: &RouteSettings| {
            Ok((route.path.clone(), Route::new(route, host, experiments.all(), group)?))
        };
        let routes: Result<Vec<_>, ServiceError> = host.routes.iter().map(prepared).collect();
        Ok(Self {
            names: Names::new(&host.tls.names)?.with(host.tls.on_demand.as_ref()),
            client_cert: host.client_cert,
            routes: Routes::new(routes?),
            headers: OfHost::new(host),
            preconnect: host.preconnect.clone(),
            visits: measured.map(|(visits, beacons)| {
                SiteVisits::new(visits, beacons, host.tls.names.first(), ids, trusted)
            }),
            experiments: (!experiments.all().is_empty()).then_some(experiments),
        })
    }

    async fn answer(
        &self,
        service: &Service,
        mut head: Parts,
        body: Upload,
        exchange: &mut Exchange,
        stages: &mut Stages,
    ) -> Result<Response<Body>, Refusal> {
        if let Some(experiments) = &self.experiments {
            exchange.name_arms(experiments);
        }
        let path = RequestPath::read(head.uri.path())?;
        let is_tunnel = head.extensions.get::<Protocol>().is_some();
        let is_asked = |own: &&Preconnect| *own.path.as_bytes() == *path.decoded && !is_tunnel;
        if let Some(preconnect) = self.preconnect.as_ref().filter(is_asked) {
            exchange.connection().keep(Some(preconnect.keep_alive));
            return Ok(preconnected());
        }
        if let Some(visits) = self.visits.as_ref().filter(|_| !is_tunnel)
            && let Some(own) = Own::of(&path.decoded)
        {
            if own == Own::Script {
                stages.compress_by(visits.compression(), &head, head.uri.path());
            }
            return Box::pin(visits.answer(own, &head, body, exchange)).await;
        }
        let not_found = Refusal::new(StatusCode::NOT_FOUND, "no-route");
        let route = self.routes.find(&path.decoded).ok_or(not_found)?;
        stages.on_route(exchange.connection(), &head, &route.stages, &path.decoded);
        if let Some(folder) =
            route.stages.consolidated.as_ref().and_then(|origin| origin.folder(&path, &head))
        {
            return Ok(redirect::to(StatusCode::PERMANENT_REDIRECT, folder));
        }
        if let Some(consolidated) = &route.stages.consolidated {
            let authority = validate::authority_of(&head);
            let asked = consolidated.asked(&head, authority, &self.names, &path.decoded);
            asked.change_request(&mut head.headers);
            stages.consolidating = Some(Box::new(asked));
        }
        if let Some(visits) = &self.visits {
            let may_be_hinted = route.may_hint(head.version);
            stages.visiting = visits.asked(exchange, &head, &route.path, may_be_hinted);
            let inserting = stages.visiting.as_ref().filter(|visiting| visiting.inserts());
            // Where compression is off the upstream's own stays: what brisk asks for without a coding it has to compress.
            if let Some(visiting) = inserting.filter(|_| !route.stages.is_never_compressed) {
                let compression = Rc::clone(visiting.compression());
                stages.compress_page_by(&compression, &head, head.uri.path());
                head.headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            }
        }
        if body.size_hint().lower() > route.body_limit {
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "request-body-too-large"));
        }
        if exchange.is_early() && !route.early_data.lets_pass(&head, &path.decoded, body.is_end_stream()) {
            Box::pin(exchange.hold_until_confirmed()).await;
        }
        match &route.action {
            // To the client, any 2xx would mean that it speaks to a server of its protocol.
            action if is_tunnel && !matches!(action, Prepared::Upstream { .. }) => {
                Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method"))
            }
            Prepared::Fixed { status, headers, body } => Ok(fixed(*status, headers, body)),
            Prepared::Page(page) => Ok(page.make(exchange.connection(), &head)),
            Prepared::Redirect(redirect) => redirect::answer(redirect, &head, validate::authority_of(&head)),
            // Boxed: the future of every request should be as small as the fastest answers need.
            Prepared::Static(files) if exchange.shares_connection() => {
                found(Box::pin(in_room(exchange, files.answer(&head, &path))).await)
            }
            Prepared::Static(files) => found(Box::pin(files.answer(&head, &path)).await),
            Prepared::Upstream { group, path: kept } => {
                let target = upstream_target(&head, &path, *kept, &route.path)?;
                let hinting = route
                    .hints(exchange.connection())
                    .filter(|_| hints::is_navigation(&head) && !exchange.is_early());
                let consolidated = route.stages.consolidated.as_deref();
                let hinting = hinting.and_then(|hints| {
                    let interim = exchange.interim()?.consolidating(consolidated.and_then(Consolidated::map));
                    Some(hints.begin(&head, &path.decoded, interim))
                });
                drop(path);
                let rules = route.request_headers.as_deref();
                let body_limit = route.body_limit;
                let passage =
                    Passage { service, site: self, group, body_limit, rules, hinting, consolidated };
                if is_tunnel {
                    return Box::pin(passage.tunnel(head, target, body, exchange)).await;
                }
                if route.buffer_request && !body.is_end_stream() {
                    return Box::pin(passage.gather_and_go(head, target, body, exchange)).await;
                }
                Box::pin(passage.go(head, target, body, exchange)).await
            }
        }
    }
}

impl From<Misdirected> for Refusal {
    fn from(_: Misdirected) -> Self {
        Self::new(StatusCode::MISDIRECTED_REQUEST, "misdirected")
    }
}

#[cfg(test)]
mod tests;
