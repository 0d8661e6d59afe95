//! The page for failed requests: the status and a request id, by which the operator finds the request in the log. Sources of error
//! responses.

use std::time::Duration;

use brisk_http::message::Response;
use brisk_http::validate::RETRY_AFTER;
use brisk_telemetry::RequestId;
use brisk_transform::body::Body;
use brisk_upstream::UpstreamBody;
use http::{HeaderName, HeaderValue, StatusCode, header};

use crate::forwarding::request_id;

const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
/// Header of the gateway's own error responses.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Source of an error response, as an extension of it. Stages wrap bodies and change headers, so that neither shows the source.
/// Absent for files and responses in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorSource {
    /// The gateway itself: an [`error_page`].
    Gateway,
    /// An upstream, or the server of forward authentication.
    Upstream,
    /// A route in place of another error.
    Page,
}

impl ErrorSource {
    /// The source of a response; `None` also for a response that is no error.
    pub(crate) fn of(response: &Response<Body>) -> Option<Self> {
        response.extensions().get().copied()
    }
}

/// The response of an upstream. States its [`ErrorSource`] if it is an error; other responses cost no extension.
pub(crate) fn of_upstream(response: Response<UpstreamBody>) -> Response<Body> {
    let mut response = response.map(Body::Upstream);
    if response.status().is_client_error() || response.status().is_server_error() {
        response.extensions_mut().insert(ErrorSource::Upstream);
    }
    response
}

/// The error page for `status`, with [`RETRY_AFTER`] for `503`. Contains no input of the client, so that it cannot be used for
/// injection.
pub(crate) fn error_page(status: StatusCode, id: RequestId) -> Response<Body> {
    let reason = status.canonical_reason().unwrap_or("Error");
    let code = status.as_u16();
    let page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{code} {reason}</title>\n\
         <h1>{code} {reason}</h1>\n<p>Request {id}</p>\n"
    );
    let mut response = Response::new(Body::full(page));
    *response.status_mut() = status;
    response.extensions_mut().insert(ErrorSource::Gateway);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HTML);
    // The page has the id of one request, so a cache must not send it for others.
    headers.insert(header::CACHE_CONTROL, NO_STORE);
    headers.insert(REQUEST_ID, request_id(id));
    if status == StatusCode::SERVICE_UNAVAILABLE {
        headers.insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    response
}

/// Value of `Retry-After` for a client that is refused for `wait`: rounded up, since it has whole seconds, and an earlier
/// retry would be refused again.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn the_page_and_its_header_name_the_request() {
        let response = error_page(StatusCode::BAD_GATEWAY, RequestId(0xab));
        assert_eq!(response.headers()["x-request-id"], "00000000000000ab");
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        let text = std::str::from_utf8(&body).expect("text");
        assert!(text.contains("502 Bad Gateway") && text.contains("00000000000000ab"), "{text}");
    }

    #[test]
    fn an_unavailable_gateway_names_the_time_of_the_next_attempt() {
        let retry_after =
            |status| error_page(status, RequestId(1)).headers().get(header::RETRY_AFTER).cloned();
        assert_eq!(retry_after(StatusCode::SERVICE_UNAVAILABLE), Some(RETRY_AFTER));
        assert_eq!(retry_after(StatusCode::BAD_GATEWAY), None);
    }
}
