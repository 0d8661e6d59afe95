//! Performs the operations of one turn of a worker's event loop together: X25519 exchanges, encapsulations with
//! ML-KEM-768, and signatures with P-256. Also generates key pairs for future exchanges, eight at a time.
//!
//! A worker runs [`turns`]: one task that is woken by the first operation of a turn and runs after all tasks that are
//! ready. An operation waits only for work that the worker would do before it polls the network again, so no timer is
//! needed: the more handshakes are ready, the fuller the batches. While turns have few operations, these do not wait at
//! all.
//!
//! All state is thread-local and without locks. On a thread that does not run [`turns`], operations are performed at
//! once.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use brisk_keys::turn::{self, Gathering, TurnCounters, TurnFigures};
use brisk_keys::{Encapsulation, Exchange, KeyPair, LanesUse};

use crate::suspend;

/// Maximum age of key pairs generated ahead.
const PAIR_AGE: Duration = Duration::from_mins(1);

/// Average number of operations per turn from which operations wait for each other, if lanes pay off for fewer.
const COMPANY: usize = 2;

/// Weight of past turns in the average.
const TURNS: f32 = 8.0;

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

/// The statistics of all workers.
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
    /// Whether [`turns`] runs.
    gathers: bool,
    /// Wakes [`turns`] while it waits for a first operation.
    waker: Option<Waker>,
    exchanges: Vec<Rc<Slot<Exchange>>>,
    encapsulations: Vec<Rc<Slot<Encapsulation>>>,
    fills: [Fill; 3],
    stock: Stock,
}

/// Kinds of gathered operations, in the order of [`Worker::fills`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Exchange,
    Encapsulation,
    Signature,
}

/// Number of operations of a kind per turn of a worker, whether or not they waited.
#[derive(Default)]
struct Fill {
    /// Expected number of operations from which one waits. `None`: operations neither wait nor are counted.
    company: Option<f32>,
    this_turn: u16,
    average: f32,
}

impl Fill {
    /// For operations with which lanes are faster from `break_even` operations on; never if that exceeds eight.
    fn new(break_even: usize) -> Self {
        let company = (break_even <= 8).then(|| break_even.max(COMPANY) as f32);
        Self { company, ..Self::default() }
    }

    /// The measured values for each kind.
    fn of_this_processor() -> [Self; 3] {
        let (exchanges, signatures) = LanesUse::of_this_processor()
            .map_or((usize::MAX, usize::MAX), |lanes| (lanes.exchanges, lanes.signatures));
        let encapsulations = Encapsulation::break_even().unwrap_or(usize::MAX);
        [exchanges, encapsulations, signatures].map(Self::new)
    }

    /// Counts an operation. Returns whether others are likely to join it in this turn; `None` if it is not counted.
    fn count(&mut self) -> Option<bool> {
        let company = self.company?;
        self.this_turn = self.this_turn.saturating_add(1);
        Some(f32::from(self.this_turn) > company || self.average >= company)
    }

    fn end_turn(&mut self) {
        let operations = f32::from(std::mem::take(&mut self.this_turn));
        if operations > 0.0 {
            self.average += (operations - self.average) / TURNS;
        }
    }
}

/// Performs the gathered operations of this thread at the end of each turn. Returns at once if the processor has no
/// lanes that pay off, and never otherwise. One per thread. Dropping the future performs waiting operations.
pub async fn turns() {
    let Some(_running) = Running::begin() else { return };
    loop {
        poll_fn(wait_for_first).await;
        // Yields to all tasks that are ready, including those that the network makes ready now.
        tokio::task::yield_now().await;
        perform();
    }
}

/// Wipes the key pairs that this thread generated more than a minute ago. Called periodically by workers.
pub fn drop_old_key_pairs() {
    WORKER.with_borrow_mut(|worker| worker.stock.drop_old(Instant::now()));
}

/// Gathers operations on this thread until it is dropped.
struct Running(Gathering);

impl Running {
    fn begin() -> Option<Self> {
        let gathering = Gathering::begin(wake)?;
        let fills = Fill::of_this_processor();
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
        if worker.fills.iter().all(|fill| fill.this_turn == 0) && !turn::is_waiting() {
            worker.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    })
}

fn wake() {
    if let Some(waker) = WORKER.with_borrow_mut(|worker| worker.waker.take()) {
        waker.wake();
    }
}

/// Ends a turn: performs the gathered operations, and wakes the handshakes that wait for them.
fn perform() {
    WORKER.with_borrow_mut(|worker| worker.fills.iter_mut().for_each(Fill::end_turn));
    turn::perform();
    Exchange::perform_gathered();
    Encapsulation::perform_gathered();
}

/// An operation that is gathered in this crate.
pub(crate) trait GatheredOperation: Sized + 'static {
    const KIND: Kind;

    /// Performs the operation with aws-lc.
    fn perform(&mut self);

    /// Performs all operations, in lanes where that is faster. Returns the number performed in lanes.
    fn perform_all(operations: &mut [Self]) -> usize;

    /// The waiting operations of a worker.
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
        wake();
    }
    company.unwrap_or(false)
}

/// A key pair for one exchange. `None` if the system has no randomness.
pub(crate) fn key_pair() -> Option<KeyPair> {
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
