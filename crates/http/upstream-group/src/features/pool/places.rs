//! Permits for connections or requests to one server: a limit shared by all workers, with one queue.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use brisk_net::{FairShare, SharePermit};
use tokio::sync::oneshot;

/// The permits of one server, as many as `pool.max_connections`, or as the limit of concurrent requests of an overloaded server.
///
/// The lock is held for a few instructions on average, and only when a connection begins or ends or a request waits.
#[derive(Debug)]
pub struct Places {
    /// Length of the queue, readable without the lock.
    waiting: AtomicUsize,
    /// Whether a request was refused while all permits were in use, since [`Self::take_refused`].
    refused: AtomicBool,
    /// Whether permits have shares of clients too, not only the queue.
    shares_permits: bool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limit: usize,
    /// Maximum number of requests in the queue. Further requests fail at once: [`Places::wait`] is `None`.
    most_waiting: usize,
    /// Shares of the queue, and of the permits with [`Places::shares_permits`]. Kept when the numbers of both change.
    shares: FairShare,
    taken: usize,
    /// Requests in the order of their numbers, also some that have left. The first one has not, so that an empty queue means that
    /// no request waits.
    queue: VecDeque<Waiter>,
    /// Number of requests in `queue` that have left it, and have closed their `grant`.
    left: usize,
    next_number: u64,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    worker: Worker,
    grant: oneshot::Sender<Grant>,
}

/// Identity of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worker(pub usize);

/// The resource granted to the first request in the queue.
#[derive(Debug)]
pub enum Grant {
    /// A permit for a new connection.
    Place(Place),
    /// An open connection that another request of the same worker has released.
    Connection,
    /// None, because the queue has become shorter ([`Places::set_limits`]).
    Refused,
}

/// The permit for one open connection or request. Dropping the permit grants it to the next request.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    share: Option<SharePermit>,
}

/// A position in the queue. The future resolves to the [`Grant`]; dropping it leaves the queue.
#[derive(Debug)]
pub struct Waiting {
    places: Arc<Places>,
    number: u64,
    grant: oneshot::Receiver<Grant>,
    has_left: bool,
    share: Option<SharePermit>,
}

/// Use of a connection that its request has released, from [`Places::pass_on`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// No request waits: the connection becomes idle.
    Idle,
    /// A request of the same worker was notified and will take the connection from the pool.
    SameWorker,
    /// The connection must be closed, so that its permit passes to a request of another worker.
    OtherWorker,
}

impl Places {
    /// Creates `limit` permits, for which at most `queue` requests wait.
    pub fn new(limit: usize, queue: usize) -> Arc<Self> {
        Self::with(limit, queue, false)
    }

    /// Like [`new`](Self::new), with shares of the clients in the permits too: for requests, whose time clients determine.
    pub(crate) fn shared(limit: usize, queue: usize) -> Arc<Self> {
        Self::with(limit, queue, true)
    }

    fn with(limit: usize, queue: usize, shares_permits: bool) -> Arc<Self> {
        let state = State {
            limit,
            most_waiting: queue,
            shares: FairShare::new(usize::MAX),
            taken: 0,
            queue: VecDeque::new(),
            left: 0,
            next_number: 0,
        };
        let (waiting, refused) = (AtomicUsize::new(0), AtomicBool::new(false));
        Arc::new(Self { waiting, refused, shares_permits, state: Mutex::new(state) })
    }

    /// Changes the number of permits to `limit`, and that of waiting requests to `queue`. Permits above the limit stay until their
    /// drop. New permits are granted at once, and requests above the length of the queue are refused, those that have waited
    /// longest first: they would wait longest in total.
    pub fn set_limits(self: &Arc<Self>, limit: usize, queue: usize) {
        let mut grants = Vec::new();
        let mut state = self.lock();
        state.limit = limit;
        state.most_waiting = queue;
        while state.taken < limit
            && let Some(next) = state.pop()
        {
            state.taken += 1;
            grants.push((next, Grant::Place(self.place(None))));
        }
        while state.waiting() > queue
            && let Some(oldest) = state.pop()
        {
            grants.push((oldest, Grant::Refused));
        }
        self.note_length(&state);
        // Before the grants: a request that was dropped meanwhile drops its permit, which takes the lock.
        drop(state);
        for (waiter, grant) in grants {
            drop(waiter.grant.send(grant));
        }
    }

    /// Number of permits in use.
    pub fn taken(&self) -> usize {
        self.lock().taken
    }

    /// Takes a permit; `None` if none is free or a request waits.
    pub fn try_take(self: &Arc<Self>) -> Option<Place> {
        self.try_take_for(None)
    }

    /// Like [`try_take`](Self::try_take), also `None` if `client` has its share. No share applies to `None`, an address of many
    /// clients.
    pub fn try_take_for(self: &Arc<Self>, client: Option<IpAddr>) -> Option<Place> {
        let mut state = self.lock();
        // With a queue, a new request may not overtake the ones that wait.
        if !state.queue.is_empty() || state.taken >= state.limit {
            return None;
        }
        let share = match client.filter(|_| self.shares_permits) {
            Some(client) => Some(state.shares.try_acquire_of(client, self.slots(&state))?),
            None => None,
        };
        state.taken += 1;
        drop(state);
        Some(self.place(share))
    }

    fn place(self: &Arc<Self>, share: Option<SharePermit>) -> Place {
        Place { places: Arc::clone(self), share }
    }

    /// Number of slots that clients share. With shares in the permits, a single client may use all of these: half of twice as
    /// many slots.
    fn slots(&self, state: &State) -> usize {
        if self.shares_permits {
            state.limit.saturating_add(state.limit.max(state.most_waiting))
        } else {
            state.most_waiting
        }
    }

    /// Joins the queue; `None` if it is full, or if `client` has its share of it. No share applies to `None`, an address of
    /// many clients.
    pub fn wait(self: &Arc<Self>, worker: Worker, client: Option<IpAddr>) -> Option<Waiting> {
        let (sender, grant) = oneshot::channel();
        let mut state = self.lock();
        let share = client.map(|client| state.shares.try_acquire_of(client, self.slots(&state)));
        let has_share = share.as_ref().is_none_or(Option::is_some);
        if !has_share || state.waiting() >= state.most_waiting {
            if state.taken >= state.limit {
                self.refused.store(true, Ordering::Relaxed);
            }
            return None;
        }
        let number = state.next_number;
        state.next_number += 1;
        // A permit may have become free since the caller's `try_take`: its release has passed, and another may not follow.
        let free = state.queue.is_empty() && state.taken < state.limit;
        if free {
            state.taken += 1;
            // The receiver exists, so sending cannot fail.
            let _granted = sender.send(Grant::Place(self.place(None)));
        } else {
            state.queue.push_back(Waiter { number, worker, grant: sender });
            self.note_length(&state);
        }
        drop(state);
        Some(Waiting { places: Arc::clone(self), number, grant, has_left: false, share: share.flatten() })
    }

    /// Whether [`wait`](Self::wait) refused a request since the last call while all permits were in use.
    pub(crate) fn take_refused(&self) -> bool {
        self.refused.swap(false, Ordering::Relaxed)
    }

    /// The length of the queue. Costs one load.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Decides the use of a connection that `worker` has released.
    pub fn pass_on(&self, worker: Worker) -> Next {
        // Without the lock. A request that joins the queue now asks all workers for attention, which closes
        // an idle connection for it.
        if self.waiting() == 0 {
            return Next::Idle;
        }
        let mut state = self.lock();
        loop {
            match state.queue.front() {
                None => return Next::Idle,
                // A connection belongs to the runtime of its worker and cannot change to another one.
                Some(first) if first.worker != worker => return Next::OtherWorker,
                Some(_) => {}
            }
            let granted = state.pop().is_some_and(|first| first.grant.send(Grant::Connection).is_ok());
            self.note_length(&state);
            if granted {
                return Next::SameWorker;
            }
        }
    }

    fn release(self: &Arc<Self>) {
        // The lock ends with this block: a failed `send` drops the permit, whose
        // `release` takes the lock again.
        let next = {
            let mut state = self.lock();
            // Above a limit that was lowered, a permit ends.
            let next = if state.taken > state.limit { None } else { state.pop() };
            if next.is_none() {
                // Only without a successor: a permit that passes on stays taken, so that no other
                // request can take it in between.
                state.taken -= 1;
            }
            self.note_length(&state);
            next
        };
        if let Some(next) = next {
            // A request that was dropped meanwhile drops the permit, which grants it to the next one.
            drop(next.grant.send(Grant::Place(self.place(None))));
        }
    }

    fn note_length(&self, state: &State) {
        self.waiting.store(state.waiting(), Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Number of requests that wait.
    fn waiting(&self) -> usize {
        self.queue.len() - self.left
    }

    fn pop(&mut self) -> Option<Waiter> {
        let first = self.queue.pop_front();
        self.clean();
        first
    }

    /// Removes requests that have left: at the front at once, and all once they are more than half of the queue. A request that
    /// leaves thus costs constant time on average, and the queue is at most twice as long as the number of requests that wait. A
    /// search for each of them would take the time of the whole queue under the lock of all workers, in an overload.
    fn clean(&mut self) {
        while self.queue.front().is_some_and(Waiter::has_left) {
            self.queue.pop_front();
            self.left -= 1;
        }
        if self.left > self.queue.len() / 2 {
            self.queue.retain(|waiter| !waiter.has_left());
            self.left = 0;
        }
    }
}

impl Waiter {
    /// Whether the request has left the queue. It closes `grant` under the lock, so the result holds until the lock ends.
    fn has_left(&self) -> bool {
        self.grant.is_closed()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Before the permit, so that the next request of the client finds its slot free.
        drop(self.share.take());
        self.places.release();
    }
}

impl Waiting {
    /// Leaves the queue. Returns a grant that arrived meanwhile.
    pub fn leave(&mut self) -> Option<Grant> {
        if !std::mem::replace(&mut self.has_left, true) {
            let mut state = self.places.lock();
            // Before the grant is looked at: one that is sent later fails, and passes to the next request.
            self.grant.close();
            // Numbers ascend in the queue: a request that precedes the first one is not in it any more.
            if state.queue.front().is_some_and(|first| first.number <= self.number) {
                state.left += 1;
                state.clean();
                self.places.note_length(&state);
            }
        }
        self.grant.try_recv().ok()
    }
}

impl Future for Waiting {
    type Output = Grant;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Grant> {
        match Pin::new(&mut self.grant).poll(context) {
            // The slot stays with the permit.
            Poll::Ready(Ok(Grant::Place(mut place))) if self.places.shares_permits => {
                place.share = self.share.take();
                Poll::Ready(Grant::Place(place))
            }
            Poll::Ready(Ok(grant)) => Poll::Ready(grant),
            // The queue keeps each sender until it is used, so an error cannot occur while waiting.
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
    mod simulation;

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
        let places = Places::new(1, 8);
        let taken = places.try_take().expect("a free place");
        let mut waiting: Vec<_> =
            (0..3).map(|_| places.wait(HERE, None).expect("room in the queue")).collect();
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
        let places = Places::new(1, 8);
        let taken = places.try_take().expect("a free place");
        let first = places.wait(HERE, None).expect("room");
        let second = places.wait(HERE, None).expect("room");
        let mut third = places.wait(THERE, None).expect("room");
        drop(first);
        drop(taken);
        // Granted, but never looked at.
        drop(second);
        assert!(gets_place(&mut third));
        assert!(places.try_take().is_some());
    }

    #[test]
    fn requests_that_leave_a_queue_are_removed_together_and_count_no_more() {
        let places = Places::new(1, 8);
        let taken = places.try_take().expect("a free place");
        let mut waiting: VecDeque<_> = (0..8).map(|_| places.wait(HERE, None).expect("room")).collect();
        let slots = || places.lock().queue.len();
        for left in 1..=4 {
            // Each from the middle of the queue, twice.
            waiting[1].leave();
            drop(waiting.remove(1));
            assert_eq!((slots(), places.waiting()), (8, 8 - left), "no search of the queue");
        }
        drop(waiting.remove(1));
        assert_eq!((slots(), places.waiting()), (3, 3));
        waiting.extend((0..5).map(|_| places.wait(THERE, None).expect("room of requests that have left")));
        assert!(places.wait(HERE, None).is_none(), "the queue is full");
        // The one behind the first leaves, so that the next grant passes over it.
        drop(waiting.remove(1));
        drop(taken);
        while let Some(mut next) = waiting.pop_front() {
            assert!(gets_place(&mut next));
        }
        assert_eq!((slots(), places.waiting()), (0, 0));
        assert!(places.try_take().is_some());
    }

    #[test]
    fn a_connection_is_passed_on_within_its_worker_and_closed_for_another() {
        let places = Places::new(1, 8);
        let taken = places.try_take().expect("a free place");
        assert_eq!(places.pass_on(HERE), Next::Idle);
        let mut here = places.wait(HERE, None).expect("room");
        let mut there = places.wait(THERE, None).expect("room");
        assert_eq!(places.pass_on(HERE), Next::SameWorker);
        assert!(matches!(poll(&mut here), Some(Grant::Connection)));
        assert_eq!(places.pass_on(HERE), Next::OtherWorker);
        drop(taken);
        assert!(gets_place(&mut there));
    }

    #[test]
    fn other_limits_grant_permits_refuse_the_oldest_and_let_permits_end() {
        let places = Places::new(1, 8);
        let first = places.try_take().expect("a free place");
        let mut waiting: Vec<_> = (0..5).map(|_| places.wait(HERE, None).expect("room")).collect();
        places.set_limits(3, 1);
        let mut grants: Vec<_> = waiting.iter_mut().map(poll).collect();
        assert!(matches!(grants[0], Some(Grant::Place(_))) && matches!(grants[1], Some(Grant::Place(_))));
        assert!(matches!(grants[2], Some(Grant::Refused)) && matches!(grants[3], Some(Grant::Refused)));
        assert!(grants[4].is_none() && places.wait(HERE, None).is_none(), "the queue is full");
        assert_eq!((places.taken(), places.waiting()), (3, 1));
        places.set_limits(1, 1);
        drop(first);
        drop(grants.remove(0));
        assert!(poll(&mut waiting[4]).is_none(), "still as many as the limit");
        assert_eq!(places.taken(), 1);
        drop(grants);
        assert!(gets_place(&mut waiting[4]));
        assert_eq!((places.taken(), places.waiting()), (0, 0));
    }

    #[test]
    fn permits_of_requests_have_shares_that_outlast_other_limits() {
        let places = Places::shared(usize::MAX, 16);
        let client = |last| Some(IpAddr::from([192, 0, 2, last]));
        places.set_limits(4, 4);
        let first: Vec<_> = (0..4).map(|_| places.try_take_for(client(1)).expect("a free permit")).collect();
        // All permits, and no place in the queue.
        assert!(places.try_take_for(client(1)).is_none() && places.wait(HERE, client(1)).is_none());
        assert!(places.take_refused() && !places.take_refused());
        let mut second = places.wait(HERE, client(2)).expect("room");
        places.set_limits(4, 3);
        assert!(places.wait(HERE, client(1)).is_none(), "the share is the same");
        drop(first);
        let Some(Grant::Place(place)) = poll(&mut second) else { panic!("a permit") };
        drop(second);
        // The slot belongs to the permit now.
        let more: Vec<_> = std::iter::from_fn(|| places.try_take_for(client(2))).collect();
        assert_eq!(more.len(), 3);
        drop((place, more));
        assert_eq!(places.taken(), 0);
        assert!(places.try_take_for(client(2)).is_some());
    }

    #[test]
    fn a_queue_has_a_length_and_leaves_room_for_other_clients() {
        let places = Places::new(1, 4);
        let taken = places.try_take().expect("a free place");
        let client = |last| Some(IpAddr::from([192, 0, 2, last]));
        let mut waiting = Vec::new();
        let mut joins = |client| {
            let joined = places.wait(HERE, client);
            let is_in = joined.is_some();
            waiting.extend(joined);
            is_in
        };
        assert!(joins(client(1)) && joins(client(1)));
        assert!(!joins(client(1)), "half of the queue");
        assert!(joins(client(2)));
        assert!(!joins(client(2)) && joins(client(3)));
        assert!(!joins(client(4)) && !joins(None), "the queue is full");
        drop(waiting);
        assert!(places.wait(HERE, client(1)).is_some(), "places are given back");
        drop(taken);
        let none = Places::new(1, 0);
        let _taken = none.try_take().expect("a free place");
        assert!(none.wait(HERE, client(1)).is_none() && none.wait(HERE, None).is_none());
    }
}
