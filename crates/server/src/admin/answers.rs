//! Responses of all pages, with their access rules.

use std::net::IpAddr;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HOST, HeaderValue};
use http::uri::Authority;
use http::{Request, Response, StatusCode};
use http_body_util::Full;

/// Whether the host of a request is an IP address or `localhost` in every place that names it.
pub(super) fn is_without_name<B>(request: &Request<B>) -> bool {
    let headers = request.headers().get_all(HOST).iter();
    let mut hosts = headers.map(|host| Authority::try_from(host.as_bytes()).ok());
    request.uri().authority().is_none_or(is_address_or_localhost)
        && hosts.all(|host| host.as_ref().is_some_and(is_address_or_localhost))
}

fn is_address_or_localhost(authority: &Authority) -> bool {
    let host = authority.host();
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    address.parse::<IpAddr>().is_ok() || host.eq_ignore_ascii_case("localhost")
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
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
