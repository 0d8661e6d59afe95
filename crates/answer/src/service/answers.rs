//! Responses that brisk makes itself.

use brisk_http::validate::Refusal;
use brisk_http::version;
use brisk_http_connection::Connection;
use brisk_telemetry::Side;
use http::{HeaderValue, Response, StatusCode, Version, header};

use crate::body::Body;
use crate::error_page::error_page;
use crate::exchange::Exchange;

const ALLOW: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

/// The response of a folder of files; a missing or unreadable file becomes a refusal.
pub(super) fn found(response: Response<Body>) -> Result<Response<Body>, Refusal> {
    match response.status() {
        StatusCode::NOT_FOUND => Err(Refusal::new(StatusCode::NOT_FOUND, "no-file")),
        StatusCode::INTERNAL_SERVER_ERROR => Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "file")),
        _ => Ok(response),
    }
}

/// The response to a client that has sent too many requests (RFC 6585 section 4); `None` within its rate.
pub(super) fn over_rate(connection: &Connection, exchange: &mut Exchange) -> Option<Response<Body>> {
    let wait = connection.over_rate()?;
    exchange.fail(Side::Client, "request-rate");
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let mut response = error_page(StatusCode::TOO_MANY_REQUESTS, exchange.id());
    response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    Some(response)
}

/// The response to the challenge of a certificate authority, RFC 8555 section 8.3.
pub(super) fn challenge(text: &str) -> Response<Body> {
    let mut response = Response::new(Body::full(text.to_owned()));
    let kind = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// The response to `OPTIONS *`.
pub(super) fn no_content() -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(header::ALLOW, ALLOW);
    response
}

/// The error page for a refused request; notes the reason in the exchange.
pub(super) fn refuse(refusal: Refusal, version: Version, exchange: &mut Exchange) -> Response<Body> {
    let Refusal { status, reason } = refusal;
    // 404 is no failure.
    if status.is_server_error() {
        exchange.fail(Side::Internal, reason);
    } else if status != StatusCode::NOT_FOUND {
        exchange.fail(Side::Client, reason);
    }
    let mut response = error_page(status, exchange.id());
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(header::ALLOW, ALLOW);
    }
    // After a malformed request, the beginning of the next one is unknown.
    if status == StatusCode::BAD_REQUEST && version::of(version).has_connection_header() {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
