//! When operations go, and which of them together: decided from arrivals, times and costs alone, without clock, thread or
//! key.
//!
//! A full batch costs hardly more than one operation, so it is worth waiting a little for the last, but only while
//! more operations arrive than one thread could perform one by one. Below that rate a batch saves nothing, and every
//! operation goes at once.

use std::time::{Duration, Instant};

use super::class::Class;
use brisk_lanes::rsa_lanes::OPERATIONS;

/// The weight of a new observation in an average: one part in `MEMORY`.
const MEMORY: u32 = 8;

/// A gap of `PAUSE` times the duration of a single operation ends a burst.
const PAUSE: u32 = 4;

/// The most batches that go without waiting after others waited without success.
const LEAST_TRUST: u32 = 256;

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// There is nothing to do before something arrives.
    Sleep,
    /// More is likely to arrive by then; if it does not, what there is goes.
    Wait(Instant),
    /// These operations go now: [`Gather::take`] hands them out.
    Go(Class),
}

/// Operations on their way from the queue to a thread, by class. Holds less than a batch of each class, and one batch.
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

    /// A thread watches what arrives from now on, until operations are taken.
    pub(super) fn watch(&mut self, now: Instant) {
        self.absence.end(now);
    }

    /// Adds an operation of `class`, of which at most `together` go at a time. It arrived in the queue at `arrived` and was
    /// taken from it `now`.
    pub(super) fn push(&mut self, class: Class, together: usize, item: T, arrived: Instant, now: Instant) {
        let idle = self.absence.idle_until(arrived);
        let list = self.list(class);
        list.together = together;
        list.push(item, arrived, now, idle);
    }

    /// Nothing will arrive any more, so there is nothing to wait for.
    pub(super) const fn close(&mut self) {
        self.closed = true;
    }

    /// Whether some class has as many as can go together: no need to take more from the queue.
    pub(super) fn is_full(&self) -> bool {
        self.lists.iter().any(List::is_full)
    }

    /// Takes out what is not wanted any more.
    pub(super) fn remove(&mut self, unwanted: &impl Fn(&T) -> bool) -> impl Iterator<Item = T> {
        let items = self.lists.iter_mut().map(|list| &mut list.items);
        items
            .flat_map(move |items| items.extract_if(.., move |(item, _)| unwanted(item)))
            .map(|(item, _)| item)
    }

    /// What is to be done next. Of several classes that could go, the one whose first operation was taken first.
    pub(super) fn decide(&mut self, now: Instant) -> Decision {
        let ready = |list: &&List<T>| list.until().is_some_and(|until| self.closed || until <= now);
        if let Some(ready) = self.lists.iter().filter(ready).min_by_key(|list| list.since()) {
            return Decision::Go(ready.class);
        }
        let Some(until) = self.lists.iter().filter_map(List::until).min() else { return Decision::Sleep };
        self.lists.iter_mut().for_each(List::hope);
        Decision::Wait(until)
    }

    /// Moves the operations of `class` to `batch`, for a thread that leaves the queue with them `now`.
    pub(super) fn take(&mut self, class: Class, batch: &mut Vec<T>, now: Instant) {
        self.absence.begin(now);
        self.list(class).take(batch);
    }

    /// Notes the duration of an operation of `class` that was performed alone.
    pub(super) fn performed_alone(&mut self, class: Class, time: Duration) {
        self.list(class).performed_alone(time);
    }

    const fn list(&mut self, class: Class) -> &mut List<T> {
        &mut self.lists[class as usize]
    }
}

/// The operations of one class, and what is known of their arrivals.
#[derive(Debug)]
struct List<T> {
    class: Class,
    /// How many operations go together at most.
    together: usize,
    /// Each with the time when it was taken from the queue.
    items: Vec<(T, Instant)>,
    /// Whether they may wait for more.
    trusting: bool,
    /// Whether another came since they began to wait; `None` before that.
    joined: Option<bool>,
    /// When the last operation arrived, and the idle absence until then.
    last_arrival: Option<(Instant, Duration)>,
    /// Average time that waiting for the next arrival takes.
    gap: Duration,
    /// Average time that an operation takes alone.
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
            // Those that waited before, if any, are not wanted any more.
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
            self.gap = if gap >= self.alone * PAUSE {
                calm(self.alone)
            } else {
                average(self.gap, gap.min(calm(self.alone)))
            };
        }
    }

    /// When the first operation was taken from the queue; `None` if there is none.
    fn since(&self) -> Option<Instant> {
        self.items.first().map(|(_, taken)| *taken)
    }

    /// Until when it pays to wait for more: as long as arrivals are usually apart, but no longer in all than an operation
    /// alone takes. `None` if there is no operation.
    fn until(&self) -> Option<Instant> {
        let ((_, first), (_, latest)) = (self.items.first()?, self.items.last()?);
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

    /// A thread may have been interrupted while it worked: a longer time counts a little, a shorter one in full.
    fn performed_alone(&mut self, time: Duration) {
        self.alone = average(self.alone, time.min(self.alone + self.alone / 4));
    }
}

/// The gap between arrivals that is assumed when nothing is known: too long to wait.
fn calm(alone: Duration) -> Duration {
    alone * 2
}

fn average(of: Duration, new: Duration) -> Duration {
    (of * (MEMORY - 1) + new) / MEMORY
}

/// Time in which no thread watched, since all of them computed, and in which nothing arrived. Where threads share a
/// core with those that submit, nothing could arrive: such time is no gap between arrivals.
#[derive(Debug, Default)]
struct Absence {
    left: Option<Instant>,
    /// The last absence, until it is known whether something arrived in it.
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

    /// All of it until something arrived.
    fn idle_until(&mut self, arrived: Instant) -> Duration {
        let idle = self.last.take().filter(|(_, back)| *back <= arrived);
        self.count(idle);
        self.idle
    }

    fn count(&mut self, absence: Option<(Instant, Instant)>) {
        self.idle += absence.map_or(Duration::ZERO, |(left, back)| back.saturating_duration_since(left));
    }
}

/// Whether waiting has been worth it. Arrivals may be close to one another and still none of them come while an operation
/// is held back: a client that connects again and again waits for this very operation.
#[derive(Debug, Default)]
struct Trust {
    /// Batches that go without waiting after the latest disappointment.
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
        self.pause = if something_came { 0 } else { (self.pause * 2).clamp(1, LEAST_TRUST) };
        self.left = self.pause;
    }
}

#[cfg(test)]
mod tests;
