//! Timeouts of idle connections, and the endpoint for connections that pages open in advance.

mod keys;
mod resolve;
pub(crate) mod stage;

use brisk_http_connection::keep_alive::KeepAlive;

use super::{Context, HostFeature, HostScope, RouteFeature, RouteScope};
pub use keys::{KeepAliveKeys, PreconnectKeys};

/// An endpoint with an empty 204 response, with which a page opens a connection before it needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preconnect {
    /// Path of the endpoint. Takes precedence over routes.
    pub path: String,
    /// Timeouts of connections opened with this endpoint.
    pub keep_alive: KeepAlive,
}

/// `keep_alive` of hosts and routes.
#[derive(Debug)]
pub struct KeepAliveFeature;

impl HostFeature for KeepAliveFeature {
    type Keys = KeepAliveKeys;
    type Settings = Option<KeepAlive>;

    fn resolve(keys: &KeepAliveKeys, host: &HostScope<'_>, context: &mut Context<'_>) -> Option<KeepAlive> {
        let written = keys.keep_alive.as_ref()?;
        Some(resolve::settings(written, &host.key("keep_alive"), context))
    }
}

impl RouteFeature for KeepAliveFeature {
    type Keys = KeepAliveKeys;
    type Settings = Option<KeepAlive>;

    fn resolve(keys: &KeepAliveKeys, route: &RouteScope<'_>, context: &mut Context<'_>) -> Option<KeepAlive> {
        let own = keys.keep_alive.as_ref();
        own.map(|written| resolve::settings(written, &route.key("keep_alive"), context))
            .or(route.host.settings.keep_alive)
    }
}

/// `preconnect` of hosts.
#[derive(Debug)]
pub struct PreconnectFeature;

impl HostFeature for PreconnectFeature {
    type Keys = PreconnectKeys;
    type Settings = Option<Preconnect>;

    fn resolve(keys: &PreconnectKeys, host: &HostScope<'_>, context: &mut Context<'_>) -> Option<Preconnect> {
        Some(resolve::preconnect(keys.preconnect.as_ref()?, host, context))
    }
}
