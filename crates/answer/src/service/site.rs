//! One host: its routes, each compiled from the configuration once.

use std::rc::Rc;
use std::sync::Arc;

use brisk_http::validate::Refusal;
use brisk_trials::HostExperiments;
use brisk_upstream::Group;
use http::{Response, StatusCode};
use ipnet::IpNet;

use super::Service;
use super::action::RouteAction;
use super::answers::refuse;
use crate::body::Body;
use crate::error::ServiceError;
use crate::exchange::Exchange;
use crate::hosts::Names;
use crate::route::Routes;
use crate::settings::{RoutePath, RouteSettings, ServiceSettings};
use crate::stage::{ClientRequest, HostContext, RequestState, StageContext, StageTarget};
use crate::stages::RouteStages;
use crate::visits::{BEACON_PATH, SCRIPT_PATH, SiteVisits};

/// One host: its routes, and its names.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) names: Rc<Names>,
    /// Paths that brisk answers itself; they take precedence over `routes`.
    reserved: Routes<Route>,
    routes: Routes<Route>,
    /// The route of requests whose path no route takes.
    missing: Route,
    /// The route of requests whose path is ambiguous.
    ambiguous: Route,
}

/// A route, compiled: nothing that depends on the configuration alone is computed for a request.
#[derive(Debug)]
pub(super) struct Route {
    /// The configured path; empty for routes that are not configured.
    pub(super) path: Arc<str>,
    pub(super) stages: RouteStages,
    pub(super) action: RouteAction,
}

impl Site {
    /// The host with this index in the settings.
    pub(super) fn new(
        index: usize,
        all: &ServiceSettings,
        trusted: &Rc<[IpNet]>,
        group: &impl Fn(&str) -> Option<Rc<Group>>,
    ) -> Result<Self, ServiceError> {
        let host = &all.hosts[index];
        let experiments = Rc::new(HostExperiments::new(&all.experiments, index));
        let measured = host.visits.as_ref().zip(all.beacons.as_ref());
        let context = HostContext {
            settings: host,
            names: Rc::new(Names::new(&host.tls.names)?.with(host.tls.on_demand.as_ref())),
            experiments: Rc::clone(&experiments),
            visits: measured.map(|(visits, beacons)| {
                SiteVisits::new(visits, beacons, host.tls.names.first(), experiments.ids(), trusted)
            }),
        };
        let routes = host.routes.iter().map(|route| {
            let action = RouteAction::new(route, group)?;
            Ok((route.path.clone(), Route::of(&context, route, action)))
        });
        let routes: Result<Vec<_>, ServiceError> = routes.collect();
        let refuse = |refusal| Route::reserved(&context, StageTarget::Unrouted, RouteAction::Refuse(refusal));
        Ok(Self {
            routes: Routes::new(routes?),
            reserved: Routes::new(reserved(&context)),
            missing: refuse(Refusal::new(StatusCode::NOT_FOUND, "no-route")),
            ambiguous: refuse(Refusal::bad_request("path")),
            names: context.names,
        })
    }

    /// Responds to a request for this host: finds the route, runs the request side of its stages, acts unless a stage has
    /// answered, and runs the response side.
    pub(super) async fn answer(
        &self,
        service: &Service,
        request: &mut ClientRequest,
        exchange: &mut Exchange,
    ) -> Response<Body> {
        let mut state = RequestState::new(&request.head);
        let route = self.route(request);
        let answered = match route.stages.request(exchange, request, &mut state).await {
            Some(answered) => answered.map(|response| *response),
            None => route.act(service, self, request, exchange, &state).await,
        };
        let mut response = answered.unwrap_or_else(|refusal| refuse(refusal, state.version, exchange));
        route.stages.response(exchange, &state, &mut response);
        response
    }

    fn route(&self, request: &ClientRequest) -> &Route {
        if request.is_ambiguous {
            return &self.ambiguous;
        }
        let path = request.path().decoded;
        // A tunnel has no business at the paths that brisk answers itself.
        let reserved = if request.is_tunnel { None } else { self.reserved.find(&path) };
        reserved.or_else(|| self.routes.find(&path)).unwrap_or(&self.missing)
    }
}

impl Route {
    fn of(context: &HostContext<'_>, route: &RouteSettings, action: RouteAction) -> Self {
        let stages =
            RouteStages::compile(&StageContext { host: Some(context), target: StageTarget::Route(route) });
        Self { path: route.path.as_str().into(), stages, action }
    }

    /// A route that is not configured.
    fn reserved(context: &HostContext<'_>, target: StageTarget<'_>, action: RouteAction) -> Self {
        let stages = RouteStages::compile(&StageContext { host: Some(context), target });
        Self { path: Arc::default(), stages, action }
    }
}

/// The routes of the paths that brisk answers itself.
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
