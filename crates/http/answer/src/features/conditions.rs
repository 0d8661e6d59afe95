//! Conditions of routes on more than the path.

mod keys;
mod resolve;

use std::sync::Arc;

use brisk_rules::Conditions;

use super::{Context, RouteFeature, RouteScope};
pub use keys::ConditionKeys;
pub(super) use resolve::{compiled, forbids_early_data, open_below, pattern};

/// `when` of routes.
#[derive(Debug)]
pub struct ConditionsFeature;

impl RouteFeature for ConditionsFeature {
    type Keys = ConditionKeys;
    type Settings = Option<Arc<Conditions>>;

    fn resolve(
        keys: &ConditionKeys,
        route: &RouteScope<'_>,
        context: &mut Context<'_>,
    ) -> Option<Arc<Conditions>> {
        Some(Arc::new(resolve::of_route(keys.when.as_ref()?, route, context)))
    }
}
