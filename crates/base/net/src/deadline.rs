//! Deadlines for connections, without a timer each.
//!
//! A connection sets and clears a deadline several times per request, and almost none expires. Therefore a deadline is
//! a tick number in an array of its worker, and one local task scans the whole array ten times a second: setting is a
//! store, and fifty thousand connections cost some tens of microseconds per tick.
//!
//! The same array records which connections are idle, and since when, so that in a shortage those that are idle longest
//! can be evicted.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// The granularity: a deadline expires between its time and two ticks later, never earlier (unless the worker was
/// blocked for longer than a tick just before it was set; then by as much, at most `MOST_TICKS`).
pub const TICK: Duration = Duration::from_millis(100);

const TICK_MILLIS: u32 = TICK.subsec_millis();
const TICKS_PER_SECOND: u32 = 1000 / TICK_MILLIS;

const NEVER: u64 = u64::MAX;
/// Value of a deadline that was evicted. No deadline is set to it, since the first tick is 1.
const EVICTED: u64 = 0;

/// Divisor of the number of idle connections that gives the number evicted by [`DeadlineWheel::evict_idle`], so that with many
/// connections the search for them is rare.
const EVICTED_SHARE: usize = 64;
/// Maximum number of connections evicted by one [`DeadlineWheel::evict_idle`].
const MOST_EVICTED: usize = 64;

/// Maximum number of ticks between two passes that count, a second. While the worker is blocked or the whole machine stands
/// still, no peer can be served: the rest of the pause delays all deadlines, or each of them would expire at its end.
const MOST_TICKS: u64 = 10;

/// The [`Deadline`]s of one worker. Clones share the deadlines, which expire only while [`run`](Self::run) runs.
#[derive(Clone, Debug)]
pub struct DeadlineWheel {
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    started: Instant,
    now: Cell<u64>,
    /// Ticks of pauses that do not count ([`MOST_TICKS`]).
    paused: Cell<u64>,
    registered: Cell<usize>,
    /// Counts calls of [`Deadline::set_idle`], whose order ticks are too coarse to record.
    idled: Cell<u64>,
    slots: RefCell<Slots>,
    first: Notify,
}

/// A slab. Ticks are stored apart from the wakers, because only ticks are read in each pass.
#[derive(Debug, Default)]
struct Slots {
    expires: Vec<u64>,
    /// Number of the connection's transition to idle, or `NEVER` if it is not idle: the lowest is idle longest.
    idle_since: Vec<u64>,
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

/// One deadline, initially not set. Dropping it returns its slot to the [`DeadlineWheel`].
#[derive(Debug)]
pub struct Deadline {
    shared: Rc<Shared>,
    slot: usize,
}

impl DeadlineWheel {
    /// Creates a wheel without deadlines. Only [`run`](Self::run) needs a tokio runtime with time enabled.
    pub fn new() -> Self {
        let shared = Shared {
            started: Instant::now(),
            now: Cell::new(0),
            paused: Cell::new(0),
            registered: Cell::new(0),
            idled: Cell::new(0),
            slots: RefCell::default(),
            first: Notify::new(),
        };
        Self { shared: Rc::new(shared) }
    }

    /// Registers a [`Deadline`], which is not set.
    pub fn register(&self) -> Deadline {
        let shared = &self.shared;
        if shared.registered.replace(shared.registered.get() + 1) == 0 {
            // The wheel did not turn while it was empty.
            shared.read_clock();
            shared.first.notify_one();
        }
        let slot = shared.slots.borrow_mut().take();
        Deadline { shared: Rc::clone(shared), slot }
    }

    /// Runs the wheel: wakes tasks whose deadline has expired. Never returns; run it as one local task per worker.
    /// Sleeps while there is no deadline.
    pub async fn run(&self) {
        loop {
            while self.shared.registered.get() == 0 {
                self.shared.first.notified().await;
            }
            self.turn().await;
        }
    }

    /// Wakes every task that waits for a deadline, expired or not: for events that concern all connections, such as the
    /// start of a drain.
    pub fn wake_all(&self) {
        let wakers: Vec<_> =
            self.shared.slots.borrow_mut().wakers.iter_mut().filter_map(Option::take).collect();
        for waker in wakers {
            waker.wake();
        }
    }

    /// Expires the deadlines that have been idle longest ([`Deadline::set_idle`]): one in 64 of the idle ones, at least
    /// one, at most 64. Returns their number. Scans all deadlines, so it is meant for shortages and not for every
    /// connection.
    pub fn evict_idle(&self) -> usize {
        let wakers = self.shared.slots.borrow_mut().evict_idle();
        // The borrow of the slots has ended: a waker may drop a task, whose deadlines borrow the slots too.
        let evicted = wakers.len();
        for waker in wakers.into_iter().flatten() {
            waker.wake();
        }
        evicted
    }

    /// Time of the last [`TICK`], from an unspecified origin. Costs a read.
    pub fn now(&self) -> Duration {
        self.shared.time()
    }

    async fn turn(&self) {
        let mut ticks = interval(TICK);
        // After the worker was blocked, one tick suffices, because `advance` catches up.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.shared.registered.get() > 0 {
            ticks.tick().await;
            self.shared.advance();
            self.shared.wake_expired();
        }
    }
}

impl Default for DeadlineWheel {
    fn default() -> Self {
        Self::new()
    }
}

impl Deadline {
    /// Sets the deadline to `time` from now, and replaces an earlier one. Costs a few nanoseconds and wakes no task.
    pub fn set(&self, time: Duration) {
        // No wake is needed, also for an earlier time: each pass reads the values as they are then.
        self.store(self.after(time), NEVER);
    }

    /// Like [`set`](Self::set), for an idle connection, which may be evicted earlier. Applies until the deadline is set
    /// or cleared again.
    pub fn set_idle(&self, time: Duration) {
        let number = self.shared.idled.get();
        self.shared.idled.set(number + 1);
        self.store(self.after(time), number);
    }

    fn after(&self, time: Duration) -> u64 {
        // In 64 bits, since each request sets several deadlines: divisions of 128 bits are calls of a library.
        let whole = time.as_secs().saturating_mul(TICKS_PER_SECOND.into());
        let ticks = whole.saturating_add(time.subsec_millis().div_ceil(TICK_MILLIS).into());
        // One tick more, for the part of the current tick that has passed.
        self.shared.now.get().saturating_add(ticks).saturating_add(1)
    }

    /// Clears the deadline: it does not expire until it is set again.
    pub fn clear(&self) {
        self.store(NEVER, NEVER);
    }

    /// Whether the deadline expired early, because of [`DeadlineWheel::evict_idle`].
    pub fn is_evicted(&self) -> bool {
        self.shared.slots.borrow().expires[self.slot] == EVICTED
    }

    /// Whether the deadline has expired or [is evicted](Self::is_evicted).
    pub fn expired(&self) -> bool {
        self.shared.slots.borrow().expires[self.slot] <= self.shared.now.get()
    }

    /// [`Poll::Ready`] when the deadline has expired; otherwise registers the task to be woken. One task per deadline.
    pub fn poll_expired(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut slots = self.shared.slots.borrow_mut();
        if slots.expires[self.slot] <= self.shared.now.get() {
            return Poll::Ready(());
        }
        let waker = &mut slots.wakers[self.slot];
        // Cloning a waker costs an atomic operation, and a busy task polls its deadline often.
        if !waker.as_ref().is_some_and(|known| known.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Time of the last [`TICK`], from an unspecified origin. Costs a read.
    pub fn now(&self) -> Duration {
        self.shared.time()
    }

    /// Total of the pauses of the worker or the machine that no deadline counts, from an unspecified origin. Costs a read.
    pub fn paused(&self) -> Duration {
        TICK.saturating_mul(u32::try_from(self.shared.paused.get()).unwrap_or(u32::MAX))
    }

    /// The [`DeadlineWheel`] that this deadline belongs to.
    pub fn wheel(&self) -> DeadlineWheel {
        DeadlineWheel { shared: Rc::clone(&self.shared) }
    }

    /// Completes when the deadline expires; never while none is set.
    pub async fn wait(&self) {
        poll_fn(|context| self.poll_expired(context)).await;
    }

    /// Awaits `work`. `None` if the deadline expires first.
    pub async fn within<F: Future>(&self, work: F) -> Option<F::Output> {
        let mut work = pin!(work);
        poll_fn(|context| match work.as_mut().poll(context) {
            // The work is polled first, so that a result that is ready together with
            // the deadline is not lost.
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => self.poll_expired(context).map(|()| None),
        })
        .await
    }

    fn store(&self, expires: u64, idle_since: u64) {
        let mut slots = self.shared.slots.borrow_mut();
        slots.expires[self.slot] = expires;
        slots.idle_since[self.slot] = idle_since;
    }
}

impl Drop for Deadline {
    fn drop(&mut self) {
        let waker = self.shared.slots.borrow_mut().give_back(self.slot);
        self.shared.registered.set(self.shared.registered.get() - 1);
        // Dropped after the borrow ends, because the waker may own the owner of a deadline.
        drop(waker);
    }
}

impl Shared {
    fn time(&self) -> Duration {
        TICK.saturating_mul(u32::try_from(self.now.get()).unwrap_or(u32::MAX))
    }

    fn read_clock(&self) {
        let ticks = self.started.elapsed().as_millis() / TICK.as_millis();
        let ticks = u64::try_from(ticks).unwrap_or(NEVER - 1);
        self.now.set(ticks.saturating_sub(self.paused.get()));
    }

    /// Like [`read_clock`](Self::read_clock), but counts at most [`MOST_TICKS`] since the last call of either.
    fn advance(&self) {
        let before = self.now.get();
        self.read_clock();
        let excess = self.now.get().saturating_sub(before).saturating_sub(MOST_TICKS);
        self.paused.set(self.paused.get() + excess);
        self.now.set(self.now.get() - excess);
    }

    fn wake_expired(&self) {
        let wakers = self.slots.borrow_mut().take_expired(self.now.get());
        // The borrow of the slots has ended: a waker may drop a task, whose deadlines borrow the slots too.
        for waker in wakers {
            waker.wake();
        }
    }
}

impl Slots {
    fn take(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.expires.push(NEVER);
            self.idle_since.push(NEVER);
            self.wakers.push(None);
            self.expires.len() - 1
        })
    }

    fn give_back(&mut self, slot: usize) -> Option<Waker> {
        self.expires[slot] = NEVER;
        self.idle_since[slot] = NEVER;
        self.free.push(slot);
        self.wakers[slot].take()
    }

    /// The wakers of evicted deadlines; `None` for a deadline that no task awaits yet.
    fn evict_idle(&mut self) -> Vec<Option<Waker>> {
        let idle = self.idle_since.iter().enumerate().filter(|(_, since)| **since != NEVER);
        let mut idle: Vec<(u64, usize)> = idle.map(|(slot, since)| (*since, slot)).collect();
        let count = (idle.len() / EVICTED_SHARE).clamp(1, MOST_EVICTED).min(idle.len());
        if count < idle.len() {
            // Only the set of the oldest is needed, not their order: the selection is
            // linear, a sort of all is not.
            idle.select_nth_unstable(count);
        }
        let evict = |&(_, slot): &(u64, usize)| {
            self.expires[slot] = EVICTED;
            self.idle_since[slot] = NEVER;
            self.wakers[slot].take()
        };
        idle[..count].iter().map(evict).collect()
    }

    fn take_expired(&mut self, now: u64) -> Vec<Waker> {
        let wakers = &mut self.wakers;
        let passed = self.expires.iter().enumerate().filter(|(_, expires)| **expires <= now);
        passed.filter_map(|(slot, _)| wakers[slot].take()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use tokio::select;
    use tokio::time::{advance, sleep};

    use super::*;

    async fn with<F: Future>(wheel: &DeadlineWheel, future: F) -> F::Output {
        select! {
            () = wheel.run() => unreachable!("the wheel never returns"),
            output = future => output,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_passes_after_its_time_and_at_most_two_ticks_late() {
        let wheel = DeadlineWheel::new();
        with(&wheel, async {
            sleep(Duration::from_millis(333)).await;
            let deadline = wheel.register();
            deadline.set(Duration::from_millis(250));
            let start = Instant::now();
            deadline.wait().await;
            let waited = start.elapsed();
            assert!(waited >= Duration::from_millis(250), "{waited:?}");
            assert!(waited <= Duration::from_millis(450), "{waited:?}");
            assert!(deadline.expired());
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_set_replaces_an_earlier_one() {
        let wheel = DeadlineWheel::new();
        with(&wheel, async {
            let deadline = wheel.register();
            deadline.set(Duration::from_secs(1));
            let start = Instant::now();
            let extend = async {
                sleep(Duration::from_millis(900)).await;
                deadline.set(Duration::from_secs(1));
            };
            tokio::join!(extend, deadline.wait());
            assert!(start.elapsed() >= Duration::from_millis(1900), "{:?}", start.elapsed());
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_cleared_deadline_does_not_pass() {
        let wheel = DeadlineWheel::new();
        with(&wheel, async {
            let deadline = wheel.register();
            deadline.set(Duration::from_secs(1));
            deadline.clear();
            sleep(Duration::from_hours(1)).await;
            assert!(!deadline.expired());
        })
        .await;
    }

    #[test]
    fn a_time_is_rounded_up_to_ticks_of_whole_milliseconds() {
        let deadline = DeadlineWheel::new().register();
        let ticks = |time: Duration| deadline.after(time) - deadline.after(Duration::ZERO);
        let times = [1, 99, 100, 101, 999, 1_000, 1_001, 60_000].map(Duration::from_millis);
        assert_eq!(times.map(ticks), [1, 1, 1, 2, 10, 10, 11, 600]);
        assert_eq!(ticks(Duration::from_micros(100_999)), 1);
        assert_eq!(deadline.after(Duration::MAX), NEVER);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wheel_that_stood_still_knows_the_time_again() {
        let wheel = DeadlineWheel::new();
        with(&wheel, async {
            drop(wheel.register());
            sleep(Duration::from_hours(1)).await;
            let deadline = wheel.register();
            deadline.set(Duration::from_secs(5));
            let start = Instant::now();
            deadline.wait().await;
            assert!(start.elapsed() >= Duration::from_secs(5), "{:?}", start.elapsed());
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_pause_of_the_worker_one_second_counts() {
        let wheel = DeadlineWheel::new();
        with(&wheel, async {
            let deadline = wheel.register();
            deadline.set(Duration::from_secs(5));
            sleep(Duration::from_millis(350)).await;
            // Unlike `sleep`, it passes over the ticks in between.
            advance(Duration::from_mins(1)).await;
            sleep(Duration::from_secs(3)).await;
            assert!(!deadline.expired());
            let paused = deadline.paused().as_secs();
            assert!((58..=60).contains(&paused), "{paused} s");
            deadline.wait().await;
            let start = Instant::now();
            deadline.set(Duration::from_secs(2));
            deadline.wait().await;
            assert!(start.elapsed() >= Duration::from_secs(2), "{:?}", start.elapsed());
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn those_idle_longest_are_let_go_first() {
        let wheel = DeadlineWheel::new();
        with(&wheel, async {
            let [busy, late, early, worked] = std::array::from_fn(|_| wheel.register());
            for deadline in [&busy, &early, &worked] {
                deadline.set_idle(Duration::from_hours(1));
            }
            sleep(Duration::from_secs(1)).await;
            busy.clear();
            late.set_idle(Duration::from_hours(1));
            worked.set(Duration::from_hours(1));
            assert_eq!(wheel.evict_idle(), 1);
            early.wait().await;
            assert!(early.is_evicted() && !late.expired());
            assert_eq!(wheel.evict_idle(), 1);
            assert!(late.is_evicted());
            assert_eq!(wheel.evict_idle(), 0);
            assert!(!busy.expired() && !worked.expired());
            early.set(Duration::from_secs(1));
            assert!(!early.is_evicted() && !early.expired());
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_became_idle_within_one_tick_are_let_go_in_their_order() {
        let wheel = DeadlineWheel::new();
        let deadlines: [_; 8] = std::array::from_fn(|_| wheel.register());
        let order = [3, 0, 7, 1, 6, 2, 5, 4];
        for slot in order {
            deadlines[slot].set_idle(Duration::from_hours(1));
        }
        for slot in order {
            assert_eq!(wheel.evict_idle(), 1);
            assert!(deadlines[slot].is_evicted(), "{slot}");
        }
    }

    #[test]
    fn a_task_that_is_woken_may_drop_deadlines() {
        thread_local! {
            static OWNED: RefCell<Option<Deadline>> = const { RefCell::new(None) };
        }
        struct Dropping;
        impl Wake for Dropping {
            fn wake(self: Arc<Self>) {
                drop(OWNED.take());
            }
        }
        let wheel = DeadlineWheel::new();
        OWNED.set(Some(wheel.register()));
        let deadline = wheel.register();
        deadline.set(Duration::ZERO);
        let waker = Waker::from(Arc::new(Dropping));
        assert!(deadline.poll_expired(&mut Context::from_waker(&waker)).is_pending());
        wheel.shared.now.set(NEVER - 1);
        wheel.shared.wake_expired();
        assert!(OWNED.take().is_none());
        assert_eq!(wheel.shared.registered.get(), 1);
    }

    #[test]
    fn slots_are_used_again() {
        let wheel = DeadlineWheel::new();
        let first = wheel.register();
        first.set(Duration::ZERO);
        drop(first);
        let second = wheel.register();
        assert!(!second.expired(), "a new deadline is not set");
        assert_eq!(wheel.shared.slots.borrow().expires.len(), 1);
    }
}
