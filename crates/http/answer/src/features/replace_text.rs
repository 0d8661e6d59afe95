//! Texts of responses that are replaced, such as names of an upstream inside of its network.

mod keys;
mod resolve;
pub(crate) mod stage;

use std::sync::Arc;

use brisk_rules::BodyTemplate;
use brisk_transform::replace::TextReplacements;

use super::{Context, RouteFeature, RouteScope};
pub use keys::ReplaceTextKeys;

/// The texts that a route replaces.
#[derive(Clone, Debug)]
pub struct ReplaceTextSettings {
    /// The texts.
    pub from: Arc<TextReplacements>,
    /// The text in place of each.
    pub to: Arc<[BodyTemplate]>,
}

/// `replace_text` of routes.
#[derive(Debug)]
pub struct ReplaceTextFeature;

impl RouteFeature for ReplaceTextFeature {
    type Keys = ReplaceTextKeys;
    type Settings = Option<ReplaceTextSettings>;

    fn resolve(
        keys: &ReplaceTextKeys,
        route: &RouteScope<'_>,
        context: &mut Context<'_>,
    ) -> Option<ReplaceTextSettings> {
        resolve::settings(keys.replace_text.as_ref()?, route, context)
    }
}
