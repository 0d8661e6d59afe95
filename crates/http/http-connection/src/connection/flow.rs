//! Requests in flight on a connection and the progress of their responses.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crate::streams::Ended;

/// The requests of a connection, and the progress of the client in reading their responses.
#[derive(Debug, Default)]
pub struct Flow {
    in_flight: Cell<u32>,
    requests: Cell<u32>,
    held_answers: Cell<u32>,
    answer_bytes: Cell<u64>,
    request_began: Cell<Option<Instant>>,
    batch: Cell<Batch>,
    /// Whether written data waits for the client to read.
    blocked: Cell<bool>,
    /// Number of requests that wait for a server at its limit.
    at_limit: Cell<u32>,
    /// Reason for which the connection ends its requests.
    ended: Cell<Option<Ended>>,
    unblocked: RefCell<Vec<Waker>>,
}

/// Requests that the connection processes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Batch {
    #[default]
    None,
    Begun,
    /// The clock was read: the latest request belongs to the batch.
    Timed,
}

impl Flow {
    /// Counts a request as in flight, until [`Self::end`].
    pub(super) fn begin(&self) {
        self.in_flight.set(self.in_flight.get() + 1);
        self.requests.set(self.requests.get().wrapping_add(1));
    }

    /// Counts a request as no longer in flight.
    pub(super) fn end(&self) {
        self.in_flight.set(self.in_flight.get() - 1);
    }

    /// Number of requests whose response has not ended.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.get()
    }

    /// Number of requests begun on this connection.
    pub fn requests(&self) -> u32 {
        self.requests.get()
    }

    /// Records the arrival of a request, and returns its time: that of the first request in a batch.
    pub fn arrive(&self) -> Instant {
        let time = match (self.batch.get(), self.request_began.get()) {
            (Batch::Timed, Some(time)) => time,
            _ => Instant::now(),
        };
        if self.batch.get() == Batch::Begun {
            self.batch.set(Batch::Timed);
        }
        self.request_began.set(Some(time));
        time
    }

    /// Begins a batch: the requests until [`Self::end_batch`] have arrived together, and the clock is read once for them.
    pub fn begin_batch(&self) {
        self.batch.set(Batch::Begun);
    }

    /// Ends a batch.
    pub fn end_batch(&self) {
        self.batch.set(Batch::None);
    }

    /// Start of the latest request; `None` before the first one.
    pub fn request_began(&self) -> Option<Instant> {
        self.request_began.get()
    }

    /// Records whether a response has data that is not polled because the client does not read.
    pub fn answer_held(&self, held: bool) {
        let now = self.held_answers.get();
        self.held_answers.set(if held { now + 1 } else { now.saturating_sub(1) });
    }

    /// Counts polled bytes of responses.
    pub fn answer_taken(&self, bytes: u64) {
        self.answer_bytes.set(self.answer_bytes.get() + bytes);
    }

    /// Progress in bytes of an HTTP/1.1 response that waits for the client to read; `None` if none waits.
    pub fn held_answer(&self) -> Option<u64> {
        (self.held_answers.get() > 0).then(|| self.answer_bytes.get())
    }

    /// Records the reason for which the connection ends its requests before their completion.
    pub fn set_ended(&self, reason: Option<Ended>) {
        self.ended.set(reason);
    }

    /// Reason for which the connection ends its requests; `None` while it does not.
    pub fn ended(&self) -> Option<Ended> {
        self.ended.get()
    }

    /// Counts a request that waits for a server at its limit, or for the response of one, for `abort_on_close`, until
    /// [`Self::end_at_limit`].
    pub fn begin_at_limit(&self) {
        self.at_limit.set(self.at_limit.get() + 1);
    }

    /// Counts the end of such a wait.
    pub fn end_at_limit(&self) {
        self.at_limit.set(self.at_limit.get().saturating_sub(1));
    }

    /// Whether a request waits for a server at its limit.
    pub fn is_at_limit(&self) -> bool {
        self.at_limit.get() > 0
    }

    /// Records whether written data waits for the client to read.
    pub fn set_blocked(&self, blocked: bool) {
        if self.blocked.replace(blocked) && !blocked {
            self.unblocked.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Ready while the client reads the written data.
    pub fn poll_unblocked(&self, context: &mut Context<'_>) -> Poll<()> {
        if !self.blocked.get() {
            return Poll::Ready(());
        }
        let mut waiting = self.unblocked.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_a_batch_arrive_at_one_time() {
        let flow = Flow::default();
        let later = |time| {
            while Instant::now() <= time {
                std::hint::spin_loop();
            }
        };
        flow.begin_batch();
        let first = flow.arrive();
        later(first);
        assert_eq!((flow.arrive(), flow.request_began()), (first, Some(first)));
        flow.begin_batch();
        let second = flow.arrive();
        assert!(second > first);
        flow.end_batch();
        later(second);
        let third = flow.arrive();
        later(third);
        assert!(third > second && flow.arrive() > third);
    }
}
