//! Settings of hosts: routes, their actions, and the limits of requests.
//!
//! All workers share these values; each worker builds its own [`Service`](crate::service::Service) from them. Settings
//! of upstream groups are in [`brisk_upstream_group::settings`].

use std::sync::Arc;

use brisk_beacon::Beacons;
use brisk_certs::UnknownName;
use brisk_certs::challenge::Challenges;
use brisk_jwt::KeySource;
use http::HeaderName;
use ipnet::IpNet;

pub use crate::alt_svc::{AltSvc, Announcement};
pub use crate::features::access::{AccessSettings, BasicAuth, TokenAuth};
pub use crate::features::action::{
    Action, FixedResponse, FormedResponse, Page, Redirect, StaticSettings, UpstreamAction,
};
pub use crate::features::client_certificates::ClientCert;
pub use crate::features::compression::RouteCompression;
pub use crate::features::consolidation::RouteConsolidation;
pub use crate::features::early_hints::{
    EarlyHintsSettings, HintLink, HintLinkError, LearnedHints, RouteHints,
};
pub use crate::features::error_pages::{ErrorPage, ErrorPages, ErrorRoute, PageSource, RouteStatus};
pub use crate::features::forward_auth::ForwardAuth;
pub use crate::features::headers::{HostHeaderSettings, HstsSettings};
pub use crate::features::internal::InternalSettings;
pub use crate::features::keep_alive::Preconnect;
pub use crate::features::limits::{LimitKey, RequestLimit, RouteTimeouts};
pub use crate::features::maintenance::{Maintenance, MaintenanceSwitch};
pub use crate::features::media_types::MediaTypes;
pub use crate::features::mirror::MirrorSettings;
pub use crate::features::plain::Plain;
pub use crate::features::priority::Priority;
pub use crate::features::{BodySettings, HostSettings, RouteSettings, Trace};
pub use brisk_rewrite::{MappedOrigin, Origin, OriginError, OriginMap, Prefix, PrefixError};

pub use crate::redirect::HttpsRedirect;
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
pub use brisk_rules::{HeaderRules, HostHeaders, RouteHeaders, RuleValue};
pub use brisk_transform::compress::{BreachGuard, CompressionSettings, MediaPattern, MediaPatternError};
pub use brisk_transform::consolidate::{Consolidation, Cookies};
pub use brisk_variants::Variants;

/// The hosts of one configuration, served over HTTPS, and the settings common to their requests.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// The hosts. At least one.
    pub hosts: Vec<HostSettings>,
    /// Treatment of names that no host has: the default host, or `421 Misdirected Request`.
    pub unknown_host: UnknownName,
    /// Proxies whose forwarding headers are trusted and extended. Forwarding headers from other clients are replaced.
    pub trusted_proxies: Vec<IpNet>,
    /// Header in which these proxies name the client, in place of `X-Forwarded-For` and `Forwarded`. Default: none.
    pub client_header: Option<HeaderName>,
    /// Treatment of request headers with `_` in their names.
    pub underscores: Underscores,
    /// Settings of the hosts that vary between connections.
    pub variants: Variants,
    /// Receiver of beacons; `None` disables the measurement of visits for all hosts.
    pub beacons: Option<Arc<Beacons>>,
    /// The redirect of requests over plain HTTP.
    pub redirect: HttpsRedirect,
    /// Responses to certificate authorities over plain HTTP, which precede all others (RFC 8555 section 8.3). Default: none.
    pub challenges: Option<Arc<Challenges>>,
}

impl ServiceSettings {
    /// The keys of tokens of all routes.
    pub fn token_keys(&self) -> Vec<Arc<KeySource>> {
        let routes = self.hosts.iter().flat_map(|host| &host.routes);
        let tokens = routes.filter_map(|route| route.access.tokens.as_ref());
        tokens.map(|tokens| Arc::clone(tokens.check.source())).collect()
    }
}
