//! Discarding of request bodies on HTTP/2 and HTTP/3 streams after an early response.
//!
//! Dropping such a body resets its stream, and many clients discard a response whose stream is reset (RFC 9113 section
//! 8.1 permits both). The rest of the body is therefore read and discarded for a while. HTTP/1.1 connections linger
//! instead: see [`brisk_net::linger`].

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use brisk_net::{Deadline, Lingering};
use bytes::Bytes;

use crate::body::inbox::Inbox;
use crate::connection::Connection;

/// Limits on the size and duration of the rest of a body, the same as for HTTP/1.1.
const LIMITS: Lingering = Lingering::UPLOAD;

/// Abandoned uploads of one multiplexed connection, at most one per stream. They occupy no memory and keep their windows
/// open; the driver of the connection reads and discards them.
#[derive(Debug, Default)]
pub struct Discards {
    uploads: RefCell<Vec<Discard>>,
    /// Task of the driver; `None` without a driver, since bodies would not be read.
    driver: RefCell<Option<Waker>>,
}

#[derive(Debug)]
struct Discard {
    inbox: Rc<Inbox>,
    /// Number of bytes that the upload may still send.
    left: usize,
    until: Duration,
    /// Deadline for the next bytes.
    deadline: Deadline,
}

impl Discards {
    /// Begins a turn of the connection.
    pub fn begin_turn(&self, context: &Context<'_>) {
        let mut driver = self.driver.borrow_mut();
        if !driver.as_ref().is_some_and(|driver| driver.will_wake(context.waker())) {
            *driver = Some(context.waker().clone());
        }
    }

    /// Drops all uploads, because the connection has no driver any more. Later ones are let go at once.
    pub fn end(&self) {
        self.driver.take();
        self.uploads.take();
    }

    /// Reads the body in `inbox`, a stream of `connection`, to its end within the limits, and lets it go.
    pub(crate) fn add(&self, inbox: &Rc<Inbox>, connection: &Connection) {
        // Without a driver no task would read the rest, and without a timer a silent client would keep the
        // stream open.
        if let Some(driver) = &*self.driver.borrow()
            && inbox.is_open()
            && let Some(deadline) = connection.register_deadline()
        {
            let until = deadline.now() + LIMITS.time;
            deadline.set(LIMITS.pause);
            let discard = Discard { inbox: Rc::clone(inbox), left: LIMITS.bytes, until, deadline };
            self.uploads.borrow_mut().push(discard);
            // The body may be dropped outside of a turn of the driver, which has to poll the inbox to be
            // woken by its data.
            driver.wake_by_ref();
        } else {
            inbox.let_go();
        }
    }

    /// Discards received data, and drops uploads that have ended or exceed a limit. Call it at the end of each turn.
    pub fn poll(&self, context: &mut Context<'_>) {
        self.uploads.borrow_mut().retain_mut(|discard| discard.poll_end(context).is_pending());
    }
}

impl Discard {
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while let Poll::Ready(polled) = self.inbox.poll_frame(context) {
            // The end of the body, a reset, or the end of the connection.
            let Some(Ok(frame)) = polled else { return Poll::Ready(()) };
            let length = frame.data_ref().map_or(0, Bytes::len);
            let time_left = self.until.saturating_sub(self.deadline.now());
            match self.left.checked_sub(length) {
                Some(left) if !time_left.is_zero() => self.left = left,
                _ => return Poll::Ready(()),
            }
            // Never beyond `until`: a client that sends one byte per pause would otherwise hold the stream
            // for longer.
            self.deadline.set(LIMITS.pause.min(time_left));
        }
        self.deadline.poll_expired(context)
    }
}

impl Drop for Discard {
    fn drop(&mut self) {
        self.inbox.let_go();
    }
}
