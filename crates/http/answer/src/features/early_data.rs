//! Early data: requests that may get a response before the TLS handshake is complete (RFC 8470).

mod keys;
mod resolve;
pub(crate) mod stage;

use brisk_rules::EarlyDataPolicy;

use super::{Context, HostFeature, HostScope, RouteFeature, RouteScope};
pub use keys::{EarlyData, EarlyDataKeys};

/// `early_data` of hosts and routes.
#[derive(Debug)]
pub struct EarlyDataFeature;

impl HostFeature for EarlyDataFeature {
    type Keys = EarlyDataKeys;
    type Settings = EarlyDataPolicy;

    fn resolve(keys: &EarlyDataKeys, host: &HostScope<'_>, context: &mut Context<'_>) -> EarlyDataPolicy {
        resolve::of_host(keys, host, context)
    }
}

impl RouteFeature for EarlyDataFeature {
    type Keys = EarlyDataKeys;
    type Settings = EarlyDataPolicy;

    fn resolve(keys: &EarlyDataKeys, route: &RouteScope<'_>, context: &mut Context<'_>) -> EarlyDataPolicy {
        resolve::of_route(keys, route, context)
    }
}
