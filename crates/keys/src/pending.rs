//! A key operation under way: the caller's end, which is a future, and the engine's end, which answers it.

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

/// What a key operation yields: for a signature, its bytes as they stand in the TLS message. Wiped when it is dropped,
/// since what a decryption yields is secret.
pub type KeyResult = Result<Zeroizing<Vec<u8>>, KeyError>;

const TAKEN: KeyError = KeyError::Failed("its result has already been taken");
const ENGINE_GONE: KeyError = KeyError::Failed("the engine dropped it");

/// A key operation under way; a future of its [`KeyResult`].
///
/// Dropping it abandons the operation: an engine that has not begun it never will. It needs no particular runtime, and
/// sets no timer: the engine refuses work after the deadline, and a caller who must not wait longer says so itself.
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

/// What travels from the engine's end to the caller's.
struct Answer {
    result: KeyResult,
    work: Work,
}

/// Who worked on an operation, and how long; as far as it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Work {
    /// `None`: the work was not begun.
    pub(crate) performer: Option<Performer>,
    /// Without the time that it lay in a queue.
    pub(crate) time: Option<Duration>,
}

impl Work {
    const NONE: Self = Self { performer: None, time: None };
}

impl PendingOperation {
    /// An operation that is refused. Costs no allocation.
    pub const fn refused(error: KeyError) -> Self {
        Self { state: State::Ready(Err(error)), work: Work::NONE }
    }

    /// An operation that is already done, and by whom. Costs no allocation.
    pub const fn ready(result: KeyResult, performer: Performer) -> Self {
        Self { state: State::Ready(result), work: Work { performer: Some(performer), time: None } }
    }

    /// An operation that another thread or task will answer through the [`Completion`]. One allocation.
    pub fn with_completion(deadline: Instant) -> (Self, Completion) {
        let (sender, receiver) = oneshot::channel();
        let pending = Self { state: State::Waiting(receiver), work: Work::NONE };
        (pending, Completion { sender, deadline, begun: None })
    }

    /// An operation that is done when `future` is: for engines that add something to the answer of another.
    pub fn from_future(future: impl Future<Output = KeyResult> + Send + 'static) -> Self {
        Self { state: State::Wrapping(Box::pin(future)), work: Work::NONE }
    }

    /// The result, if it is there already: the way past any waiting for an engine that worked in `submit`.
    ///
    /// To be asked before the future is polled for the first time, or not at all: it may forget the waker of a poll.
    /// Once it has given the result, the future has none to give and yields an error.
    pub fn try_take(&mut self) -> Option<KeyResult> {
        let result = match &mut self.state {
            State::Ready(_) | State::Taken => return Some(self.take_ready()),
            // A poll might find that the task has spent its budget with tokio, and see nothing.
            State::Waiting(receiver) => match receiver.try_recv() {
                Err(TryRecvError::Empty) => return None,
                received => self.answer(received.ok()),
            },
            State::Wrapping(future) => match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(result) => result,
                Poll::Pending => return None,
            },
        };
        self.state = State::Taken;
        Some(result)
    }

    /// A result that was there from the start; `None` if there is yet to be one.
    pub(crate) const fn result(&self) -> Option<&KeyResult> {
        match &self.state {
            State::Ready(result) => Some(result),
            _ => None,
        }
    }

    /// Who performed the operation, once it has a result; `None` if it was not performed.
    pub const fn performer(&self) -> Option<Performer> {
        self.work().performer
    }

    /// Who worked on it and how long; known after completion, if at all.
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

    /// The result in an answer, of which it notes the rest. `None`: the engine is gone.
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
    /// Says how far it is, not what it yields.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            State::Ready(_) => "ready",
            State::Waiting(_) | State::Wrapping(_) => "waiting",
            State::Taken => "taken",
        };
        f.debug_tuple("PendingOperation").field(&state).finish()
    }
}

/// The engine's end of a [`PendingOperation`]. Dropping it unanswered answers with an error.
#[derive(Debug)]
pub struct Completion {
    sender: oneshot::Sender<Answer>,
    deadline: Instant,
    begun: Option<Instant>,
}

impl Completion {
    /// Whether the caller no longer waits for the result.
    pub fn is_abandoned(&self) -> bool {
        self.sender.is_closed()
    }

    /// Whether the work is worth beginning: the caller waits, and the deadline has not passed.
    pub(crate) fn is_wanted(&self, now: Instant) -> bool {
        now < self.deadline && !self.is_abandoned()
    }

    /// To be called when the work starts; gives itself back if the work is still wanted.
    ///
    /// An operation whose deadline has passed is answered here and now, an abandoned one needs no answer.
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

    /// Answers the operation, and records who performed it. The result of an abandoned operation is dropped.
    pub fn complete(self, result: KeyResult, performer: Performer) {
        let time = self.begun.map(|begun| begun.elapsed());
        self.answer(result, Work { performer: Some(performer), time });
    }

    fn answer(self, result: KeyResult, work: Work) {
        // An error means that the caller has gone, which is its right.
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
