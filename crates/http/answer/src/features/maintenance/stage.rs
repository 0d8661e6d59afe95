//! The response of a host in maintenance.

use std::sync::Arc;

use brisk_http::message::Response;
use brisk_http::validate::Refusal;
use brisk_transform::body::Body;
use http::{StatusCode, header};

use crate::client_address::ClientSource;
use crate::exchange::Exchange;
use crate::settings::Maintenance;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext, StageTarget};

/// Refuses requests with `503` and `Retry-After` while the [`MaintenanceSwitch`](super::MaintenanceSwitch) of the host is on.
/// Compiled for configured routes and for requests without a route, if the host has a switch.
#[derive(Debug)]
pub(crate) struct MaintenanceStage(Arc<Maintenance>);

impl Stage for MaintenanceStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        let maintenance = context.host?.settings.maintenance.as_ref()?;
        if !matches!(context.target, StageTarget::Route(_) | StageTarget::Unrouted) {
            return None;
        }
        maintenance.switch.start();
        Some(Self(Arc::clone(maintenance)))
    }

    fn request(&self, exchange: &mut Exchange, _: &mut ClientRequest, state: &mut RequestState) -> Flow {
        if !self.0.switch.is_on() {
            return Flow::Continue;
        }
        let client = exchange.client();
        if self.0.allow.iter().any(|network| network.contains(&client.ip())) {
            // A client that is refused need not prove its address.
            let is_proven = client.source != ClientSource::Unproven;
            return if is_proven { Flow::Continue } else { Flow::Wait };
        }
        // The response side must distinguish this refusal from another 503.
        state.is_in_maintenance = true;
        Flow::Refuse(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "maintenance"))
    }

    /// Waits until a client whose address is permitted has proven it.
    async fn wait(&self, exchange: &mut Exchange, _: &mut ClientRequest, _: &mut RequestState) -> Flow {
        exchange.hold_until_proven().await;
        Flow::Continue
    }

    fn response(&self, _: &Exchange, state: &RequestState, response: &mut Response<Body>) {
        if state.is_in_maintenance {
            response.headers_mut().insert(header::RETRY_AFTER, self.0.retry_after.as_secs().into());
            if let Some(page) = &self.0.page {
                page.put(response);
            }
        }
    }
}
