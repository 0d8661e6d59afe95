//! Scheduling of batches: decides when to dispatch which operations from arrivals, times and costs alone, without
//! clock, thread or key.
//!
//! A full batch costs little more than one operation, so waiting briefly for the last operations pays, but only while
//! more arrive than one thread could perform one by one. Below that rate a batch saves nothing, and every operation
//! is dispatched at once.

use std::time::{Duration, Instant};

use super::class::Class;
use brisk_lanes::rsa_lanes::OPERATIONS;

/// Weight of the history in a moving average: a new observation counts `1 / MEMORY`.
const MEMORY: u32 = 8;

/// A gap between arrivals of `PAUSE` times the duration of a single operation ends a burst.
const PAUSE: u32 = 4;

/// Maximum number of batches dispatched without waiting after waiting has failed to bring another operation.
const LEAST_TRUST: u32 = 256;

/// Next action of a thread, from [`Gather::decide`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Wait for an arrival: no operation is pending.
    Sleep,
    /// Wait until this instant, then dispatch the queue.
    Wait(Instant),
    /// Dispatch the operations of this class now, with [`Gather::take`].
    Go(Class),
}

/// Operations between the queue and a thread, by class. Holds less than a batch of each class, plus one batch.
#[derive(Debug)]
pub(super) struct Gather<T> {
    lists: [List<T>; Class::ALL.len()],
    absence: Absence,
    closed: bool,
}

impl<T> Gather<T> {
    pub(super) fn new() -> Self {
        Self { lists: Class::ALL.map(List::new), absence: Absence::default(), closed: false }
    }

    /// Notes that a thread watches the queue from `now` until it takes operations.
    pub(super) fn watch(&mut self, now: Instant) {
        self.absence.end(now);
    }

    /// Adds an operation of `class`, of which a batch holds at most `together`. It entered the queue at `arrived` and
    /// left it at `now`.
    pub(super) fn push(&mut self, class: Class, together: usize, item: T, arrived: Instant, now: Instant) {
        let idle = self.absence.idle_until(arrived);
        let list = self.list(class);
        list.together = together;
        list.push(item, arrived, now, idle);
    }

    /// Notes that no more operations will arrive, so that none waits for a batch.
    pub(super) const fn close(&mut self) {
        self.closed = true;
    }

    /// Whether a [`Class`] has a full batch; then nothing more need be taken from the queue.
    pub(super) fn is_full(&self) -> bool {
        self.lists.iter().any(List::is_full)
    }

    /// Removes and returns the operations for which `unwanted` returns `true`.
    pub(super) fn remove(&mut self, unwanted: &impl Fn(&T) -> bool) -> impl Iterator<Item = T> {
        let items = self.lists.iter_mut().map(|list| &mut list.items);
        items
            .flat_map(move |items| items.extract_if(.., move |(item, _)| unwanted(item)))
            .map(|(item, _)| item)
    }

    /// Decides the next action. Among several classes that are ready, the class whose first operation is oldest is
    /// dispatched first.
    pub(super) fn decide(&mut self, now: Instant) -> Decision {
        let ready = |list: &&List<T>| list.until().is_some_and(|until| self.closed || until <= now);
        if let Some(ready) = self.lists.iter().filter(ready).min_by_key(|list| list.since()) {
            return Decision::Go(ready.class);
        }
        let Some(until) = self.lists.iter().filter_map(List::until).min() else { return Decision::Sleep };
        // In all lists with operations, not only in the list that is due first: all of them wait now.
        self.lists.iter_mut().for_each(List::hope);
        Decision::Wait(until)
    }

    /// Moves the operations of `class` to `batch`, for a thread that stops watching the queue at `now`.
    pub(super) fn take(&mut self, class: Class, batch: &mut Vec<T>, now: Instant) {
        self.absence.begin(now);
        self.list(class).take(batch);
    }

    /// Records the duration of an operation of `class` that was performed alone.
    pub(super) fn performed_alone(&mut self, class: Class, time: Duration) {
        self.list(class).performed_alone(time);
    }

    const fn list(&mut self, class: Class) -> &mut List<T> {
        &mut self.lists[class as usize]
    }
}

/// Pending operations of one [`Class`], with statistics of their arrivals.
#[derive(Debug)]
struct List<T> {
    class: Class,
    /// Maximum number of operations per batch.
    together: usize,
    /// Operations, each with the time at which it left the queue.
    items: Vec<(T, Instant)>,
    /// Whether these operations may wait for more.
    trusting: bool,
    /// Whether another operation arrived since these began to wait; `None` if they do not wait.
    joined: Option<bool>,
    /// Time of the last arrival, and `Absence::idle` at that time.
    last_arrival: Option<(Instant, Duration)>,
    /// Average time between arrivals.
    gap: Duration,
    /// Average duration of an operation performed alone.
    alone: Duration,
    trust: Trust,
}

impl<T> List<T> {
    fn new(class: Class) -> Self {
        let alone = class.usual_time();
        Self {
            class,
            together: 1,
            items: Vec::with_capacity(OPERATIONS),
            trusting: false,
            joined: None,
            last_arrival: None,
            gap: calm(alone),
            alone,
            trust: Trust::default(),
        }
    }

    fn is_full(&self) -> bool {
        self.items.len() >= self.together
    }

    fn push(&mut self, item: T, arrived: Instant, now: Instant, idle: Duration) {
        self.note_arrival(arrived, idle);
        if self.items.is_empty() {
            // The list is empty, so earlier operations that waited were abandoned: their wait proves nothing about
            // arrivals.
            self.joined = None;
            self.trusting = self.gap >= self.alone || self.trust.allows();
        }
        self.joined = self.joined.map(|_| true);
        self.items.push((item, now));
    }

    fn note_arrival(&mut self, arrived: Instant, idle: Duration) {
        if let Some((last, idle_before)) = self.last_arrival.replace((arrived, idle)) {
            let gap =
                arrived.saturating_duration_since(last).saturating_sub(idle.saturating_sub(idle_before));
            // After a pause the history is discarded: the first operations of the next burst do not wait.
            // Shorter gaps are capped, so that a single long gap within a burst does not stop waiting for
            // several batches.
            self.gap = if gap >= self.alone * PAUSE {
                calm(self.alone)
            } else {
                average(self.gap, gap.min(calm(self.alone)))
            };
        }
    }

    /// Time at which the first operation left the queue; `None` if there is none.
    fn since(&self) -> Option<Instant> {
        self.items.first().map(|(_, taken)| *taken)
    }

    /// Time until which waiting for more operations pays: the usual gap between arrivals, but at most the duration of
    /// a single operation in total. `None` if there is no operation.
    fn until(&self) -> Option<Instant> {
        let ((_, first), (_, latest)) = (self.items.first()?, self.items.last()?);
        // At low rates (`gap >= alone`) a batch saves nothing, so every operation is dispatched at once.
        let missing = self.together.saturating_sub(self.items.len()) as u32;
        if missing == 0 || !self.trusting || self.gap >= self.alone {
            return Some(*first);
        }
        Some((*latest + self.gap * missing).min(*first + self.alone))
    }

    fn hope(&mut self) {
        if !self.items.is_empty() {
            self.joined.get_or_insert(false);
        }
    }

    fn take(&mut self, batch: &mut Vec<T>) {
        if let Some(joined) = self.joined.take() {
            self.trust.learn(joined);
        }
        batch.extend(self.items.drain(..).map(|(item, _)| item));
    }

    /// Updates the average duration of a single operation. The system may have interrupted the thread, so a longer
    /// time is capped at 125 % of the average and a shorter one counts in full.
    fn performed_alone(&mut self, time: Duration) {
        // The average follows shorter times in full, so that one interrupted run cannot raise it for long.
        self.alone = average(self.alone, time.min(self.alone + self.alone / 4));
    }
}

/// Gap between arrivals assumed without observations: too long for waiting to pay.
fn calm(alone: Duration) -> Duration {
    alone * 2
}

fn average(of: Duration, new: Duration) -> Duration {
    (of * (MEMORY - 1) + new) / MEMORY
}

/// Time during which all threads computed, none watched the queue, and nothing arrived. If the threads share a core
/// with the threads that submit, nothing could arrive, so this time does not count as a gap between arrivals.
#[derive(Debug, Default)]
struct Absence {
    left: Option<Instant>,
    /// The last absence, until it is known whether an operation arrived during it.
    last: Option<(Instant, Instant)>,
    idle: Duration,
}

impl Absence {
    fn begin(&mut self, now: Instant) {
        self.left = Some(now);
    }

    fn end(&mut self, now: Instant) {
        let unknown = self.last.take();
        self.count(unknown);
        self.last = self.left.take().map(|left| (left, now));
    }

    /// Total idle time before an arrival at `arrived`.
    fn idle_until(&mut self, arrived: Instant) -> Duration {
        let idle = self.last.take().filter(|(_, back)| *back <= arrived);
        self.count(idle);
        self.idle
    }

    fn count(&mut self, absence: Option<(Instant, Instant)>) {
        self.idle += absence.map_or(Duration::ZERO, |(left, back)| back.saturating_duration_since(left));
    }
}

/// Whether waiting has paid so far. Arrivals may be close together although none follows while an operation is held
/// back: a client that opens one connection after another waits for this very operation.
#[derive(Debug, Default)]
struct Trust {
    /// Batches to dispatch without waiting after the latest wait that brought no operation.
    pause: u32,
    left: u32,
}

impl Trust {
    fn allows(&mut self) -> bool {
        let allowed = self.left == 0;
        self.left = self.left.saturating_sub(1);
        allowed
    }

    fn learn(&mut self, something_came: bool) {
        // Doubled after each wait without success: a client that opens one connection after another is delayed ever
        // more rarely.
        self.pause = if something_came { 0 } else { (self.pause * 2).clamp(1, LEAST_TRUST) };
        self.left = self.pause;
    }
}

#[cfg(test)]
mod tests;
