//! Headers: rules of routes, tables of values for them, and headers of all responses of a host.

pub(crate) mod host_stage;
mod keys;
mod map_keys;
mod maps;
mod resolve;
pub(crate) mod rules_stage;

use std::time::Duration;

use brisk_rules::{HostHeaders, RouteHeaders};
use http::HeaderValue;

use super::{Context, HostFeature, HostScope, RouteFeature, RouteScope};
pub use keys::{HeaderRules as WrittenRules, HeaderRulesKeys, HostHeadersKeys};
pub use map_keys::Map;
pub use maps::maps;
pub(crate) use resolve::name;
pub use resolve::of_server;

/// Headers of all responses of a host.
#[derive(Clone, Debug, Default)]
pub struct HostHeaderSettings {
    /// Strict Transport Security. Default: none.
    pub hsts: Option<HstsSettings>,
    /// Headers added to responses that do not contain them. Default: none.
    pub others: HostHeaders,
    /// Rules of the host and of the server, for routes in addition to their own, and for requests without a route.
    pub rules: RouteHeaders,
}

/// Strict Transport Security (RFC 6797).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HstsSettings {
    /// Duration for which clients use HTTPS only.
    pub max_age: Duration,
    /// Whether the policy includes all subdomains.
    pub include_subdomains: bool,
    /// Whether browsers may add the host to their preload lists.
    pub preload: bool,
}

impl HstsSettings {
    /// The value of `Strict-Transport-Security` (RFC 6797 section 6.1).
    pub(crate) fn value(self) -> HeaderValue {
        let mut value = format!("max-age={}", self.max_age.as_secs());
        if self.include_subdomains {
            value.push_str("; includeSubDomains");
        }
        if self.preload {
            value.push_str("; preload");
        }
        HeaderValue::try_from(value).expect("digits and fixed words")
    }
}

/// `request_headers` and `response_headers` of routes.
#[derive(Debug)]
pub struct HeaderRulesFeature;

impl RouteFeature for HeaderRulesFeature {
    type Keys = HeaderRulesKeys;
    type Settings = RouteHeaders;

    fn resolve(keys: &HeaderRulesKeys, route: &RouteScope<'_>, context: &mut Context<'_>) -> RouteHeaders {
        resolve::of_route(keys, route, context)
    }
}

/// `hsts`, `security_headers` and header rules of hosts.
#[derive(Debug)]
pub struct HostHeadersFeature;

impl HostFeature for HostHeadersFeature {
    type Keys = HostHeadersKeys;
    type Settings = HostHeaderSettings;

    fn resolve(
        keys: &HostHeadersKeys,
        host: &HostScope<'_>,
        context: &mut Context<'_>,
    ) -> HostHeaderSettings {
        resolve::of_host(keys, host, context)
    }
}
