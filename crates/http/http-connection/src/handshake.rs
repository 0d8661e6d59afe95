//! The handshake of a connection that is served before its end, because of early data.

use std::cell::Cell;
use std::time::{Duration, Instant};

use brisk_tls::Confirmation;

use crate::end::End;

/// Source of the handshake's completion.
#[derive(Debug)]
pub enum Completion {
    /// TLS stream of the connection.
    Stream(Confirmation),
    /// A test without a stream.
    #[cfg(any(test, feature = "testing"))]
    Manual(std::rc::Rc<testing::ManualCompletion>),
}

impl Completion {
    fn is_reached(&self) -> bool {
        match self {
            Self::Stream(confirmation) => confirmation.is_confirmed(),
            #[cfg(any(test, feature = "testing"))]
            Self::Manual(completion) => completion.is_complete(),
        }
    }

    async fn reached(&self) {
        match self {
            Self::Stream(confirmation) => confirmation.confirmed().await,
            #[cfg(any(test, feature = "testing"))]
            Self::Manual(completion) => completion.completed().await,
        }
    }
}

/// The handshake of a connection with early data (RFC 8446 section 2.3).
#[derive(Debug)]
pub struct Handshake {
    completion: Completion,
    until: Instant,
    waiting: Cell<u32>,
    failure: Cell<Option<End>>,
}

impl Handshake {
    /// A handshake completed by `completion`, with the deadline `until`.
    pub fn new(completion: Completion, until: Instant) -> Self {
        Self { completion, until, waiting: Cell::new(0), failure: Cell::new(None) }
    }

    /// Whether the handshake has succeeded.
    pub fn is_complete(&self) -> bool {
        self.completion.is_reached()
    }

    /// Waits for the end of the handshake. Never returns if the handshake fails: the driver then ends the connection.
    pub async fn complete(&self) {
        // A guard, because the future of a cancelled request is dropped in the middle of the wait.
        let _waiting = Waiting::new(&self.waiting);
        self.completion.reached().await;
    }

    /// Number of requests that wait in [`Self::complete`].
    pub fn waiting(&self) -> u32 {
        self.waiting.get()
    }

    /// Time until the client's deadline.
    pub fn time_left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Records the failure of the handshake. The first reason is kept.
    pub fn fail(&self, end: End) {
        // Later errors are consequences of the first one: after a TLS fault, for example, the socket fails
        // too.
        self.failure.set(self.failure.get().or(Some(end)));
    }

    /// The reason for the failure of the handshake; `None` while it has not failed.
    pub fn failure(&self) -> Option<End> {
        self.failure.get()
    }
}

/// Counts a waiting request until dropped.
struct Waiting<'a>(&'a Cell<u32>);

impl<'a> Waiting<'a> {
    fn new(count: &'a Cell<u32>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Handshakes without a stream.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use std::cell::Cell;

    use tokio::sync::Notify;

    /// The end of a handshake, set by a test.
    #[derive(Debug, Default)]
    pub struct ManualCompletion {
        complete: Cell<bool>,
        waiting: Notify,
    }

    impl ManualCompletion {
        /// Completes the handshake.
        pub fn complete(&self) {
            self.complete.set(true);
            self.waiting.notify_waiters();
        }

        /// Whether the handshake is complete.
        pub fn is_complete(&self) -> bool {
            self.complete.get()
        }

        /// Waits until the handshake is complete.
        pub async fn completed(&self) {
            let notified = self.waiting.notified();
            if !self.is_complete() {
                notified.await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn who_waits_is_counted_until_the_end_or_until_it_gives_up() {
        let completion = Rc::new(testing::ManualCompletion::default());
        let handshake = Handshake::new(Completion::Manual(Rc::clone(&completion)), Instant::now());
        let cx = &mut Context::from_waker(Waker::noop());
        let mut first = Box::pin(handshake.complete());
        let mut second = Box::pin(handshake.complete());
        assert!(first.as_mut().poll(cx).is_pending() && second.as_mut().poll(cx).is_pending());
        assert_eq!(handshake.waiting(), 2);
        drop(second);
        assert_eq!(handshake.waiting(), 1);
        completion.complete();
        assert_eq!(first.as_mut().poll(cx), Poll::Ready(()));
        drop(first);
        assert_eq!(handshake.waiting(), 0);
    }

    #[test]
    fn the_first_failure_counts() {
        let handshake = Handshake::new(Completion::Manual(Rc::default()), Instant::now());
        handshake.fail(End::Malformed);
        handshake.fail(End::ClientGone);
        assert_eq!(handshake.failure(), Some(End::Malformed));
        assert_eq!(handshake.time_left(), Duration::ZERO);
    }
}
