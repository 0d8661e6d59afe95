//! The client's certificate in the headers for upstreams.

use brisk_http::message::HeaderList;

use crate::exchange::Exchange;
use crate::features::client_certificates::ClientCert;
use crate::stage::{RequestState, Stage, StageContext};

/// Sends the client's certificate to the upstream (RFC 9440). Compiled if
/// [`HostSettings::client_certificates`](crate::settings::HostSettings::client_certificates) enables it. Consolidated origins never get
/// the certificate, because clients present it to the host alone.
#[derive(Debug)]
pub(crate) struct ClientCertificateStage {
    certificates: ClientCert,
}

impl ClientCertificateStage {
    /// The stage for questions of forward authentication, whose server belongs to the host, for every action of a route.
    pub(crate) fn for_questions(context: &StageContext<'_>) -> Option<Self> {
        let certificates = context.host?.settings.client_certificates;
        (certificates != ClientCert::None).then_some(Self { certificates })
    }
}

impl Stage for ClientCertificateStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        let (host, route) = (context.host?.settings, context.upstream_route()?);
        let is_other_origin = host.consolidation.is_some() && route.consolidation.place.is_some();
        let sends = host.client_certificates != ClientCert::None && !is_other_origin;
        sends.then_some(Self { certificates: host.client_certificates })
    }

    fn forward(&self, exchange: &Exchange, _: &RequestState, headers: &mut HeaderList) {
        self.certificates.apply(headers, &exchange.connection().client.record.borrow());
    }
}
