//! The stages of requests and responses, in order.

mod alt_svc;
mod connection_close;
mod head_method;
mod tunnel_refusal;
mod variant_names;

use brisk_http::message::{HeaderList, Response};
use brisk_http::validate::Refusal;
use brisk_transform::body::Body;

use self::alt_svc::AltSvcStage;
use self::connection_close::ConnectionCloseStage;
use self::head_method::HeadMethodStage;
use self::tunnel_refusal::TunnelRefusalStage;
use self::variant_names::VariantNamesStage;
use crate::exchange::Exchange;
use crate::features::access::stage::AccessStage;
use crate::features::access_log::LogOutputsStage;
use crate::features::bandwidth::stage::BandwidthStage;
use crate::features::body::stage::BodyLimitStage;
use crate::features::client_certificates::stage::ClientCertificateStage;
use crate::features::compression::stage::{CompressionStage, NegotiationStage};
use crate::features::consolidation::stage::ConsolidationStage;
use crate::features::early_data::stage::EarlyDataStage;
use crate::features::early_hints::stage::EarlyHintsStage;
use crate::features::error_pages::stage::ErrorPagesStage;
use crate::features::forward_auth::stage::ForwardAuthStage;
use crate::features::headers::host_stage::HostHeadersStage;
use crate::features::headers::rules_stage::HeaderRulesStage;
use crate::features::keep_alive::stage::KeepAliveStage;
use crate::features::limits::stage::LimitsStage;
use crate::features::maintenance::stage::MaintenanceStage;
use crate::features::priority::stage::PriorityStage;
use crate::features::real_ip::RealIpStage;
use crate::features::replace_text::stage::ReplaceTextStage;
use crate::features::signed_links::stage::SignedLinksStage;
use crate::features::trace::stage::TraceStage;
use crate::features::visits::stage::PageMeasurementStage;
use crate::features::visits::timing_stage::ServerTimingStage;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};

// A macro, so that the variants, their compilation and all calls share one order: with another order, a stage
// could run before the access control.
/// Defines [`AnyStage`] with one variant per stage, and compiles stages in the order of the variants.
macro_rules! stages {
    ($($(#[$reason:meta])* $name:ident($stage:ty),)*) => {
        /// One stage of a compiled list. An enum instead of a trait object: calls are static, and a list is one
        /// allocation.
        ///
        /// Stages run in the order of the variants, in both directions. The comment of a variant states the reason for
        /// its position.
        #[derive(Debug)]
        enum AnyStage {
            $($(#[$reason])* $name($stage),)*
        }

        impl RouteStages {
            /// Compiles the stages that the configuration of a route uses.
            pub(crate) fn compile(context: &StageContext<'_>) -> Self {
                let stages = [$(<$stage>::compile(context).map(AnyStage::$name),)*];
                Self(stages.into_iter().flatten().collect())
            }
        }

        impl AnyStage {
            fn request(
                &self,
                exchange: &mut Exchange,
                request: &mut ClientRequest,
                state: &mut RequestState,
            ) -> Flow {
                match self {
                    $(Self::$name(stage) => stage.request(exchange, request, state),)*
                }
            }

            async fn wait(
                &self,
                exchange: &mut Exchange,
                request: &mut ClientRequest,
                state: &mut RequestState,
            ) -> Flow {
                match self {
                    $(Self::$name(stage) => stage.wait(exchange, request, state).await,)*
                }
            }

            fn forward(&self, exchange: &Exchange, state: &RequestState, headers: &mut HeaderList) {
                match self {
                    $(Self::$name(stage) => stage.forward(exchange, state, headers),)*
                }
            }

            fn received(&self, state: &RequestState, response: &mut Response<Body>) {
                match self {
                    $(Self::$name(stage) => stage.received(state, response),)*
                }
            }

            fn response(&self, exchange: &Exchange, state: &RequestState, response: &mut Response<Body>) {
                match self {
                    $(Self::$name(stage) => stage.response(exchange, state, response),)*
                }
            }

            /// Name of the variant.
            fn name(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => stringify!($name),)*
                }
            }
        }
    };
}

stages! {
    /// Before the stages that write facts into the line of the access log, which this stage may drop.
    LogOutputs(LogOutputsStage),
    /// Before every stage that responds or refuses, so that the access log contains the variants of every request.
    VariantNames(VariantNamesStage),
    /// Before every stage that responds or refuses, so that the access log contains the trace of every request.
    Trace(TraceStage),
    /// Before every stage that responds or refuses: the route determines the timeouts of the connection for all its
    /// responses.
    KeepAlive(KeepAliveStage),
    /// Before limits: a request that is refused in an overload costs nothing else, and counts for no rate.
    Priority(PriorityStage),
    /// Before access: requests with wrong passwords count too.
    Limits(LimitsStage),
    /// Before all stages that examine the request: a refused request costs nothing else. Before early data: it does not
    /// wait for the handshake either.
    Access(AccessStage),
    /// Before every stage that reads or changes the content or its headers.
    ErrorPages(ErrorPagesStage),
    /// Before all other stages that respond or wait. After error pages, which its own page precedes.
    Maintenance(MaintenanceStage),
    /// After access and maintenance, and before all stages that change the request: its link is signed as it arrived.
    SignedLinks(SignedLinksStage),
    /// Before consolidation, replacement and measurement, which replace the client's `Accept-Encoding`.
    Negotiation(NegotiationStage),
    /// Before the headers of the host and of the operator, which are not translated. Before measurement, whose
    /// `Accept-Encoding` replaces the header of this stage. Before early hints, which examine the credentials for the
    /// upstream.
    Consolidation(ConsolidationStage),
    /// Upstreams: before the operator's rules, which may change this header too.
    ClientCertificate(ClientCertificateStage),
    /// Upstreams: before the operator's rules, which may change this header too.
    RealIp(RealIpStage),
    /// Before the operator's rules of the route, which may change this header too.
    AltSvc(AltSvcStage),
    /// Before the operator's rules of the route, which override the headers of the host.
    HostHeaders(HostHeadersStage),
    /// After all headers that rules may change, and before the stages that read headers of the final response
    /// (`Content-Security-Policy`, `Cache-Control`).
    HeaderRules(HeaderRulesStage),
    /// After header rules, which may change the media type. Before measurement, whose script is no text of the response.
    ReplaceText(ReplaceTextStage),
    /// Before server timing, whose times include the insertion of the script. Before compression, because the script is
    /// inserted into identity content.
    PageMeasurement(PageMeasurementStage),
    /// After the stages that change the caching headers that this stage reads.
    ServerTiming(ServerTimingStage),
    /// After the last stage that changes the content: the type and length of the body are unknown from here on.
    Compression(CompressionStage),
    /// After compression: the pace is that of the bytes that are sent.
    Bandwidth(BandwidthStage),
    /// Before early data: a request that will be refused does not wait for the handshake.
    BodyLimit(BodyLimitStage),
    /// After all stages that respond or refuse early, because this stage waits for a round trip.
    EarlyData(EarlyDataStage),
    /// After early data: a refusal is a response as well, so it waits too.
    TunnelRefusal(TunnelRefusalStage),
    /// After early data: the server decides about requests that it may have seen before only if the operator permits it.
    /// Before early hints, which are for permitted requests. After all stages that refuse without another server.
    ForwardAuth(ForwardAuthStage),
    /// After early data: a request that may be a replay gets no hints, a held request does.
    EarlyHints(EarlyHintsStage),
    /// After all stages that change the body or its length.
    HeadMethod(HeadMethodStage),
    /// Last: no other stage may change how the connection ends.
    ConnectionClose(ConnectionCloseStage),
}

/// The stages of one route, compiled from its configuration; see [`Stage`] for the contract of each method.
#[derive(Debug)]
pub(crate) struct RouteStages(Box<[AnyStage]>);

impl RouteStages {
    /// Names of the stages, in their order.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.0.iter().map(AnyStage::name).collect()
    }

    /// Runs the request side. Returns the result of the stage that responded or refused; `None` if the request reaches
    /// the action of the route.
    pub(crate) async fn request(
        &self,
        exchange: &mut Exchange,
        request: &mut ClientRequest,
        state: &mut RequestState,
    ) -> Option<Result<Box<Response<Body>>, Refusal>> {
        for stage in &self.0 {
            // Not asynchronous: a request that no stage holds polls no future here.
            let mut flow = stage.request(exchange, request, state);
            if matches!(flow, Flow::Wait) {
                // Boxed: the future of every request would have room for the largest `wait`.
                flow = Box::pin(stage.wait(exchange, request, state)).await;
            }
            match flow {
                Flow::Continue | Flow::Wait => {}
                Flow::Respond(response) => return Some(Ok(response)),
                Flow::Refuse(refusal) => return Some(Err(refusal)),
            }
        }
        None
    }

    /// Changes the headers that an upstream gets, by [`Stage::forward`] of each stage.
    pub(crate) fn forward(&self, exchange: &Exchange, state: &RequestState, headers: &mut HeaderList) {
        self.0.iter().for_each(|stage| stage.forward(exchange, state, headers));
    }

    /// Examines the response of an upstream, by [`Stage::received`] of each stage.
    pub(crate) fn received(&self, state: &RequestState, response: &mut Response<Body>) {
        self.0.iter().for_each(|stage| stage.received(state, response));
    }

    /// Runs the response side: [`Stage::response`] of each stage.
    pub(crate) fn response(&self, exchange: &Exchange, state: &RequestState, response: &mut Response<Body>) {
        self.0.iter().for_each(|stage| stage.response(exchange, state, response));
    }
}

#[cfg(test)]
mod tests;
