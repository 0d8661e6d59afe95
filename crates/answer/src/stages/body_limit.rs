//! The limit on the size of request bodies.

use brisk_http::validate::Refusal;
use http::StatusCode;

use crate::exchange::Exchange;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};

/// Refuses requests that state a longer body with 413. A body of unstated length is counted while it is forwarded, by the action.
/// Compiled where the route has a limit.
#[derive(Debug)]
pub(super) struct BodyLimitStage {
    limit: u64,
}

impl Stage for BodyLimitStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        context.route()?.body_limit.map(|limit| Self { limit })
    }

    fn request(&self, _: &mut Exchange, request: &mut ClientRequest, _: &mut RequestState) -> Flow {
        if request.stated_length() > self.limit {
            return Flow::Refuse(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "request-body-too-large"));
        }
        Flow::Continue
    }
}
