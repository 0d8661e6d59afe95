//! A key operation in progress: [`PendingOperation`] is the caller's end, [`Completion`] the engine's end.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
    time::{Duration, Instant},
};

use tokio::sync::oneshot::{self, error::TryRecvError};
use zeroize::Zeroizing;

use crate::{KeyError, Performer};

/// Result of a key operation: for a signature, its bytes as in the TLS message. Wiped on drop, since the result of a
/// decryption is secret.
pub type KeyResult = Result<Zeroizing<Vec<u8>>, KeyError>;

const TAKEN: KeyError = KeyError::Failed("its result has already been taken");
const ENGINE_GONE: KeyError = KeyError::Failed("the engine dropped it");

/// A key operation in progress; a future of its [`KeyResult`].
///
/// Dropping it abandons the operation: an engine that has not begun it never will. It works in every async runtime
/// and sets no timer: the engine refuses work after the deadline, and a caller that must not wait longer sets its own
/// timeout.
#[must_use = "dropping it abandons the operation"]
pub struct PendingOperation {
    state: State,
    work: Work,
}

enum State {
    Ready(KeyResult),
    Waiting(oneshot::Receiver<Answer>),
    Wrapping(Pin<Box<dyn Future<Output = KeyResult> + Send>>),
    Taken,
}

/// Message from the engine's end to the caller's end.
struct Answer {
    result: KeyResult,
    work: Work,
}

/// Performer and duration of an operation, where known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// `None` if the work was not begun.
    pub(crate) performer: Option<Performer>,
    /// Duration of the work, without the time in a queue.
    pub(crate) time: Option<Duration>,
}

impl Work {
    const NONE: Self = Self { performer: None, time: None };
}

impl PendingOperation {
    /// Creates an operation that has failed with `error`. Costs no allocation.
    pub const fn refused(error: KeyError) -> Self {
        Self { state: State::Ready(Err(error)), work: Work::NONE }
    }

    /// Creates an operation that is completed already. Costs no allocation.
    pub const fn ready(result: KeyResult, performer: Performer) -> Self {
        Self { state: State::Ready(result), work: Work { performer: Some(performer), time: None } }
    }

    /// Creates an operation that another thread or task completes with the returned [`Completion`]. Costs one
    /// allocation.
    pub fn with_completion(deadline: Instant) -> (Self, Completion) {
        let (sender, receiver) = oneshot::channel();
        let pending = Self { state: State::Waiting(receiver), work: Work::NONE };
        (pending, Completion { sender, deadline, begun: None })
    }

    /// Creates an operation that completes with `future`, for engines that modify the result of another engine.
    pub fn from_future(future: impl Future<Output = KeyResult> + Send + 'static) -> Self {
        Self { state: State::Wrapping(Box::pin(future)), work: Work::NONE }
    }

    /// The result, if it is available without waiting: avoids a trip through the event loop for engines that perform
    /// operations in `submit`.
    ///
    /// Must be called before the future is first polled, since it may discard the waker of a poll. After it has
    /// returned the result, polling the future yields an error.
    pub fn try_take(&mut self) -> Option<KeyResult> {
        let result = match &mut self.state {
            State::Ready(_) | State::Taken => return Some(self.take_ready()),
            // `try_recv` instead of a poll: tokio's cooperative budget may be exhausted, and a poll would then return
            // pending.
            State::Waiting(receiver) => match receiver.try_recv() {
                Err(TryRecvError::Empty) => return None,
                received => self.answer(received.ok()),
            },
            // No waker is needed: a future that is not ready is polled again by the caller, with a waker of
            // its task.
            State::Wrapping(future) => match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(result) => result,
                Poll::Pending => return None,
            },
        };
        self.state = State::Taken;
        Some(result)
    }

    /// The result of an operation that was completed on creation; `None` for any other.
    pub(crate) const fn result(&self) -> Option<&KeyResult> {
        match &self.state {
            State::Ready(result) => Some(result),
            _ => None,
        }
    }

    /// Performer of the operation once it has a result; `None` if it was not performed.
    pub const fn performer(&self) -> Option<Performer> {
        self.work().performer
    }

    /// Performer and duration, known after completion if at all.
    pub(crate) const fn work(&self) -> Work {
        self.work
    }

    fn poll_result(&mut self, context: &mut Context<'_>) -> Poll<KeyResult> {
        let result = match &mut self.state {
            State::Ready(_) | State::Taken => return Poll::Ready(self.take_ready()),
            State::Waiting(receiver) => {
                let received = ready!(Pin::new(receiver).poll(context));
                self.answer(received.ok())
            }
            State::Wrapping(future) => ready!(future.as_mut().poll(context)),
        };
        self.state = State::Taken;
        Poll::Ready(result)
    }

    /// Extracts the result from the engine's message and stores the rest. `None` means that the engine was dropped.
    fn answer(&mut self, received: Option<Answer>) -> KeyResult {
        let answer = received.unwrap_or(Answer { result: Err(ENGINE_GONE), work: Work::NONE });
        self.work = answer.work;
        answer.result
    }

    fn take_ready(&mut self) -> KeyResult {
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Ready(result) => result,
            _ => Err(TAKEN),
        }
    }
}

impl Future for PendingOperation {
    type Output = KeyResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<KeyResult> {
        self.poll_result(context)
    }
}

impl fmt::Debug for PendingOperation {
    /// Writes the state without the result.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Ready(_) => "ready",
            State::Waiting(_) | State::Wrapping(_) => "waiting",
            State::Taken => "taken",
        };
        f.debug_tuple("PendingOperation").field(&state).finish()
    }
}

/// The engine's end of a [`PendingOperation`]. If it is dropped before completion, the operation fails.
#[derive(Debug)]
pub struct Completion {
    sender: oneshot::Sender<Answer>,
    deadline: Instant,
    begun: Option<Instant>,
}

impl Completion {
    /// Whether the caller has dropped its [`PendingOperation`].
    pub fn is_abandoned(&self) -> bool {
        self.sender.is_closed()
    }

    /// Whether work should begin: the caller waits, and the deadline has not passed.
    pub(crate) fn is_wanted(&self, now: Instant) -> bool {
        now < self.deadline && !self.is_abandoned()
    }

    /// Marks the start of the work. Returns `None` if the work must not be done: an operation whose deadline has
    /// passed is completed with an error here, an abandoned one needs no completion.
    #[must_use = "`None` means that the work must not be done"]
    pub fn begin(mut self) -> Option<Self> {
        if self.is_abandoned() {
            return None;
        }
        let now = Instant::now();
        if now >= self.deadline {
            self.answer(Err(KeyError::DeadlinePassed), Work::NONE);
            return None;
        }
        self.begun = Some(now);
        Some(self)
    }

    /// Completes the operation and records its performer. The result of an abandoned operation is dropped.
    pub fn complete(self, result: KeyResult, performer: Performer) {
        let time = self.begun.map(|begun| begun.elapsed());
        self.answer(result, Work { performer: Some(performer), time });
    }

    fn answer(self, result: KeyResult, work: Work) {
        // The error means that the caller abandoned the operation, which is allowed at any time.
        drop(self.sender.send(Answer { result, work }));
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_hours(1);

    fn pair() -> (PendingOperation, Completion) {
        PendingOperation::with_completion(Instant::now() + SOON)
    }

    #[test]
    fn a_ready_result_can_be_taken_once() {
        let mut pending = PendingOperation::ready(Ok(vec![1, 2].into()), Performer::AWS_LC);
        assert_eq!(pending.try_take(), Some(Ok(vec![1, 2].into())));
        assert_eq!(pending.try_take(), Some(Err(TAKEN)));
    }

    #[tokio::test]
    async fn a_completion_from_another_thread_wakes_the_caller() {
        let (mut pending, completion) = pair();
        assert_eq!(pending.try_take(), None);
        let engine = std::thread::spawn(move || {
            let completion = completion.begin().expect("the caller waits");
            completion.complete(Ok(vec![3].into()), Performer::IFMA);
        });
        assert_eq!((&mut pending).await, Ok(vec![3].into()));
        let work = pending.work();
        assert_eq!(work.performer, Some(Performer::IFMA));
        assert!(work.time.is_some());
        engine.join().unwrap();
    }

    #[test]
    fn an_engine_that_goes_away_leaves_an_error_behind() {
        let (mut pending, completion) = pair();
        drop(completion);
        assert_eq!(pending.try_take(), Some(Err(ENGINE_GONE)));
    }

    #[test]
    fn an_abandoned_operation_is_not_begun() {
        let (pending, completion) = pair();
        assert!(!completion.is_abandoned());
        drop(pending);
        assert!(completion.is_abandoned());
        assert!(!completion.is_wanted(Instant::now()));
        assert!(completion.begin().is_none());
    }

    #[test]
    fn an_operation_past_its_deadline_is_answered_instead_of_begun() {
        let (mut pending, completion) = PendingOperation::with_completion(Instant::now());
        assert!(!completion.is_wanted(Instant::now()));
        assert!(completion.begin().is_none());
        assert_eq!(pending.try_take(), Some(Err(KeyError::DeadlinePassed)));
        assert_eq!(pending.work(), Work::NONE);
    }

    #[tokio::test]
    async fn an_engine_can_add_to_the_answer_of_another() {
        let (inner, completion) = pair();
        let outer = PendingOperation::from_future(async { inner.await.or(Ok(vec![9].into())) });
        completion.complete(Err(KeyError::Overloaded), Performer::AWS_LC);
        assert_eq!(outer.await, Ok(vec![9].into()));
    }

    #[test]
    fn debug_shows_no_result() {
        let (pending, completion) = pair();
        completion.complete(Ok(b"secret".to_vec().into()), Performer::AWS_LC);
        let ready = PendingOperation::ready(Ok(b"secret".to_vec().into()), Performer::AWS_LC);
        assert_eq!(
            format!("{pending:?} {ready:?}"),
            "PendingOperation(\"waiting\") PendingOperation(\"ready\")"
        );
    }
}
