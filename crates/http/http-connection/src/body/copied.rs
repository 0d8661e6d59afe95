//! Copies of request bodies, made while upstreams take them: for mirrors.

use std::fmt;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use brisk_budget::{Budget, Full, Reservation, Resource};
use brisk_http::error::BodyError;
use bytes::Bytes;
use http_body::{Body as _, Frame};

use crate::body::request::RequestBody;
use crate::connection::Connection;
use crate::gathering::Gathered;

/// Memory of a copy, reserved until the value is dropped: also longer than the connection of the client.
#[derive(Debug)]
pub struct CopyMemory {
    /// `None` on a connection without budgets, as in tests.
    _reservation: Option<Reservation>,
}

/// Reason for which there is no copy of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotCopied {
    /// The body is longer than the limit.
    TooLarge,
    /// The client has no memory left for the copy.
    NoRoom,
    /// The body failed, or the upstream did not take all of it.
    Incomplete,
}

/// Receiver of a copy, called exactly once.
type Receiver = Box<dyn FnOnce(Result<(Bytes, CopyMemory), NotCopied>)>;

/// A body that is copied. The receiver gets the copy, without trailers, when the end has been read, and otherwise the reason
/// for which there is none, in any case once.
pub struct CopiedBody {
    body: RequestBody,
    copy: Gathered,
    /// Maximum length in bytes.
    limit: usize,
    length: usize,
    /// `None` after the end.
    receiver: Option<Receiver>,
}

/// A copy of a request's head, without a body.
#[derive(Debug)]
pub struct EmptyCopy(Gathered);

impl Connection {
    /// Reserves `bytes` for a copy of a request's head. The copy of the body needs further memory.
    ///
    /// # Errors
    ///
    /// [`Full`] if the client has its share of the budget or the limit is reached.
    pub fn reserve_copy(&self, bytes: usize) -> Result<EmptyCopy, Full> {
        let budget = self.budgets().map(|budgets| budgets.of(Resource::Mirrors));
        let reserve = |budget: &Budget| budget.reserve(self.client.address(), bytes as u64);
        Ok(EmptyCopy(Gathered::new(budget.map(reserve).transpose()?)))
    }
}

impl EmptyCopy {
    /// The memory for a request without a body.
    pub fn into_memory(self) -> CopyMemory {
        CopyMemory { _reservation: self.0.into_parts().1 }
    }

    /// Copies `body`, if it has at most `limit` bytes, for `receiver`.
    pub fn follow(
        self,
        body: RequestBody,
        limit: usize,
        receiver: impl FnOnce(Result<(Bytes, CopyMemory), NotCopied>) + 'static,
    ) -> RequestBody {
        let receiver: Receiver = Box::new(receiver);
        RequestBody::Copied(Box::new(CopiedBody {
            body,
            copy: self.0,
            limit,
            length: 0,
            receiver: Some(receiver),
        }))
    }
}

impl CopiedBody {
    /// The body itself.
    pub(crate) fn body(&self) -> &RequestBody {
        &self.body
    }

    /// The next frame, as for [`http_body::Body::poll_frame`].
    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    self.add(data);
                }
                // The reader of a body with a stated length need not poll again.
                let is_over = self.body.is_end_stream() || self.body.size_hint().exact() == Some(0);
                if is_over || frame.is_trailers() {
                    self.finish();
                }
            }
            Some(Err(_)) => self.fail(NotCopied::Incomplete),
            None => self.finish(),
        }
        Poll::Ready(frame)
    }

    fn add(&mut self, data: &[u8]) {
        if self.receiver.is_none() {
            return;
        }
        self.length = self.length.saturating_add(data.len());
        if self.length > self.limit {
            // Only the copy fails: the request to the upstream matters more than its mirror.
            self.fail(NotCopied::TooLarge);
        } else if !self.copy.add(data, self.limit) {
            self.fail(NotCopied::NoRoom);
        }
    }

    fn finish(&mut self) {
        if let Some(receiver) = self.receiver.take() {
            let (bytes, reservation) = mem::take(&mut self.copy).into_parts();
            receiver(Ok((bytes.into(), CopyMemory { _reservation: reservation })));
        }
    }

    fn fail(&mut self, reason: NotCopied) {
        if let Some(receiver) = self.receiver.take() {
            drop(mem::take(&mut self.copy));
            receiver(Err(reason));
        }
    }
}

impl Drop for CopiedBody {
    fn drop(&mut self) {
        // The receiver has to learn of a body that is never read to its end, or the mirror would wait for it.
        self.fail(NotCopied::Incomplete);
    }
}

impl fmt::Debug for CopiedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopiedBody")
            .field("body", &self.body)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::task::Waker;

    use super::*;
    use crate::testing;

    type Seen = Rc<RefCell<Option<Result<Bytes, NotCopied>>>>;

    /// A body of `text`, and its copy as soon as there is one.
    fn copied(text: &'static str, limit: usize) -> (RequestBody, Seen) {
        let seen = Seen::default();
        let receiver = Rc::clone(&seen);
        let copy = testing::connection().reserve_copy(0).expect("room");
        let body = copy.follow(RequestBody::Again(Bytes::from_static(text.as_bytes())), limit, move |copy| {
            *receiver.borrow_mut() = Some(copy.map(|(bytes, _)| bytes));
        });
        (body, seen)
    }

    fn poll(body: &mut RequestBody) -> Option<Bytes> {
        match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(frame) => frame.map(|frame| frame.expect("no failure").into_data().expect("data")),
            Poll::Pending => panic!("the body is in memory"),
        }
    }

    #[test]
    fn the_copy_is_whole_as_soon_as_the_last_byte_was_read() {
        let (mut body, seen) = copied("text", 4);
        assert_eq!(body.size_hint().exact(), Some(4));
        assert_eq!(poll(&mut body).expect("data"), "text");
        assert_eq!(seen.borrow_mut().take(), Some(Ok(Bytes::from_static(b"text"))));
        assert!(body.is_end_stream() && poll(&mut body).is_none());
        drop(body);
        assert_eq!(seen.take(), None, "once only");
    }

    #[test]
    fn a_long_body_and_one_without_a_reader_have_no_copy() {
        let (mut body, seen) = copied("text", 3);
        assert_eq!(poll(&mut body).expect("the reader gets all of it"), "text");
        assert_eq!(seen.borrow_mut().take(), Some(Err(NotCopied::TooLarge)));
        let (body, seen) = copied("text", 4);
        drop(body);
        assert_eq!(seen.take(), Some(Err(NotCopied::Incomplete)));
    }
}
