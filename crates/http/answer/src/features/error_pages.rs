//! Pages of the operator for failed requests.

mod keys;
mod pages;
mod resolve;
mod route;
pub(crate) mod stage;

use std::sync::Arc;

use super::{Context, HostFeature, HostScope, RouteFeature, RouteScope};
pub use keys::ErrorPagesKeys;
pub use pages::{ErrorPage, ErrorPages, PageSource};
pub(crate) use resolve::leads_to;
pub(crate) use resolve::page;
pub(crate) use route::ErrorHead;
pub use route::{ErrorRoute, RouteStatus};

/// `error_pages` of hosts and routes.
#[derive(Debug)]
pub struct ErrorPagesFeature;

impl HostFeature for ErrorPagesFeature {
    type Keys = ErrorPagesKeys;
    type Settings = Option<Arc<ErrorPages>>;

    fn resolve(
        keys: &ErrorPagesKeys,
        host: &HostScope<'_>,
        context: &mut Context<'_>,
    ) -> Option<Arc<ErrorPages>> {
        resolve::of_host(keys, host, context)
    }
}

impl RouteFeature for ErrorPagesFeature {
    type Keys = ErrorPagesKeys;
    type Settings = Option<Arc<ErrorPages>>;

    fn resolve(
        keys: &ErrorPagesKeys,
        route: &RouteScope<'_>,
        context: &mut Context<'_>,
    ) -> Option<Arc<ErrorPages>> {
        resolve::of_route(keys, route, context)
    }
}
