//! A handshake whose connection is already being served, because there was early data.

use std::cell::Cell;
use std::time::{Duration, Instant};

use brisk_tls::Confirmation;

use crate::end::End;

/// What reports the end of a handshake.
#[derive(Debug)]
pub enum Completion {
    /// The connection's TLS stream.
    Stream(Confirmation),
    /// A test, which has no stream.
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

/// The handshake of a connection whose early data is being answered.
#[derive(Debug)]
pub struct Handshake {
    completion: Completion,
    until: Instant,
    waiting: Cell<u32>,
    failure: Cell<Option<End>>,
}

impl Handshake {
    /// A handshake that ends with `completion` and may take until `until`.
    pub fn new(completion: Completion, until: Instant) -> Self {
        Self { completion, until, waiting: Cell::new(0), failure: Cell::new(None) }
    }

    /// Whether the handshake has succeeded.
    pub fn is_complete(&self) -> bool {
        self.completion.is_reached()
    }

    /// Waits for the end of the handshake. Never returns if the handshake fails.
    pub async fn complete(&self) {
        let _waiting = Waiting::new(&self.waiting);
        self.completion.reached().await;
    }

    /// Requests that wait for the end.
    pub fn waiting(&self) -> u32 {
        self.waiting.get()
    }

    /// How long the client may still take.
    pub fn time_left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Notes that the handshake will not succeed; the first reason counts.
    pub fn fail(&self, end: End) {
        self.failure.set(self.failure.get().or(Some(end)));
    }

    /// Why the handshake will not succeed.
    pub fn failure(&self) -> Option<End> {
        self.failure.get()
    }
}

/// Counts a request that waits, until it is dropped.
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
