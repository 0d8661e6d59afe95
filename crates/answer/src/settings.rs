//! Settings of hosts: routes, their actions and the limits on them.
//!
//! These values are shared by all workers; each makes its own [`Service`](crate::service::Service) from them. The settings of
//! upstream groups are in [`upstream_settings`](brisk_upstream::settings).

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use brisk_beacon::Beacons;
use brisk_certs::UnknownName;
use brisk_http_connection::Connection;
use brisk_trials::Experiments;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use ipnet::IpNet;

pub use crate::client_cert::ClientCert;
pub use brisk_rewrite::{MappedOrigin, Origin, OriginError, OriginMap, Prefix, PrefixError};

use crate::body::Body;
pub use crate::compress::{BreachGuard, CompressionSettings, MediaPattern, MediaPatternError};
pub use crate::consolidate::{Consolidation, Cookies};
pub use crate::early_data::{EarlyDataPolicy, EarlyPath, EarlyPathError};
pub use crate::header_rules::{HeaderRules, HostHeaders};
pub use crate::hints::{EarlyHintsSettings, HintLink, HintLinkError};
pub use crate::timing::ServerTiming;
pub use crate::visits::HostVisits;
pub use brisk_http::claims::Underscores;
pub use brisk_http_connection::keep_alive::KeepAlive;

/// The hosts of one configuration, which are served over HTTPS, and what is common to their requests.
#[derive(Clone, Debug)]
pub struct ServiceSettings {
    /// The hosts; at least one.
    pub hosts: Vec<HostSettings>,
    /// What answers a name that no host has: the default host, or 421 Misdirected Request.
    pub unknown_host: UnknownName,
    /// Proxies whose forwarding headers are believed and extended; those of others are replaced.
    pub trusted_proxies: Vec<IpNet>,
    /// What is done with request headers that have `_` in their names.
    pub underscores: Underscores,
    /// Experiments on the visitors of the hosts.
    pub experiments: Experiments,
    /// What takes the beacons of pages; `None` measures no visits, whatever hosts say.
    pub beacons: Option<Arc<Beacons>>,
}

/// The settings of one host.
#[derive(Clone, Debug)]
pub struct HostSettings {
    /// Its names, certificates and demands on clients. A client may ask for another host on its connection only if the
    /// certificates cover that one's name, and both demand the same.
    pub tls: brisk_tls::HostSettings,
    /// Which certificates of its clients are sent to upstreams. Default: none. TLS has to keep them for that.
    pub client_cert: ClientCert,
    /// Strict Transport Security.
    pub hsts: Option<HstsSettings>,
    /// Headers of all its responses that have none of these names. Default: none.
    pub headers: HostHeaders,
    /// Whether, and to which pages, answers say what their times consist of. Default: they do not.
    pub server_timing: Option<ServerTiming>,
    /// What is measured of its visits. Default: nothing.
    pub visits: Option<HostVisits>,
    /// Where connections are opened before they are needed. Default: nowhere.
    pub preconnect: Option<Preconnect>,
    /// Other origins that are served below paths of this host. Default: none.
    pub consolidation: Option<Arc<Consolidation>>,
    /// The routes. Without any, every request gets 404.
    pub routes: Vec<RouteSettings>,
}

impl HostSettings {
    /// A host without routes that sends no certificates of clients to upstreams, and without Strict Transport Security.
    pub fn new(tls: brisk_tls::HostSettings) -> Self {
        Self {
            tls,
            client_cert: ClientCert::None,
            hsts: None,
            headers: HostHeaders::default(),
            server_timing: None,
            visits: None,
            preconnect: None,
            consolidation: None,
            routes: Vec::new(),
        }
    }
}

/// An endpoint that answers 204 and nothing else, so that a page can have a connection opened before it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preconnect {
    /// Its path, which no route gets.
    pub path: String,
    /// How long such a connection is kept.
    pub keep_alive: KeepAlive,
}

/// Strict Transport Security, RFC 6797.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HstsSettings {
    /// How long clients use HTTPS only.
    pub max_age: Duration,
    /// Whether the policy holds for all subdomains.
    pub include_subdomains: bool,
    /// Whether browsers may include the host in their preload lists.
    pub preload: bool,
}

/// Requests for a path, and how they are answered.
#[derive(Clone, Debug)]
pub struct RouteSettings {
    /// The paths that the route takes.
    pub path: RoutePath,
    /// How their requests are answered.
    pub action: Action,
    /// The most bytes of a request body; beyond it 413. Default: no limit.
    pub body_limit: Option<u64>,
    /// An upstream gets a request only when its body is complete: in memory up to 64 KiB, beyond it in a temporary file.
    /// Default: no.
    pub buffer_request: bool,
    /// The requests that are answered before the handshake is complete. Default: none. The host has to accept early
    /// data.
    pub early_data: EarlyDataPolicy,
    /// Which answers are compressed. Default: none.
    pub compression: Option<Arc<CompressionSettings>>,
    /// Whether compression is switched off, so that no page is compressed for a script that is put into it either.
    /// Default: no, nothing is said of it.
    pub is_never_compressed: bool,
    /// What is changed in the headers of requests before an upstream gets them. Default: nothing.
    pub request_headers: Option<Arc<HeaderRules>>,
    /// What is changed in the headers of responses. Default: nothing.
    pub response_headers: Option<Arc<HeaderRules>>,
    /// Hints for pages before their answers (103). Default: nothing. For upstreams alone.
    pub early_hints: Option<Arc<EarlyHintsSettings>>,
    /// How long connections are kept after its requests. Default: as all are.
    pub keep_alive: Option<KeepAlive>,
    /// The origin that the route serves, by its index in the host's consolidation. Default: none, it is the host's own.
    pub place: Option<usize>,
    /// Whether URLs of the host's consolidation are changed in documents of the route. Default: yes.
    pub rewrite: bool,
}

impl RouteSettings {
    /// A route without a limit on bodies, without early data and without compression.
    pub fn new(path: RoutePath, action: Action) -> Self {
        Self {
            path,
            action,
            body_limit: None,
            buffer_request: false,
            early_data: EarlyDataPolicy::Hold,
            compression: None,
            is_never_compressed: false,
            request_headers: None,
            response_headers: None,
            early_hints: None,
            keep_alive: None,
            place: None,
            rewrite: true,
        }
    }
}

/// Which paths a route takes. Compared with the request's path after its percent-encoding is undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoutePath {
    /// This path alone.
    Exact(String),
    /// This path and what is below it: `/api` takes `/api` and `/api/users` but not `/apix`; `/api/` only what is below.
    Prefix(String),
}

impl RoutePath {
    /// The path as written.
    pub fn as_str(&self) -> &str {
        let (Self::Exact(path) | Self::Prefix(path)) = self;
        path
    }
}

/// How a request is answered.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Action {
    /// An upstream group answers.
    Upstream(UpstreamAction),
    /// The files of a folder answer.
    Static(StaticSettings),
    /// Always the same answer.
    Fixed(FixedResponse),
    /// A redirect.
    Redirect(Redirect),
    /// A page that the gateway makes.
    Page(Page),
}

/// An upstream group that answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamAction {
    /// The group's name.
    pub group: String,
    /// Which path it is asked for.
    pub path: UpstreamPath,
}

/// The path that an upstream is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpstreamPath {
    /// The whole path of the client's request.
    #[default]
    Whole,
    /// The part of the request's path after the route's path.
    BelowRoute,
}

/// A folder whose files are served, looked up by the part of the path after the route's path. A request for a folder
/// within it is answered with that folder's `index.html`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticSettings {
    /// The folder.
    pub root: PathBuf,
    /// Whether copies beside the files, with `.br`, `.zst` or `.gz` after their names, are sent to clients that take them,
    /// if they are no older than the files.
    pub precompressed: bool,
}

/// An answer that is always the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedResponse {
    /// The status of the answer.
    pub status: StatusCode,
    /// `Content-Type`; not sent with an empty body.
    pub content_type: HeaderValue,
    /// The body of the answer.
    pub body: Bytes,
}

/// A redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// 301, 302, 303, 307 or 308.
    pub status: StatusCode,
    /// The target of the redirect.
    pub to: RedirectTarget,
}

/// The target of a redirect, with `{host}` and `{path}` (path and query, from the first slash on) to be filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedirectTarget(pub(crate) Vec<TargetPart>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum TargetPart {
    Text(String),
    Host,
    Path,
}

/// Why a text is not a [`RedirectTarget`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedirectTargetError {
    /// A placeholder that does not exist.
    #[error("{0:?} is no placeholder; {{host}} and {{path}} are")]
    Placeholder(String),
    /// A character that a header cannot hold.
    #[error("the location has to be ASCII without spaces and control characters")]
    Character,
}

impl RedirectTarget {
    /// Whether the operator wrote a host or a placeholder for one, rather than a path alone.
    pub(crate) fn names_a_host(&self) -> bool {
        match self.0.first() {
            Some(TargetPart::Text(text)) => !text.starts_with('/') || text.starts_with("//"),
            Some(TargetPart::Host) => true,
            Some(TargetPart::Path) | None => false,
        }
    }
}

impl FromStr for RedirectTarget {
    type Err = RedirectTargetError;

    fn from_str(text: &str) -> Result<Self, RedirectTargetError> {
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(RedirectTargetError::Character);
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let wrong = || RedirectTargetError::Placeholder(format!("{{{after}"));
            let (name, after) = after.split_once('}').ok_or_else(wrong)?;
            if !before.is_empty() {
                parts.push(TargetPart::Text(before.to_owned()));
            }
            parts.push(match name {
                "host" => TargetPart::Host,
                "path" => TargetPart::Path,
                _ => return Err(RedirectTargetError::Placeholder(format!("{{{name}}}"))),
            });
            rest = after;
        }
        if !rest.is_empty() {
            parts.push(TargetPart::Text(rest.to_owned()));
        }
        Ok(Self(parts))
    }
}

/// Makes a page from a request and what is known of its connection. Called on the worker: must not block.
#[derive(Clone)]
pub struct Page(Arc<Maker>);

type Maker = dyn Fn(&Connection, &Parts) -> Response<Body> + Send + Sync;

impl Page {
    /// A page made by `make`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_target_is_read_into_its_parts() {
        let target: RedirectTarget = "https://{host}/new{path}".parse().expect("a target");
        let text = |text: &str| TargetPart::Text(text.to_owned());
        assert_eq!(target.0, [text("https://"), TargetPart::Host, text("/new"), TargetPart::Path]);
    }

    #[test]
    fn a_wrong_redirect_target_is_refused() {
        for wrong in ["", "/a b", "/{pth}", "/{path", "/ü"] {
            assert!(wrong.parse::<RedirectTarget>().is_err(), "{wrong:?}");
        }
    }
}
