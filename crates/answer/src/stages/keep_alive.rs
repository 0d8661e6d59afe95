//! The time and the number of requests that a connection is kept for.

use crate::exchange::Exchange;
use crate::settings::KeepAlive;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext, StageTarget};

/// Keeps the connection as its latest request's route says. Compiled for every route, because a route without a setting returns
/// the connection to the usual times.
#[derive(Debug)]
pub(super) struct KeepAliveStage {
    keep_alive: Option<KeepAlive>,
}

impl Stage for KeepAliveStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        match context.target {
            StageTarget::Route(route) => Some(Self { keep_alive: route.keep_alive }),
            StageTarget::Preconnect(preconnect) => Some(Self { keep_alive: Some(preconnect.keep_alive) }),
            StageTarget::Script | StageTarget::Beacon | StageTarget::Unrouted => None,
        }
    }

    fn request(&self, exchange: &mut Exchange, _: &mut ClientRequest, _: &mut RequestState) -> Flow {
        exchange.connection().keep(self.keep_alive);
        Flow::Continue
    }
}
