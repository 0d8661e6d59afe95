//! What is done to each response on its way out, whatever made it: the stages, each of them once and in this order.
//!
//! 1. What names an origin that the host serves below a path, in its head and in its document.
//! 2. The headers of its host, where it brings none of their names.
//! 3. The rules of its route.
//! 4. The script that measures the visit, where it is drawn for that, and the id of its beacon.
//! 5. What its time consists of, for its page to read, where its host says so.
//! 6. Compression, where its route says so: after this neither type nor length of the body is known.
//! 7. HEAD: the same head without a body. What changes the body or its length has to come before.
//! 8. The end of the connection, where this response is its last.

use std::rc::Rc;
use std::sync::Arc;

use brisk_http_connection::Connection;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode, Version, header};
use http_body::Body as _;

use crate::body::Body;
use crate::compress::{Compressing, Compression};
use crate::consolidate::{Consolidated, Consolidating};
use crate::exchange::Exchange;
use crate::header_rules::{HeaderRules, HostHeaders};
use crate::settings::{HostSettings, HstsSettings, KeepAlive};
use crate::timing::ServerTiming;
use crate::visits;
use crate::visits::Visiting;

/// The `Connection` header of a response after which a connection over HTTP/1.1 is closed.
pub(super) const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// What the stages need from the request; taken before its head is handed to the action.
#[derive(Debug)]
pub(super) struct Stages {
    version: Version,
    is_head: bool,
    pub(super) consolidating: Option<Box<Consolidating>>,
    compressing: Option<Box<Compressing>>,
    /// Of a page that an upstream was asked for without a coding, where its route does not say how it is compressed.
    recompressing: Option<Box<Compressing>>,
    rules: Option<Arc<HeaderRules>>,
    /// The visit that the response is to be measured of.
    pub(super) visiting: Option<Box<Visiting>>,
}

/// What all responses of a host have.
#[derive(Debug)]
pub(super) struct OfHost {
    hsts: Option<HeaderValue>,
    headers: HostHeaders,
    timing: Option<ServerTiming>,
}

impl OfHost {
    pub(super) fn new(settings: &HostSettings) -> Self {
        Self {
            hsts: settings.hsts.map(transport_security),
            headers: settings.headers.clone(),
            timing: settings.server_timing.clone(),
        }
    }
}

/// What is done to all responses of a route.
#[derive(Debug)]
pub(super) struct OfRoute {
    pub(super) consolidated: Option<Rc<Consolidated>>,
    pub(super) compression: Option<Rc<Compression>>,
    /// Compression is switched off, and nothing else may switch it on.
    pub(super) is_never_compressed: bool,
    pub(super) rules: Option<Arc<HeaderRules>>,
    pub(super) keep_alive: Option<KeepAlive>,
}

impl Stages {
    /// The stages of the response to a request.
    pub(super) fn of(request: &Parts) -> Self {
        Self {
            version: request.version,
            is_head: request.method == Method::HEAD,
            consolidating: None,
            compressing: None,
            recompressing: None,
            rules: None,
            visiting: None,
        }
    }

    /// The response is compressed as `compression` says, unless its route says how.
    pub(super) fn compress_by(&mut self, compression: &Rc<Compression>, request: &Parts, path: &str) {
        let usual = || Box::new(compression.asked(request, path.as_bytes()));
        self.compressing = Some(self.compressing.take().unwrap_or_else(usual));
    }

    /// The response is compressed as `compression` says if it is a page, unless its route says how.
    pub(super) fn compress_page_by(&mut self, compression: &Rc<Compression>, request: &Parts, path: &str) {
        self.recompressing = Some(Box::new(compression.asked(request, path.as_bytes())));
    }

    /// How the response is compressed.
    fn compressing(&self, response: &Response<Body>) -> Option<&Compressing> {
        let of_page = || self.recompressing.as_deref().filter(|_| visits::is_page(response));
        self.compressing.as_deref().or_else(of_page)
    }

    /// The route that answers is known.
    pub(super) fn on_route(
        &mut self,
        connection: &Connection,
        request: &Parts,
        route: &OfRoute,
        path: &[u8],
    ) {
        connection.keep(route.keep_alive);
        self.rules.clone_from(&route.rules);
        // What follows the head of a tunnel is no body.
        let compression = route.compression.as_ref().filter(|_| request.method != Method::CONNECT);
        self.compressing = compression.map(|compression| Box::new(compression.asked(request, path)));
    }

    /// Takes a response through all stages.
    pub(super) fn finish(self, exchange: &Exchange, host: Option<&OfHost>, response: &mut Response<Body>) {
        let connection = exchange.connection();
        if let Some(consolidating) = &self.consolidating {
            consolidating.apply(connection, response);
        }
        if let Some(host) = host {
            // RFC 6797 section 7.2: not over plain HTTP.
            if let (true, Some(hsts)) = (connection.secure, &host.hsts) {
                response.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, hsts.clone());
            }
            host.headers.apply(response.headers_mut());
        }
        if let Some(rules) = &self.rules {
            rules.apply(response.headers_mut());
        }
        if let Some(visiting) = &self.visiting {
            visiting.apply(exchange, response);
        }
        if let Some(timing) = host.and_then(|host| host.timing.as_ref()) {
            timing.apply(exchange, response.headers_mut());
        }
        if let Some(compressing) = self.compressing(response) {
            compressing.apply(connection, response);
        }
        if self.is_head {
            remove_body(response);
        }
        let switches = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if self.version < Version::HTTP_2 && !switches && connection.is_used_up() {
            response.headers_mut().insert(header::CONNECTION, CLOSE);
        }
    }
}

// RFC 9110 section 9.3.2: the same head, no body. Over HTTP/2 a body would be sent all the same.
fn remove_body(response: &mut Response<Body>) {
    // An upstream sent no body, and its connection is to be used again.
    if matches!(response.body(), Body::Upstream(_)) {
        return;
    }
    let body = std::mem::take(response.body_mut());
    if let Some(length @ 1..) = body.size_hint().exact() {
        response.headers_mut().entry(header::CONTENT_LENGTH).or_insert(length.into());
    }
}

/// The value of `Strict-Transport-Security`, RFC 6797 section 6.1.
fn transport_security(settings: HstsSettings) -> HeaderValue {
    let mut value = format!("max-age={}", settings.max_age.as_secs());
    if settings.include_subdomains {
        value.push_str("; includeSubDomains");
    }
    if settings.preload {
        value.push_str("; preload");
    }
    HeaderValue::try_from(value).expect("digits and fixed words")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::CompressionSettings;

    #[test]
    fn without_a_word_of_the_route_only_pages_are_compressed_for_their_script() {
        let request = http::Request::get("/").header("accept-encoding", "gzip").body(()).expect("a request");
        let (head, ()) = request.into_parts();
        let of = |kind: &'static str| {
            let mut response = Response::new(Body::Empty);
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
            response
        };
        let usual = Compression::new(&Arc::new(CompressionSettings::default()), true, None);
        let mut stages = Stages::of(&head);
        assert!(stages.compressing(&of("text/html")).is_none());
        stages.compress_page_by(&usual, &head, "/");
        assert!(stages.compressing(&of("text/html")).is_some());
        assert!(stages.compressing(&of("text/csv")).is_none(), "a download stays as it is");
        stages.compress_by(&usual, &head, "/");
        assert!(stages.compressing(&of("text/csv")).is_some(), "the route says so");
    }
}
