//! Memory of a request and its response: heads, and the body until its first piece is counted.

use std::task::{Context, Poll};

use brisk_http::validate::Refusal;
use brisk_http_connection::chunk::Reserved;
use http::StatusCode;

use super::Exchange;

impl Exchange {
    /// Reserves memory for the first piece of the response, which then need not wait for memory.
    pub(crate) fn reserve(&mut self, reserved: Reserved) {
        self.reserved = Some(reserved);
    }

    /// Counts the `bytes` of the first piece of the response, which have arrived with its head, on a connection with several
    /// requests at a time.
    pub(crate) fn hold_first(&mut self, bytes: usize) {
        if bytes > 0 && self.stream.is_some() {
            self.reserved = Some(Reserved::new(bytes, &self.connection));
        }
    }

    /// Counts a body that was formed in memory, such as a page or a compressed document: its head may wait for the output of
    /// others.
    pub(super) fn hold_formed(&mut self, bytes: usize) {
        match &mut self.reserved {
            Some(reserved) if bytes > 0 => reserved.resize(bytes),
            Some(_) => {}
            None => self.hold_first(bytes),
        }
    }

    /// Counts a head of the request or the response. Refuses with `503` if the client has its share of the memory for heads.
    pub(crate) fn hold_head(&mut self, size: impl FnOnce() -> usize) -> Result<(), Refusal> {
        // Over HTTP/1.1, a connection has one head at a time, whose limit of size suffices.
        let Some(heads) = &mut self.heads else { return Ok(()) };
        heads.add(size()).map_err(|_| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "head-memory"))
    }

    /// Ready if the response may hold more memory; otherwise wakes the task when it may.
    pub(super) fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.reserved.is_some() { Poll::Ready(()) } else { self.connection.poll_room(context) }
    }
}
