//! State of a multiplexed connection.

use std::cell::Cell;
use std::rc::Rc;

use crate::body::inbox::Notices;
use crate::discards::Discards;
use crate::held::Accounts;
use crate::streams::Streams;

/// Size of a head in bytes that costs nothing: HPACK's dynamic table holds 4 KiB, and names from the static table and
/// the 32 bytes per line take no more.
const LONG_HEAD: usize = 8 << 10;

/// State of a connection with several requests at a time (HTTP/2 and HTTP/3).
#[derive(Debug, Default)]
pub struct Multiplexed {
    /// Requests in flight.
    pub streams: Streams,
    /// Request bodies that are read and discarded after an early response.
    pub discards: Discards,
    /// Memory held for the requests in flight.
    pub accounts: Accounts,
    /// Bodies of requests between the connection and their readers.
    pub bodies: Rc<Notices>,
    earned: Cell<u32>,
    long_heads: Cell<u64>,
}

impl Multiplexed {
    /// Adds points that a request has earned for the flood budget of its connection.
    pub fn earn(&self, points: u32) {
        // Saturates: a wrapped sum would take points from a client that has earned many.
        self.earned.set(self.earned.get().saturating_add(points));
    }

    /// Points earned since the last call.
    pub fn take_earned(&self) -> u32 {
        self.earned.take()
    }

    /// Counts the head of a request with `size` bytes (RFC 9113 section 6.5.2).
    pub fn head_received(&self, size: usize) {
        let long = size.saturating_sub(LONG_HEAD);
        self.long_heads.set(self.long_heads.get() + long as u64);
    }

    /// Total number of bytes by which heads of requests exceeded 8 KiB each, for the flood budget.
    pub fn long_heads(&self) -> u64 {
        self.long_heads.get()
    }
}
