//! The response of a route: an upstream, files, a fixed response, a redirect or a page.

mod keys;
mod resolve;
mod rewrite_keys;
mod upstream_path;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use brisk_http::message::{RequestParts, Response};
use brisk_http::url_path::UrlPath;
use brisk_http_connection::Connection;
use brisk_rules::{BodyTemplate, PathRewrite, RedirectTarget, UpstreamPath};
use brisk_transform::body::Body;
use bytes::Bytes;
use http::{HeaderValue, StatusCode};

pub use keys::ActionKeys;
pub(crate) use keys::Fallback;
pub(super) use resolve::routes;
pub(crate) use resolve::with_groups;

/// Production of a response.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Action {
    /// Forward the request to an upstream group.
    Upstream(UpstreamAction),
    /// Serve the files of a folder.
    Static(StaticSettings),
    /// Serve the files of a folder, and forward requests without a file to an upstream group.
    StaticOrUpstream(StaticSettings, UpstreamAction),
    /// Send the same response to every request.
    Fixed(FixedResponse),
    /// Send a response whose body is formed from the request.
    Formed(FormedResponse),
    /// Redirect to another URL.
    Redirect(Redirect),
    /// Build a page from the request and its connection.
    Page(Page),
}

impl Action {
    /// The upstream group of all requests or of those without a file.
    pub fn upstream(&self) -> Option<&UpstreamAction> {
        match self {
            Self::Upstream(upstream) | Self::StaticOrUpstream(_, upstream) => Some(upstream),
            Self::Static(_) | Self::Fixed(_) | Self::Formed(_) | Self::Redirect(_) | Self::Page(_) => None,
        }
    }
}

/// A forward to an upstream group.
#[derive(Clone, Debug)]
pub struct UpstreamAction {
    /// Name of the group.
    pub group: String,
    /// The path of the forwarded request.
    pub path: UpstreamPath,
    /// Whether requests without the final slash of the route are redirected to it, even if another route without `exact` matches.
    pub final_slash: bool,
}

impl UpstreamAction {
    /// A forward of all requests to `group`.
    pub fn new(group: impl Into<String>, path: UpstreamPath) -> Self {
        Self { group: group.into(), path, final_slash: false }
    }
}

/// A folder with files, looked up by the part of the request's path after the route's path. A request for a subfolder
/// gets its page.
#[derive(Clone, Debug)]
pub struct StaticSettings {
    /// The folder.
    pub root: PathBuf,
    /// Path below the folder of the only file that is served; `None` for all files.
    pub only: Option<UrlPath>,
    /// Whether clients that accept the coding get the file with `.br`, `.zst` or `.gz` appended to its name, if it
    /// exists and is not older than the original.
    pub precompressed: bool,
    /// Paths, with one segment, of the page of a folder; empty for `/index.html`.
    pub index: Vec<UrlPath>,
    /// Whether folders without an index file get a page with their files.
    pub listing: bool,
    /// Path below the folder of the file for paths without a file; `None` for 404.
    pub fallback: Option<UrlPath>,
    /// Paths below the folder in place of the requested one, for paths that match an expression. The first expression that matches
    /// decides, then the first path with a file.
    pub rewrite: Option<Arc<[PathRewrite]>>,
}

impl StaticSettings {
    /// All files of `root`, without copies, lists and a fallback.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            only: None,
            precompressed: false,
            index: Vec::new(),
            listing: false,
            fallback: None,
            rewrite: None,
        }
    }
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

/// A response whose body has variables.
#[derive(Clone, Debug)]
pub struct FormedResponse {
    /// Status code.
    pub status: StatusCode,
    /// `Content-Type`; not sent with an empty body.
    pub content_type: HeaderValue,
    /// Response body.
    pub body: BodyTemplate,
}

/// A redirect.
#[derive(Clone, Debug)]
pub struct Redirect {
    /// Status code: 301, 302, 303, 307 or 308.
    pub status: StatusCode,
    /// Value of `Location`.
    pub to: RedirectTarget,
}

// `Arc` and `Send`, because all workers share the settings.
/// A function from a request and its connection to a response. Runs on the worker, so it must not block.
#[derive(Clone)]
pub struct Page(Arc<Maker>);

type Maker = dyn Fn(&Connection, &RequestParts, SocketAddr) -> Response<Body> + Send + Sync;

impl Page {
    /// A page built by `make` from the connection, the request and the address of its client, whose port is 0 if it is unknown.
    pub fn new(
        make: impl Fn(&Connection, &RequestParts, SocketAddr) -> Response<Body> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(make))
    }

    pub(crate) fn make(
        &self,
        connection: &Connection,
        request: &RequestParts,
        client: SocketAddr,
    ) -> Response<Body> {
        (self.0)(connection, request, client)
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Page")
    }
}
