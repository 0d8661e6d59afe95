//! How long a connection is kept for the next request, by what its last one was for.

use std::time::Duration;

/// Keeping connections, for requests of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// How long a connection waits for the next request after one of this kind. `None`: as all connections do
    /// ([`HttpTimeouts::idle`](super::settings::HttpTimeouts::idle)).
    pub idle: Option<Duration>,
    /// Requests on a connection, of any kind: the connection ends with the answer to one of this kind once there were as
    /// many. `None`: no limit but that of all connections.
    pub requests: Option<u32>,
    /// The connection ends with the answer.
    pub closes: bool,
}

impl KeepAlive {
    /// The number of requests after which a connection ends; 0: it does not.
    pub(crate) fn most_requests(self) -> u32 {
        if self.closes { 1 } else { self.requests.unwrap_or(0) }
    }
}
