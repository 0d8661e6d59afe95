//! Other origins served below paths of the host.

use std::rc::Rc;

use brisk_http::message::{HeaderList, Response};
use brisk_http::validate;
use brisk_transform::body::Body;
use brisk_transform::consolidate::{ConsolidatedRoute, ServedRoute};
use brisk_transform::names::Names;
use http::StatusCode;

use crate::exchange::Exchange;
use crate::redirect;
use crate::settings::Action;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};

/// Translates between URLs of the host and URLs of consolidated origins. Compiled if the host consolidates origins.
#[derive(Debug)]
pub(crate) struct ConsolidationStage {
    route: Rc<ConsolidatedRoute>,
    names: Rc<Names>,
}

impl Stage for ConsolidationStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        let (host, route) = (context.host?, context.route()?);
        let settings = host.settings.consolidation.as_ref()?;
        let served = ServedRoute {
            place: route.consolidation.place,
            rewrites: route.consolidation.rewrites,
            // With an upstream beside it, responses may differ between clients.
            is_static: matches!(route.action, Action::Static(_)),
            is_compressed: route.compression.settings.is_some(),
        };
        Some(Self { route: ConsolidatedRoute::new(settings, served), names: Rc::clone(&host.names) })
    }

    fn request(
        &self,
        exchange: &mut Exchange,
        request: &mut ClientRequest,
        state: &mut RequestState,
    ) -> Flow {
        let connection = exchange.connection();
        let path = request.path();
        // Without the final slash, the scope of scripts from this path would be the root of the host.
        if let Some(folder) = self.route.folder(&path, &request.head) {
            return Flow::Respond(Box::new(redirect::to(StatusCode::PERMANENT_REDIRECT, folder)));
        }
        let authority = validate::authority_of(&request.head);
        let consolidated = self.route.begin(connection, &request.head, authority, &self.names, &path.decoded);
        consolidated.change_request(connection, &mut request.head.headers);
        state.consolidation = Some(Box::new(consolidated));
        Flow::Continue
    }

    fn forward(&self, _: &Exchange, _: &RequestState, headers: &mut HeaderList) {
        self.route.address(headers);
    }

    fn received(&self, _: &RequestState, response: &mut Response<Body>) {
        self.route.change_links(response.headers_mut());
    }

    fn response(&self, exchange: &Exchange, state: &RequestState, response: &mut Response<Body>) {
        if let Some(consolidated) = &state.consolidation {
            consolidated.apply(exchange.connection(), response);
        }
    }
}
