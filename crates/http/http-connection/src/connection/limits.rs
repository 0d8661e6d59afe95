//! Limits of a connection that depend on its requests.

use std::cell::Cell;
use std::time::Duration;

use crate::keep_alive::KeepAlive;

/// The limits of a connection: how long it is kept, and for how many requests.
#[derive(Debug, Default)]
pub struct Limits {
    /// Idle timeout in milliseconds, and the number of requests after which the connection ends, from the route of the
    /// latest request; 0 for the defaults.
    idle: Cell<u32>,
    most_requests: Cell<u32>,
}

impl Limits {
    /// Applies the [`KeepAlive`] of a route; `None` restores the defaults.
    pub fn keep(&self, keep_alive: Option<KeepAlive>) {
        let idle = keep_alive.and_then(|keep_alive| keep_alive.idle);
        // A `u32` of milliseconds, 49 days, keeps each idle connection small.
        self.idle.set(idle.map_or(0, |idle| u32::try_from(idle.as_millis()).unwrap_or(u32::MAX)));
        self.most_requests.set(keep_alive.map_or(0, KeepAlive::most_requests));
    }

    /// Idle timeout of the connection; `usual` is the default.
    pub fn idle(&self, usual: Duration) -> Duration {
        match self.idle.get() {
            0 => usual,
            idle => Duration::from_millis(idle.into()),
        }
    }

    /// Whether the route of the latest request ends the connection after `requests` requests.
    pub(super) fn end_after(&self, requests: u32) -> bool {
        let most = self.most_requests.get();
        most > 0 && requests >= most
    }
}
