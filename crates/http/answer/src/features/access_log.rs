//! Requests without a line in the access log, such as checks of load balancers.

mod keys;

use super::{Context, HostFeature, HostScope, RouteFeature, RouteScope};
use crate::exchange::Exchange;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};
pub use keys::AccessLogKeys;

/// `access_log` of hosts and routes. The setting is whether requests are omitted.
#[derive(Debug)]
pub struct AccessLogFeature;

impl HostFeature for AccessLogFeature {
    type Keys = AccessLogKeys;
    type Settings = bool;

    fn resolve(keys: &AccessLogKeys, _: &HostScope<'_>, _: &mut Context<'_>) -> bool {
        keys.access_log == Some(false)
    }
}

impl RouteFeature for AccessLogFeature {
    type Keys = AccessLogKeys;
    type Settings = bool;

    fn resolve(keys: &AccessLogKeys, route: &RouteScope<'_>, _: &mut Context<'_>) -> bool {
        keys.access_log.map_or(route.host.settings.is_unlogged, |is_logged| !is_logged)
    }
}

/// Omits requests from the access log. Compiled if the route has the setting, or, for requests without a route, the host.
#[derive(Debug)]
pub(crate) struct UnloggedStage;

impl Stage for UnloggedStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        let is_unlogged = match context.first_route() {
            Some(route) => route.is_unlogged,
            None => context.unrouted_host()?.is_unlogged,
        };
        is_unlogged.then_some(Self)
    }

    fn request(&self, exchange: &mut Exchange, _: &mut ClientRequest, _: &mut RequestState) -> Flow {
        exchange.omit_from_log();
        Flow::Continue
    }
}
