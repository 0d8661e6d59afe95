//! Suspension of synchronous callbacks: runs a closure on a small stackful coroutine that a future drives.
//!
//! rustls calls signers, session stores and ticketers as plain functions. [`Suspendable`] runs such a call on a stack
//! of its own; inside, [`wait`] polls a future and, while that is pending, suspends the whole call and returns to the
//! executor. Nothing is suspended if the future is ready at once, which is the usual case.
//!
//! A suspended call stays on its thread. Dropping it unwinds its stack, so that its values are dropped too (this needs
//! `panic = "unwind"`).
#![expect(unsafe_code, reason = "the running coroutine's yielder is reached through a thread-local pointer")]

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::ptr;
use std::task::{Context, Poll, Waker};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::notes::{self, Notes, Running};
use crate::refusal::Refusal;

/// Stack size of a [`Coroutine`] in bytes; only touched pages take memory. Signing and certificate verification need about
/// 30 KiB in debug builds.
const STACK_SIZE: usize = 256 * 1024;

/// Unused stacks of [`STACK_SIZE`] kept per thread: as many as handshakes usually wait at the same time.
const POOLED_STACKS: usize = 256;

type CallYielder = Yielder<Waker, ()>;

thread_local! {
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
    static CURRENT: Cell<*const CallYielder> = const { Cell::new(ptr::null()) };
    static WAKER: RefCell<Option<Waker>> = const { RefCell::new(None) };
}

/// A call that may suspend in [`wait`]; a future of its result. Stays on the thread that created it.
pub(crate) struct Suspendable<T> {
    coroutine: Option<Coroutine<Waker, (), T>>,
    running: Running,
}

impl<T: 'static> Suspendable<T> {
    /// Prepares `call` on a stack from this thread's pool.
    ///
    /// `call` should capture little (a box), because the coroutine's first frame contains it. Fails only if the system
    /// has no memory for a stack.
    pub(crate) fn new(call: impl FnOnce() -> T + 'static) -> io::Result<Self> {
        let pooled = STACKS.with_borrow_mut(Vec::pop);
        let stack = match pooled {
            Some(stack) => stack,
            None => DefaultStack::new(STACK_SIZE)?,
        };
        let coroutine = Coroutine::with_stack(stack, move |yielder: &CallYielder, waker: Waker| {
            enter(yielder, waker);
            call()
        });
        Ok(Self { coroutine: Some(coroutine), running: Running::default() })
    }

    /// Runs the call to its next suspension. The result includes the [`Notes`] of the callbacks.
    pub(crate) fn poll_resume(&mut self, cx: &mut Context<'_>) -> Poll<(T, Notes)> {
        let coroutine = self.coroutine.as_mut().expect("a finished call is not polled again");
        notes::swap(&mut self.running);
        let guard = Leave(&mut self.running);
        let step = coroutine.resume(cx.waker().clone());
        drop(guard);
        match step {
            CoroutineResult::Yield(()) => Poll::Pending,
            CoroutineResult::Return(value) => {
                self.recycle();
                Poll::Ready((value, self.running.notes))
            }
        }
    }

    /// The [`Refusal`] of a session in the call, once.
    pub(crate) fn take_refusal(&mut self) -> Option<Box<Refusal>> {
        self.running.refusal.take()
    }

    fn recycle(&mut self) {
        let Some(stack) = self.coroutine.take().map(Coroutine::into_stack) else { return };
        STACKS.with_borrow_mut(|stacks| {
            if stacks.len() < POOLED_STACKS {
                stacks.push(stack);
            }
        });
    }
}

impl<T: 'static> Future for Suspendable<T> {
    type Output = (T, Notes);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_resume(cx)
    }
}

/// Restores the thread's state when a call suspends, returns or panics.
struct Leave<'a>(&'a mut Running);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        CURRENT.set(ptr::null());
        WAKER.set(None);
        notes::swap(self.0);
    }
}

fn enter(yielder: &CallYielder, waker: Waker) {
    CURRENT.set(ptr::from_ref(yielder));
    WAKER.set(Some(waker));
}

/// Whether [`wait`] can suspend: inside a [`Suspendable`] call.
pub(crate) fn is_possible() -> bool {
    !CURRENT.get().is_null()
}

/// Waits for `future` from inside a [`Suspendable`] call, suspending the call while it is pending.
///
/// Outside of such a call nothing can be suspended: a future that is not ready at once yields `None`.
pub(crate) fn wait<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    loop {
        let waker = WAKER.take().unwrap_or_else(|| Waker::noop().clone());
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            if !CURRENT.get().is_null() {
                WAKER.set(Some(waker));
            }
            return Some(value);
        }
        let current = CURRENT.get();
        if current.is_null() {
            return None;
        }
        // SAFETY: `current` is set only while its coroutine runs (`enter`) and cleared whenever control leaves it
        // (`Leave`), so it points to the yielder on the stack of this very call.
        let yielder = unsafe { &*current };
        // The task that resumes the call may have another waker than before.
        let waker = yielder.suspend(());
        enter(yielder, waker);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::rc::Rc;
    use std::time::Duration;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime")
    }

    #[test]
    fn a_ready_future_does_not_suspend() {
        let mut call = Suspendable::new(|| wait(async { 7 })).expect("stack");
        let polled = call.poll_resume(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready((Some(7), _))));
    }

    #[test]
    fn waiting_calls_share_one_thread() {
        runtime().block_on(async {
            let calls = (0..20).map(|i| async move {
                let call = Suspendable::new(move || {
                    wait(tokio::time::sleep(Duration::from_millis(500))).map(|()| i)
                });
                call.expect("stack").await.0
            });
            let begun = std::time::Instant::now();
            let set = tokio::task::LocalSet::new();
            let tasks: Vec<_> = calls.map(|call| set.spawn_local(call)).collect();
            set.await;
            for (i, task) in tasks.into_iter().enumerate() {
                assert_eq!(task.await.expect("task"), Some(i));
            }
            assert!(begun.elapsed() < Duration::from_secs(8), "the waits did not overlap");
        });
    }

    #[test]
    fn a_dropped_call_unwinds_what_it_held() {
        let held = Rc::new(());
        let inside = Rc::clone(&held);
        let mut call = Suspendable::new(move || {
            let kept = inside;
            wait(poll_fn(|_| Poll::<()>::Pending));
            drop(kept);
        })
        .expect("stack");
        assert!(call.poll_resume(&mut Context::from_waker(Waker::noop())).is_pending());
        assert_eq!(Rc::strong_count(&held), 2);
        drop(call);
        assert_eq!(Rc::strong_count(&held), 1);
    }

    #[test]
    fn outside_a_call_a_pending_future_is_refused() {
        assert_eq!(wait(poll_fn(|_| Poll::<()>::Pending)), None);
    }

    #[test]
    fn notes_belong_to_their_call() {
        let note = |value: u16| {
            Suspendable::new(move || {
                notes::update(|n| n.scheme = Some(value));
                let mut once = false;
                wait(poll_fn(move |cx| {
                    if std::mem::replace(&mut once, true) {
                        return Poll::Ready(());
                    }
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }));
            })
            .expect("stack")
        };
        let (mut first, mut second) = (note(1), note(2));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(first.poll_resume(cx).is_pending());
        assert!(second.poll_resume(cx).is_pending());
        let Poll::Ready(((), notes)) = first.poll_resume(cx) else { panic!("not finished") };
        assert_eq!(notes.scheme, Some(1));
        let Poll::Ready(((), notes)) = second.poll_resume(cx) else { panic!("not finished") };
        assert_eq!(notes.scheme, Some(2));
    }
}
