//! Requests received before the end of the handshake.

use http_body::Body as _;

use crate::exchange::Exchange;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};
use brisk_rules::EarlyDataPolicy;

/// Holds requests that may be replays until the handshake is complete (RFC 8470 section 3). Compiled for every route,
/// because a route without the setting accepts no early requests.
#[derive(Debug)]
pub(crate) struct EarlyDataStage {
    policy: EarlyDataPolicy,
}

impl Stage for EarlyDataStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        Some(Self { policy: context.route()?.early_data.clone() })
    }

    fn request(&self, exchange: &mut Exchange, request: &mut ClientRequest, _: &mut RequestState) -> Flow {
        // A closure: nearly all requests arrive after the handshake and need no examination.
        let passes = || {
            let is_bodyless = request.body.is_end_stream();
            self.policy.lets_pass(&request.head, &request.path().decoded, is_bodyless)
        };
        if exchange.is_early() && !passes() { Flow::Wait } else { Flow::Continue }
    }

    async fn wait(&self, exchange: &mut Exchange, _: &mut ClientRequest, _: &mut RequestState) -> Flow {
        exchange.hold_until_confirmed().await;
        Flow::Continue
    }
}
