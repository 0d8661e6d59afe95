//! Settings of hosts: routes, their actions, and the limits of requests.
//!
//! All workers share these values; each worker builds its own [`Service`](crate::service::Service) from them. Settings
//! of upstream groups are in [`brisk_upstream::settings`].

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brisk_access::NetworkRules;
use brisk_beacon::Beacons;
use brisk_certs::UnknownName;
use brisk_http_connection::Connection;
use brisk_jwt::KeySource;
use brisk_transform::body::Body;
use brisk_trials::Experiments;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use ipnet::IpNet;

pub use crate::access_settings::{AccessSettings, BasicAuth, ForwardAuth, TokenAuth};
pub use crate::alt_svc::{AltSvc, Announcement};
pub use crate::client_cert::ClientCert;
pub use brisk_rewrite::{MappedOrigin, Origin, OriginError, OriginMap, Prefix, PrefixError};

pub use crate::error_pages::{ErrorPage, ErrorPages};
pub use crate::hints::{EarlyHintsSettings, HintLink, HintLinkError, LearnedHints};
pub use crate::limit_settings::{LimitKey, RequestLimit, RouteTimeouts};
pub use crate::maintenance::{Maintenance, MaintenanceSwitch};
pub use crate::mirror::MirrorSettings;
pub use crate::timing::ServerTiming;
pub use crate::visits::HostVisits;
pub use brisk_http::claims::Underscores;
pub use brisk_http::url_path::UrlPath;
pub use brisk_http_connection::keep_alive::KeepAlive;
pub use brisk_limits::Bandwidth;
pub use brisk_rules::{
    Conditions, GroupPattern, Map, MapPattern, Maps, PathRewrite, Pattern, RedirectTarget, RoutePath, Share,
    SplitSettings, Template, UpstreamPath, ValueTest, Variable,
};
pub use brisk_rules::{EarlyDataPolicy, EarlyPath, EarlyPathError};
pub use brisk_rules::{HeaderRules, HostHeaders, RuleValue};
pub use brisk_transform::compress::{BreachGuard, CompressionSettings, MediaPattern, MediaPatternError};
pub use brisk_transform::consolidate::{Consolidation, Cookies};

/// The hosts of one configuration, served over HTTPS, and the settings common to their requests.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// The hosts. At least one.
    pub hosts: Vec<HostSettings>,
    /// Treatment of names that no host has: the default host, or 421 Misdirected Request.
    pub unknown_host: UnknownName,
    /// Proxies whose forwarding headers are trusted and extended. Forwarding headers from other clients are replaced.
    pub trusted_proxies: Vec<IpNet>,
    /// Treatment of request headers with `_` in their names.
    pub underscores: Underscores,
    /// Experiments with the visitors of the hosts.
    pub experiments: Experiments,
    /// Receiver of beacons; `None` disables the measurement of visits for all hosts.
    pub beacons: Option<Arc<Beacons>>,
}

impl ServiceSettings {
    /// The keys of tokens of all routes.
    pub fn token_keys(&self) -> Vec<Arc<KeySource>> {
        let routes = self.hosts.iter().flat_map(|host| &host.routes);
        let tokens = routes.filter_map(|route| route.access.tokens.as_ref());
        tokens.map(|tokens| Arc::clone(tokens.check.source())).collect()
    }
}

/// The settings of one host.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// Names, certificates and requirements for clients. A client may request another host on its connection only if
    /// the certificates of the first cover the name of the other and both have equal requirements (RFC 9110 section
    /// 7.4).
    pub tls: brisk_tls::HostSettings,
    /// Client certificates sent to upstreams. Default: none. [`brisk_tls`] must be configured to keep them.
    pub client_cert: ClientCert,
    /// Strict Transport Security. Default: none.
    pub hsts: Option<HstsSettings>,
    /// Statement about HTTP/3 in responses. Default: none.
    pub alt_svc: Option<AltSvc>,
    /// Headers added to responses that do not contain them. Default: none.
    pub headers: HostHeaders,
    /// Maintenance that a file switches on. Default: none.
    pub maintenance: Option<Arc<Maintenance>>,
    /// Pages for requests without a route. Default: none.
    pub error_pages: Option<Arc<ErrorPages>>,
    /// `Server-Timing` in responses. Default: none.
    pub server_timing: Option<ServerTiming>,
    /// Measurement of visits. Default: none.
    pub visits: Option<HostVisits>,
    /// Endpoint for connections that pages open in advance. Default: none.
    pub preconnect: Option<Preconnect>,
    /// Other origins served below paths of this host. Default: none.
    pub consolidation: Option<Arc<Consolidation>>,
    /// Networks of clients that may send requests, for routes without networks of their own, and for all other paths.
    /// Default: all networks.
    pub networks: Option<Arc<NetworkRules>>,
    /// Limits of requests without a route. Default: none.
    pub limits: Arc<[RequestLimit]>,
    /// The routes. Without a matching route, the response is 404.
    pub routes: Vec<RouteSettings>,
}

impl HostSettings {
    /// A host with the names and certificates of `tls`, without routes; all other settings have their defaults.
    pub fn new(tls: brisk_tls::HostSettings) -> Self {
        Self {
            tls,
            client_cert: ClientCert::None,
            hsts: None,
            alt_svc: None,
            headers: HostHeaders::default(),
            maintenance: None,
            error_pages: None,
            server_timing: None,
            visits: None,
            preconnect: None,
            consolidation: None,
            networks: None,
            limits: Arc::default(),
            routes: Vec::new(),
        }
    }
}

/// An endpoint with an empty 204 response, with which a page opens a connection before it needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preconnect {
    /// Path of the endpoint. Takes precedence over routes.
    pub path: String,
    /// Timeouts of connections opened with this endpoint.
    pub keep_alive: KeepAlive,
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

/// The paths of a route, the action for their requests, and its settings.
#[derive(Clone, Debug)]
pub struct RouteSettings {
    /// Paths of the requests that use this route.
    pub path: RoutePath,
    /// Further conditions; a request that does not meet them uses the next route. Default: none.
    pub conditions: Option<Arc<Conditions>>,
    /// The action that produces the response.
    pub action: Action,
    /// Maximum length of a request body in bytes; longer bodies get 413. Default: no limit.
    pub body_limit: Option<u64>,
    /// Whether a request is sent upstream only after its body has arrived completely, up to 64 KiB in memory, above
    /// that in a temporary file. Default: `false`.
    pub buffer_request: bool,
    /// Requests that get a response before the handshake is complete. Default: none. The host must accept early data.
    pub early_data: EarlyDataPolicy,
    /// Compression of responses. Default: none.
    pub compression: Option<Arc<CompressionSettings>>,
    /// Whether compression is disabled, including compression of pages after the insertion of a script. Default:
    /// `false`, no explicit setting.
    pub is_never_compressed: bool,
    /// Changes to request headers for upstreams. Default: none.
    pub request_headers: Option<Arc<HeaderRules>>,
    /// Changes to response headers. Default: none.
    pub response_headers: Option<Arc<HeaderRules>>,
    /// Pages for error responses. Default: none.
    pub error_pages: Option<Arc<ErrorPages>>,
    /// Early hints (103) for pages, upstream routes only. Default: none.
    pub early_hints: Option<Arc<EarlyHintsSettings>>,
    /// Links learned for early hints, shared by the workers.
    pub learned_hints: Arc<LearnedHints>,
    /// Keep-alive settings of connections after requests of this route. Default: those of the server.
    pub keep_alive: Option<KeepAlive>,
    /// Consolidated origin that the route serves, as index into [`HostSettings::consolidation`]. Default: none, the
    /// host's own content.
    pub place: Option<usize>,
    /// Whether URLs of consolidated origins are translated in documents of the route. Default: `true`.
    pub rewrite: bool,
    /// Clients that may use the route. Default: all that the host permits.
    pub access: AccessSettings,
    /// Server that decides about each request. Default: none.
    pub forward_auth: Option<ForwardAuth>,
    /// Limits of rate and concurrency. Default: none.
    pub limits: Arc<[RequestLimit]>,
    /// Trace context for upstreams and the access log. Default: none, headers of clients are passed on.
    pub trace: Option<Trace>,
    /// Timeouts of requests to an upstream. Default: those of the upstream.
    pub timeouts: RouteTimeouts,
    /// Pace of each response. Default: no limit.
    pub bandwidth: Option<Bandwidth>,
}

/// Treatment of the trace context of a request (W3C Trace Context).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// The trace of the client is continued; without a valid one, a trace begins.
    Continue,
    /// A trace begins with each request.
    Begin,
}

impl RouteSettings {
    /// A route with the default of every setting: no limit on bodies, no early data, no compression.
    pub fn new(path: RoutePath, action: Action) -> Self {
        Self {
            path,
            conditions: None,
            action,
            body_limit: None,
            buffer_request: false,
            early_data: EarlyDataPolicy::Hold,
            compression: None,
            is_never_compressed: false,
            request_headers: None,
            response_headers: None,
            error_pages: None,
            early_hints: None,
            learned_hints: Arc::default(),
            keep_alive: None,
            place: None,
            rewrite: true,
            access: AccessSettings::default(),
            forward_auth: None,
            limits: Arc::default(),
            trace: None,
            timeouts: RouteTimeouts::default(),
            bandwidth: None,
        }
    }
}

/// Paths of the routes of a host with their indexes, as a service tries them: for the same path, a route without conditions
/// would hide those behind it.
pub(crate) fn ordered(routes: &[RouteSettings]) -> impl Iterator<Item = (RoutePath, usize)> {
    let mut ordered: Vec<_> = routes.iter().enumerate().collect();
    ordered.sort_by_key(|(_, route)| route.conditions.is_none());
    ordered.into_iter().map(|(index, route)| (route.path.clone(), index))
}

/// Production of a response.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Action {
    /// Forward the request to an upstream group.
    Upstream(UpstreamAction),
    /// Serve the files of a folder.
    Static(StaticSettings),
    /// Send the same response to every request.
    Fixed(FixedResponse),
    /// Redirect to another URL.
    Redirect(Redirect),
    /// Build a page from the request and its connection.
    Page(Page),
}

/// A forward to an upstream group.
#[derive(Clone, Debug)]
pub struct UpstreamAction {
    /// Name of the group.
    pub group: String,
    /// The path of the forwarded request.
    pub path: UpstreamPath,
    /// Another group for a share of the visitors. Default: none.
    pub split: Option<Arc<SplitSettings>>,
    /// Another group that gets copies of requests. Default: none.
    pub mirror: Option<Arc<MirrorSettings>>,
}

impl UpstreamAction {
    /// A forward of all requests to `group`.
    pub fn new(group: impl Into<String>, path: UpstreamPath) -> Self {
        Self { group: group.into(), path, split: None, mirror: None }
    }
}

/// A folder with files, looked up by the part of the request's path after the route's path. A request for a subfolder
/// gets its `index.html`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticSettings {
    /// The folder.
    pub root: PathBuf,
    /// Whether clients that accept the coding get the file with `.br`, `.zst` or `.gz` appended to its name, if it
    /// exists and is not older than the original.
    pub precompressed: bool,
    /// Whether folders without an index file get a page with their files.
    pub listing: bool,
    /// Path below the folder of the file for paths without a file; `None` for 404.
    pub fallback: Option<UrlPath>,
}

/// A constant response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedResponse {
    /// Status code.
    pub status: StatusCode,
    /// `Content-Type`; not sent with an empty body.
    pub content_type: HeaderValue,
    /// Response body.
    pub body: Bytes,
}

/// A redirect.
#[derive(Clone, Debug)]
pub struct Redirect {
    /// Status code: 301, 302, 303, 307 or 308.
    pub status: StatusCode,
    /// Value of `Location`.
    pub to: RedirectTarget,
}

/// A function from a request and its connection to a response. Runs on the worker, so it must not block.
#[derive(Clone)]
pub struct Page(Arc<Maker>);

type Maker = dyn Fn(&Connection, &Parts) -> Response<Body> + Send + Sync;

impl Page {
    /// A page built by `make`.
    pub fn new(make: impl Fn(&Connection, &Parts) -> Response<Body> + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    pub(crate) fn make(&self, connection: &Connection, request: &Parts) -> Response<Body> {
        (self.0)(connection, request)
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Page")
    }
}
