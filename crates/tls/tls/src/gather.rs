//! Performs key operations of several handshakes of a worker together: X25519 exchanges, encapsulations with ML-KEM-768,
//! and signatures with P-256. Also generates key pairs for future exchanges, eight at a time.
//!
//! A worker runs [`turns`]: one task that is woken by the first operation of a turn of the event loop and runs after all
//! tasks that are ready. While operations are frequent, they wait for a full batch, for a limited time. While operations
//! are rare, they do not wait at all. Requests never wait.
//!
//! All state is thread-local and without locks. On a thread that does not run [`turns`], operations are performed at
//! once.

mod fill;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use brisk_keys::turn::{self, Gathering, TurnCounters, TurnFigures};
use brisk_keys::{Encapsulation, Exchange, KeyPair};
use brisk_net::Timer;

use self::fill::Fill;
pub(crate) use self::fill::Kind;
use crate::suspend;

/// Maximum age of key pairs in [`Stock`].
const PAIR_AGE: Duration = Duration::from_mins(1);

thread_local! {
    static WORKER: RefCell<Worker> = RefCell::default();
}

static EXCHANGES: TurnCounters = TurnCounters::new();
static ENCAPSULATIONS: TurnCounters = TurnCounters::new();

/// Statistics of the gathered operations of all workers since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatherFigures {
    /// X25519 exchanges.
    pub exchanges: TurnFigures,
    /// Encapsulations with ML-KEM-768.
    pub encapsulations: TurnFigures,
    /// Signatures with P-256.
    pub signatures: TurnFigures,
    /// Signatures that failed verification and were computed again.
    pub faults: u64,
}

/// The [`GatherFigures`] of all workers.
pub fn figures() -> GatherFigures {
    GatherFigures {
        exchanges: EXCHANGES.figures(),
        encapsulations: ENCAPSULATIONS.figures(),
        signatures: turn::signatures(),
        faults: turn::faults(),
    }
}

#[derive(Default)]
pub(crate) struct Worker {
    /// Whether [`turns`] runs on this thread; otherwise [`begin`] performs each operation at once.
    gathers: bool,
    /// Wakes [`turns`] while it waits for a first operation.
    waker: Option<Waker>,
    exchanges: Vec<Rc<Slot<Exchange>>>,
    encapsulations: Vec<Rc<Slot<Encapsulation>>>,
    fills: [Fill; 3],
    stock: Stock,
}

impl Worker {
    /// The end of the wait for a full batch, by [`Fill::waits_until`]; `None` if no other operations are expected in time.
    fn waits_until(&self) -> Option<Instant> {
        self.fills.iter().filter_map(Fill::waits_until).min()
    }

    fn wait_unless(&mut self, cx: &Context<'_>, is_ready: bool) -> Poll<()> {
        if is_ready {
            return Poll::Ready(());
        }
        self.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Performs the gathered operations of this thread: at the end of each turn, or when a batch is full, or when its first
/// operation has waited for `wait`. Returns at once if the processor has no lanes that pay off, and never otherwise. One
/// per thread. Dropping the future performs waiting operations.
pub async fn turns(wait: Duration) {
    let Some(_running) = Running::begin(wait) else { return };
    let mut timer = if wait.is_zero() { None } else { timer() };
    loop {
        poll_fn(wait_for_first).await;
        // Yields to all tasks that are ready, including those that the network makes ready now.
        tokio::task::yield_now().await;
        if let Some(timer) = &mut timer
            && let Some(time) = WORKER.with_borrow(Worker::waits_until)
        {
            tokio::select! {
                // The full batch first: then the timer need not be polled.
                biased;
                () = poll_fn(wait_for_full) => {}
                _ = timer.until(time) => {}
            }
        }
        perform();
    }
}

/// The timer of the waits; without one, operations wait for the end of the turn only.
fn timer() -> Option<Timer> {
    let timer = Timer::new();
    timer.inspect_err(|error| tracing::warn!(%error, "key operations do not wait for others: no timer")).ok()
}

/// Wipes the key pairs that this thread generated more than a minute ago. Called periodically by workers.
pub fn drop_old_key_pairs() {
    WORKER.with_borrow_mut(|worker| worker.stock.drop_old(Instant::now()));
}

/// Makes [`begin`] gather operations on this thread until it is dropped.
struct Running(Gathering);

impl Running {
    fn begin(wait: Duration) -> Option<Self> {
        let gathering = Gathering::begin(wake)?;
        let fills = Fill::of_this_processor(wait);
        WORKER.with_borrow_mut(|worker| (worker.gathers, worker.fills) = (true, fills));
        Some(Self(gathering))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        WORKER.with_borrow_mut(|worker| {
            worker.gathers = false;
            worker.fills = Default::default();
            worker.stock = Stock::default();
        });
        perform();
    }
}

fn wait_for_first(cx: &mut Context<'_>) -> Poll<()> {
    WORKER.with_borrow_mut(|worker| {
        worker.wait_unless(cx, worker.fills.iter().any(Fill::has_begun) || turn::is_waiting())
    })
}

fn wait_for_full(cx: &mut Context<'_>) -> Poll<()> {
    WORKER.with_borrow_mut(|worker| worker.wait_unless(cx, worker.fills.iter().any(Fill::is_full)))
}

fn wake() {
    if let Some(waker) = WORKER.with_borrow_mut(|worker| worker.waker.take()) {
        waker.wake();
    }
}

/// Ends a batch: performs the gathered operations, and wakes the handshakes that wait for them.
fn perform() {
    let now = Instant::now();
    WORKER.with_borrow_mut(|worker| worker.fills.iter_mut().for_each(|fill| fill.end(now)));
    turn::perform();
    Exchange::perform_gathered();
    Encapsulation::perform_gathered();
}

/// An operation that is gathered in this crate.
pub(crate) trait GatheredOperation: Sized + 'static {
    const KIND: Kind;

    /// Performs the operation with aws-lc, the fallback where lanes do not pay off.
    fn perform(&mut self);

    /// Performs all operations, in lanes where that is faster. Returns the number performed in lanes.
    fn perform_all(operations: &mut [Self]) -> usize;

    /// The submitted operations in [`Worker`].
    fn waiting(worker: &mut Worker) -> &mut Vec<Rc<Slot<Self>>>;

    fn counters() -> &'static TurnCounters;

    /// Performs the gathered operations of this thread. Operations of dropped handshakes are skipped.
    fn perform_gathered() {
        let mut waiting = WORKER.with_borrow_mut(|worker| std::mem::take(Self::waiting(worker)));
        waiting.retain(|slot| Rc::strong_count(slot) > 1);
        let mut operations: Vec<_> = waiting.iter().filter_map(|slot| slot.operation.take()).collect();
        if let Some(now) = operations.first().map(|_| Instant::now()) {
            let in_lanes = Self::perform_all(&mut operations);
            let wait = waiting.iter().map(|slot| now.saturating_duration_since(slot.since)).sum();
            Self::counters().add(operations.len(), in_lanes, wait);
        }
        // Each slot contained an operation, so both sequences have the same length.
        for (slot, operation) in waiting.drain(..).zip(operations) {
            slot.operation.set(Some(operation));
            slot.is_performed.set(true);
            if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
        }
        // Keeps the allocation for the next turn.
        WORKER.with_borrow_mut(|worker| {
            if Self::waiting(worker).is_empty() {
                *Self::waiting(worker) = waiting;
            }
        });
    }
}

impl GatheredOperation for Exchange {
    const KIND: Kind = Kind::Exchange;

    fn perform(&mut self) {
        self.perform();
    }

    fn perform_all(operations: &mut [Self]) -> usize {
        Self::perform_all(operations)
    }

    fn waiting(worker: &mut Worker) -> &mut Vec<Rc<Slot<Self>>> {
        &mut worker.exchanges
    }

    fn counters() -> &'static TurnCounters {
        &EXCHANGES
    }
}

impl GatheredOperation for Encapsulation {
    const KIND: Kind = Kind::Encapsulation;

    fn perform(&mut self) {
        self.perform();
    }

    fn perform_all(operations: &mut [Self]) -> usize {
        Self::perform_all(operations)
    }

    fn waiting(worker: &mut Worker) -> &mut Vec<Rc<Slot<Self>>> {
        &mut worker.encapsulations
    }

    fn counters() -> &'static TurnCounters {
        &ENCAPSULATIONS
    }
}

/// An operation from its submission until its result is collected.
pub(crate) struct Slot<T> {
    operation: Cell<Option<T>>,
    is_performed: Cell<bool>,
    waker: Cell<Option<Waker>>,
    since: Instant,
}

impl<T> Slot<T> {
    fn poll(&self, cx: &Context<'_>) -> Poll<T> {
        if self.is_performed.get()
            && let Some(operation) = self.operation.take()
        {
            return Poll::Ready(operation);
        }
        self.waker.set(Some(cx.waker().clone()));
        Poll::Pending
    }
}

/// A submitted operation. Dropping it abandons the operation.
pub(crate) enum Pending<T> {
    Performed(T),
    Waiting(Rc<Slot<T>>),
}

/// Gathers an operation, or performs it at once if no others are expected.
pub(crate) fn begin<T: GatheredOperation>(mut operation: T) -> Pending<T> {
    if !has_company(T::KIND) {
        if WORKER.with_borrow(|worker| worker.gathers) {
            // Lanes may be faster even for a single operation.
            T::perform_all(std::slice::from_mut(&mut operation));
        } else {
            operation.perform();
        }
        return Pending::Performed(operation);
    }
    let slot = Rc::new(Slot {
        operation: Cell::new(Some(operation)),
        is_performed: Cell::new(false),
        waker: Cell::new(None),
        since: Instant::now(),
    });
    WORKER.with_borrow_mut(|worker| T::waiting(worker).push(Rc::clone(&slot)));
    Pending::Waiting(slot)
}

impl<T> Pending<T> {
    /// Waits for the performed operation. Must be called in the same callback as [`begin`].
    pub(crate) fn wait(self) -> T {
        match self {
            Self::Performed(operation) => operation,
            Self::Waiting(slot) => suspend::wait(poll_fn(|cx| slot.poll(cx)))
                .expect("an operation is gathered only where its call can be suspended"),
        }
    }
}

/// Counts an operation of the handshake on this thread. Returns whether it should wait for the end of the turn: the
/// handshake can be suspended, and other operations are likely to join.
pub(crate) fn has_company(kind: Kind) -> bool {
    let counted = |worker: &mut Worker| worker.fills[kind as usize].count();
    let company = if suspend::is_possible() { WORKER.with_borrow_mut(counted) } else { None };
    if company.is_some() {
        // Also if this operation does not wait: the turn ends the batch in which it was counted.
        wake();
    }
    company.unwrap_or(false)
}

/// A key pair for one exchange. `None` if the system has no randomness.
pub(crate) fn key_pair() -> Option<KeyPair> {
    // Ahead in workers only, which call `drop_old_key_pairs`: elsewhere, unused pairs would stay in memory.
    WORKER.with_borrow_mut(|worker| if worker.gathers { worker.stock.take() } else { KeyPair::generate() })
}

/// Key pairs generated ahead, at most eight. Each is used once.
#[derive(Default)]
struct Stock {
    pairs: Vec<KeyPair>,
    made: Option<Instant>,
    /// The process that generated them. A forked child must not use them too.
    process: u32,
}

impl Stock {
    /// Takes a key pair. If there is none, generates eight in the time of one.
    fn take(&mut self) -> Option<KeyPair> {
        let (now, process) = (Instant::now(), std::process::id());
        self.drop_old(now);
        if self.process != process {
            self.pairs.clear();
        }
        if self.pairs.is_empty() {
            self.pairs.extend(KeyPair::generate_eight()?);
            (self.made, self.process) = (Some(now), process);
        }
        self.pairs.pop()
    }

    fn drop_old(&mut self, now: Instant) {
        if self.made.is_some_and(|made| now.saturating_duration_since(made) >= PAIR_AGE) {
            self.pairs.clear();
        }
    }
}

#[cfg(test)]
mod tests;
