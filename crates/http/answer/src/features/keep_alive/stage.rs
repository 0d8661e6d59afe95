//! Idle timeout and request limit of connections.

use crate::exchange::Exchange;
use crate::settings::KeepAlive;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext, StageTarget};

/// Applies the keep-alive setting of the latest request's route to the connection. Compiled for every route, because a
/// route without a setting restores the defaults.
#[derive(Debug)]
pub(crate) struct KeepAliveStage {
    keep_alive: Option<KeepAlive>,
}

impl Stage for KeepAliveStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        match context.target {
            StageTarget::Route(route) => Some(Self { keep_alive: route.keep_alive }),
            StageTarget::Preconnect(preconnect) => Some(Self { keep_alive: Some(preconnect.keep_alive) }),
            StageTarget::Internal(_) | StageTarget::Script | StageTarget::Beacon | StageTarget::Unrouted => {
                None
            }
        }
    }

    fn request(&self, exchange: &mut Exchange, _: &mut ClientRequest, _: &mut RequestState) -> Flow {
        exchange.connection().limits.keep(self.keep_alive);
        Flow::Continue
    }
}
