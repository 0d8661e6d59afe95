//! Places for connections to one server: a limit that all workers share, and one queue in front of it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

/// Requests that may wait for a place at one server; beyond it they fail at once.
const QUEUE: usize = 16 * 1024;

/// The places of one server. The lock is held for some instructions, and only where a connection begins or ends, or
/// a request waits.
#[derive(Debug)]
pub(crate) struct Places {
    limit: usize,
    /// The length of the queue, to be read without the lock.
    waiting: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    queue: VecDeque<Waiter>,
    next_number: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    worker: Worker,
    grant: oneshot::Sender<Grant>,
}

/// The identity of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Worker(pub(crate) usize);

/// What the first request in the queue gets.
#[derive(Debug)]
pub(crate) enum Grant {
    /// A place for a new connection.
    Place(Place),
    /// An open connection that another request of the same worker does not need any more.
    Connection,
}

/// The right to one open connection. Dropping it lets the next one in.
#[derive(Debug)]
pub(crate) struct Place(Arc<Places>);

/// A place in the queue. Completes when it is this one's turn; dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct Waiting {
    places: Arc<Places>,
    number: u64,
    grant: oneshot::Receiver<Grant>,
}

/// What happens to a connection that its request does not need any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// No request waits: it becomes idle.
    Idle,
    /// It goes to a request of the same worker, which was notified: it has to find the connection.
    SameWorker,
    /// Its place goes to a request of another worker when the connection is closed.
    OtherWorker,
}

impl Places {
    /// At most `limit` places.
    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, waiting: AtomicUsize::new(0), state: Mutex::default() })
    }

    /// A place, if one is free and no request waits for it.
    pub(crate) fn try_take(self: &Arc<Self>) -> Option<Place> {
        let mut state = self.lock();
        if !state.queue.is_empty() || state.taken >= self.limit {
            return None;
        }
        state.taken += 1;
        Some(Place(Arc::clone(self)))
    }

    /// Joins the queue; `None` when it is full.
    pub(crate) fn wait(self: &Arc<Self>, worker: Worker) -> Option<Waiting> {
        let (sender, grant) = oneshot::channel();
        let mut state = self.lock();
        if state.queue.len() >= QUEUE {
            return None;
        }
        let number = state.next_number;
        state.next_number += 1;
        let free = state.queue.is_empty() && state.taken < self.limit;
        if free {
            state.taken += 1;
            // The receiver is at hand.
            let _granted = sender.send(Grant::Place(Place(Arc::clone(self))));
        } else {
            state.queue.push_back(Waiter { number, worker, grant: sender });
            self.note_length(&state);
        }
        drop(state);
        Some(Waiting { places: Arc::clone(self), number, grant })
    }

    /// The length of the queue. Costs a load.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Decides what happens to a connection that `worker` does not need any more.
    pub(crate) fn pass_on(&self, worker: Worker) -> Next {
        if self.waiting() == 0 {
            return Next::Idle;
        }
        let mut state = self.lock();
        loop {
            match state.queue.front() {
                None => return Next::Idle,
                Some(first) if first.worker != worker => return Next::OtherWorker,
                Some(_) => {}
            }
            let granted =
                state.queue.pop_front().is_some_and(|first| first.grant.send(Grant::Connection).is_ok());
            self.note_length(&state);
            if granted {
                return Next::SameWorker;
            }
        }
    }

    fn release(self: &Arc<Self>) {
        let next = {
            let mut state = self.lock();
            let next = state.queue.pop_front();
            if next.is_none() {
                state.taken -= 1;
            }
            self.note_length(&state);
            next
        };
        if let Some(next) = next {
            // One that has gone meanwhile drops the place, and the next one gets it.
            drop(next.grant.send(Grant::Place(Place(Arc::clone(self)))));
        }
    }

    fn note_length(&self, state: &State) {
        self.waiting.store(state.queue.len(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl Waiting {
    /// Leaves the queue. What was granted meanwhile comes back.
    pub(crate) fn leave(&mut self) -> Option<Grant> {
        let mut state = self.places.lock();
        state.queue.retain(|waiter| waiter.number != self.number);
        self.places.note_length(&state);
        drop(state);
        self.grant.close();
        self.grant.try_recv().ok()
    }
}

impl Future for Waiting {
    type Output = Grant;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Grant> {
        match Pin::new(&mut self.grant).poll(context) {
            Poll::Ready(Ok(grant)) => Poll::Ready(grant),
            // Senders stay in the queue until they are used.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.leave());
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    const HERE: Worker = Worker(1);
    const THERE: Worker = Worker(2);

    fn poll(waiting: &mut Waiting) -> Option<Grant> {
        match Pin::new(waiting).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(grant) => Some(grant),
            Poll::Pending => None,
        }
    }

    /// Takes the place that was granted, if one was, and gives it up at once.
    fn gets_place(waiting: &mut Waiting) -> bool {
        matches!(poll(waiting), Some(Grant::Place(_)))
    }

    #[test]
    fn a_place_that_is_free_again_goes_to_the_one_who_waits_longest() {
        let places = Places::new(1);
        let taken = places.try_take().expect("a free place");
        let mut waiting: Vec<_> = (0..3).map(|_| places.wait(HERE).expect("room in the queue")).collect();
        assert!(waiting.iter_mut().all(|waiting| poll(waiting).is_none()));
        drop(taken);
        assert!(places.try_take().is_none(), "no request overtakes the queue");
        assert!(poll(&mut waiting[1]).is_none());
        assert!(gets_place(&mut waiting[0]));
        // Its place was dropped at once.
        assert!(gets_place(&mut waiting[1]) && gets_place(&mut waiting[2]));
        assert_eq!(places.waiting(), 0);
        assert!(places.try_take().is_some());
    }

    #[test]
    fn one_who_leaves_the_queue_takes_nothing_along() {
        let places = Places::new(1);
        let taken = places.try_take().expect("a free place");
        let first = places.wait(HERE).expect("room");
        let second = places.wait(HERE).expect("room");
        let mut third = places.wait(THERE).expect("room");
        drop(first);
        drop(taken);
        // Granted, but never looked at.
        drop(second);
        assert!(gets_place(&mut third));
        assert!(places.try_take().is_some());
    }

    #[test]
    fn a_connection_is_passed_on_within_its_worker_and_closed_for_another() {
        let places = Places::new(1);
        let taken = places.try_take().expect("a free place");
        assert_eq!(places.pass_on(HERE), Next::Idle);
        let mut here = places.wait(HERE).expect("room");
        let mut there = places.wait(THERE).expect("room");
        assert_eq!(places.pass_on(HERE), Next::SameWorker);
        assert!(matches!(poll(&mut here), Some(Grant::Connection)));
        assert_eq!(places.pass_on(HERE), Next::OtherWorker);
        drop(taken);
        assert!(gets_place(&mut there));
    }
}
