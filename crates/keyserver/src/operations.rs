//! The operations of one connection that are under way.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use brisk_keyless::ErrorCode;
use brisk_keys::{KeyResult, PendingOperation};
use futures_util::future::{AbortHandle, Abortable};
use futures_util::stream::{FuturesUnordered, StreamExt};

/// Operations by their numbers. Dropping it abandons them.
#[derive(Default)]
pub(crate) struct Operations {
    all: FuturesUnordered<Operation>,
    handles: HashMap<u32, AbortHandle>,
}

struct Operation {
    number: u32,
    pending: Abortable<PendingOperation>,
}

impl Future for Operation {
    type Output = (u32, Result<KeyResult, ErrorCode>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(Pin::new(&mut self.pending).poll(context));
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

    /// Adds an operation whose number none has.
    pub(crate) fn add(&mut self, number: u32, pending: PendingOperation) {
        let (handle, registration) = AbortHandle::new_pair();
        self.handles.insert(number, handle);
        self.all.push(Operation { number, pending: Abortable::new(pending, registration) });
    }

    /// Abandons the operation, if it is under way: it ends as cancelled.
    pub(crate) fn cancel(&self, number: u32) {
        if let Some(handle) = self.handles.get(&number) {
            handle.abort();
        }
    }

    /// The next operation that has ended, in any order; pending while there is none.
    pub(crate) fn poll_ended(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<(u32, Result<KeyResult, ErrorCode>)> {
        match self.all.poll_next_unpin(context) {
            Poll::Ready(Some((number, result))) => {
                self.handles.remove(&number);
                Poll::Ready((number, result))
            }
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::time::{Duration, Instant};

    use brisk_keys::Performer;

    use super::*;

    #[tokio::test]
    async fn operations_end_in_any_order_and_a_cancelled_one_is_abandoned() {
        let later = Instant::now() + Duration::from_hours(1);
        let mut operations = Operations::default();
        let (first, first_end) = PendingOperation::with_completion(later);
        let (second, second_end) = PendingOperation::with_completion(later);
        operations.add(1, first);
        operations.add(2, second);
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
}
