//! Mirrored requests: another upstream group gets copies.

mod keys;
mod metrics;
mod resolve;
mod rule;

use std::sync::Arc;

use super::{Context, HostKeys, RouteFeature, RouteScope};
pub use keys::MirrorKeys;
pub use metrics::MirrorMetrics;
pub(crate) use rule::Mirror;
pub use rule::MirrorSettings;

/// `mirror` of routes.
#[derive(Debug)]
pub struct MirrorFeature;

impl RouteFeature for MirrorFeature {
    type Keys = MirrorKeys;
    type Settings = Option<Arc<MirrorSettings>>;

    fn resolve(
        keys: &MirrorKeys,
        route: &RouteScope<'_>,
        context: &mut Context<'_>,
    ) -> Option<Arc<MirrorSettings>> {
        resolve::of_route(keys.mirror.as_ref()?, route, context).map(Arc::new)
    }
}

/// Names of the upstreams of mirrors.
pub fn upstreams<'k>(hosts: impl Iterator<Item = &'k HostKeys>) -> impl Iterator<Item = &'k String> {
    hosts.flat_map(|host| &host.site.route).filter_map(|route| Some(&route.mirror.mirror.as_ref()?.upstream))
}
