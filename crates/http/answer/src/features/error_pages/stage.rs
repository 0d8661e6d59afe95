//! Pages of the operator in place of errors.

use std::sync::Arc;

use brisk_http::message::Response;
use brisk_transform::body::Body;

use crate::exchange::Exchange;
use crate::settings::ErrorPages;
use crate::stage::{RequestState, Stage, StageContext, StageTarget};

/// Replaces the content of error responses. Compiled for routes with pages, and for requests without a route if their host
/// has pages.
#[derive(Debug)]
pub(crate) struct ErrorPagesStage(Arc<ErrorPages>);

impl Stage for ErrorPagesStage {
    fn compile(context: &StageContext<'_>) -> Option<Self> {
        let pages = match context.target {
            StageTarget::Route(route) | StageTarget::Internal(route) => &route.error_pages,
            StageTarget::Unrouted => &context.host?.settings.error_pages,
            StageTarget::Preconnect(_) | StageTarget::Script | StageTarget::Beacon => return None,
        };
        pages.clone().map(Self)
    }

    fn response(&self, _: &Exchange, _: &RequestState, response: &mut Response<Body>) {
        if response.status().is_client_error() || response.status().is_server_error() {
            self.0.apply(response);
        }
    }
}
