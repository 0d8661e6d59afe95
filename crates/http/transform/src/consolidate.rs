//! Consolidation: other origins served below paths of a host, so that a page needs one connection.
//!
//! A request below such a path is forwarded to the origin without the host's cookies and credentials, and with only the
//! origin of the host's pages in `Referer`. In responses of the host and of the origins, URLs of the origins are
//! replaced by URLs of the host, in headers and in documents. Headers with which an origin makes statements about
//! itself as a whole (such as `Strict-Transport-Security`) are removed.
//!
//! The `ETag` of a changed document contains a digest of the mapping, so a browser with a copy from an earlier
//! configuration gets a new document.

mod body;
mod cookies;
mod metrics;
mod request;
mod response;
mod tags;

use std::rc::Rc;
use std::sync::Arc;

use brisk_http::message::{HeaderList, RequestParts, Response};
use brisk_http::path::RequestPath;
use brisk_http_connection::Connection;
use brisk_rewrite::{Base, MappedOrigin, OriginMap};
use http::{HeaderValue, Method, header};

pub use self::metrics::RewritingMetrics;
use self::tags::Mark;
use crate::body::Body;
use crate::compress::{BreachGuard, Compression, CompressionSettings, ResponseCompression};
use crate::names::Names;

/// The origins that a host serves below paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consolidation {
    /// Origins and their paths.
    pub map: Arc<OriginMap>,
    /// Cookie policy of each origin, in the order of the map.
    pub cookies: Vec<Cookies>,
}

/// Cookies that an origin receives in `Cookie` and sets with `Set-Cookie`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cookies {
    /// The origin's own cookies: the browser stores them with the origin's path in their names.
    #[default]
    Own,
    /// No cookies.
    None,
    /// The cookies of the host too, and `Authorization`.
    Host,
}

/// Properties of a route of a consolidating host.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServedRoute {
    /// Index of the origin that the route serves; `None` for routes of the host itself.
    pub place: Option<usize>,
    /// Whether documents are changed.
    pub rewrites: bool,
    /// Whether the route serves files, whose types are known from their names.
    pub is_static: bool,
    /// Whether the route has compression of its own.
    pub is_compressed: bool,
}

/// A route of a host that serves other origins, on one worker.
#[derive(Debug)]
pub struct ConsolidatedRoute {
    settings: Arc<Consolidation>,
    route: ServedRoute,
    mark: Mark,
    /// Compression of documents that arrived compressed, for routes without compression.
    recompression: Option<Rc<Compression>>,
}

/// The parts of a request to a consolidating host that its response needs.
#[derive(Debug)]
pub struct ConsolidatedRequest {
    consolidated: Rc<ConsolidatedRoute>,
    /// Authority of the request without `:443`, if it names the host; otherwise empty.
    own: String,
    is_head: bool,
    is_tunnel: bool,
    /// `If-None-Match` of the client, joined into one line.
    known: Option<HeaderValue>,
    /// Requested path, for the log.
    path: String,
    recompression: Option<ResponseCompression>,
}

impl ConsolidatedRoute {
    /// The route of a host with this consolidation.
    pub fn new(settings: &Arc<Consolidation>, route: ServedRoute) -> Rc<Self> {
        // The upstream compressed the document, so it has accepted that the length is visible (BREACH).
        let usual = CompressionSettings { guard: BreachGuard::Off, ..CompressionSettings::default() };
        Rc::new(Self {
            settings: Arc::clone(settings),
            route,
            mark: Mark::of(&settings.map),
            recompression: (!route.is_compressed).then(|| Compression::new(&Arc::new(usual))),
        })
    }

    /// The origin that the route serves; `None` for a route of the host itself.
    pub fn place(&self) -> Option<&MappedOrigin> {
        self.settings.map.origins.get(self.route.place?)
    }

    /// The target of the redirect from the origin's path to the path with a trailing slash; `None` for other paths.
    ///
    /// Without the slash, relative URLs of the origin's pages would resolve against the root of the host, and a service
    /// worker from there would control the whole host.
    pub fn folder(&self, path: &RequestPath<'_>, request: &RequestParts) -> Option<HeaderValue> {
        let prefix = self.place()?.prefix.as_str();
        if path.forwarded != prefix {
            return None;
        }
        let folder = match request.uri.query() {
            Some(query) => format!("{prefix}/?{query}"),
            None => format!("{prefix}/"),
        };
        HeaderValue::try_from(folder).ok()
    }

    fn cookies(&self) -> Cookies {
        self.route.place.and_then(|place| self.settings.cookies.get(place)).copied().unwrap_or_default()
    }

    fn base(&self) -> Base {
        self.route.place.map_or(Base::Own, Base::Mapped)
    }

    /// Stores the parts of a request that its response needs, for [`ConsolidatedRequest::apply`].
    pub fn begin(
        self: &Rc<Self>,
        connection: &Connection,
        request: &RequestParts,
        authority: &str,
        names: &Names,
        path: &[u8],
    ) -> ConsolidatedRequest {
        let lower = authority.to_ascii_lowercase();
        // Browsers omit the default port in `Referer` and `Origin`, with which `own` is compared.
        let own = lower.strip_suffix(":443").unwrap_or(&lower);
        let own = if names.include(own) { own.to_owned() } else { String::new() };
        ConsolidatedRequest {
            consolidated: Rc::clone(self),
            is_head: request.method == Method::HEAD,
            is_tunnel: request.method == Method::CONNECT,
            known: tags::known(&request.headers),
            path: String::from_utf8_lossy(path).into_owned(),
            recompression: self
                .recompression
                .as_ref()
                .map(|compression| compression.negotiate(connection, request, path)),
            own,
        }
    }

    /// Translates the links in `Link` of an upstream's response.
    pub fn change_links(&self, headers: &mut HeaderList) {
        let (base, map) = (self.base(), &self.settings.map);
        response::change(headers, &header::LINK, |value| brisk_rewrite::link(value, base, map));
    }
}

impl ConsolidatedRequest {
    /// Changes the headers of the request for its origin: cookies, credentials, `Referer`, `Origin` and `Accept-Encoding`.
    pub fn change_request(&self, connection: &Connection, headers: &mut HeaderList) {
        self.consolidated.change_request(connection, headers, &self.own, &self.path);
    }

    /// Changes a response. Costs an inspection of its head; documents are changed while they stream. Without memory for a
    /// decoder, a compressed document becomes `503` with `Retry-After`.
    pub fn apply(&self, connection: &Rc<Connection>, response: &mut Response<Body>) {
        self.change_headers(response.headers_mut());
        if self.consolidated.route.rewrites && !self.is_tunnel {
            self.change_document(connection, response);
        }
    }
}

#[cfg(test)]
mod tests;
