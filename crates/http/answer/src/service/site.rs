//! One host with its routes, compiled from the configuration once.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use brisk_http::claims::OwnNames;
use brisk_http::message::{HeaderList, RequestParts, Response};
use brisk_http::validate::Refusal;
use brisk_http_connection::body::client::ClientBody;
use brisk_telemetry::Metrics;
use brisk_upstream::Group;
use http::{StatusCode, header};

use super::Service;
use super::action::RouteAction;
use super::answers::refuse;
use super::internal::{self, Folder};
use crate::error::ServiceError;
use crate::exchange::Exchange;
use crate::features::error_pages::ErrorHead;
use crate::features::ordered;
use crate::forwarding::Forwarding;
use crate::head_limits::size_of_fields;
use crate::own_names;
use crate::redirect;
use crate::settings::{
    ErrorPages, ErrorRoute, InternalSettings, Plain, RoutePath, RouteSettings, ServiceSettings,
    UpstreamAction,
};
use crate::stage::{ClientRequest, Groups, HostContext, RequestState, StageContext, StageTarget};
use crate::stages::RouteStages;
use crate::variables::RequestValues;
use crate::visits::{BEACON_PATH, SCRIPT_PATH};
use brisk_rules::{Conditions, Examined, Excess, Pairs, Routes};
use brisk_transform::body::Body;
use brisk_transform::names::Names;

/// One host: its names and its routes.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) names: Rc<Names>,
    /// Whether requests over plain HTTP get the responses of HTTPS.
    pub(super) serves_plain: bool,
    /// Routes of the gateway's own paths (scripts, beacons, preconnects). They take precedence over `routes`.
    reserved: Routes<Route>,
    routes: Routes<Route>,
    /// The routes again, for responses in place of errors; none without such [error pages](ErrorPages).
    error_routes: Routes<Route>,
    /// Folders of internal routes, which `X-Sendfile` names.
    folders: Vec<Folder>,
    /// Redirects of paths without a route to paths with a final slash, of upstream routes without `final_slash`.
    slashless: Routes<Route>,
    /// The route of requests without a matching path: `404`.
    missing: Route,
    /// The route of requests with an ambiguous path: `400`.
    ambiguous: Route,
    /// The routes of requests whose target or headers are too long for the conditions of a route: `414` and `431`.
    target_too_long: Route,
    headers_too_long: Route,
}

/// A compiled route: values that depend on the configuration alone are computed once, not per request.
#[derive(Debug)]
pub(super) struct Route {
    /// Conditions in addition to the path.
    conditions: Option<Arc<Conditions>>,
    /// Names that the headers and trailers of clients must not have at the upstream.
    pub(super) own_names: Rc<OwnNames>,
    pub(super) stages: RouteStages,
    pub(super) action: RouteAction,
    /// Whether clients may use the route, and its responses may lead to internal routes.
    pub(super) internal: InternalSettings,
    /// The error pages, if some of them are responses of routes.
    error_pages: Option<Arc<ErrorPages>>,
}

impl Site {
    /// Compiles the host at `index` of `all.hosts`.
    pub(super) fn new(
        index: usize,
        all: &ServiceSettings,
        forwarding: &Rc<Forwarding>,
        group: &impl Fn(&str) -> Option<Rc<Group>>,
        metrics: &Metrics,
    ) -> Result<Self, ServiceError> {
        let context = HostContext::new(index, all, (forwarding, Groups(group)))?;
        let host = context.settings;
        let compile = |(path, index): (RoutePath, usize), is_page| {
            let route = &host.routes[index];
            let action = RouteAction::new(route, group, metrics)?;
            // Checked here: for the stage, a missing group is that of an explanation.
            if let Some(auth) = route.forward_auth.as_ref().filter(|auth| group(&auth.group).is_none()) {
                return Err(ServiceError::UnknownGroup { name: auth.group.clone() });
            }
            Ok((path, Route::of(&context, route, action, is_page)))
        };
        let compile_all = |is_page| -> Result<Vec<_>, ServiceError> {
            ordered(&host.routes).map(|route| compile(route, is_page)).collect()
        };
        let mut routes = compile_all(false)?;
        // Behind other routes with exactly this path.
        routes.extend(slashless(&context, |upstream| upstream.final_slash));
        let mut pages =
            host.routes.iter().filter_map(|route| route.error_pages.as_ref()).chain(&host.error_pages);
        // Compiled only if needed: these routes have other stages than the routes of clients.
        let error_routes =
            if pages.any(|pages| pages.has_routes()) { compile_all(true)? } else { Vec::new() };
        let refuse = |refusal| Route::reserved(&context, StageTarget::Unrouted, RouteAction::Refuse(refusal));
        Ok(Self {
            routes: Routes::new(routes),
            error_routes: Routes::new(error_routes),
            folders: internal::folders(&host.routes),
            slashless: Routes::new(slashless(&context, |upstream| !upstream.final_slash)),
            reserved: Routes::new(reserved(&context)),
            missing: refuse(Refusal::new(StatusCode::NOT_FOUND, "no-route")),
            ambiguous: refuse(Refusal::bad_request("path")),
            target_too_long: refuse(Refusal::new(Excess::Query.status(), "conditions")),
            headers_too_long: refuse(Refusal::new(Excess::Headers.status(), "conditions")),
            serves_plain: context.settings.plain == Plain::Serve,
            names: context.names,
        })
    }

    /// Responds to a request for this host.
    ///
    /// Finds the route, runs the request side of its stages, performs the action unless a stage has responded, and runs
    /// the response side, for refusals too.
    pub(super) async fn answer(
        &self,
        service: &Service,
        request: &mut ClientRequest,
        exchange: &mut Exchange,
    ) -> Response<Body> {
        let mut state = RequestState::new(&request.head);
        let route = self.route(request, exchange);
        if (route.internal.redirects || route.error_pages.is_some()) && !request.is_tunnel {
            let redirects = self.answer_with_redirects(service, route, request, exchange, state);
            // Boxed: few routes need this future, and every request would have room for it.
            return Box::pin(redirects).await;
        }
        let answered = match route.stages.request(exchange, request, &mut state).await {
            Some(answered) => answered.map(|response| *response),
            None => route.act(service, self, request, exchange, &state).await,
        };
        let mut response = answered.unwrap_or_else(|refusal| refuse(refusal, state.version, exchange));
        route.stages.response(exchange, &state, &mut response);
        response
    }

    /// Responds as [`Self::answer`] by `route`, follows internal redirects, and replaces an error by the response of the route that
    /// is its page.
    async fn answer_with_redirects(
        &self,
        service: &Service,
        mut route: &Route,
        request: &mut ClientRequest,
        exchange: &mut Exchange,
        mut state: RequestState,
    ) -> Response<Body> {
        // Before the stages, which change headers for their own route. The upstream call takes the head away.
        let kept = exchange.hold_head(|| size_of_fields(&request.head.headers));
        let mut head = kept.is_ok().then(|| request.head.clone());
        let answered = route.stages.request(exchange, request, &mut state).await;
        let mut is_of_stage = answered.is_some();
        let mut answered = match (answered, kept) {
            (Some(answered), _) => answered.map(|response| *response),
            (None, Ok(())) => route.act(service, self, request, exchange, &state).await,
            (None, Err(refusal)) => Err(refusal),
        };
        let (mut headers, mut returned) = (HeaderList::new(), None);
        for count in 0.. {
            let found = answered.as_mut().ok().filter(|_| !is_of_stage);
            let (Some(response), Some(head)) = (found, &mut head) else { break };
            let target =
                if route.internal.redirects { internal::target(&self.folders, response) } else { None };
            let Some(target) = target else { break };
            internal::keep(response.headers(), &mut headers);
            // The permission for the client's route; a permission for the internal route does not replace its headers.
            returned = returned.or_else(|| exchange.returned.take());
            // Drops the replaced body before the next one begins.
            answered = Err(Refusal::new(StatusCode::BAD_GATEWAY, "internal-redirect"));
            exchange.drop_response();
            let Some(target) = target.ok().filter(|_| count < internal::MOST_REDIRECTS) else { break };
            internal::redirect(head, target);
            let mut next = ClientRequest::new(head.clone(), ClientBody::default());
            if next.is_ambiguous {
                break;
            }
            state = RequestState::new(&next.head);
            route = self.internal_route(&next, exchange);
            let of_stage = route.stages.request(exchange, &mut next, &mut state).await;
            is_of_stage = of_stage.is_some();
            answered = match of_stage {
                Some(answered) => answered.map(|response| *response),
                None => route.without_location(route.act(service, self, &mut next, exchange, &state).await),
            };
        }
        let mut response = answered.unwrap_or_else(|refusal| refuse(refusal, state.version, exchange));
        internal::add(&headers, route.has_files(), &mut response);
        if let Some(page) = route.error_route(&state, &response)
            && let Some(mut head) = head
            && let Some(target) = page.target(&RequestValues { exchange, head: &head }, &head)
        {
            returned = returned.or_else(|| exchange.returned.take());
            let error = page.head_of(&response);
            // Drops the replaced body before the next one begins.
            drop(response);
            page.prepare(&mut head);
            internal::redirect(&mut head, target);
            (route, state, response) = Box::pin(self.error_page(service, (head, error), exchange)).await;
            // The permission for the page does not replace the headers of the first one.
            if returned.is_some() {
                exchange.returned = None;
            }
        }
        route.stages.response(exchange, &state, &mut response);
        for (name, value) in returned.iter().flat_map(|returned| returned.iter()) {
            response.headers_mut().append(name, value.clone());
        }
        response
    }

    /// The response to the request with `head` in place of `error`, with its route and its state.
    async fn error_page(
        &self,
        service: &Service,
        (head, error): (RequestParts, ErrorHead),
        exchange: &mut Exchange,
    ) -> (&Route, RequestState, Response<Body>) {
        let mut request = ClientRequest::new(head, ClientBody::default());
        let mut state = RequestState::new(&request.head);
        exchange.drop_response();
        let route = self.find(&request, exchange, |path, holds| self.error_routes.find(path, holds));
        let refused = route.stages.request(exchange, &mut request, &mut state).await;
        let is_refusal = refused.is_some();
        let mut answered = match refused {
            Some(answered) => answered.map(|response| *response),
            None => route.act(service, self, &mut request, exchange, &state).await,
        };
        // A page leads to no other route.
        if let Ok(response) = &mut answered
            && route.internal.redirects
            && internal::target(&self.folders, response).is_some()
        {
            answered = Err(Refusal::new(StatusCode::BAD_GATEWAY, "internal-redirect"));
        }
        let answered = if route.internal.is_internal { route.without_location(answered) } else { answered };
        let mut response = answered.unwrap_or_else(|refusal| refuse(refusal, state.version, exchange));
        error.complete(is_refusal, &mut response);
        (route, state, response)
    }

    fn route(&self, request: &ClientRequest, exchange: &Exchange) -> &Route {
        let found = self.find(request, exchange, |path, holds| {
            // A tunnel (RFC 8441) carries no HTTP content, so it never reaches the reserved paths.
            let reserved = if request.is_tunnel { None } else { self.reserved.find(path, |_| true) };
            reserved.or_else(|| self.routes.find(path, holds)).or_else(|| self.slashless.find(path, holds))
        });
        if found.internal.is_internal { &self.missing } else { found }
    }

    /// The internal route of a redirected request; the route of requests without one if there is none.
    fn internal_route(&self, request: &ClientRequest, exchange: &Exchange) -> &Route {
        self.find(request, exchange, |path, holds| {
            self.routes.find(path, |route| route.internal.is_internal && holds(route))
        })
    }

    /// The route that `find` returns for a path and a function that evaluates the conditions of a route, or the route of a
    /// refusal.
    fn find<'s>(
        &'s self,
        request: &ClientRequest,
        exchange: &Exchange,
        find: impl FnOnce(&[u8], &dyn Fn(&Route) -> bool) -> Option<&'s Route>,
    ) -> &'s Route {
        if request.is_ambiguous {
            return &self.ambiguous;
        }
        let path = request.path().decoded;
        let examined = Examined {
            method: &request.head.method,
            is_tunnel: request.is_tunnel,
            path: &path,
            query: request.head.uri.query(),
            headers: &request.head.headers,
            // From any source: a route with networks waits for the handshake.
            client: exchange.client().ip(),
            pairs: Pairs::default(),
        };
        let excess = Cell::new(None);
        let holds = |route: &Route| {
            // A WebSocket does not follow redirects, and the route of the path itself may be its upstream.
            if request.is_tunnel && matches!(route.action, RouteAction::FinalSlash(_)) {
                return false;
            }
            let Some(conditions) = &route.conditions else { return true };
            conditions.hold(&examined).unwrap_or_else(|part| {
                // The search ends: a further route could lack the condition that protects the path.
                excess.set(Some(part));
                true
            })
        };
        let found = find(&path, &holds).unwrap_or(&self.missing);
        match excess.get() {
            None => found,
            Some(Excess::Path | Excess::Query) => &self.target_too_long,
            Some(Excess::Headers) => &self.headers_too_long,
        }
    }
}

impl Route {
    /// A configured route; `is_page` for responses in place of errors.
    fn of(context: &HostContext<'_>, route: &RouteSettings, action: RouteAction, is_page: bool) -> Self {
        let is_internal = route.internal.is_internal || is_page;
        let target = if is_internal { StageTarget::Internal(route) } else { StageTarget::Route(route) };
        let stages = RouteStages::compile(&StageContext { host: Some(context), target });
        let own_names = Rc::new(own_names::of_upstream(context.settings, route));
        let error_pages = with_routes(route.error_pages.as_ref());
        Self {
            conditions: route.conditions.clone(),
            own_names,
            stages,
            action,
            internal: route.internal,
            error_pages,
        }
    }

    /// The route whose response replaces an error.
    fn error_route(&self, state: &RequestState, response: &Response<Body>) -> Option<&Arc<ErrorRoute>> {
        self.error_pages.as_ref().filter(|_| !state.is_in_maintenance)?.route(response)
    }

    fn has_files(&self) -> bool {
        matches!(self.action, RouteAction::Files(_))
    }

    /// `answered`, or 404 in place of a redirect to the final slash of a folder: it would name the path of the internal route.
    fn without_location(&self, answered: Result<Response<Body>, Refusal>) -> Result<Response<Body>, Refusal> {
        match answered {
            Ok(response) if self.has_files() && response.headers().contains_key(header::LOCATION) => {
                Err(Refusal::new(StatusCode::NOT_FOUND, "no-file"))
            }
            answered => answered,
        }
    }

    /// A route for a reserved path or a refusal.
    fn reserved(context: &HostContext<'_>, target: StageTarget<'_>, action: RouteAction) -> Self {
        let stages = RouteStages::compile(&StageContext { host: Some(context), target });
        let internal = InternalSettings::default();
        let pages = context.settings.error_pages.as_ref().filter(|_| matches!(target, StageTarget::Unrouted));
        Self {
            conditions: None,
            own_names: Rc::default(),
            stages,
            action,
            internal,
            error_pages: with_routes(pages),
        }
    }
}

/// The error pages, if some of them are responses of routes.
fn with_routes(pages: Option<&Arc<ErrorPages>>) -> Option<Arc<ErrorPages>> {
    pages.filter(|pages| pages.has_routes()).cloned()
}

/// Redirects to the final slash of upstream routes, with the conditions of the routes. Their other stages are those of the host:
/// they disclose no more than a 404.
fn slashless(context: &HostContext<'_>, is_one: impl Fn(&UpstreamAction) -> bool) -> Vec<(RoutePath, Route)> {
    let routes = ordered(&context.settings.routes).map(|(_, index)| &context.settings.routes[index]);
    let routes = routes.filter(|route| route.action.upstream().is_some_and(&is_one));
    let redirects = routes.filter_map(|route| {
        let (path, location) = redirect::slashless(route)?;
        let redirect = Route::reserved(context, StageTarget::Unrouted, RouteAction::FinalSlash(location));
        Some((RoutePath::Exact(path), Route { conditions: route.conditions.clone(), ..redirect }))
    });
    redirects.collect()
}

/// Routes of the paths that the gateway serves itself.
fn reserved(context: &HostContext<'_>) -> Vec<(RoutePath, Route)> {
    let mut routes = Vec::new();
    let mut add = |path: &str, target, action| {
        routes.push((RoutePath::Exact(path.to_owned()), Route::reserved(context, target, action)));
    };
    if let Some(preconnect) = &context.settings.preconnect {
        add(&preconnect.path, StageTarget::Preconnect(preconnect), RouteAction::preconnect());
    }
    if let Some(visits) = &context.visits {
        add(SCRIPT_PATH, StageTarget::Script, RouteAction::Script);
        add(BEACON_PATH, StageTarget::Beacon, RouteAction::Beacon(Rc::clone(visits)));
    }
    routes
}
