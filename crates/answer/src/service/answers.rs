//! Answers that brisk makes by itself, and what it changes about others.

use brisk_http::validate::Refusal;
use brisk_http_connection::Connection;
use brisk_telemetry::Side;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version, header};

use crate::body::Body;
use crate::error_page::error_page;
use crate::exchange::Exchange;
use crate::stages::CLOSE;

const ALLOW: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

pub(super) fn fixed(status: StatusCode, headers: &HeaderMap, body: &Bytes) -> Response<Body> {
    let mut response = Response::new(Body::full(body.clone()));
    *response.status_mut() = status;
    *response.headers_mut() = headers.clone();
    response
}

pub(super) fn found(response: Response<Body>) -> Result<Response<Body>, Refusal> {
    match response.status() {
        StatusCode::NOT_FOUND => Err(Refusal::new(StatusCode::NOT_FOUND, "no-file")),
        StatusCode::INTERNAL_SERVER_ERROR => Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "file")),
        _ => Ok(response),
    }
}

/// The answer to a client that has sent too many requests. RFC 6585 section 4.
pub(super) fn over_rate(connection: &Connection, exchange: &mut Exchange) -> Option<Response<Body>> {
    let wait = connection.over_rate()?;
    exchange.fail(Side::Client, "request-rate");
    let seconds = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    let mut response = error_page(StatusCode::TOO_MANY_REQUESTS, exchange.id());
    response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    Some(response)
}

/// RFC 8555 section 8.3.
pub(super) fn said(text: &str) -> Response<Body> {
    let mut response = Response::new(Body::full(text.to_owned()));
    let kind = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

pub(super) fn no_content() -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(header::ALLOW, ALLOW);
    response
}

/// The answer to a page that wants a connection: nothing, to pages of any origin, and never from a cache.
pub(super) fn preconnected() -> Response<Body> {
    let mut response = Response::new(Body::Empty);
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("cross-origin"));
    response
}

pub(super) fn refuse(refusal: Refusal, version: Version, exchange: &mut Exchange) -> Response<Body> {
    let Refusal { status, reason } = refusal;
    // 404 is an answer like others.
    if status.is_server_error() {
        exchange.fail(Side::Internal, reason);
    } else if status != StatusCode::NOT_FOUND {
        exchange.fail(Side::Client, reason);
    }
    let mut response = error_page(status, exchange.id());
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(header::ALLOW, ALLOW);
    }
    // After a request that is not understood, it is unknown where the next begins.
    if status == StatusCode::BAD_REQUEST && version < Version::HTTP_2 {
        response.headers_mut().insert(header::CONNECTION, CLOSE);
    }
    response
}
