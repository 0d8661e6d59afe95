//! Interim responses (1xx) before one response, for HTTP/1.1 and HTTP/2 alike.
//!
//! They are limited: a server that sends them without end would occupy the worker until the timeout of the response.

use std::mem;

use brisk_http::message::HeaderList;
use brisk_http_connection::interim::InterimReceivers;
use http::StatusCode;

/// Maximum number of interim responses before a response. A server that sends `102` every second exceeds it after the
/// default of `timeouts.head`.
const NUMBER: u32 = 100;

/// Maximum size in bytes of the heads of all interim responses before a response.
const SIZE: usize = 64 << 10;

/// Interim responses to one request: a count of all, and those that are not passed on yet.
#[derive(Debug, Default)]
pub(crate) struct Interims {
    number: u32,
    size: usize,
    waiting: Waiting,
}

/// Status and headers of interim responses, in order.
pub(crate) type Waiting = Vec<(StatusCode, HeaderList)>;

impl Interims {
    /// Adds an interim response with a head of `size` bytes. Returns `false` if the limit is exceeded.
    pub(crate) fn add(&mut self, status: StatusCode, headers: HeaderList, size: usize) -> bool {
        self.number += 1;
        self.size = self.size.saturating_add(size);
        let is_within = self.number <= NUMBER && self.size <= SIZE;
        // The gateway answers `Expect` itself (RFC 9110 section 10.1.1), so 100 is not forwarded.
        if is_within && status != StatusCode::CONTINUE {
            self.waiting.push((status, headers));
        }
        is_within
    }

    /// Takes the interim responses that are not passed on yet.
    pub(crate) fn take(&mut self) -> Waiting {
        mem::take(&mut self.waiting)
    }
}

/// Passes the interim responses `waiting` to `to`; `is_answered` if the final response has arrived.
pub(crate) fn pass(waiting: Waiting, to: InterimReceivers<'_>, is_answered: bool) {
    for (status, headers) in waiting {
        to.receive(status, headers, is_answered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_interim_responses_and_64_kib_are_allowed() {
        let add =
            |interims: &mut Interims, size| interims.add(StatusCode::PROCESSING, HeaderList::new(), size);
        let mut interims = Interims::default();
        assert!((0..100).all(|_| add(&mut interims, 655)));
        assert!(!add(&mut interims, 0));
        assert_eq!((interims.take().len(), interims.take().len()), (100, 0));
        let mut interims = Interims::default();
        assert!(add(&mut interims, 64 << 10));
        assert!(!add(&mut interims, 1));
    }
}
