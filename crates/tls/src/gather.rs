//! Performs the operations of one turn of a worker's event loop together: X25519 exchanges, encapsulations with
//! ML-KEM-768, and signatures with P-256. Makes key pairs for exchanges to come, eight at a time.
//!
//! A worker runs [`turns`]: one task that is woken by the first operation of a turn and runs behind all tasks that are
//! ready. An operation waits only for work that the worker would do before its next look at the network anyway, so no
//! timer is needed: the more handshakes are ready, the fuller the batches. While turns have few operations, these do
//! not wait at all.
//!
//! Everything is thread-local and without locks. Nothing is gathered on a thread that does not run [`turns`].

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use brisk_keys::turn::{self, Gathering, TurnCounters, TurnFigures};
use brisk_keys::{Encapsulation, Exchange, KeyPair, LanesUse};

use crate::suspend;

/// Key pairs made ahead are not used after this time.
const PAIR_AGE: Duration = Duration::from_mins(1);

/// Operations in a turn, on the average, from which on they wait for one another where lanes are worth it for fewer.
const COMPANY: usize = 2;

/// Turns that the average is taken over, by weight.
const TURNS: f32 = 8.0;

thread_local! {
    static WORKER: RefCell<Worker> = RefCell::default();
}

static EXCHANGES: TurnCounters = TurnCounters::new();
static ENCAPSULATIONS: TurnCounters = TurnCounters::new();

/// What the workers of this process have gathered since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatherFigures {
    /// X25519 exchanges.
    pub exchanges: TurnFigures,
    /// Encapsulations with ML-KEM-768.
    pub encapsulations: TurnFigures,
    /// Signatures with P-256.
    pub signatures: TurnFigures,
    /// Signatures that failed their check and were made a second time.
    pub faults: u64,
}

/// The figures of all workers.
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

/// The kinds of operations that are gathered, in the order of [`Worker::fills`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Exchange,
    Encapsulation,
    Signature,
}

/// How many operations of a kind the turns of a worker have, whether or not they waited.
#[derive(Default)]
struct Fill {
    /// How many have to be expected for one to wait. `None`: none waits, and they are not counted.
    company: Option<f32>,
    this_turn: u16,
    average: f32,
}

impl Fill {
    /// For operations that lanes are worth it for from `break_even` on; more than eight: never.
    fn new(break_even: usize) -> Self {
        let company = (break_even <= 8).then(|| break_even.max(COMPANY) as f32);
        Self { company, ..Self::default() }
    }

    /// Those of each kind, as measured.
    fn of_this_processor() -> [Self; 3] {
        let (exchanges, signatures) = LanesUse::of_this_processor()
            .map_or((usize::MAX, usize::MAX), |lanes| (lanes.exchanges, lanes.signatures));
        let encapsulations = Encapsulation::break_even().unwrap_or(usize::MAX);
        [exchanges, encapsulations, signatures].map(Self::new)
    }

    /// Counts an operation. Whether others are likely to join it in this turn; `None` if it is not counted.
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

/// Performs, turn by turn, what the handshakes of this thread gather. Ends at once where the processor has no lanes
/// that are worth it, and never otherwise. One per thread. When it is dropped, what waits is performed.
pub async fn turns() {
    let Some(_running) = Running::begin() else { return };
    loop {
        poll_fn(wait_for_first).await;
        // Behind all tasks that are ready, and those that the network makes ready now.
        tokio::task::yield_now().await;
        perform();
    }
}

/// Wipes the key pairs that this thread made more than a minute ago. A worker calls it now and then.
pub fn drop_old_key_pairs() {
    WORKER.with_borrow_mut(|worker| worker.stock.drop_old(Instant::now()));
}

/// While it lives, this thread gathers.
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

/// Ends a turn: performs what this thread has gathered, and wakes the handshakes that wait for it.
fn perform() {
    WORKER.with_borrow_mut(|worker| worker.fills.iter_mut().for_each(Fill::end_turn));
    turn::perform();
    Exchange::perform_gathered();
    Encapsulation::perform_gathered();
}

/// An operation that is gathered in this crate.
pub(crate) trait Gathered: Sized + 'static {
    const KIND: Kind;

    /// Performs it with aws-lc.
    fn perform(&mut self);

    /// Performs all of them, in lanes where that is faster. Returns how many were in lanes.
    fn perform_all(operations: &mut [Self]) -> usize;

    /// Where those of a worker wait.
    fn waiting(worker: &mut Worker) -> &mut Vec<Rc<Slot<Self>>>;

    fn counters() -> &'static TurnCounters;

    /// Performs those that this thread has gathered. One of a handshake that is gone is dropped.
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
        // The room is kept for the next turn.
        WORKER.with_borrow_mut(|worker| {
            if Self::waiting(worker).is_empty() {
                *Self::waiting(worker) = waiting;
            }
        });
    }
}

impl Gathered for Exchange {
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

impl Gathered for Encapsulation {
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

/// An operation on its way to the end of the turn and back.
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

/// An operation that was begun. Dropping it abandons the operation.
pub(crate) enum Pending<T> {
    Performed(T),
    Waiting(Rc<Slot<T>>),
}

/// Gathers an operation, or performs it at once where it has no company.
pub(crate) fn begin<T: Gathered>(mut operation: T) -> Pending<T> {
    if !has_company(T::KIND) {
        if WORKER.with_borrow(|worker| worker.gathers) {
            // Lanes may be faster with a single one.
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
    /// The operation once it is performed. To be called in the call that began it.
    pub(crate) fn wait(self) -> T {
        match self {
            Self::Performed(operation) => operation,
            Self::Waiting(slot) => suspend::wait(poll_fn(|cx| slot.poll(cx)))
                .expect("an operation is gathered only where its call can be suspended"),
        }
    }
}

/// Counts an operation of the handshake that runs on this thread. Whether the operation is to wait for the end of the
/// turn: the handshake can be suspended, and others are likely to join it.
pub(crate) fn has_company(kind: Kind) -> bool {
    let counted = |worker: &mut Worker| worker.fills[kind as usize].count();
    let company = if suspend::is_possible() { WORKER.with_borrow_mut(counted) } else { None };
    if company.is_some() {
        wake();
    }
    company.unwrap_or(false)
}

/// A key pair for one exchange. `None` where there is no randomness.
pub(crate) fn key_pair() -> Option<KeyPair> {
    WORKER.with_borrow_mut(|worker| if worker.gathers { worker.stock.take() } else { KeyPair::generate() })
}

/// Key pairs made ahead, at most eight. Each is used once.
#[derive(Default)]
struct Stock {
    pairs: Vec<KeyPair>,
    made: Option<Instant>,
    /// The process that made them. A child that is forked must not use them too.
    process: u32,
}

impl Stock {
    /// A pair. If none may be used, eight are made in the time of one.
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
