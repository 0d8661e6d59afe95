//! Operations in progress on one connection.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use brisk_keyless::ErrorCode;
use brisk_keys::{KeyError, KeyResult, PendingOperation};
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::{Timeout, timeout_at};

/// Time after the deadline in which the engine itself reports that the deadline has passed.
const GRACE: Duration = Duration::from_millis(100);

/// Operations by number. Dropping it cancels them.
#[derive(Default)]
pub(crate) struct Operations {
    all: FuturesUnordered<Operation>,
    handles: HashMap<u32, AbortHandle>,
}

struct Operation {
    number: u32,
    pending: Pin<Box<Abortable<Timeout<PendingOperation>>>>,
}

impl Future for Operation {
    type Output = (u32, Result<KeyResult, ErrorCode>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(self.pending.as_mut().poll(context));
        let result = result.map(|in_time| in_time.unwrap_or(Err(KeyError::DeadlinePassed)));
        Poll::Ready((self.number, result.map_err(|_| ErrorCode::Cancelled)))
    }
}

impl Operations {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn has(&self, number: u32) -> bool {
        self.handles.contains_key(&number)
    }

    /// Adds an operation with an unused number. If its engine does not respond, it ends [`GRACE`] after the deadline.
    pub(crate) fn add(&mut self, number: u32, pending: PendingOperation, deadline: Instant) {
        let pending = timeout_at((deadline + GRACE).into(), pending);
        let (handle, registration) = AbortHandle::new_pair();
        self.handles.insert(number, handle);
        self.all.push(Operation { number, pending: Box::pin(Abortable::new(pending, registration)) });
    }

    /// Cancels an operation in progress, which ends with [`ErrorCode::Cancelled`].
    pub(crate) fn cancel(&self, number: u32) {
        if let Some(handle) = self.handles.get(&number) {
            handle.abort();
        }
    }

    /// The next finished operation, in any order; pending while there is none.
    pub(crate) fn poll_ended(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<(u32, Result<KeyResult, ErrorCode>)> {
        match self.all.poll_next_unpin(context) {
            Poll::Ready(Some((number, result))) => {
                // Only now, also after a cancellation: the client may use the number again
                // once it has the response.
                self.handles.remove(&number);
                Poll::Ready((number, result))
            }
            // `None` is an empty set and registers no waker. A new operation needs none: the turn
            // that adds it polls again.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use brisk_keys::Performer;
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn operations_end_in_any_order_and_a_cancelled_one_is_abandoned() {
        let later = Instant::now() + Duration::from_hours(1);
        let mut operations = Operations::default();
        let (first, first_end) = PendingOperation::with_completion(later);
        let (second, second_end) = PendingOperation::with_completion(later);
        operations.add(1, first, later);
        operations.add(2, second, later);
        assert!(operations.has(2) && operations.len() == 2);
        second_end.complete(Ok(vec![2].into()), Performer::AWS_LC);
        let ended = poll_fn(|context| operations.poll_ended(context)).await;
        assert_eq!(ended, (2, Ok(Ok(vec![2].into()))));
        operations.cancel(2);
        operations.cancel(1);
        let ended = poll_fn(|context| operations.poll_ended(context)).await;
        assert_eq!(ended, (1, Err(ErrorCode::Cancelled)));
        assert!(first_end.is_abandoned() && operations.len() == 0 && !operations.has(1));
    }

    #[tokio::test]
    async fn an_operation_that_its_engine_forgets_ends_after_its_deadline() {
        let deadline = Instant::now() + Duration::from_millis(20);
        let mut operations = Operations::default();
        let (pending, never) = PendingOperation::with_completion(deadline);
        operations.add(7, pending, deadline);
        let ended = poll_fn(|context| operations.poll_ended(context)).await;
        assert_eq!(ended, (7, Ok(Err(KeyError::DeadlinePassed))));
        assert!(Instant::now() >= deadline + GRACE && operations.len() == 0 && never.is_abandoned());
    }
}
