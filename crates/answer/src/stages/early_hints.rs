//! 103 Early Hints for navigations (RFC 8297).

use std::rc::Rc;
use std::sync::Arc;

use brisk_http_connection::Connection;
use brisk_rewrite::Map;
use http::Response;

use crate::body::Body;
use crate::exchange::Exchange;
use crate::experiments::{ByArm, HostExperiments, Values};
use crate::hints::{self, EarlyHints};
use crate::settings::EarlyHintsSettings;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};

/// Prepares the hints of navigations, which the action sends, and learns links from the upstream's pages. Compiled for upstreams
/// with hints, configured or drawn in an experiment.
#[derive(Debug)]
pub(super) struct EarlyHintsStage {
    configured: Option<Rc<EarlyHints>>,
    /// The hints of connections that take part in an experiment.
    drawn: Option<ByArm<Option<Rc<EarlyHints>>>>,
    /// The origins whose URLs are changed in hints of the host's own pages.
    origins: Option<Arc<OriginMap>>,
}

impl Stage for EarlyHintsStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        let (host, route) = (context.host?, context.upstream_route()?);
        let configured = route.early_hints.as_ref().map(EarlyHints::new);
        let drawn = drawn(configured.as_ref(), &host.experiments);
        let consolidation = host.settings.consolidation.as_ref().filter(|_| route.place.is_none());
        let origins = consolidation.map(|consolidation| Arc::clone(&consolidation.map));
        (configured.is_some() || drawn.is_some()).then_some(Self { configured, drawn, origins })
    }

    fn request(
        &self,
        exchange: &mut Exchange,
        request: &mut ClientRequest,
        state: &mut RequestState,
    ) -> Flow {
        let hints = self.of(exchange.connection());
        let hints = hints.filter(|_| hints::is_navigation(&request.head) && !exchange.is_early());
        state.hints = hints.and_then(|hints| {
            let interim = exchange.interim()?.consolidating(self.origins.clone());
            Some(Box::new(hints.prepare(&request.head, &request.path().decoded, interim)))
        });
        Flow::Continue
    }

    fn received(&self, state: &RequestState, response: &mut Response<Body>) {
        if let Some(hints) = &state.hints {
            hints.learn_from(response);
        }
    }
}

impl EarlyHintsStage {
    /// The hints for requests on a connection.
    fn of(&self, connection: &Connection) -> Option<&Rc<EarlyHints>> {
        let drawn = self.drawn.as_ref().and_then(|drawn| drawn.of(connection));
        drawn.unwrap_or(&self.configured).as_ref()
    }
}

/// The hints of the arms of an experiment. Arms with hints get the `configured` ones, or the usual ones where the route has none.
fn drawn(
    configured: Option<&Rc<EarlyHints>>,
    experiments: &HostExperiments,
) -> Option<ByArm<Option<Rc<EarlyHints>>>> {
    experiments.all().iter().find_map(|(id, one)| {
        let Values::EarlyHints(values) = &one.values else { return None };
        let on =
            configured.cloned().unwrap_or_else(|| EarlyHints::new(&Arc::new(EarlyHintsSettings::usual())));
        Some(ByArm::new(*id, values.iter().map(|is_on| is_on.then(|| Rc::clone(&on)))))
    })
}
