//! Settings of waits: timeouts of one request, second attempts, and the queue for connections.

use std::time::Duration;

/// Timeouts of a request in place of those of its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTimeouts {
    /// In place of [`UpstreamTimeouts::head`](crate::settings::UpstreamTimeouts::head).
    pub head: Option<Duration>,
    /// In place of [`UpstreamTimeouts::body`](crate::settings::UpstreamTimeouts::body).
    pub body: Option<Duration>,
}

/// Second attempts of safe requests (GET and HEAD without a body) at another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HedgeSettings {
    /// Time without a response after which the second attempt begins.
    pub after: Duration,
    /// Maximum number of second attempts in a hundred requests.
    pub percent: u32,
}

/// The requests that wait for a connection to a server, of all workers.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSettings {
    /// Maximum number. One client has half of the free places at most. Default: 16,384.
    pub size: usize,
    /// Maximum wait. Default: [`UpstreamTimeouts::connect`](crate::settings::UpstreamTimeouts::connect).
    pub timeout: Option<Duration>,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self { size: 16 << 10, timeout: None }
    }
}
