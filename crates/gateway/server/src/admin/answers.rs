//! Responses of all pages, with their access rules.

use std::net::IpAddr;

use brisk_http::validate::{RETRY_AFTER, host_of};
use bytes::Bytes;
use http::header::{self, ALLOW, CONTENT_TYPE, HOST, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::Full;

/// Whether the host of a request is an IP address or `localhost` in every place that names it.
pub(super) fn is_without_name<B>(request: &Request<B>) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    // All of them, since a request may name a host in its target and in several headers. One without any host
    // passes: browsers always send one, and DNS rebinding needs a browser.
    request.uri().authority().is_none_or(|authority| is_address_or_localhost(authority.as_str()))
        && hosts.all(|host| host.to_str().is_ok_and(is_address_or_localhost))
}

fn is_address_or_localhost(authority: &str) -> bool {
    // `Authority` of the crate `http` accepts "[::1].evil.test".
    let host = host_of(authority);
    host.is_some_and(|host| host.parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost"))
}

pub(super) fn not_allowed(allowed: &'static str, message: &'static str) -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, message);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

pub(super) fn typed(kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::OK, body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

pub(super) fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    response
}
