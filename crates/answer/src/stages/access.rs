//! Access control.

use std::sync::Arc;

use brisk_access::{CertificateRules, NetworkRules};
use brisk_http::validate::Refusal;
use brisk_http_connection::Connection;
use http::StatusCode;

use crate::exchange::Exchange;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};

/// Refuses clients that may not use the route, with 403 (RFC 9110 section 15.5.4). Compiled if the route or its host
/// restricts the clients; the networks of the host apply to requests without a route as well.
#[derive(Debug)]
pub(super) struct AccessStage {
    networks: Option<Arc<NetworkRules>>,
    certificates: Option<Arc<CertificateRules>>,
}

impl Stage for AccessStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        let route = context.route().map(|route| &route.access);
        let of_route = route.and_then(|access| access.networks.as_ref());
        let networks = of_route.or(context.host?.settings.networks.as_ref());
        let stage = Self {
            networks: networks.filter(|networks| !networks.is_open()).cloned(),
            certificates: route.and_then(|access| access.certificates.clone()),
        };
        (stage.networks.is_some() || stage.certificates.is_some()).then_some(stage)
    }

    fn request(&self, exchange: &mut Exchange, _: &mut ClientRequest, _: &mut RequestState) -> Flow {
        match self.fault(exchange.connection()) {
            None => Flow::Continue,
            Some(reason) => Flow::Refuse(Refusal::new(StatusCode::FORBIDDEN, reason)),
        }
    }
}

impl AccessStage {
    /// The reason to refuse the client of `connection`.
    fn fault(&self, connection: &Connection) -> Option<&'static str> {
        let address = || connection.client.record.borrow().client.ip();
        if self.networks.as_ref().is_some_and(|networks| !networks.permits(address())) {
            return Some("client-address");
        }
        let certificates = self.certificates.as_ref()?;
        let is_permitted = connection.identity().is_some_and(|identity| certificates.permit(identity));
        (!is_permitted).then_some("client-certificate")
    }
}
