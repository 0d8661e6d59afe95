//! The pace of responses.

use brisk_http::message::Response;
use brisk_limits::PacedBody;
use brisk_transform::body::Body;
use http::StatusCode;
use http_body::Body as _;

use crate::exchange::Exchange;
use crate::settings::Bandwidth;
use crate::stage::{RequestState, Stage, StageContext};

/// Delays the pieces of a response by [`PacedBody`](brisk_limits::PacedBody). Compiled if the route has `bandwidth`.
#[derive(Debug)]
pub(crate) struct BandwidthStage(Bandwidth);

impl Stage for BandwidthStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        context.route()?.bandwidth.map(Self)
    }

    fn response(&self, _: &Exchange, state: &RequestState, response: &mut Response<Body>) {
        // After a switch, the bytes belong to another protocol.
        let is_switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if !state.is_head && !is_switched && !response.body().is_end_stream() {
            let body = std::mem::take(response.body_mut());
            *response.body_mut() = Body::boxed(PacedBody::new(body, self.0));
        }
    }
}
