//! The requests in flight on one HTTP/2 connection, as its driver sees them: which of them stand still, and an end for
//! those that have done so for too long. The others go on.
//!
//! A stream costs a few stores per piece of its answer. Time is looked at in rounds, by the driver.

use std::cell::{Cell, RefCell};
use std::task::Waker;
use std::time::{Duration, Instant};

/// Points that a reset stream costs, out of its client's budget for work without use.
pub const RESET: u32 = 10;
/// Points that a complete answer earns.
pub const ANSWER: u32 = RESET / 2;

/// One stream of a connection. Keys are not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamKey {
    index: u32,
    generation: u32,
}

/// Why a stream was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The client took nothing of the answer for too long.
    WriteTimeout,
    /// Request and answer together took too long.
    RequestTimeout,
}

impl Ended {
    /// A short name for logs.
    pub fn reason(self) -> &'static str {
        match self {
            Self::WriteTimeout => "write-timeout",
            Self::RequestTimeout => "request-timeout",
        }
    }
}

/// The streams of a connection.
#[derive(Debug, Default)]
pub struct Streams {
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<u32>>,
    /// The stream that was begun last, for the task that it runs in.
    begun: Cell<Option<StreamKey>>,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    state: Option<State>,
}

/// The state of a stream in flight.
#[derive(Debug)]
struct State {
    started: Instant,
    /// A piece of the answer, or its head, waits for the client.
    held: bool,
    /// Since a round found it held for the first time after the client took something.
    stalled: Option<Stall>,
    ended: Option<Ended>,
    task: Option<Waker>,
}

/// The state of the connection when a stream was first found to stand still.
#[derive(Clone, Copy, Debug)]
struct Stall {
    since: Instant,
    /// Bytes of all answers that were written or dropped by then.
    released: u64,
    /// The client did not take everything since then.
    blocked: bool,
}

/// The state of the connection in one round of checks.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Time of the round.
    pub now: Instant,
    /// Bytes of all answers of the connection that were written or dropped so far.
    pub released: u64,
    /// The client did not take everything since the last round.
    pub blocked: bool,
}

/// While the connection is blocked, a stream without progress is to blame only when the others got this many bytes: more
/// than a turn of all streams.
const FAIR_TURN: u64 = 8 << 20;

/// How long a stream may take.
#[derive(Clone, Copy, Debug)]
pub struct StreamLimits {
    /// With an answer that the client does not take.
    pub write: Duration,
    /// From the head of the request to the end of the answer.
    pub request: Option<Duration>,
}

impl Streams {
    /// A request begins.
    pub fn begin(&self, started: Instant) -> StreamKey {
        let state = State { started, held: false, stalled: None, ended: None, task: None };
        let mut slots = self.slots.borrow_mut();
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

    /// The stream that was begun last, once.
    pub fn take_begun(&self) -> Option<StreamKey> {
        self.begun.take()
    }

    /// A request has ended.
    pub fn end(&self, key: StreamKey) {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[key.index as usize];
        debug_assert_eq!(slot.generation, key.generation, "a stream ends once");
        slot.generation = slot.generation.wrapping_add(1);
        let state = slot.state.take();
        self.free.borrow_mut().push(key.index);
        drop(slots);
        // Dropped last: a waker may own a stream.
        drop(state);
    }

    /// Something of the answer waits for the client from now on, or no longer.
    pub fn hold(&self, key: StreamKey, held: bool) {
        self.with(key, |state| {
            state.held = held;
            state.stalled = None;
        });
    }

    /// Something of the answer was written.
    pub fn written(&self, key: StreamKey) {
        self.with(key, |state| state.stalled = None);
    }

    /// The task that the stream runs in, which is woken when it is to end.
    pub fn run_by(&self, key: StreamKey, task: &Waker) {
        self.with(key, |state| match &state.task {
            Some(known) if known.will_wake(task) => {}
            _ => state.task = Some(task.clone()),
        });
    }

    /// Whether, and why, the stream is to end although it is not finished.
    pub fn ended(&self, key: StreamKey) -> Option<Ended> {
        self.with(key, |state| state.ended).flatten()
    }

    /// Looks for streams that have taken too long, and wakes their tasks.
    pub fn end_overdue(&self, round: Round, limits: StreamLimits) {
        let mut overdue = Vec::new();
        for state in self.slots.borrow_mut().iter_mut().filter_map(|slot| slot.state.as_mut()) {
            if state.ended.is_some() {
                continue;
            }
            state.ended = state.check(round, limits);
            if state.ended.is_some() {
                overdue.extend(state.task.take());
            }
        }
        overdue.into_iter().for_each(Waker::wake);
    }

    fn with<T>(&self, key: StreamKey, apply: impl FnOnce(&mut State) -> T) -> Option<T> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.get_mut(key.index as usize).filter(|slot| slot.generation == key.generation)?;
        slot.state.as_mut().map(apply)
    }
}

impl State {
    fn check(&mut self, round: Round, limits: StreamLimits) -> Option<Ended> {
        let Round { now, released, blocked } = round;
        if limits.request.is_some_and(|limit| now.duration_since(self.started) >= limit) {
            return Some(Ended::RequestTimeout);
        }
        if !self.held {
            self.stalled = None;
            return None;
        }
        let stall = self.stalled.get_or_insert(Stall { since: now, released, blocked });
        stall.blocked |= blocked;
        let is_to_blame = !stall.blocked || released - stall.released >= FAIR_TURN;
        (is_to_blame && now.duration_since(stall.since) >= limits.write).then_some(Ended::WriteTimeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: StreamLimits = StreamLimits { write: Duration::from_secs(30), request: None };

    fn streams() -> (Streams, Instant) {
        (Streams::default(), Instant::now())
    }

    /// A round this number of `seconds` after `start`.
    fn round(start: Instant, seconds: u64) -> Round {
        Round { now: start + Duration::from_secs(seconds), released: 0, blocked: false }
    }

    #[test]
    fn only_what_stands_still_is_ended() {
        let (streams, start) = streams();
        let [stalled, moving, waiting] = [0; 3].map(|_| streams.begin(start));
        streams.hold(stalled, true);
        streams.hold(moving, true);
        for second in (0..=35).step_by(5) {
            streams.written(moving);
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
