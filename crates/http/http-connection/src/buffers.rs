//! Memory of responses that clients have not read: limits per connection, per client and for the process.
//!
//! A body is not polled while its connection has used up its limit. A client that does not read therefore makes the
//! gateway hold at most that limit for each connection, plus the buffers of each stream's source. Bytes above 64 KiB per
//! connection are reserved from the client's share of [`Resource::Responses`].

use std::cell::{Cell, RefCell};
use std::mem;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use brisk_budget::{Budgets, Full, Reservation, Resource};
use brisk_pressure::Pressure;
use brisk_telemetry::Metrics;

use crate::work::WorkerWork;

/// Minimum share of a connection in bytes, regardless of other connections, so that every connection makes progress.
const SHARE: usize = 64 << 10;

/// Step in bytes in which workers report changes to the process, so that they rarely contend for the counter.
const STEP: usize = 64 << 10;

/// Memory held by the responses of one worker and, through its [`Metrics`], of all workers. Knows the overload of the process.
#[derive(Debug)]
pub struct WorkerBuffers {
    metrics: Arc<Metrics>,
    budgets: Arc<Budgets>,
    pressure: Arc<Pressure>,
    unreported: Cell<isize>,
    pub(crate) work: WorkerWork,
}

impl WorkerBuffers {
    /// Empty buffers of a new worker, in a process without overload.
    pub fn new(metrics: Arc<Metrics>, budgets: Arc<Budgets>) -> Rc<Self> {
        Self::under(Pressure::new(), metrics, budgets)
    }

    /// Empty buffers of a new worker, in a process under `pressure`.
    pub fn under(pressure: Arc<Pressure>, metrics: Arc<Metrics>, budgets: Arc<Budgets>) -> Rc<Self> {
        Rc::new(Self { metrics, budgets, pressure, unreported: Cell::new(0), work: WorkerWork::default() })
    }

    /// Divides the work for responses among clients, in rounds of the event loop. The future never ends.
    pub async fn divide_work(self: Rc<Self>) {
        self.work.run().await;
    }

    /// The memory budgets of the process.
    pub fn budgets(&self) -> &Budgets {
        &self.budgets
    }

    /// The overload of the process.
    pub(crate) fn pressure(&self) -> &Pressure {
        &self.pressure
    }

    /// Whether all workers together hold more than `limit`, within 64 KiB per worker.
    pub(crate) fn exceed(&self, limit: usize) -> bool {
        self.metrics.answers_held() > limit
    }

    /// Adds `bytes`, which may be negative, to the memory of the worker.
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
        // Without the last report, the total of the process would keep a rest of this worker after its end.
        self.metrics.change_answers_held(self.unreported.get());
    }
}

/// Memory held by the responses of one connection, within [`RoomLimits`].
#[derive(Debug, Default)]
pub struct AnswerBuffers {
    held: Cell<usize>,
    /// Number of bytes released so far: written or discarded.
    released: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
    /// Level in bytes below which waiting tasks are woken; 0 without waiting tasks.
    wake_below: Cell<usize>,
    /// The client's reservation for bytes above [`SHARE`], in multiples of [`STEP`].
    reserved: RefCell<Option<Box<Reservation>>>,
}

impl AnswerBuffers {
    /// Number of bytes that the connection holds.
    #[cfg(any(test, feature = "testing"))]
    pub fn held(&self) -> usize {
        self.held.get()
    }

    /// Whether the connection has used up its minimum share, [`SHARE`].
    pub(crate) fn has_share(&self) -> bool {
        self.held.get() >= SHARE
    }

    /// Whether the connection exceeds its minimum share of 64 KiB, which is its limit while the process has no memory left.
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

    /// Ready while the connection may hold more. Otherwise the task is woken when the connection holds less than half
    /// of [`RoomLimits::connection`], or less than 64 KiB if a limit of the client or process was reached.
    pub fn poll_room(&self, context: &mut Context<'_>, limits: &RoomLimits<'_>) -> Poll<()> {
        let held = self.held.get();
        let fits = || held < limits.connection && !limits.worker.exceed(limits.process);
        if held < SHARE || (fits() && self.is_reserved(held, limits)) {
            return Poll::Ready(());
        }
        // Half of the limit, not the limit itself: the task would otherwise be woken for each piece that is
        // written.
        self.wait(context, if held < limits.connection { SHARE } else { limits.connection / 2 });
        Poll::Pending
    }

    /// Ready when the connection holds less than its minimum share, or may hold `bytes` more, which come at once.
    pub(crate) fn poll_fits(&self, context: &Context<'_>, bytes: usize, limits: &RoomLimits<'_>) -> Poll<()> {
        if self.fits(bytes, limits) {
            return Poll::Ready(());
        }
        self.wait(context, SHARE);
        Poll::Pending
    }

    fn fits(&self, bytes: usize, limits: &RoomLimits<'_>) -> bool {
        let held = self.held.get();
        // A connection below `SHARE` may exceed the limit once, because a body larger than the limit could
        // never begin otherwise.
        held < SHARE || held + bytes <= limits.connection
    }

    /// Reserves `bytes`, which must be taken at once, from the client's share; `None` while they do not
    /// [fit](Self::poll_fits). Fails if the client has no share left, or the process no memory.
    pub(crate) fn reserve(&self, bytes: usize, limits: &RoomLimits<'_>) -> Option<Result<(), Full>> {
        let after = self.held.get() + bytes;
        // The reservation counts whole steps, so `after - 1` reserves the step of the last byte and not one
        // more.
        let reserves = || !limits.worker.exceed(limits.process) && self.is_reserved(after - 1, limits);
        self.fits(bytes, limits).then(|| if after <= SHARE || reserves() { Ok(()) } else { Err(Full) })
    }

    /// Wakes the task when less than `below` bytes are held.
    fn wait(&self, context: &Context<'_>, below: usize) {
        self.wake_below.set(below);
        let mut waiting = self.waiting.borrow_mut();
        // A stream may poll several times before memory is free; its waker is stored once.
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
    }

    /// Whether the client's share has room for one more step above `held`, which is reserved if necessary.
    fn is_reserved(&self, held: usize, limits: &RoomLimits<'_>) -> bool {
        // One step above `held` at least: the length of the next piece is unknown, and its memory has to be
        // reserved before.
        let needed = ((held - SHARE) / STEP + 1) * STEP;
        let mut reserved = self.reserved.borrow_mut();
        if let Some(reserved) = &mut *reserved {
            let missing = (needed as u64).saturating_sub(reserved.bytes());
            return missing == 0 || reserved.grow(missing).is_ok();
        }
        let new = limits.worker.budgets.of(Resource::Responses).reserve(limits.client, needed as u64);
        *reserved = new.ok().map(Box::new);
        reserved.is_some()
    }

    /// Adds `bytes`, also beyond the limits: the caller asks [`Self::poll_room`] before.
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
        // Kept until here and released as a whole, because each change of a reservation takes the lock of the budget.
        if held < SHARE && self.reserved.borrow().is_some() {
            self.reserved.take();
        }
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
pub struct RoomLimits<'a> {
    /// Limit of the connection in bytes: `limits.buffered`.
    pub connection: usize,
    /// Limit of the process in bytes: `limits.buffered_total`.
    pub process: usize,
    /// Buffers of the connection's worker, which know the total of the process.
    pub worker: &'a WorkerBuffers,
    /// The client, which has a share of the limit of the process; `None` for many clients behind one address.
    pub client: Option<IpAddr>,
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Wake;

    use brisk_telemetry::{ConnectionRecord, Timeline};
    use bytes::Buf as _;

    use super::*;
    use crate::chunk::{Chunk, Reserved};
    use crate::connection::Connection;
    use crate::settings::HttpSettings;

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

    fn worker(metrics: &Arc<Metrics>) -> Rc<WorkerBuffers> {
        let budgets = Budgets::new(&HttpSettings::default().limits());
        WorkerBuffers::new(Arc::clone(metrics), Arc::new(budgets))
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
    fn a_response_that_comes_at_once_is_reserved_with_its_real_size() {
        let worker = worker(&Metrics::new());
        let budget = worker.budgets().of(Resource::Responses);
        budget.set_limit(4 << 20);
        let client = Some(IpAddr::from(Ipv4Addr::LOCALHOST));
        let limits = RoomLimits { connection: 1 << 20, process: usize::MAX, worker: &worker, client };
        let mut context = Context::from_waker(Waker::noop());
        let page = 1 << 20;
        let (connections, mut held) = ([connection(), connection(), connection()], Vec::new());
        for (number, connection) in connections.iter().enumerate() {
            let reserved = connection.answers.reserve(page, &limits);
            // One client gets half of the budget.
            assert_eq!(reserved, Some(if number < 2 { Ok(()) } else { Err(Full) }));
            if number < 2 {
                held.push(Reserved::new(page, connection));
                // A second page waits for the first.
                assert!(connection.answers.poll_fits(&context, page, &limits).is_pending());
                assert_eq!(connection.answers.reserve(page, &limits), None);
            }
        }
        assert!(budget.held() >= 2 * (page - SHARE) as u64);
        for held in &mut held {
            held.resize(1_000);
        }
        assert_eq!(budget.held(), 0);
        assert_eq!(connections[0].answers.held(), 1_000);
        assert!(connections[2].answers.poll_room(&mut context, &limits).is_ready());
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
        let worker = worker(&Metrics::new());
        let budget = RoomLimits { connection: 1 << 20, process: usize::MAX, worker: &worker, client: None };
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
        let worker = worker(&Metrics::new());
        let is_woken = |held: usize| {
            let budget = RoomLimits { connection: 1 << 20, process: 1 << 20, worker: &worker, client: None };
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
        let worker = worker(&metrics);
        worker.change(1 << 30);
        let budget = RoomLimits { connection: 1 << 20, process: 1 << 29, worker: &worker, client: None };
        let connection = connection();
        let mut context = Context::from_waker(Waker::noop());
        assert!(connection.answers.poll_room(&mut context, &budget).is_ready());
        let _held = chunk(&connection, SHARE);
        assert!(connection.answers.poll_room(&mut context, &budget).is_pending());
        worker.change(-(1 << 30));
        assert_eq!(metrics.answers_held(), 0);
        assert!(connection.answers.poll_room(&mut context, &budget).is_ready());
    }

    #[test]
    fn one_client_leaves_memory_for_others_on_however_many_connections() {
        let worker = worker(&Metrics::new());
        let process = 8 << 20;
        worker.budgets.of(Resource::Responses).set_limit(process as u64);
        let limits = |client: u8| {
            let client = Some(Ipv4Addr::new(192, 0, 2, client).into());
            RoomLimits { connection: 1 << 20, process, worker: &worker, client }
        };
        // Each connection holds more than its minimum and asks for more.
        let fill = |client: u8| {
            let connections: Vec<_> = (0..20).map(|_| connection()).collect();
            let context = &mut Context::from_waker(Waker::noop());
            let chunks: Vec<_> = connections
                .iter()
                .flat_map(|connection| {
                    let limits = limits(client);
                    let mut room = || connection.answers.poll_room(context, &limits).is_ready();
                    std::iter::from_fn(|| room().then(|| chunk(connection, STEP))).collect::<Vec<_>>()
                })
                .collect();
            let above = chunks.len() * STEP - connections.len() * SHARE;
            (chunks, above)
        };
        let (chunks, first) = fill(1);
        assert_eq!(first, process / 2);
        assert_eq!(fill(2).1, process / 4);
        drop(chunks);
        assert_eq!(worker.budgets.of(Resource::Responses).held(), 0);
        assert_eq!(fill(3).1, process / 2);
    }
}
