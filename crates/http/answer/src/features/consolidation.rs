//! Consolidation: other origins below paths of a host, and the translation of their URLs in documents.

mod keys;
mod resolve;
pub(crate) mod stage;

use std::sync::Arc;

use brisk_transform::consolidate::Consolidation;

use super::{Context, HostFeature, HostScope, RouteFeature, RouteScope};
pub use keys::{HostConsolidationKeys, RouteConsolidationKeys};
pub use resolve::{groups, upstreams};

/// The part of a route in consolidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteConsolidation {
    /// Consolidated origin that the route serves, as index of the origins of its host. Default: none, the host's own content.
    pub place: Option<usize>,
    /// Whether URLs of consolidated origins are translated in documents of the route. Default: `true`.
    pub rewrites: bool,
}

impl Default for RouteConsolidation {
    fn default() -> Self {
        Self { place: None, rewrites: true }
    }
}

/// `consolidate` of hosts and `rewrite` of routes.
#[derive(Debug)]
pub struct ConsolidationFeature;

impl HostFeature for ConsolidationFeature {
    type Keys = HostConsolidationKeys;
    type Settings = Option<Arc<Consolidation>>;

    fn resolve(
        keys: &HostConsolidationKeys,
        host: &HostScope<'_>,
        context: &mut Context<'_>,
    ) -> Option<Arc<Consolidation>> {
        resolve::of_host(keys, host, context)
    }
}

impl RouteFeature for ConsolidationFeature {
    type Keys = RouteConsolidationKeys;
    type Settings = RouteConsolidation;

    fn resolve(
        keys: &RouteConsolidationKeys,
        route: &RouteScope<'_>,
        context: &mut Context<'_>,
    ) -> RouteConsolidation {
        if keys.rewrite.is_some() && route.host.keys.consolidation.consolidate.is_empty() {
            let message = "has no effect without `consolidate` of the host";
            context.findings.wrong(&route.key("rewrite"), message);
        }
        let rewrites = keys.rewrite.is_none_or(|keys::RewriteDocuments(is_on)| is_on);
        RouteConsolidation { place: None, rewrites }
    }
}
