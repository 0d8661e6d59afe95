//! Access control.

use std::sync::Arc;

use brisk_access::NetworkRules;
use brisk_http::validate::Refusal;
use http::StatusCode;

use crate::exchange::Exchange;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};

/// Refuses clients that may not use the route, with 403 (RFC 9110 section 15.5.4). Compiled if the route or its host
/// restricts the clients; the restrictions of the host apply to requests without a route as well.
#[derive(Debug)]
pub(super) struct AccessStage {
    networks: Arc<NetworkRules>,
}

impl Stage for AccessStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        let of_route = context.route().and_then(|route| route.access.networks.as_ref());
        let networks = of_route.or(context.host?.settings.networks.as_ref())?;
        (!networks.is_open()).then(|| Self { networks: Arc::clone(networks) })
    }

    fn request(&self, exchange: &mut Exchange, _: &mut ClientRequest, _: &mut RequestState) -> Flow {
        let client = exchange.connection().client.record.borrow().client.ip();
        if self.networks.permits(client) {
            return Flow::Continue;
        }
        Flow::Refuse(Refusal::new(StatusCode::FORBIDDEN, "client-address"))
    }
}
