//! Keep-alive settings that depend on the latest request of a connection: [`KeepAlive`].

use std::time::Duration;

/// Keep-alive settings for requests of one route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Idle timeout after a request of the route. `None` for the default,
    /// [`HttpTimeouts::idle`](super::settings::HttpTimeouts::idle).
    pub idle: Option<Duration>,
    /// Number of requests on a connection, of any route, after which the response to a request of this route is the
    /// last. `None` for the default.
    pub requests: Option<u32>,
    /// Whether the connection ends with the response.
    pub closes: bool,
}

impl KeepAlive {
    /// Number of requests after which a connection ends; 0 for no limit of the route.
    pub(crate) fn most_requests(self) -> u32 {
        if self.closes { 1 } else { self.requests.unwrap_or(0) }
    }
}
