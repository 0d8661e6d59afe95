//! Splits: a share of the visitors of a route uses another upstream group.

mod keys;
mod resolve;
mod rule;

use std::sync::Arc;

use brisk_rules::SplitSettings;

use super::{Context, HostKeys, RouteFeature, RouteScope};
pub use keys::SplitKeys;
pub(crate) use resolve::{other_upstream, share};
pub(crate) use rule::{Destination, Split};

/// `split` of routes.
#[derive(Debug)]
pub struct SplitFeature;

impl RouteFeature for SplitFeature {
    type Keys = SplitKeys;
    type Settings = Option<Arc<SplitSettings>>;

    fn resolve(
        keys: &SplitKeys,
        route: &RouteScope<'_>,
        context: &mut Context<'_>,
    ) -> Option<Arc<SplitSettings>> {
        resolve::of_route(keys.split.as_ref()?, route, context).map(Arc::new)
    }
}

/// Names of the upstreams of splits.
pub fn upstreams<'k>(hosts: impl Iterator<Item = &'k HostKeys>) -> impl Iterator<Item = &'k String> {
    let routes = hosts.flat_map(|host| &host.site.route);
    routes.filter_map(|route| Some(&route.split.split.as_ref()?.destination.upstream))
}
