//! Memory of responses that clients have not read: a budget per connection and one for the process.
//!
//! A body is not polled while its connection has used up its budget. A client that does not read therefore makes the
//! gateway hold at most one budget, plus the buffers of each stream's source.

use std::cell::{Cell, RefCell};
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use brisk_telemetry::Metrics;

/// Minimum share of a connection in bytes, regardless of other connections, so that every connection makes progress.
const SHARE: usize = 64 << 10;

/// Step in bytes in which workers report changes to the process, so that they rarely contend for the counter.
const STEP: usize = 64 << 10;

/// Memory held by the responses of one worker and, through its metrics, of all workers.
#[derive(Debug)]
pub struct WorkerBuffers {
    metrics: Arc<Metrics>,
    unreported: Cell<isize>,
}

impl WorkerBuffers {
    /// Empty buffers of a new worker.
    pub fn new(metrics: Arc<Metrics>) -> Rc<Self> {
        Rc::new(Self { metrics, unreported: Cell::new(0) })
    }

    /// Whether all workers together hold more than `limit`, within 64 KiB per worker.
    pub(crate) fn exceed(&self, limit: usize) -> bool {
        self.metrics.answers_held() > limit
    }

    /// Adds `bytes`, which may be negative.
    pub fn change(&self, bytes: isize) {
        let unreported = self.unreported.get() + bytes;
        if unreported.unsigned_abs() < STEP {
            self.unreported.set(unreported);
        } else {
            self.unreported.set(0);
            self.metrics.change_answers_held(unreported);
        }
    }
}

impl Drop for WorkerBuffers {
    fn drop(&mut self) {
        self.metrics.change_answers_held(self.unreported.get());
    }
}

/// Memory held by the responses of one connection.
#[derive(Debug, Default)]
pub struct AnswerBuffers {
    held: Cell<usize>,
    /// Number of bytes released so far: written or discarded.
    released: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
    /// Level in bytes below which waiting tasks are woken; 0 without waiting tasks.
    wake_below: Cell<usize>,
}

impl AnswerBuffers {
    /// Number of bytes that the connection holds.
    #[cfg(any(test, feature = "testing"))]
    pub fn held(&self) -> usize {
        self.held.get()
    }

    /// Whether the connection exceeds its minimum share, which is its limit while the process has no memory left.
    pub fn exceed_share(&self) -> bool {
        self.held.get() > SHARE
    }

    /// Whether a response waits for memory.
    pub fn is_full(&self) -> bool {
        self.wake_below.get() > 0
    }

    /// Number of bytes released so far.
    pub fn released(&self) -> u64 {
        self.released.get()
    }

    /// Ready while the connection may hold more. Otherwise the task is woken when half of the budget is free.
    pub fn poll_room(&self, context: &mut Context<'_>, budget: &Budget<'_>) -> Poll<()> {
        let held = self.held.get();
        if held < SHARE || (held < budget.connection && !budget.worker.exceed(budget.process)) {
            return Poll::Ready(());
        }
        self.wake_below.set(if held < budget.connection { SHARE } else { budget.connection / 2 });
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// Adds `bytes`.
    pub fn take(&self, bytes: usize) {
        self.held.set(self.held.get() + bytes);
    }

    pub(super) fn release(&self, bytes: usize) {
        self.released.set(self.released.get() + bytes as u64);
        self.free(bytes);
    }

    /// Removes `bytes` and wakes tasks that wait for memory.
    pub fn free(&self, bytes: usize) {
        let held = self.held.get() - bytes;
        self.held.set(held);
        if held < self.wake_below.get() {
            self.wake();
        }
    }

    /// Wakes responses that wait because the process had no memory left. Others wait for their own connection.
    pub fn offer_room(&self) {
        if self.wake_below.get() == SHARE {
            self.wake();
        }
    }

    fn wake(&self) {
        self.wake_below.set(0);
        // Outside of the borrow: a waker may own a response whose drop releases memory.
        let waiting = mem::take(&mut *self.waiting.borrow_mut());
        for waker in waiting {
            waker.wake();
        }
    }
}

/// Limits on the memory of responses.
#[derive(Debug)]
pub struct Budget<'a> {
    /// Limit of the connection in bytes.
    pub connection: usize,
    /// Limit of the process in bytes.
    pub process: usize,
    /// Buffers of the connection's worker, which know the total of the process.
    pub worker: &'a WorkerBuffers,
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Wake;

    use brisk_telemetry::{ConnectionRecord, Timeline};
    use bytes::Buf as _;

    use super::*;
    use crate::chunk::{Chunk, Reserved};
    use crate::connection::Connection;

    #[derive(Default)]
    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    fn connection() -> Rc<Connection> {
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        Connection::new(ConnectionRecord::new(1, address, address, Timeline::start()), true)
    }

    fn chunk(connection: &Rc<Connection>, length: usize) -> Chunk {
        Chunk::new(vec![0; length].into(), Rc::clone(connection), None)
    }

    #[test]
    fn a_piece_is_held_until_it_is_written_or_dropped() {
        let connection = connection();
        let mut first = chunk(&connection, 100);
        let second = chunk(&connection, 1000);
        first.advance(40);
        assert_eq!(connection.answers.held(), 1060);
        drop(second);
        assert_eq!(connection.answers.held(), 60);
        first.advance(60);
        drop(first);
        assert_eq!((connection.answers.held(), connection.answers.released()), (0, 1100));
    }

    #[test]
    fn what_a_source_holds_counts_and_is_no_progress_of_the_client() {
        let connection = connection();
        let reserved = Reserved::new(100, &connection);
        assert_eq!(connection.answers.held(), 100);
        drop(reserved);
        assert_eq!((connection.answers.held(), connection.answers.released()), (0, 0));
    }

    #[test]
    fn who_finds_no_room_is_woken_when_half_of_the_budget_is_free() {
        let worker = WorkerBuffers::new(Metrics::new());
        let budget = Budget { connection: 1 << 20, process: usize::MAX, worker: &worker };
        let connection = connection();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let mut held = chunk(&connection, 1 << 20);
        assert!(connection.answers.poll_room(&mut context, &budget).is_pending());
        assert!(connection.answers.poll_room(&mut context, &budget).is_pending());
        assert_eq!(connection.answers.waiting.borrow().len(), 1);
        held.advance(1 << 19);
        assert!(!woken.0.load(Ordering::Relaxed));
        held.advance(1);
        assert!(woken.0.load(Ordering::Relaxed));
        assert!(connection.answers.poll_room(&mut context, &budget).is_ready());
    }

    #[test]
    fn room_of_the_process_is_offered_to_those_who_wait_for_it() {
        let worker = WorkerBuffers::new(Metrics::new());
        let is_woken = |held: usize| {
            let budget = Budget { connection: 1 << 20, process: 1 << 20, worker: &worker };
            let connection = connection();
            let woken = Arc::new(Woken::default());
            let waker = Waker::from(Arc::clone(&woken));
            worker.change(2 << 20);
            let _held = chunk(&connection, held);
            assert!(connection.answers.poll_room(&mut Context::from_waker(&waker), &budget).is_pending());
            worker.change(-(2 << 20));
            connection.answers.offer_room();
            woken.0.load(Ordering::Relaxed)
        };
        assert!(is_woken(1 << 19));
        // Its own budget is used up.
        assert!(!is_woken(1 << 20));
    }

    #[test]
    fn a_process_without_room_leaves_each_connection_its_share() {
        let metrics = Metrics::new();
        let worker = WorkerBuffers::new(Arc::clone(&metrics));
        worker.change(1 << 30);
        let budget = Budget { connection: 1 << 20, process: 1 << 29, worker: &worker };
        let connection = connection();
        let mut context = Context::from_waker(Waker::noop());
        assert!(connection.answers.poll_room(&mut context, &budget).is_ready());
        let _held = chunk(&connection, SHARE);
        assert!(connection.answers.poll_room(&mut context, &budget).is_pending());
        worker.change(-(1 << 30));
        assert_eq!(metrics.answers_held(), 0);
        assert!(connection.answers.poll_room(&mut context, &budget).is_ready());
    }
}
