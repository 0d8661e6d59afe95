//! Compression of responses, in two stages: between the choice of the coding and the compression, other stages change
//! `Accept-Encoding` and the body.

use std::rc::Rc;

use brisk_http::message::Response;
use brisk_transform::body::Body;
use brisk_transform::compress::Compression;
use http::Method;

use crate::exchange::Exchange;
use crate::settings::{Action, RouteSettings};
use crate::stage::{ClientRequest, Flow, HostContext, RequestState, Stage, StageContext, StageTarget};

/// Negotiates a content coding from the client's `Accept-Encoding` (RFC 9110 section 12.5.3). Compiled if the route
/// compresses, and for the script that measures page views.
#[derive(Debug)]
pub(crate) struct NegotiationStage {
    compression: Rc<Compression>,
}

/// Compresses the response with the negotiated coding. Compiled together with [`NegotiationStage`], and for measured
/// pages of routes without a compression setting, whose coding [`PageView`](crate::visits::PageView) negotiates.
#[derive(Debug)]
pub(crate) struct CompressionStage;

impl Stage for NegotiationStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        let host = context.host?;
        let compression = match context.target {
            StageTarget::Route(route) | StageTarget::Internal(route) => of_route(route, host)?,
            StageTarget::Script => Rc::clone(host.visits.as_ref()?.compression()),
            StageTarget::Preconnect(_) | StageTarget::Beacon | StageTarget::Unrouted => return None,
        };
        Some(Self { compression })
    }

    fn request(
        &self,
        exchange: &mut Exchange,
        request: &mut ClientRequest,
        state: &mut RequestState,
    ) -> Flow {
        // The bytes after the head of a tunnel are no HTTP content, so no content coding applies.
        if request.head.method != Method::CONNECT {
            let connection = exchange.connection();
            let negotiated = self.compression.negotiate(connection, &request.head, &request.path().decoded);
            state.compression = Some(Box::new(negotiated));
        }
        Flow::Continue
    }
}

impl Stage for CompressionStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        match context.target {
            StageTarget::Route(route) | StageTarget::Internal(route) => {
                let is_measured = context.host.is_some_and(|host| host.visits.is_some());
                let compresses =
                    route.compression.settings.is_some() || (is_measured && !route.compression.is_off);
                compresses.then_some(Self)
            }
            StageTarget::Script => Some(Self),
            StageTarget::Preconnect(_) | StageTarget::Beacon | StageTarget::Unrouted => None,
        }
    }

    fn response(&self, exchange: &Exchange, state: &RequestState, response: &mut Response<Body>) {
        // At most one of the two: pages of routes with a setting have the coding of the route.
        let of_page = || state.page_view.as_ref()?.compression(response);
        if let Some(compression) = state.compression.as_deref().or_else(of_page) {
            compression.apply(exchange.connection(), response);
        }
    }
}

fn of_route(route: &RouteSettings, host: &HostContext<'_>) -> Option<Rc<Compression>> {
    let settings = route.compression.settings.as_ref()?;
    // Only the responses of applications contain secrets beside reflected input (BREACH); files do not.
    let may_leak = route.action.upstream().is_some() || matches!(route.action, Action::Page(_));
    let root = match &route.action {
        // Copies are kept by the path below the folder, which is no key for the responses of an upstream.
        Action::Static(files) => Some(files.root.clone()),
        _ => None,
    };
    Some(Compression::of_route(settings, may_leak, root, &host.names, &host.variants))
}
