//! Tunnels to routes that speak HTTP only.

use brisk_http::validate::{Methods, Refusal};

use crate::exchange::Exchange;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};

/// Refuses tunnels with `405`. To the client, any 2xx would mean that its peer speaks the protocol of the tunnel. Compiled for
/// routes without an upstream.
#[derive(Debug)]
pub(super) struct TunnelRefusalStage;

impl Stage for TunnelRefusalStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        context.route()?.action.upstream().is_none().then_some(Self)
    }

    fn request(&self, _: &mut Exchange, request: &mut ClientRequest, _: &mut RequestState) -> Flow {
        if request.is_tunnel {
            return Flow::Refuse(Refusal::method(Methods::Usual));
        }
        Flow::Continue
    }
}
