//! Keys of repetition.

use serde::Deserialize;

/// Keys of a group.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryKeys {
    /// One retry at another server, of requests that were not sent or are safe to repeat. With only one server: of requests that
    /// failed on a kept connection.
    pub retry: Option<bool>,
}
