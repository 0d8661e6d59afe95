//! Responses of origins and of the host: their headers and documents for the browser.

use std::rc::Rc;

use brisk_budget::Resource;
use brisk_coding::{Coding, Decoder};
use brisk_http::message::{HeaderList, Response};
use brisk_http::validate::RETRY_AFTER;
use brisk_http_connection::Connection;
use brisk_rewrite::{DocumentKind, Rewriter, policy, refresh};
use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderValue, StatusCode};

use super::body::{DocumentNames, RewrittenBody};
use super::{ConsolidatedRequest, Cookies, cookies, metrics};
use crate::body::Body;
use crate::digests::DIGESTS;
use crate::header_values::{forbids_transforming, tokens};

/// Maximum length in bytes of complete documents that are changed at once and keep a `Content-Length`.
const AT_ONCE: usize = 32 << 10;

/// Headers with which an origin makes statements about itself as a whole. Below a path of the host they would apply to
/// the host.
const OF_ORIGINS: [HeaderName; 15] = [
    header::STRICT_TRANSPORT_SECURITY,
    header::ALT_SVC,
    HeaderName::from_static("accept-ch"),
    HeaderName::from_static("clear-site-data"),
    HeaderName::from_static("critical-ch"),
    HeaderName::from_static("nel"),
    HeaderName::from_static("origin-agent-cluster"),
    HeaderName::from_static("report-to"),
    HeaderName::from_static("sec-session-challenge"),
    HeaderName::from_static("sec-session-registration"),
    HeaderName::from_static("secure-session-registration"),
    HeaderName::from_static("service-worker-allowed"),
    HeaderName::from_static("set-login"),
    HeaderName::from_static("speculation-rules"),
    HeaderName::from_static("use-as-dictionary"),
];

/// Replaces the values of a header for which `changed` returns another value.
pub(super) fn change(headers: &mut HeaderList, name: &HeaderName, changed: impl Fn(&str) -> Option<String>) {
    for value in headers.get_all_mut(name) {
        let new = brisk_rewrite::map_bytes(value.as_bytes(), &changed);
        if let Some(new) = new.and_then(|new| HeaderValue::try_from(new).ok()) {
            *value = new;
        }
    }
}

impl ConsolidatedRequest {
    pub(super) fn change_headers(&self, headers: &mut HeaderList) {
        let (base, map) = (self.consolidated.base(), &self.consolidated.settings.map);
        for name in [header::LOCATION, header::CONTENT_LOCATION] {
            change(headers, &name, |value| map.url(base, value));
        }
        change(headers, &header::REFRESH, |value| refresh(value, base, map));
        for name in [header::CONTENT_SECURITY_POLICY, header::CONTENT_SECURITY_POLICY_REPORT_ONLY] {
            change(headers, &name, |value| policy(value, map, &self.own));
        }
        if let Some(place) = self.consolidated.place() {
            for name in &OF_ORIGINS {
                headers.remove(name);
            }
            // The browser would ask for the password in the name of the host, and the origin would never receive it.
            if self.consolidated.cookies() != Cookies::Host {
                headers.remove(header::WWW_AUTHENTICATE);
            }
            cookies::confine(headers, place, self.consolidated.cookies());
        }
    }

    pub(super) fn change_document(&self, connection: &Rc<Connection>, response: &mut Response<Body>) {
        if response.status() == StatusCode::NOT_MODIFIED {
            return self.confirm(response.headers_mut());
        }
        let Some((kind, coding)) = document(response) else { return };
        let decoder = match coding {
            Some(coding) => {
                let Ok(holding) = connection.reserve(decoders(coding), Decoder::memory(coding)) else {
                    metrics::refused();
                    *response = no_room();
                    return;
                };
                Some((Decoder::new(coding), holding))
            }
            None => None,
        };
        self.mark(response.headers_mut());
        if self.is_head {
            // The upstream sent no body. Its body is kept because reading it to the end returns the connection to the
            // pool.
            if !matches!(response.body(), Body::Upstream(_)) {
                *response.body_mut() = Body::Empty;
            }
        } else {
            let rewriter = Rewriter::new(kind, self.consolidated.base());
            let body = std::mem::take(response.body_mut());
            let map = Rc::clone(&self.consolidated);
            let map = std::sync::Arc::clone(&map.settings.map);
            let new = RewrittenBody::new(rewriter, decoder, map, self.names(), Rc::clone(connection));
            *response.body_mut() = match short(body, connection, coding) {
                Ok(whole) => Body::full(new.whole(&whole)),
                Err(body) => Body::boxed(new.streaming(body)),
            };
        }
        // The document arrived compressed and is plain now, so it would be longer for the client than without
        // changes.
        if let (Some(_), Some(compression)) = (coding, &self.recompression) {
            compression.apply(connection, response);
        }
    }

    /// Sets the headers of a changed document.
    fn mark(&self, headers: &mut HeaderList) {
        headers.remove(header::CONTENT_LENGTH);
        headers.remove(header::CONTENT_ENCODING);
        // A range would address bytes of the original document, and the original's time ignores the changes.
        headers.remove(header::ACCEPT_RANGES);
        headers.remove(header::LAST_MODIFIED);
        for name in &DIGESTS {
            headers.remove(name);
        }
        if let Some(tag) = headers.remove(header::ETAG)
            && let Some(marked) = self.consolidated.mark.of_document(&tag)
        {
            headers.insert(header::ETAG, marked);
        }
    }

    /// Gives a `304` the `ETag` of the client's copy.
    fn confirm(&self, headers: &mut HeaderList) {
        let Some(known) = &self.known else { return };
        let tag = headers.get(header::ETAG);
        if let Some(marked) = tag.and_then(|tag| self.consolidated.mark.known_as(known, tag)) {
            headers.insert(header::ETAG, marked);
            // The client's copy has no `Last-Modified` either; with it, the client would revalidate by time.
            headers.remove(header::LAST_MODIFIED);
        }
    }

    fn names(&self) -> DocumentNames {
        let from = self.consolidated.place().map(|place| place.origin.to_string());
        DocumentNames { own: self.own.clone(), from, path: self.path.clone() }
    }
}

/// The budget of a decoder: those other than `gzip` need more memory, and have [`Resource::WideDecoders`].
pub(super) fn decoders(coding: Coding) -> Resource {
    match coding {
        Coding::Gzip => Resource::Decoders,
        Coding::Zstd | Coding::Brotli => Resource::WideDecoders,
    }
}

/// The response in place of a document for whose decoder no memory is left. Unchanged, its URLs would not be those of
/// the host.
fn no_room() -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    let headers = response.headers_mut();
    headers.insert(header::RETRY_AFTER, RETRY_AFTER);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Kind and coding of a document; `None` for content that is not changed, such as `206` or `no-transform`.
fn document(response: &Response<Body>) -> Option<(DocumentKind, Option<Coding>)> {
    let headers = response.headers();
    let status = response.status();
    let has_none = status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::RESET_CONTENT | StatusCode::PARTIAL_CONTENT);
    if has_none || headers.contains_key(header::CONTENT_RANGE) || forbids_transforming(headers) {
        return None;
    }
    let kind = DocumentKind::of(headers.get(header::CONTENT_TYPE)?.to_str().ok()?)?;
    let mut codings = tokens(headers, &header::CONTENT_ENCODING)
        .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity"));
    match (codings.next(), codings.next()) {
        (None, _) => Some((kind, None)),
        (Some(coding), None) => Some((kind, Some(Coding::named(coding)?))),
        _ => None,
    }
}

/// The whole body, if it is complete, uncoded and at most [`AT_ONCE`] bytes long, and this round permits it; otherwise the body
/// unchanged.
fn short(mut body: Body, connection: &Connection, coding: Option<Coding>) -> Result<Bytes, Body> {
    if coding.is_some() {
        return Err(body);
    }
    match body.whole() {
        Some(whole) if whole.len() <= AT_ONCE && connection.may_work(whole.len()) => Ok(whole),
        Some(whole) => Err(Body::full(whole)),
        None => Err(body),
    }
}
