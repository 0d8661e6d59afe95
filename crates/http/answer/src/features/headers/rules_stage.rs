//! The operator's header rules, for requests to upstreams and for responses.

use std::rc::Rc;
use std::sync::Arc;

use brisk_http::message::{HeaderList, Response};
use brisk_upstream::Server;
use http::HeaderName;

use crate::exchange::Exchange;
use crate::settings::HeaderRules;
use crate::stage::{ClientRequest, Flow, RequestState, Stage, StageContext};
use crate::variables::RequestValues;
use brisk_rules::{Filled, FilledValues};
use brisk_transform::body::Body;

/// Removes, sets and adds headers. Compiled if the route has rules, or, for requests without a route, the host.
#[derive(Debug)]
pub(crate) struct HeaderRulesStage {
    requests: Option<Arc<HeaderRules>>,
    responses: Option<Arc<HeaderRules>>,
    /// Names that trailers of responses must not have either.
    response_names: Option<Rc<[HeaderName]>>,
    /// Whether values are formed from the request.
    has_templates: bool,
}

/// The values that were formed from one request.
#[derive(Debug)]
pub(crate) struct FormedHeaders {
    requests: FilledValues,
    responses: FilledValues,
}

impl FormedHeaders {
    fn size(&self) -> usize {
        self.requests.iter().chain(&self.responses).map(Filled::size).sum()
    }
}

impl Stage for HeaderRulesStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        let headers = match context.route() {
            Some(route) => &route.headers,
            None => &context.unrouted_host()?.headers.rules,
        };
        let (requests, responses) = (headers.requests.clone(), headers.responses.clone());
        let rules = || [&requests, &responses].into_iter().flatten();
        let has_templates = rules().any(|rules| rules.has_templates());
        let is_used = rules().next().is_some();
        let response_names = responses.as_ref().map(|rules| rules.own_names().cloned().collect());
        is_used.then_some(Self { requests, responses, response_names, has_templates })
    }

    fn request(
        &self,
        exchange: &mut Exchange,
        request: &mut ClientRequest,
        state: &mut RequestState,
    ) -> Flow {
        // The exchange removes these names from trailers, which arrive after the response side of the stages.
        exchange.ruled.clone_from(&self.response_names);
        if self.has_templates {
            let values = RequestValues { exchange, head: &request.head };
            let fill = |rules: &Option<Arc<HeaderRules>>| {
                rules.as_ref().map(|rules| rules.fill(&values)).unwrap_or_default()
            };
            let formed = FormedHeaders { requests: fill(&self.requests), responses: fill(&self.responses) };
            // They wait for the response, as the heads do.
            if let Err(refusal) = exchange.hold_head(|| formed.size()) {
                return Flow::Refuse(refusal);
            }
            state.formed_headers = Some(Box::new(formed));
        }
        Flow::Continue
    }

    fn forward(&self, _: &Exchange, state: &RequestState, headers: &mut HeaderList) {
        if let Some(rules) = &self.requests {
            let formed = state.formed_headers.as_ref().map_or(&[][..], |formed| &formed.requests);
            rules.apply_to_request(headers, formed);
        }
    }

    fn response(&self, exchange: &Exchange, state: &RequestState, response: &mut Response<Body>) {
        if let Some(rules) = &self.responses {
            let formed = state.formed_headers.as_ref().map_or(&[][..], |formed| &formed.responses);
            let server = exchange.outcome.server();
            let server = server.as_deref().map_or("", Server::name);
            rules.apply_to_response(response, formed, server);
        }
    }
}
