//! Access control of hosts and routes: networks, client certificates, passwords and tokens.

mod keys;
mod resolve;
mod resolve_tokens;
mod settings;
pub(crate) mod stage;
mod token_keys;

use std::sync::Arc;

use brisk_access::NetworkRules;

use super::{Context, HostFeature, HostScope, RouteFeature, RouteScope};
pub use keys::{AccessKeys, NetworkKeys};
pub(crate) use resolve::restricts_networks;
pub use settings::{AccessSettings, BasicAuth, TokenAuth};

/// `allow`, `deny`, `client_certificate`, `basic_auth`, `jwt` and `satisfy` of routes.
#[derive(Debug)]
pub struct AccessFeature;

impl RouteFeature for AccessFeature {
    type Keys = AccessKeys;
    type Settings = AccessSettings;

    fn resolve(keys: &AccessKeys, route: &RouteScope<'_>, context: &mut Context<'_>) -> AccessSettings {
        resolve::of_route(keys, route, context)
    }
}

/// `allow` and `deny` of hosts.
#[derive(Debug)]
pub struct NetworksFeature;

impl HostFeature for NetworksFeature {
    type Keys = NetworkKeys;
    type Settings = Option<Arc<NetworkRules>>;

    fn resolve(
        keys: &NetworkKeys,
        host: &HostScope<'_>,
        context: &mut Context<'_>,
    ) -> Option<Arc<NetworkRules>> {
        resolve::of_host(keys, host, context)
    }
}
