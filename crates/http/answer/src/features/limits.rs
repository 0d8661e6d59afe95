//! Limits of rate and concurrency, and timeouts of requests to upstreams.

mod keys;
mod resolve;
mod settings;
pub(crate) mod stage;

use std::sync::Arc;

use super::{Context, HostFeature, HostScope, RouteFeature, RouteScope};
pub use keys::{Limit, LimitsKeys, TimeoutsKeys};
pub use resolve::limits;
pub use settings::{LimitKey, RequestLimit, RouteTimeouts};

/// `limits` of hosts and routes.
#[derive(Debug)]
pub struct LimitsFeature;

impl HostFeature for LimitsFeature {
    type Keys = LimitsKeys;
    type Settings = Arc<[RequestLimit]>;

    fn resolve(keys: &LimitsKeys, host: &HostScope<'_>, context: &mut Context<'_>) -> Arc<[RequestLimit]> {
        resolve::named(keys.limits.as_deref().unwrap_or_default(), host.path, context)
    }
}

impl RouteFeature for LimitsFeature {
    type Keys = LimitsKeys;
    type Settings = Arc<[RequestLimit]>;

    fn resolve(keys: &LimitsKeys, route: &RouteScope<'_>, context: &mut Context<'_>) -> Arc<[RequestLimit]> {
        match &keys.limits {
            Some(names) => resolve::named(names, route.path, context),
            None => Arc::clone(&route.host.settings.limits),
        }
    }
}

/// `timeouts` of hosts and routes.
#[derive(Debug)]
pub struct TimeoutsFeature;

impl HostFeature for TimeoutsFeature {
    type Keys = TimeoutsKeys;
    type Settings = RouteTimeouts;

    fn resolve(keys: &TimeoutsKeys, host: &HostScope<'_>, context: &mut Context<'_>) -> RouteTimeouts {
        resolve::timeouts(keys, &host.key("timeouts"), RouteTimeouts::default(), context)
    }
}

impl RouteFeature for TimeoutsFeature {
    type Keys = TimeoutsKeys;
    type Settings = RouteTimeouts;

    fn resolve(keys: &TimeoutsKeys, route: &RouteScope<'_>, context: &mut Context<'_>) -> RouteTimeouts {
        let path = route.key("timeouts");
        if context.findings.written(&path) && !route.has_upstream() {
            context.findings.wrong(&path, "has no effect without `upstream`");
        }
        resolve::timeouts(keys, &path, route.host.settings.timeouts, context)
    }
}
