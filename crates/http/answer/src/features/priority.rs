//! Priority of requests: the order in which they are refused in an overload.

mod keys;
pub(crate) mod stage;

use serde::Deserialize;

use super::{Context, HostFeature, HostScope, RouteFeature, RouteScope};
pub use keys::PriorityKeys;

/// Order in which requests are refused in an overload.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// Never, while their connection is open.
    High,
    /// After those of low priority, and after full handshakes.
    #[default]
    Normal,
    /// First.
    Low,
}

/// `priority` of hosts and routes.
#[derive(Debug)]
pub struct PriorityFeature;

impl HostFeature for PriorityFeature {
    type Keys = PriorityKeys;
    type Settings = Priority;

    fn resolve(keys: &PriorityKeys, _host: &HostScope<'_>, _context: &mut Context<'_>) -> Priority {
        keys.priority.unwrap_or_default()
    }
}

impl RouteFeature for PriorityFeature {
    type Keys = PriorityKeys;
    type Settings = Priority;

    fn resolve(keys: &PriorityKeys, route: &RouteScope<'_>, _context: &mut Context<'_>) -> Priority {
        keys.priority.unwrap_or(route.host.settings.priority)
    }
}
