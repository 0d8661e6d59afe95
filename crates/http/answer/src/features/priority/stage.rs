//! Refusal of requests in an overload.

use brisk_http::validate::Refusal;
use brisk_pressure::Work;
use http::StatusCode;

use super::Priority;
use crate::exchange::Exchange;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};

/// Refuses requests with `503` as the overload requires. Not compiled for [`Priority::High`].
#[derive(Debug)]
pub(crate) struct PriorityStage(Work);

impl Stage for PriorityStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        // An internal route continues a request that was admitted.
        match context.first_route()?.priority {
            Priority::High => None,
            Priority::Normal => Some(Self(Work::Normal)),
            Priority::Low => Some(Self(Work::Low)),
        }
    }

    fn request(&self, exchange: &mut Exchange, _: &mut ClientRequest, _: &mut RequestState) -> Flow {
        if exchange.connection().pressure().is_some_and(|pressure| pressure.refuses(self.0)) {
            return Flow::Refuse(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "overload-priority"));
        }
        Flow::Continue
    }
}
