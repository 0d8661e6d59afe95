//! Features of hosts and routes. A feature is one folder: its keys in the configuration, their resolution into settings, and its
//! stage or rule.
//!
//! The lists `route_features!` and `host_features!` form the tables `[[host.route]]` and `[[host]]` and their settings. The
//! order of the stages is in `crate::stages`, and the order of the lists has no effect.

pub mod access;
pub mod access_log;
pub mod action;
pub mod bandwidth;
pub mod body;
pub mod client_certificates;
pub mod compression;
pub mod conditions;
pub mod consolidation;
mod context;
pub mod early_data;
pub mod early_hints;
pub mod error_pages;
pub mod forward_auth;
pub mod headers;
pub mod internal;
pub mod keep_alive;
pub mod limits;
pub mod maintenance;
pub mod media_types;
pub mod mirror;
pub mod plain;
pub mod priority;
pub mod real_ip;
pub mod replace_text;
pub mod response_urls;
pub mod signed_links;
pub mod split;
pub mod trace;
pub mod visits;

use std::fmt;
use std::sync::Arc;

use brisk_config_file::{KeyPath, table_of_parts};
use brisk_rules::{RouteHeaders, RoutePath};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use self::action::{Action, ActionKeys};
pub use self::body::BodySettings;
pub use self::context::{Context, TIMEOUTS};
use self::response_urls::{Locations, ResponseUrlsSettings};
pub use self::trace::Trace;
use crate::alt_svc::AltSvc;

/// A feature of routes.
pub trait RouteFeature {
    /// The keys of the feature in `[[host.route]]`, as written: a struct that refuses unknown keys. The comment of a field is the
    /// meaning of the key in `docs/configuration.md`.
    type Keys: Clone + fmt::Debug + Default + DeserializeOwned;
    /// The settings of one route. The default is that of a route without the keys.
    type Settings: Clone + fmt::Debug + Default;

    /// Resolves the keys of one route. All mistakes are added to the findings of `context`; the settings of a mistaken route are not
    /// used.
    fn resolve(keys: &Self::Keys, route: &RouteScope<'_>, context: &mut Context<'_>) -> Self::Settings;
}

/// A feature of hosts.
pub trait HostFeature {
    /// The keys of the feature in `[[host]]`, as written: a struct that refuses unknown keys. The comment of a field is the meaning
    /// of the key in `docs/configuration.md`.
    type Keys: Clone + fmt::Debug + Default + DeserializeOwned;
    /// The settings of one host. The default is that of a host without the keys.
    type Settings: Clone + fmt::Debug + Default;

    /// Resolves the keys of one host, and adds all mistakes to the findings of `context`.
    fn resolve(keys: &Self::Keys, host: &HostScope<'_>, context: &mut Context<'_>) -> Self::Settings;
}

/// The route whose keys are resolved.
#[derive(Clone, Copy, Debug)]
pub struct RouteScope<'a> {
    /// All keys of the route.
    pub keys: &'a RouteKeys,
    /// The host of the route.
    pub host: &'a HostScope<'a>,
    /// Position of the route in the file.
    pub path: &'a KeyPath,
    /// The paths of the route, unless the key is mistaken.
    pub route_path: Option<&'a RoutePath>,
}

impl RouteScope<'_> {
    /// Position of a key of the route.
    pub fn key(&self, key: &str) -> KeyPath {
        self.path.key(key)
    }

    /// Whether the route forwards requests to an upstream: all, or those without a file.
    pub fn has_upstream(&self) -> bool {
        self.keys.action.any_upstream().is_some()
    }
}

/// The host whose keys are resolved.
#[derive(Clone, Copy, Debug)]
pub struct HostScope<'a> {
    /// All keys of the host.
    pub keys: &'a HostKeys,
    /// Position of the host in the file.
    pub path: &'a KeyPath,
    /// Settings of the features that were resolved before: of all features of the host, while its routes are resolved.
    pub settings: &'a HostSettings,
}

impl HostScope<'_> {
    /// Position of a key of the host.
    pub fn key(&self, key: &str) -> KeyPath {
        self.path.key(key)
    }
}

/// Keys of `[[host.route]]` about the requests that use the route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathKeys {
    /// Path of the route, starts with `/`.
    pub path: String,
    /// Restriction to this path, without the paths below it.
    #[serde(default)]
    pub exact: bool,
}

/// Keys of `[[host]]` that are no feature.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteKeys {
    /// Names of the host: `"example.com"`, or `"*.example.com"` for all names with one more label. An exact name takes
    /// precedence over a wildcard.
    pub names: Vec<String>,
    /// The routes of the host.
    #[serde(default)]
    pub route: Vec<RouteKeys>,
}

/// Defines [`RouteKeys`] and [`RouteSettings`] with one field for each feature.
macro_rules! route_features {
    ($($(#[$about:meta])* $name:ident: $feature:ty,)*) => {
        table_of_parts! {
            /// `[[host.route]]` as written.
            #[derive(Clone, Debug, Default)]
            pub struct RouteKeys {
                /// The requests that use the route.
                pub paths: PathKeys,
                /// The response.
                pub action: ActionKeys,
                $($(#[$about])* pub $name: <$feature as RouteFeature>::Keys,)*
            }
        }

        /// The paths of a route, the action for their requests, and the settings of each feature.
        #[derive(Clone, Debug)]
        pub struct RouteSettings {
            /// Paths of the requests that use this route.
            pub path: RoutePath,
            /// The action that produces the response.
            pub action: Action,
            $($(#[$about])* pub $name: <$feature as RouteFeature>::Settings,)*
        }

        impl RouteSettings {
            /// A route with the default of every setting: no limit on bodies, no early data, no compression.
            pub fn new(path: RoutePath, action: Action) -> Self {
                Self { path, action, $($name: Default::default(),)* }
            }

            /// Resolves all features of a route. `None` if the route has no right path or action.
            fn resolve(route: &RouteScope<'_>, action: Option<Action>, context: &mut Context<'_>) -> Option<Self> {
                $(let $name = <$feature as RouteFeature>::resolve(&route.keys.$name, route, context);)*
                // Last, so that all mistakes of the route are reported.
                Some(Self { path: route.route_path?.clone(), action: action?, $($name,)* })
            }
        }
    };
}

/// Defines [`HostKeys`] and [`HostSettings`] with one field for each feature.
macro_rules! host_features {
    ($($(#[$about:meta])* $name:ident: $feature:ty,)*) => {
        table_of_parts! {
            /// Names, routes and features of `[[host]]` as written.
            #[derive(Clone, Debug, Default)]
            pub struct HostKeys {
                /// Names and routes.
                pub site: SiteKeys,
                $($(#[$about])* pub $name: <$feature as HostFeature>::Keys,)*
            }
        }

        /// The settings of one host.
        #[derive(Clone, Debug)]
        pub struct HostSettings {
            /// Names, certificates and requirements for clients. A client may request another host on its connection only if
            /// the certificates of the first cover the name of the other and both have equal requirements (RFC 9110 section
            /// 7.4).
            pub tls: brisk_tls::HostSettings,
            /// Statement about HTTP/3 in responses. Default: none.
            pub alt_svc: Option<AltSvc>,
            /// The routes. Without a matching route, the response is 404.
            pub routes: Vec<RouteSettings>,
            $($(#[$about])* pub $name: <$feature as HostFeature>::Settings,)*
        }

        impl HostSettings {
            /// A host with the names and certificates of `tls`, without routes; all other settings have their defaults.
            pub fn new(tls: brisk_tls::HostSettings) -> Self {
                Self { tls, alt_svc: None, routes: Vec::new(), $($name: Default::default(),)* }
            }

            fn resolve_features(&mut self, keys: &HostKeys, path: &KeyPath, context: &mut Context<'_>) {
                $(
                    // Within the loop: a feature may read the settings of the features before it.
                    let host = HostScope { keys, path, settings: self };
                    self.$name = <$feature as HostFeature>::resolve(&keys.$name, &host, context);
                )*
            }
        }
    };
}

route_features! {
    /// Conditions beside the path; a request that does not meet them uses the next route. Default: none.
    conditions: conditions::ConditionsFeature,
    /// Limit and buffering of request bodies.
    body: body::BodyFeature,
    /// Another upstream group for a share of the visitors. Default: none.
    split: split::SplitFeature,
    /// Another upstream group that gets copies of requests. Default: none.
    mirror: mirror::MirrorFeature,
    /// Requests that get a response before the handshake is complete. Default: none. The host must accept early data.
    early_data: early_data::EarlyDataFeature,
    /// Compression of responses. Default: none.
    compression: compression::CompressionFeature,
    /// Changes to the headers of requests for upstreams, and of responses. Default: none.
    headers: headers::HeaderRulesFeature,
    /// Pages for error responses. Default: none.
    error_pages: error_pages::ErrorPagesFeature,
    /// Early hints (103) for pages, upstream routes only. Default: none.
    early_hints: early_hints::EarlyHintsFeature,
    /// The origin that the route serves, and the translation of URLs.
    consolidation: consolidation::ConsolidationFeature,
    /// Keep-alive settings of connections after requests of this route. Default: those of the server.
    keep_alive: keep_alive::KeepAliveFeature,
    /// Clients that may use the route. Default: all that the host permits.
    access: access::AccessFeature,
    /// Server that decides about each request. Default: none.
    forward_auth: forward_auth::ForwardAuthFeature,
    /// Signature and expiry that requests need. Default: none.
    signed_links: signed_links::SignedLinksFeature,
    /// Texts that are replaced in responses. Default: none.
    replace_text: replace_text::ReplaceTextFeature,
    /// Limits of rate and concurrency. Default: none.
    limits: limits::LimitsFeature,
    /// Trace context for upstreams and the access log. Default: none, headers of clients are passed on.
    trace: trace::TraceFeature,
    /// `X-Real-IP` for upstreams.
    real_ip: real_ip::RealIpFeature,
    /// Order of refusal in an overload. Default: normal.
    priority: priority::PriorityFeature,
    /// Timeouts of requests to an upstream. Default: those of the upstream.
    timeouts: limits::TimeoutsFeature,
    /// Pace of each response. Default: no limit.
    bandwidth: bandwidth::BandwidthFeature,
    /// Outputs of the access log that get the lines of requests.
    log_outputs: access_log::AccessLogFeature,
    /// Whether the route is internal, or leads to internal ones.
    internal: internal::InternalFeature,
    /// Media types of files in place of the usual ones. Default: none.
    media_types: media_types::MediaTypesFeature,
    /// URLs and cookies in the responses of the upstream. Default: URLs of its servers become paths of the route.
    response_urls: response_urls::ResponseUrlsFeature,
}

host_features! {
    /// Client certificates sent to upstreams. Default: none. [`brisk_tls`] must be configured to keep them.
    client_certificates: client_certificates::ClientCertificatesFeature,
    /// Strict Transport Security, and headers added to responses that do not contain them. Default: none.
    headers: headers::HostHeadersFeature,
    /// Requests that get a response before the handshake is complete, for routes without a setting of their own.
    early_data: early_data::EarlyDataFeature,
    /// Compression of the responses of routes without a setting of their own. Default: none.
    compression: compression::CompressionFeature,
    /// Maintenance that a file switches on. Default: none.
    maintenance: maintenance::MaintenanceFeature,
    /// Pages for requests without a route, and for routes. Default: none.
    error_pages: error_pages::ErrorPagesFeature,
    /// Keep-alive settings of routes without settings of their own. Default: those of the server.
    keep_alive: keep_alive::KeepAliveFeature,
    /// Endpoint for connections that pages open in advance. Default: none.
    preconnect: keep_alive::PreconnectFeature,
    /// `Server-Timing` in responses. Default: none.
    server_timing: visits::ServerTimingFeature,
    /// Measurement of visits. Default: none.
    visits: visits::VisitsFeature,
    /// Trace context of routes without a setting of their own. Default: none.
    trace: trace::TraceFeature,
    /// `X-Real-IP` for the upstreams of routes without a setting of their own.
    real_ip: real_ip::RealIpFeature,
    /// Priority of routes without one of their own. Default: normal.
    priority: priority::PriorityFeature,
    /// Other origins served below paths of this host. Default: none.
    consolidation: consolidation::ConsolidationFeature,
    /// Limit and buffering of request bodies of routes without settings of their own.
    body: body::BodyFeature,
    /// Timeouts of requests to upstreams for routes without timeouts of their own. Default: those of the upstream.
    timeouts: limits::TimeoutsFeature,
    /// Networks of clients that may send requests, for routes without networks of their own, and for all other paths.
    /// Default: all networks.
    networks: access::NetworksFeature,
    /// Limits of requests without a route, and of routes without limits of their own. Default: none.
    limits: limits::LimitsFeature,
    /// Responses over plain HTTP. Default: a redirect to HTTPS.
    plain: plain::PlainFeature,
    /// Outputs of the access log for requests without a setting of their route.
    log_outputs: access_log::AccessLogFeature,
    /// Media types of files in place of the usual ones. Default: none.
    media_types: media_types::MediaTypesFeature,
}

/// Resolves the features and routes of a host, whose table is at `path`. Mistaken routes are omitted.
pub fn host(
    keys: &HostKeys,
    tls: brisk_tls::HostSettings,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> HostSettings {
    let mut settings = HostSettings::new(tls);
    settings.resolve_features(keys, path, context);
    let host = HostScope { keys, path, settings: &settings };
    // After the features of the host, whose settings the routes inherit.
    let mut routes = action::routes(&host, context);
    // Taken out, because the context is also that of the next host.
    let added = std::mem::take(&mut context.added_routes);
    routes.extend(added.into_iter().map(|route| inheriting(route, &settings)));
    settings.routes = routes;
    settings
}

/// A route that a feature of the host adds, with the defaults of the host.
fn inheriting(route: RouteSettings, host: &HostSettings) -> RouteSettings {
    RouteSettings {
        body: BodySettings { buffers: false, ..host.body },
        compression: host.compression.clone(),
        keep_alive: host.keep_alive,
        error_pages: host.error_pages.clone(),
        limits: Arc::clone(&host.limits),
        timeouts: host.timeouts,
        // The consolidation translates URLs of its origins.
        response_urls: ResponseUrlsSettings { locations: Locations::Unchanged, cookies: None },
        trace: host.trace,
        real_ip: host.real_ip,
        log_outputs: host.log_outputs,
        priority: host.priority,
        // Values for requests are for the site's own upstreams, and may be secrets.
        headers: RouteHeaders {
            requests: host.headers.rules.requests.as_ref().map(|rules| Arc::new(rules.without_values())),
            responses: host.headers.rules.responses.clone(),
        },
        ..route
    }
}

/// Paths of the routes of a host with their indexes, as a service tries them: for the same path, a route without conditions
/// would hide those behind it.
pub(crate) fn ordered(routes: &[RouteSettings]) -> impl Iterator<Item = (RoutePath, usize)> {
    let mut ordered: Vec<_> = routes.iter().enumerate().collect();
    ordered.sort_by_key(|(_, route)| route.conditions.is_none());
    ordered.into_iter().map(|(index, route)| (route.path.clone(), index))
}
