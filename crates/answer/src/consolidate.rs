//! Serves other origins below paths of a host, so that a page needs one connection.
//!
//! A request below such a path goes to the origin with nothing of the host's: neither its cookies nor its credentials, and no
//! more of its pages' addresses than their origin. An answer of the host or of the origin comes back with the URLs that
//! name the origin changed, in headers and in documents; what an origin says of itself as a whole (`Strict-Transport-Security`)
//! does not reach the host.
//!
//! A document that is changed has another tag: it has the changes in it, so that a browser whose copy has others gets a
//! new one.

mod body;
mod cookies;
mod metrics;
mod request;
mod response;
mod tags;

use std::rc::Rc;
use std::sync::Arc;

use brisk_http::path::RequestPath;
use brisk_http_connection::Connection;
use brisk_rewrite::{Base, Map, Place};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, header};

pub use self::metrics::RewritingMetrics;
use self::tags::Mark;
use crate::body::Body;
use crate::compress::{BreachGuard, Compressing, Compression, CompressionSettings};
use crate::hosts::Names;

/// The origins that a host serves below paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consolidation {
    /// Origins and paths.
    pub map: Arc<Map>,
    /// For each place of the map, which cookies its origin gets and sets.
    pub cookies: Vec<Cookies>,
}

/// Which cookies an origin gets and sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cookies {
    /// Its own: they have its path in their names at the browser, and no others are sent.
    #[default]
    Own,
    /// None.
    None,
    /// Those of the host, too, and `Authorization`.
    Host,
}

/// What a route does about the origins of its host, on one worker.
#[derive(Debug)]
pub(crate) struct Consolidated {
    settings: Arc<Consolidation>,
    /// The place that the route serves; `None` for those of the host itself.
    place: Option<usize>,
    /// Whether documents are changed.
    rewrites: bool,
    mark: Mark,
    /// For documents that came compressed, where the route compresses nothing.
    recompression: Option<Rc<Compression>>,
}

/// What is done about the origins in the answer to one request.
#[derive(Debug)]
pub(crate) struct Consolidating {
    consolidated: Rc<Consolidated>,
    /// Host and port of the request, where they are the host's own.
    own: String,
    is_head: bool,
    is_tunnel: bool,
    /// `If-None-Match` of the client, in one line.
    known: Option<HeaderValue>,
    /// What was asked for, for the log.
    path: String,
    recompressing: Option<Compressing>,
}

impl Consolidated {
    pub(crate) fn new(
        settings: &Arc<Consolidation>,
        place: Option<usize>,
        rewrites: bool,
        compresses: bool,
    ) -> Rc<Self> {
        // The sender of a compressed answer has thought of what its length says.
        let usual = CompressionSettings { guard: BreachGuard::Off, ..CompressionSettings::default() };
        Rc::new(Self {
            settings: Arc::clone(settings),
            place,
            rewrites,
            mark: Mark::of(&settings.map),
            recompression: (!compresses).then(|| Compression::new(&Arc::new(usual), true, None)),
        })
    }

    /// The origin that the route serves.
    pub(crate) fn place(&self) -> Option<&Place> {
        self.settings.map.places.get(self.place?)
    }

    /// Where a request for the place itself is sent: to its folder. Served without the slash, its scripts and the URLs of its
    /// pages would be relative to the root of the host: a service worker from there would have all of it.
    pub(crate) fn folder(&self, path: &RequestPath<'_>, request: &Parts) -> Option<HeaderValue> {
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

    /// The map, where hints of the host's own pages are to be changed.
    pub(crate) fn map(&self) -> Option<Arc<Map>> {
        self.place.is_none().then(|| Arc::clone(&self.settings.map))
    }

    fn cookies(&self) -> Cookies {
        self.place.and_then(|place| self.settings.cookies.get(place)).copied().unwrap_or_default()
    }

    fn base(&self) -> Base {
        self.place.map_or(Base::Own, Base::Place)
    }

    /// Notes what the answer to a request needs.
    pub(crate) fn asked(
        self: &Rc<Self>,
        request: &Parts,
        authority: &str,
        names: &Names,
        path: &[u8],
    ) -> Consolidating {
        let lower = authority.to_ascii_lowercase();
        let own = lower.strip_suffix(":443").unwrap_or(&lower);
        let own = if names.include(own) { own.to_owned() } else { String::new() };
        Consolidating {
            consolidated: Rc::clone(self),
            is_head: request.method == Method::HEAD,
            is_tunnel: request.method == Method::CONNECT,
            known: tags::known(&request.headers),
            path: String::from_utf8_lossy(path).into_owned(),
            recompressing: self.recompression.as_ref().map(|compression| compression.asked(request, path)),
            own,
        }
    }

    /// Changes links of an upstream's answer, once.
    pub(crate) fn change_links(&self, headers: &mut HeaderMap) {
        let (base, map) = (self.base(), &self.settings.map);
        response::change(headers, &header::LINK, |value| brisk_rewrite::link(value, base, map));
    }
}

impl Consolidating {
    /// Changes the headers of the request.
    pub(crate) fn change_request(&self, headers: &mut HeaderMap) {
        self.consolidated.change_request(headers, &self.own);
    }

    /// Changes an answer. Costs a look at its head; documents are changed while they stream.
    pub(crate) fn apply(&self, connection: &Rc<Connection>, response: &mut Response<Body>) {
        self.change_headers(response.headers_mut());
        if self.consolidated.rewrites && !self.is_tunnel {
            self.change_document(connection, response);
        }
    }
}

#[cfg(test)]
mod tests;
