//! Keys of plain HTTP.

use serde::Deserialize;

use super::Plain;

/// Keys of a host.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlainKeys {
    /// Responses on the addresses of `server.http`: `"redirect"` to HTTPS, or `"serve"`: [those of
    /// HTTPS](#plain-http).
    pub plain: Option<Plain>,
}
