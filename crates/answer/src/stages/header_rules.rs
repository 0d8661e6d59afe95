//! The operator's header rules, for requests to upstreams and for responses.

use std::sync::Arc;

use http::{HeaderMap, Response};

use crate::body::Body;
use crate::exchange::Exchange;
use crate::settings::HeaderRules;
use crate::stage::{RequestState, Stage, StageContext};

/// Removes, sets and adds headers. Compiled if the route has rules.
#[derive(Debug)]
pub(super) struct HeaderRulesStage {
    requests: Option<Arc<HeaderRules>>,
    responses: Option<Arc<HeaderRules>>,
}

impl Stage for HeaderRulesStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        let route = context.route()?;
        let (requests, responses) = (route.request_headers.clone(), route.response_headers.clone());
        (requests.is_some() || responses.is_some()).then_some(Self { requests, responses })
    }

    fn forward(&self, _: &Exchange, headers: &mut HeaderMap) {
        if let Some(rules) = &self.requests {
            rules.apply(headers);
        }
    }

    fn response(&self, _: &Exchange, _: &RequestState, response: &mut Response<Body>) {
        if let Some(rules) = &self.responses {
            rules.apply(response.headers_mut());
        }
    }
}
