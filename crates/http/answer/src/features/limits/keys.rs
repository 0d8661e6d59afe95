//! Keys of limits: `[limit.NAME]`, the limits of hosts and routes, and timeouts of routes.

use brisk_config_file::{Period, Rate};
use serde::Deserialize;

/// Limits of the requests of a host or route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsKeys {
    /// [limits of requests](#limitname); `[]` for none.
    pub limits: Option<Vec<String>>,
}

/// Timeouts of the requests of a route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TimeoutsKeys {
    /// With `upstream`: `head`, `attempt` and `body` in place of those in
    /// [`[upstream.NAME.timeouts]`](#upstreamnametimeouts), and `request`: time from the start of forwarding to the end of the
    /// response. Without a response by then, the client gets 504 (`request-timeout` in the access log); a response that has begun
    /// is broken off. Connections that switch protocols are excluded from `body` and `request`.
    pub timeouts: RouteTimeouts,
}

/// A limit.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limit {
    /// Rate of the requests of one key.
    pub rate: Option<Rate>,
    /// Number of requests of one key at a time, from their heads to the ends of their responses; between 1 and 1 000 000.
    pub concurrency: Option<u32>,
    /// Key of a request. A fixed text, such as `"*"`, limits all requests together.
    pub by: Option<String>,
    /// Status of refused requests, between 400 and 599.
    pub status: Option<u16>,
    /// Counting of requests beyond the limit, which are not refused.
    pub dry_run: Option<bool>,
    /// Common rate of all gateways that have the same [`[sessions.redis]`](#sessionsredis) and the same limit.
    pub fleet: Option<bool>,
    /// With `fleet`: requests while Redis does not work. `"local"`: each gateway applies the rate to its own requests;
    /// `"allow"`: they pass; `"deny"`: 503 (`limit-store` in the access log).
    pub on_failure: Option<OnFailure>,
    /// Number of keys whose rates are remembered, 16 bytes each; between 1024 and 16 777 216.
    pub keys: Option<u32>,
}

/// The decision about a request without a reply of Redis.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// Decide by the counters of this gateway.
    Local,
    /// Allow the request.
    Allow,
    /// Deny the request.
    Deny,
}

/// `timeouts` of a route.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RouteTimeouts {
    /// Maximum time to the head of a response.
    pub head: Option<Period>,
    /// Maximum time to the head of a response at one server.
    pub attempt: Option<Period>,
    /// Maximum time between two parts of a body.
    pub body: Option<Period>,
    /// Maximum time from the beginning of forwarding to the end of the response.
    pub request: Option<Period>,
}
