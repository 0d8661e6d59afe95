//! Early hints: responses with status 103 before the responses with pages (RFC 8297).

mod hints;
mod keys;
mod resolve;
pub(crate) mod stage;

use std::sync::Arc;

use super::{Context, RouteFeature, RouteScope};
pub(crate) use hints::RequestHints;
#[cfg(any(test, fuzzing))]
pub(crate) use hints::links_of;
pub use hints::{EarlyHintsSettings, HintLink, HintLinkError, LearnedHints};
pub use keys::EarlyHintsKeys;

/// The hints of a route.
#[derive(Clone, Debug, Default)]
pub struct RouteHints {
    /// Settings of hints. Default: no hints.
    pub settings: Option<Arc<EarlyHintsSettings>>,
    /// Links learned for early hints, shared by the workers.
    pub learned: Arc<LearnedHints>,
}

/// `early_hints` of routes.
#[derive(Debug)]
pub struct EarlyHintsFeature;

impl RouteFeature for EarlyHintsFeature {
    type Keys = EarlyHintsKeys;
    type Settings = RouteHints;

    fn resolve(keys: &EarlyHintsKeys, route: &RouteScope<'_>, context: &mut Context<'_>) -> RouteHints {
        RouteHints { settings: resolve::of_route(keys, route, context), learned: Arc::default() }
    }
}
