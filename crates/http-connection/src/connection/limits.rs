//! Limits of a connection that depend on its requests.

use std::cell::Cell;
use std::time::Duration;

use crate::keep_alive::KeepAlive;

/// Maximum number of bytes that the responses of a connection compress per turn: at most 1 ms of work.
const WORK: u32 = 64 << 10;

/// The limits of a connection: how long it is kept, and how much its responses may compress per turn.
#[derive(Debug, Default)]
pub struct Limits {
    /// Bytes compressed for its responses in this turn.
    work: Cell<u32>,
    /// Idle timeout in milliseconds, and the number of requests after which the connection ends, from the route of the
    /// latest request; 0 for the defaults.
    idle: Cell<u32>,
    most_requests: Cell<u32>,
}

impl Limits {
    /// Applies the keep-alive settings of a route; `None` restores the defaults.
    pub fn keep(&self, keep_alive: Option<KeepAlive>) {
        let idle = keep_alive.and_then(|keep_alive| keep_alive.idle);
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

    /// Ends a turn of the driver.
    pub fn end_turn(&self) {
        self.work.set(0);
    }

    /// Whether a response may compress `bytes` in this turn. Counts them if so; otherwise they must wait for the next
    /// turn.
    pub fn may_work(&self, bytes: usize) -> bool {
        let work = self.work.get().saturating_add(bytes.min(WORK as usize) as u32);
        let may = work <= WORK;
        if may {
            self.work.set(work);
        }
        may
    }
}
