//! Requests in flight on one multiplexed connection, as seen by its driver: detects stalled streams and ends only those.
//!
//! A stream costs a few stores per piece of its response. The driver checks the time in rounds.

use std::cell::{Cell, RefCell};
use std::mem;
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::pace::{ReadPace, ReadRate};

/// Points that a reset stream costs in the flood budget of its connection.
pub const RESET: u32 = 10;
// Half of a reset: a client that resets one stream for each two complete responses never exhausts its budget.
/// Points that a complete response earns.
pub const ANSWER: u32 = RESET / 2;

/// Key of a stream in [`Streams`]. Keys are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamKey {
    index: u32,
    generation: u32,
}

/// Reason for ending a request before its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The client did not read the response within [`StreamLimits::write`], or read it below [`StreamLimits::read_rate`].
    WriteTimeout,
    /// Request and response together exceeded [`StreamLimits::request`].
    RequestTimeout,
    /// The client did not read, and responses of all clients exceeded their memory ([`End::Shed`](crate::end::End::Shed)).
    Shed,
}

impl Ended {
    /// A short name for logs.
    pub fn reason(self) -> &'static str {
        match self {
            Self::WriteTimeout => "write-timeout",
            Self::RequestTimeout => "request-timeout",
            Self::Shed => "response-memory",
        }
    }
}

/// The streams of a multiplexed connection.
#[derive(Debug, Default)]
pub struct Streams {
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<u32>>,
    /// The latest stream, until its task is known.
    begun: Cell<Option<StreamKey>>,
    /// Time of the last [`Round`].
    last_round: Cell<Option<Instant>>,
    /// Whether responses waited for the window of the connection since the last round, and the bytes written since then.
    excused: Cell<bool>,
    bytes: Cell<u64>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    state: Option<State>,
}

/// State of a stream in flight.
#[derive(Debug)]
struct State {
    started: Instant,
    /// Whether a piece of the response, or its head, waits for the client.
    held: bool,
    /// The state when a [`Round`] first found the stream waiting after the client last read from it.
    stalled: Option<Stall>,
    reading: Reading,
    ended: Option<Ended>,
    task: Option<Rc<Waker>>,
}

/// Progress of the client in reading a response.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    /// Bytes written since the last round.
    bytes: u64,
    /// Whether data has waited since the last round.
    waits: bool,
    /// Time of waiting on a blocked connection, which may be the fault of other streams, and the bytes released on the
    /// connection when it began.
    unclear: Duration,
    released: u64,
    pace: ReadPace,
}

/// State of the connection when a stream was first found stalled.
#[derive(Clone, Copy, Debug)]
struct Stall {
    since: Instant,
    /// Response bytes of the connection written or dropped by then.
    released: u64,
    /// Whether the client has not read all data since then.
    blocked: bool,
}

/// State of the connection in one round of checks.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Time of the round.
    pub now: Instant,
    /// Time since the last round in which the worker or the machine stood still, as far as no timeout counts it.
    pub paused: Duration,
    /// Response bytes of the connection written or dropped so far.
    pub released: u64,
    /// Whether the client has not read all data since the last round.
    pub blocked: bool,
}

/// Number of bytes that other streams must have received before a stalled stream on a blocked connection is to blame:
/// more than one turn of all streams.
const FAIR_TURN: u64 = 8 << 20;

/// Timeouts of a stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamLimits {
    /// For a response that the client does not read.
    pub write: Duration,
    /// Minimum rate of reading in bytes per second; 0 for none.
    pub read_rate: u64,
    /// From the head of the request to the end of the response.
    pub request: Option<Duration>,
}

impl Streams {
    /// Begins a request at `started`. Its key is also that of the next [`Self::take_begun`].
    pub fn begin(&self, started: Instant) -> StreamKey {
        let reading = Reading::default();
        let state = State { started, held: false, stalled: None, reading, ended: None, task: None };
        let mut slots = self.slots.borrow_mut();
        // Slots are reused, so a round examines as many slots as there were concurrent requests, not all
        // requests so far.
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(Slot { generation: 0, state: None });
            slots.len() as u32 - 1
        });
        let slot = &mut slots[index as usize];
        slot.state = Some(state);
        let key = StreamKey { index, generation: slot.generation };
        self.begun.set(Some(key));
        key
    }

    /// Takes the key of the latest stream; `None` if it was taken before.
    pub fn take_begun(&self) -> Option<StreamKey> {
        self.begun.take()
    }

    /// Ends the request of `key`. The caller ends each key once.
    pub fn end(&self, key: StreamKey) {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[key.index as usize];
        debug_assert_eq!(slot.generation, key.generation, "a stream ends once");
        // Late events have the old generation, and therefore miss the next stream in this slot.
        slot.generation = slot.generation.wrapping_add(1);
        let state = slot.state.take();
        self.free.borrow_mut().push(key.index);
        drop(slots);
        // Dropped last: a waker may own a stream.
        drop(state);
    }

    /// Records whether a part of the response waits for the client.
    pub fn hold(&self, key: StreamKey, held: bool) {
        self.with(key, |state| {
            state.held = held;
            state.stalled = None;
            if !held {
                // The next wait begins with a new account: a client that reads each event at once has no
                // minimum rate.
                state.reading = Reading::default();
            }
        });
    }

    /// Records that `bytes` of the response were written.
    pub fn written(&self, key: StreamKey, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes as u64);
        self.with(key, |state| {
            state.stalled = None;
            state.reading.bytes += bytes as u64;
        });
    }

    /// Records that the response waits for the connection, not for its own window.
    pub fn excuse(&self, key: StreamKey) {
        self.excused.set(true);
        self.with(key, |state| {
            state.stalled = None;
            state.reading.waits = false;
        });
    }

    /// Whether responses have waited for the window of the connection since the last call, and the bytes written since
    /// then.
    pub fn take_progress(&self) -> (bool, u64) {
        (self.excused.take(), self.bytes.take())
    }

    /// Records the task of the stream, which is woken to end the stream.
    pub fn run_by(&self, key: StreamKey, task: &Rc<Waker>) {
        self.with(key, |state| {
            if state.task.as_ref().is_none_or(|known| !Rc::ptr_eq(known, task)) {
                state.task = Some(Rc::clone(task));
            }
        });
    }

    /// The reason for ending the stream before its completion; `None` if it may continue.
    pub fn ended(&self, key: StreamKey) -> Option<Ended> {
        self.with(key, |state| state.ended).flatten()
    }

    /// Finds streams that exceed a timeout of `limits` and wakes their tasks, for which [`Self::ended`] then has the reason.
    pub fn end_overdue(&self, round: Round, limits: StreamLimits) {
        let mut overdue = Vec::new();
        let last = self.last_round.replace(Some(round.now)).unwrap_or(round.now);
        let elapsed = round.now.duration_since(last).saturating_sub(round.paused);
        for state in self.slots.borrow_mut().iter_mut().filter_map(|slot| slot.state.as_mut()) {
            // The reason stays until the task has read it; a later check must not replace it.
            if state.ended.is_some() {
                continue;
            }
            state.leave_out_pause(round);
            state.ended = state.check(round, elapsed, limits);
            if state.ended.is_some() {
                overdue.extend(state.task.take());
            }
        }
        // After the borrow of `slots` has ended: a waker may own a stream, whose drop borrows them again.
        for task in &overdue {
            task.wake_by_ref();
        }
    }

    fn with<T>(&self, key: StreamKey, apply: impl FnOnce(&mut State) -> T) -> Option<T> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation)?;
        slot.state.as_mut().map(apply)
    }
}

impl State {
    /// Moves the times of the stream later by the pause before `round`; at most to now, as the stream may have begun after it.
    fn leave_out_pause(&mut self, round: Round) {
        let later = |time: Instant| (time + round.paused).min(round.now);
        self.started = later(self.started);
        if let Some(stall) = &mut self.stalled {
            stall.since = later(stall.since);
        }
    }

    fn check(&mut self, round: Round, elapsed: Duration, limits: StreamLimits) -> Option<Ended> {
        let Round { now, released, blocked, .. } = round;
        // Before `held`: this timeout also counts while the upstream is slow.
        if limits.request.is_some_and(|limit| now.duration_since(self.started) >= limit) {
            return Some(Ended::RequestTimeout);
        }
        if !self.held {
            self.stalled = None;
            return None;
        }
        let rate = ReadRate { bytes: limits.read_rate, pause: limits.write };
        if self.reading.is_too_slow(round, elapsed, rate) {
            return Some(Ended::WriteTimeout);
        }
        let stall = self.stalled.get_or_insert(Stall { since: now, released, blocked });
        stall.blocked |= blocked;
        // On a blocked connection every stream stalls, so the stream alone is to blame only if others made progress.
        let is_to_blame = !stall.blocked || released - stall.released >= FAIR_TURN;
        (is_to_blame && now.duration_since(stall.since) >= limits.write).then_some(Ended::WriteTimeout)
    }
}

impl Reading {
    /// Accounts the time since the last round to a response that waits for the client now.
    fn is_too_slow(&mut self, round: Round, elapsed: Duration, rate: ReadRate) -> bool {
        let bytes = mem::take(&mut self.bytes);
        // The first round of a wait counts no time: the data may have waited for a moment only.
        let mut waited = if mem::replace(&mut self.waits, true) { elapsed } else { Duration::ZERO };
        // On a blocked connection every stream waits, so the stream alone is to blame only if others made progress.
        if round.blocked || !self.unclear.is_zero() {
            if self.unclear.is_zero() {
                self.released = round.released;
            }
            self.unclear += mem::take(&mut waited);
            if round.released - self.released >= FAIR_TURN {
                waited = mem::take(&mut self.unclear);
            }
        }
        self.pace.is_too_slow(waited, bytes, rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: StreamLimits =
        StreamLimits { write: Duration::from_secs(30), read_rate: 240, request: None };

    fn streams() -> (Streams, Instant) {
        (Streams::default(), Instant::now())
    }

    /// A round this number of `seconds` after `start`.
    fn round(start: Instant, seconds: u64) -> Round {
        let now = start + Duration::from_secs(seconds);
        Round { now, paused: Duration::ZERO, released: 0, blocked: false }
    }

    #[test]
    fn only_what_stands_still_is_ended() {
        let (streams, start) = streams();
        let [stalled, moving, waiting] = [0; 3].map(|_| streams.begin(start));
        streams.hold(stalled, true);
        streams.hold(moving, true);
        for second in (0..=35).step_by(5) {
            streams.written(moving, 10_000);
            streams.end_overdue(round(start, second), LIMITS);
        }
        assert_eq!(streams.ended(stalled), Some(Ended::WriteTimeout));
        assert_eq!((streams.ended(moving), streams.ended(waiting)), (None, None));
    }

    #[test]
    fn on_a_blocked_connection_a_stream_is_to_blame_only_while_others_move() {
        let (streams, start) = streams();
        let stream = streams.begin(start);
        streams.hold(stream, true);
        for second in 0..100 {
            streams.end_overdue(Round { blocked: second == 3, ..round(start, second) }, LIMITS);
        }
        assert_eq!(streams.ended(stream), None);
        streams.end_overdue(Round { released: FAIR_TURN, ..round(start, 100) }, LIMITS);
        assert_eq!(streams.ended(stream), Some(Ended::WriteTimeout));
    }

    #[test]
    fn a_response_that_is_read_byte_by_byte_is_ended_and_one_that_is_read_slowly_is_not() {
        let (streams, start) = streams();
        let [trickling, slow, excused] = [0; 3].map(|_| streams.begin(start));
        for stream in [trickling, slow, excused] {
            streams.hold(stream, true);
        }
        for second in (0..200).step_by(2) {
            streams.written(trickling, 4);
            streams.written(slow, 500);
            streams.written(excused, 4);
            streams.excuse(excused);
            streams.end_overdue(round(start, second), LIMITS);
            let is_ended = streams.ended(trickling).is_some();
            assert_eq!(is_ended, second >= 32, "after {second} s");
            assert_eq!(streams.take_progress(), (true, 508));
        }
        assert_eq!((streams.ended(slow), streams.ended(excused)), (None, None));
    }

    #[test]
    fn events_that_are_read_as_they_come_have_no_minimum_rate() {
        let (streams, start) = streams();
        let stream = streams.begin(start);
        for second in (0..1000).step_by(2) {
            streams.hold(stream, true);
            // A round may come before the client has read the event.
            if second % 6 == 0 {
                streams.end_overdue(round(start, second), LIMITS);
            }
            streams.written(stream, 10);
            streams.hold(stream, false);
            streams.end_overdue(round(start, second + 1), LIMITS);
        }
        assert_eq!(streams.ended(stream), None);
    }

    #[test]
    fn on_a_blocked_connection_a_trickling_stream_is_to_blame_only_while_others_move() {
        let (streams, start) = streams();
        let stream = streams.begin(start);
        streams.hold(stream, true);
        for second in (0..100).step_by(2) {
            streams.written(stream, 4);
            streams.end_overdue(Round { blocked: true, ..round(start, second) }, LIMITS);
        }
        assert_eq!(streams.ended(stream), None);
        streams.written(stream, 4);
        streams.end_overdue(Round { released: FAIR_TURN, blocked: true, ..round(start, 100) }, LIMITS);
        assert_eq!(streams.ended(stream), Some(Ended::WriteTimeout));
    }

    #[test]
    fn a_request_may_take_no_longer_than_its_limit() {
        let (streams, start) = streams();
        let stream = streams.begin(start);
        let limits = StreamLimits { request: Some(Duration::from_mins(1)), ..LIMITS };
        streams.end_overdue(round(start, 59), limits);
        assert_eq!(streams.ended(stream), None);
        streams.end_overdue(round(start, 60), limits);
        assert_eq!(streams.ended(stream), Some(Ended::RequestTimeout));
    }

    #[test]
    fn a_pause_of_the_machine_counts_for_no_timeout() {
        let (streams, start) = streams();
        let [stalled, waiting] = [0; 2].map(|_| streams.begin(start));
        let limits = StreamLimits { request: Some(Duration::from_mins(1)), ..LIMITS };
        streams.hold(stalled, true);
        for second in (0..20).step_by(2) {
            streams.end_overdue(round(start, second), limits);
        }
        let late = streams.begin(start + Duration::from_secs(117));
        streams.end_overdue(Round { paused: Duration::from_secs(98), ..round(start, 118) }, limits);
        let mut ends = [None; 3];
        for second in (120..180).step_by(2) {
            streams.end_overdue(round(start, second), limits);
            for (end, stream) in ends.iter_mut().zip([stalled, waiting, late]) {
                *end = end.or(streams.ended(stream).map(|reason| (reason, second)));
            }
        }
        let [stalled, waiting, late] = ends;
        assert_eq!(stalled, Some((Ended::WriteTimeout, 128)));
        assert_eq!(waiting, Some((Ended::RequestTimeout, 158)));
        assert_eq!(late, Some((Ended::RequestTimeout, 178)));
    }

    #[test]
    fn a_place_is_used_again_under_another_key() {
        let (streams, start) = streams();
        let first = streams.begin(start);
        streams.end(first);
        let second = streams.begin(start);
        assert_ne!(first, second);
        streams.hold(first, true);
        streams.end_overdue(round(start, 0), LIMITS);
        streams.end_overdue(round(start, 60), LIMITS);
        assert_eq!(streams.ended(second), None);
        assert_eq!(streams.slots.borrow().len(), 1);
    }
}
