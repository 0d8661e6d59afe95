//! `X-Real-IP`: the address of the client in a header for upstreams that read one address, without a list of proxies.

mod keys;

use brisk_http::message::HeaderList;
use http::header::HeaderName;

use super::{Context, HostFeature, HostScope, RouteFeature, RouteScope};
use crate::exchange::Exchange;
use crate::forwarding;
use crate::stage::{RequestState, Stage, StageContext};
pub use keys::RealIpKeys;

/// Name of the header.
pub(crate) static REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");

/// `x_real_ip` of hosts and routes.
#[derive(Debug)]
pub struct RealIpFeature;

impl HostFeature for RealIpFeature {
    type Keys = RealIpKeys;
    type Settings = bool;

    fn resolve(keys: &RealIpKeys, _: &HostScope<'_>, _: &mut Context<'_>) -> bool {
        keys.x_real_ip.unwrap_or_default()
    }
}

impl RouteFeature for RealIpFeature {
    type Keys = RealIpKeys;
    type Settings = bool;

    fn resolve(keys: &RealIpKeys, route: &RouteScope<'_>, _: &mut Context<'_>) -> bool {
        keys.x_real_ip.unwrap_or(route.host.settings.real_ip)
    }
}

/// Sends the address of the client to the upstream. Compiled if the route has the setting.
#[derive(Debug)]
pub(crate) struct RealIpStage;

impl Stage for RealIpStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        context.route()?.real_ip.then_some(Self)
    }

    fn forward(&self, exchange: &Exchange, _: &RequestState, headers: &mut HeaderList) {
        headers.insert(&REAL_IP, forwarding::value(exchange.client().ip().to_string()));
    }
}
