//! Responses that the gateway produces itself.

use brisk_http::message::Response;
use brisk_http::validate::{Methods, Refusal};
use brisk_http::version;
use brisk_telemetry::Side;
use brisk_transform::body::Body;
use http::{HeaderValue, StatusCode, Version, header};

use crate::error_page::{error_page, whole_seconds};
use crate::exchange::Exchange;
use crate::headers::CLOSE;

/// Returns the response of a static folder, or a refusal for a missing or unreadable file.
pub(super) fn found(response: Response<Body>) -> Result<Response<Body>, Refusal> {
    match response.status() {
        StatusCode::NOT_FOUND => Err(Refusal::new(StatusCode::NOT_FOUND, "no-file")),
        StatusCode::INTERNAL_SERVER_ERROR => Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "file")),
        StatusCode::SERVICE_UNAVAILABLE => Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "list-memory")),
        _ => Ok(response),
    }
}

/// The response to a client above its request rate (RFC 6585 section 4); `None` within the rate.
pub(super) fn over_rate(exchange: &mut Exchange) -> Option<Response<Body>> {
    // The address of a trusted proxy represents many clients, which have no common rate.
    let client = exchange.client().one_client()?;
    let wait = exchange.connection().extras.over_rate(client)?;
    exchange.fail(Side::Client, "request-rate");
    let mut response = error_page(StatusCode::TOO_MANY_REQUESTS, exchange.id());
    response.headers_mut().insert(header::RETRY_AFTER, whole_seconds(wait).into());
    Some(response)
}

/// The response to an HTTP-01 challenge of a certificate authority (RFC 8555 section 8.3).
pub(super) fn challenge(text: &str) -> Response<Body> {
    let mut response = Response::new(Body::full(text.to_owned()));
    let kind = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// The response to `OPTIONS *` (RFC 9110 section 9.3.7).
pub(super) fn no_content() -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(Methods::Usual.allow()));
    response
}

/// The error page for a refused request. Records the reason in the exchange.
pub(super) fn refuse(refusal: Refusal, version: Version, exchange: &mut Exchange) -> Response<Body> {
    let Refusal { status, reason, methods } = refusal;
    // 404 is a normal response, not a failure: it must not appear among the problems of the client or the gateway.
    if status.is_server_error() {
        exchange.fail(Side::Internal, reason);
    } else if status != StatusCode::NOT_FOUND {
        exchange.fail(Side::Client, reason);
    }
    let mut response = error_page(status, exchange.id());
    if let Some(methods) = methods {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods.allow()));
    }
    // After a malformed request, or a body in an unknown transfer coding (501), the position of the next request is unknown,
    // so the connection must not be reused.
    let is_end_unknown = matches!(status, StatusCode::BAD_REQUEST | StatusCode::NOT_IMPLEMENTED);
    if is_end_unknown && version::of(version).has_connection_header() {
        response.headers_mut().insert(header::CONNECTION, CLOSE);
    }
    response
}
