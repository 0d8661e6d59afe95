//! Pages of the operator for failed requests, by status.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use brisk_http::message::Response;
use brisk_transform::body::Body;
use brisk_transform::digests::DIGESTS;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::route::ErrorRoute;
use crate::error_page::ErrorSource;

/// Headers that describe the content that a page replaces, besides [`DIGESTS`].
const CONTENT_HEADERS: [HeaderName; 10] = [
    header::CONTENT_LENGTH,
    header::CONTENT_ENCODING,
    header::CONTENT_LANGUAGE,
    header::CONTENT_LOCATION,
    header::CONTENT_DISPOSITION,
    header::CONTENT_RANGE,
    header::ACCEPT_RANGES,
    header::ETAG,
    header::LAST_MODIFIED,
    header::TRAILER,
];

/// Pages for the responses with error status of a host or route.
#[derive(Clone, Debug, Default)]
pub struct ErrorPages {
    /// Pages by status.
    pub by_status: BTreeMap<StatusCode, PageSource>,
    /// Pages for the other statuses from `400` to `499`.
    pub client_errors: Option<PageSource>,
    /// Pages for the other statuses from `500` to `599`.
    pub server_errors: Option<PageSource>,
    /// Whether responses of upstreams are replaced, too. Default: `false`.
    pub intercept: bool,
}

/// Source of a page.
#[derive(Clone, Debug)]
pub enum PageSource {
    /// A file.
    File(ErrorPage),
    /// The response of a route.
    Route(Arc<ErrorRoute>),
}

impl PageSource {
    /// The file, if it is one.
    pub fn file(&self) -> Option<&ErrorPage> {
        match self {
            Self::File(page) => Some(page),
            Self::Route(_) => None,
        }
    }
}

/// A page in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorPage {
    content_type: HeaderValue,
    body: Bytes,
}

impl ErrorPage {
    /// The page in `file`; the extension of its name determines the media type.
    pub fn new(file: &Path, body: impl Into<Bytes>) -> Self {
        let kind = mime_guess::from_path(file).first_raw().unwrap_or("application/octet-stream");
        Self { content_type: HeaderValue::from_static(kind), body: body.into() }
    }

    /// Replaces the content of a response.
    pub(crate) fn put(&self, response: &mut Response<Body>) {
        // RFC 9110 section 15.5.17: `Content-Range` of a 416 states the length of the resource, not a part in the content.
        let is_about_resource = response.status() == StatusCode::RANGE_NOT_SATISFIABLE;
        let headers = response.headers_mut();
        for name in CONTENT_HEADERS.iter().chain(&DIGESTS) {
            if !(is_about_resource && name == header::CONTENT_RANGE) {
                headers.remove(name);
            }
        }
        headers.insert(header::CONTENT_TYPE, self.content_type.clone());
        *response.body_mut() = Body::full(self.body.clone());
    }
}

impl ErrorPages {
    /// Replaces the content of an error response, and keeps its status and its other headers.
    pub(crate) fn apply(&self, response: &mut Response<Body>) {
        if let Some(page) = self.page_for(response).and_then(PageSource::file) {
            page.put(response);
        }
    }

    /// The route whose response replaces an error response.
    pub(crate) fn route(&self, response: &Response<Body>) -> Option<&Arc<ErrorRoute>> {
        match self.page_for(response)? {
            PageSource::File(_) => None,
            PageSource::Route(route) => Some(route),
        }
    }

    /// Whether responses of routes replace errors.
    pub fn has_routes(&self) -> bool {
        let mut pages = self.by_status.values().chain(&self.client_errors).chain(&self.server_errors);
        pages.any(|page| matches!(page, PageSource::Route(_)))
    }

    fn page_for(&self, response: &Response<Body>) -> Option<&PageSource> {
        self.page(response.status()).filter(|_| self.may_replace(response))
    }

    fn page(&self, status: StatusCode) -> Option<&PageSource> {
        let class = match status.as_u16() {
            400..=499 => &self.client_errors,
            500..=599 => &self.server_errors,
            _ => return None,
        };
        self.by_status.get(&status).or(class.as_ref())
    }

    /// Whether the response is an error of the gateway or without content, or of an upstream whose errors are intercepted.
    fn may_replace(&self, response: &Response<Body>) -> bool {
        let is_of_upstream = ErrorSource::of(response) == Some(ErrorSource::Upstream);
        is_of_gateway(response) || (self.intercept && is_of_upstream)
    }
}

/// Removes the body and the headers that describe it.
pub(super) fn remove_content(response: &mut Response<Body>) {
    for name in CONTENT_HEADERS.iter().chain(&DIGESTS).chain([&header::CONTENT_TYPE]) {
        response.headers_mut().remove(name);
    }
    *response.body_mut() = Body::Empty;
}

/// Whether an error is an error page of the gateway, or has no content and is of no upstream.
pub(super) fn is_of_gateway(error: &Response<Body>) -> bool {
    match ErrorSource::of(error) {
        Some(ErrorSource::Gateway) => true,
        Some(ErrorSource::Upstream | ErrorSource::Page) => false,
        None => http_body::Body::is_end_stream(error.body()),
    }
}

#[cfg(test)]
mod tests {
    use brisk_telemetry::RequestId;
    use http_body_util::BodyExt;

    use super::*;
    use crate::error_page::error_page;

    fn page(text: &'static str) -> PageSource {
        PageSource::File(ErrorPage::new(Path::new("x.html"), text))
    }

    fn pages() -> ErrorPages {
        let by_status = [(StatusCode::NOT_FOUND, page("404")), (StatusCode::BAD_GATEWAY, page("502"))];
        ErrorPages { by_status: by_status.into(), server_errors: Some(page("5xx")), ..ErrorPages::default() }
    }

    async fn text(mut response: Response<Body>) -> String {
        pages().apply(&mut response);
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        String::from_utf8(body.to_vec()).expect("text")
    }

    #[tokio::test]
    async fn an_error_of_the_gateway_gets_the_page_of_its_status_or_class() {
        for (status, expected) in [(404, "404"), (502, "502"), (503, "5xx")] {
            let status = StatusCode::from_u16(status).expect("a status");
            assert_eq!(text(error_page(status, RequestId(1))).await, expected);
        }
        let other = text(error_page(StatusCode::FORBIDDEN, RequestId(1))).await;
        assert!(other.contains("403 Forbidden"), "{other}");
    }

    #[test]
    fn a_page_keeps_status_and_headers_and_replaces_those_of_the_content() {
        let mut response = error_page(StatusCode::NOT_FOUND, RequestId(1));
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        response.headers_mut().insert(header::ETAG, HeaderValue::from_static("\"x\""));
        pages().apply(&mut response);
        assert_eq!(response.status(), 404);
        let mut headers: Vec<_> =
            response.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        headers.sort_unstable();
        let expected: [(&str, &[u8]); 3] = [
            ("cache-control", b"no-store"),
            ("content-type", b"text/html"),
            ("x-request-id", b"0000000000000001"),
        ];
        assert_eq!(headers, expected);
    }

    #[test]
    fn a_page_keeps_the_headers_that_its_status_requires() {
        let pages = ErrorPages { client_errors: Some(page("4xx")), ..pages() };
        for (status, name, value) in [
            (401, "www-authenticate", "Basic realm=\"x\""),
            (405, "allow", "GET, HEAD"),
            (407, "proxy-authenticate", "Basic realm=\"x\""),
            (413, "retry-after", "5"),
            (416, "content-range", "bytes */20"),
            (426, "upgrade", "h2c"),
            (429, "retry-after", "5"),
            (503, "retry-after", "5"),
        ] {
            let mut response = error_page(StatusCode::from_u16(status).expect("a status"), RequestId(1));
            response.headers_mut().insert(name, HeaderValue::from_static(value));
            pages.apply(&mut response);
            assert_eq!(response.headers()[header::CONTENT_TYPE], "text/html");
            assert_eq!(response.headers().get(name).expect(name), value, "{status}");
        }
    }

    #[test]
    fn a_page_has_no_digest_or_file_name_of_the_content_it_replaces() {
        let mut response = error_page(StatusCode::NOT_FOUND, RequestId(1));
        let names = [
            "content-digest",
            "repr-digest",
            "digest",
            "content-md5",
            "content-disposition",
            "trailer",
            "content-range",
        ];
        for name in names {
            response.headers_mut().insert(name, HeaderValue::from_static("x"));
        }
        pages().apply(&mut response);
        for name in names {
            assert!(!response.headers().contains_key(name), "{name}");
        }
    }

    #[tokio::test]
    async fn a_response_with_content_of_its_own_stays() {
        let fixed = |body: Body| {
            let mut response = Response::new(body);
            *response.status_mut() = StatusCode::NOT_FOUND;
            response
        };
        assert_eq!(text(fixed(Body::full("own"))).await, "own");
        assert_eq!(text(fixed(Body::Empty)).await, "404");
        assert_eq!(text(Response::new(Body::Empty)).await, "", "no error");
    }
}
