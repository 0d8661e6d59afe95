//! Reads and drops the rest of request bodies over HTTP/2 that are answered before their end.
//!
//! Dropping such a body resets its stream, and many clients drop an answer whose stream is reset although it came
//! before (RFC 9113 section 8.1 lets them choose). So the rest is read and dropped for a while first. Over HTTP/1.1 the
//! connection lingers instead: see [`brisk_net::linger`].

use std::cell::RefCell;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use brisk_net::{Deadline, Lingering};
use bytes::Bytes;
use http_body::Body as _;

use crate::body::client::ClientBody;

/// How much of a body is read after its answer, and for how long.
const LIMITS: Lingering = Lingering::UPLOAD;

/// The uploads of one HTTP/2 connection that are not needed any more: no more than it may have streams. They take no
/// memory, and their windows stay open; the driver of the connection reads and drops them.
#[derive(Debug, Default)]
pub struct Discards {
    uploads: RefCell<Vec<Discard>>,
    /// The driver of the connection, while there is one: without it they would not be read.
    driver: RefCell<Option<Waker>>,
}

#[derive(Debug)]
struct Discard {
    body: ClientBody,
    /// Bytes that the upload may still send.
    left: usize,
    until: Duration,
    /// The deadline for the next bytes.
    deadline: Deadline,
}

impl Discards {
    /// A turn of the connection begins.
    pub fn begin_turn(&self, context: &Context<'_>) {
        let mut driver = self.driver.borrow_mut();
        if !driver.as_ref().is_some_and(|driver| driver.will_wake(context.waker())) {
            *driver = Some(context.waker().clone());
        }
    }

    /// The connection has no driver any more.
    pub fn end(&self) {
        self.driver.take();
        self.uploads.take();
    }

    /// Reads `body` to its end, within limits of size and time, the latter by a new deadline of the worker.
    pub fn add(&self, body: ClientBody, deadline: impl FnOnce() -> Option<Deadline>) {
        let driver = self.driver.borrow();
        let Some(driver) = driver.as_ref() else { return };
        let Some(deadline) = deadline() else { return };
        let until = deadline.now() + LIMITS.time;
        deadline.set(LIMITS.pause);
        self.uploads.borrow_mut().push(Discard { body, left: LIMITS.bytes, until, deadline });
        driver.wake_by_ref();
    }

    /// Drops what has come, and lets go of those uploads that have ended or take too long or too much. Ends each turn of the
    /// connection.
    pub fn poll(&self, context: &mut Context<'_>) {
        self.uploads.borrow_mut().retain_mut(|discard| discard.poll_end(context).is_pending());
    }
}

impl Discard {
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while let Poll::Ready(polled) = Pin::new(&mut self.body).poll_frame(context) {
            // Its end, a reset, or that of the connection.
            let Some(Ok(frame)) = polled else { return Poll::Ready(()) };
            let length = frame.data_ref().map_or(0, Bytes::len);
            let time_left = self.until.saturating_sub(self.deadline.now());
            match self.left.checked_sub(length) {
                Some(left) if !time_left.is_zero() => self.left = left,
                _ => return Poll::Ready(()),
            }
            self.deadline.set(LIMITS.pause.min(time_left));
        }
        self.deadline.poll_expired(context)
    }
}
