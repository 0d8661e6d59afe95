//! Keys of internal routes.

use serde::Deserialize;

/// The part of a route in internal redirects.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct InternalKeys {
    /// Whether only a response of an upstream or an [error page](#error-pages) leads to the route; clients get 404. See [internal
    /// routes](#internal-routes).
    pub internal: Option<bool>,
    /// With `upstream`: whether a response with `X-Accel-Redirect` or `X-Sendfile` is replaced by that of an [internal
    /// route](#internal-routes).
    pub internal_redirects: Option<bool>,
}
