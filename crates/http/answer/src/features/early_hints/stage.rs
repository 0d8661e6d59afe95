//! `103 Early Hints` for navigations (RFC 8297).

use std::rc::Rc;
use std::sync::Arc;

use brisk_http::message::Response;
use brisk_http::validate;
use brisk_http_connection::Connection;
use brisk_rewrite::OriginMap;
use brisk_transform::body::Body;
use brisk_transform::credentials::Credentials;
use brisk_transform::names::Names;
use brisk_variants::HostVariants;

use super::hints::{self, EarlyHints, PageKey};
use crate::exchange::Exchange;
use crate::settings::EarlyHintsSettings;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};

/// Prepares the hints of navigations, which the action sends, and learns links from the upstream's pages. Compiled for
/// routes to upstreams if hints are configured or vary between connections.
#[derive(Debug)]
pub(crate) struct EarlyHintsStage {
    configured: Option<Rc<EarlyHints>>,
    /// If hints vary between connections: the connections that get hints, and these hints.
    varied: Option<(Arc<HostVariants>, Rc<EarlyHints>)>,
    names: Rc<Names>,
    /// The origins whose URLs are translated in the hints of the host's own pages.
    origins: Option<Arc<OriginMap>>,
}

impl Stage for EarlyHintsStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        let (host, route) = (context.host?, context.upstream_route()?);
        let configured = route.early_hints.settings.as_ref();
        let configured = configured.map(|settings| EarlyHints::new(settings, &route.early_hints.learned));
        // Without configured hints, the connections that get some have forwarded and learned ones.
        let usual = || EarlyHints::new(&Arc::new(EarlyHintsSettings::usual()), &route.early_hints.learned);
        let variants = host.variants.varies_early_hints().then(|| Arc::clone(&host.variants));
        let varied = variants.map(|variants| (variants, configured.clone().unwrap_or_else(usual)));
        let consolidation =
            host.settings.consolidation.as_ref().filter(|_| route.consolidation.place.is_none());
        let origins = consolidation.map(|consolidation| Arc::clone(&consolidation.map));
        let names = Rc::clone(&host.names);
        context.may_hint().then_some(Self { configured, varied, names, origins })
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
            // Over HTTP/1.1 there is no sender: old clients take an interim response for the final one.
            let interim = exchange.interim()?.consolidating(self.origins.clone());
            let authority = validate::authority_of(&request.head);
            let page = PageKey::new(&self.names, authority, &request.path().decoded);
            let credentials = Credentials::of(&request.head.headers, exchange.connection());
            Some(Box::new(hints.prepare(page, credentials, interim)))
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
    /// The hints for requests on `connection`: those of its assigned value, or the configured hints.
    fn of(&self, connection: &Connection) -> Option<&Rc<EarlyHints>> {
        let varied = self.varied.as_ref();
        let assigned = connection.extras.assigned();
        match varied.and_then(|(variants, hints)| Some((variants.early_hints(assigned)?, hints))) {
            Some((is_on, hints)) => is_on.then_some(hints),
            None => self.configured.as_ref(),
        }
    }
}
