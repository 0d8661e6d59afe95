//! Key of the priority of requests.

use serde::Deserialize;

use super::Priority;

/// Key of a host or route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PriorityKeys {
    /// Order in which requests get 503 in an [overload](overload.md): first those with `"low"`, then those with `"normal"`, and
    /// never those with `"high"`.
    pub priority: Option<Priority>,
}
