//! The limit on the length of request bodies.

use brisk_http::validate::Refusal;
use http::StatusCode;

use crate::exchange::Exchange;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};

/// Refuses requests with a stated length above the limit with `413` (RFC 9110 section 15.5.14). The action counts bodies
/// of unstated length while it forwards them. Compiled if the route has `body_size`.
#[derive(Debug)]
pub(crate) struct BodyLimitStage {
    limit: u64,
}

impl Stage for BodyLimitStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        context.route()?.body.limit.map(|limit| Self { limit })
    }

    fn request(&self, _: &mut Exchange, request: &mut ClientRequest, _: &mut RequestState) -> Flow {
        if request.stated_length() > self.limit {
            return Flow::Refuse(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "request-body-too-large"));
        }
        Flow::Continue
    }
}
