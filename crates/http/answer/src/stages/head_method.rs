//! Responses to `HEAD`.

use brisk_http::message::Response;
use brisk_transform::body::Body;
use http::header;
use http_body::Body as _;

use crate::exchange::Exchange;
use crate::stage::{RequestState, Stage, StageContext};

/// Removes the body of responses to `HEAD` and keeps the head of the response to `GET`. Compiled for every response.
#[derive(Debug)]
pub(super) struct HeadMethodStage;

impl Stage for HeadMethodStage {
    fn compile(_: &StageContext<'_>) -> Option<Self> {
        Some(Self)
    }

    // RFC 9110 section 9.3.2: same head, no body. The HTTP/2 connection would send a body nevertheless.
    fn response(&self, _: &Exchange, state: &RequestState, response: &mut Response<Body>) {
        // An upstream sent no body. Its body is kept because reading it to the end returns the connection to the pool.
        if !state.is_head || matches!(response.body(), Body::Upstream(_)) {
            return;
        }
        let body = std::mem::take(response.body_mut());
        // RFC 9110 section 8.6: a 204 has no `Content-Length`, so an empty body gets none.
        if let Some(length @ 1..) = body.size_hint().exact() {
            response.headers_mut().insert_missing(header::CONTENT_LENGTH, || length.into());
        }
    }
}
