//! The state of a connection with several requests at a time.

use std::cell::{Cell, RefCell};

use http::HeaderMap;

use crate::discards::Discards;
use crate::streams::{StreamKey, Streams};

/// Bytes of a head that cost nothing: the dynamic table of HPACK holds 4 KiB, and names from the static one and the 32
/// bytes that each line counts take no more.
const LONG_HEAD: usize = 8 << 10;

/// The state of a connection with several requests at a time, that is of HTTP/2.
#[derive(Debug, Default)]
pub struct Multiplexed {
    /// The requests in flight.
    pub streams: Streams,
    /// Request bodies that are read only to be dropped.
    pub discards: Discards,
    earned: Cell<u32>,
    long_heads: Cell<u64>,
    /// Interim answers that the driver has not sent.
    interims: RefCell<Vec<(StreamKey, HeaderMap)>>,
}

impl Multiplexed {
    /// Counts points that a request has earned for the budget of its connection.
    pub fn earn(&self, points: u32) {
        self.earned.set(self.earned.get().saturating_add(points));
    }

    /// Points earned since the last call.
    pub fn take_earned(&self) -> u32 {
        self.earned.take()
    }

    /// Counts the head of a request, of `size` bytes by RFC 9113 section 6.5.2.
    pub fn head_received(&self, size: usize) {
        let long = size.saturating_sub(LONG_HEAD);
        self.long_heads.set(self.long_heads.get() + long as u64);
    }

    /// By how much the heads of requests exceeded 8 KiB each, in bytes, all together.
    pub fn long_heads(&self) -> u64 {
        self.long_heads.get()
    }

    /// Sends 103 with these headers to the client that waits for the answer to the request of `stream`, at the end of the turn.
    pub(crate) fn send_interim(&self, stream: StreamKey, headers: HeaderMap) {
        self.interims.borrow_mut().push((stream, headers));
    }

    /// The interim answers to be sent.
    pub fn take_interims(&self) -> Vec<(StreamKey, HeaderMap)> {
        self.interims.take()
    }
}
