//! Limits of the requests of a route or host, and timeouts of a route.

use std::sync::Arc;
use std::time::Duration;

use brisk_limits::Limit;
use brisk_rules::Template;
use brisk_upstream_group::settings::RequestTimeouts;
use http::StatusCode;

/// One limit, and the response to requests beyond it.
#[derive(Clone, Debug)]
pub struct RequestLimit {
    /// The limit, shared by all routes that refer to it.
    pub limit: Arc<Limit>,
    /// The key of a request. A request with an empty key is not limited.
    pub by: LimitKey,
    /// Status of refused requests.
    pub status: StatusCode,
}

/// The key of a request.
#[derive(Clone, Debug)]
pub enum LimitKey {
    /// The address of the client.
    Client,
    /// Values of the request.
    Template(Template),
}

/// Timeouts of the requests of a route to an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteTimeouts {
    /// Timeouts in place of those of the upstream.
    pub upstream: RequestTimeouts,
    /// Maximum time from the beginning of forwarding to the end of the response.
    pub request: Option<Duration>,
}
