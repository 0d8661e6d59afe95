//! Settings of waits: timeouts of one request.

use std::time::Duration;

/// Timeouts of a request in place of those of its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTimeouts {
    /// In place of [`UpstreamTimeouts::head`](crate::settings::UpstreamTimeouts::head).
    pub head: Option<Duration>,
    /// In place of [`UpstreamTimeouts::body`](crate::settings::UpstreamTimeouts::body).
    pub body: Option<Duration>,
}
