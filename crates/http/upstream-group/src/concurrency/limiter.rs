//! [`Limiter`]: the number of concurrent requests that a server can bear, found from throughput and latency.
//!
//! A server that is overloaded answers no more requests when it gets more: the requests wait, in the server. A server that is only
//! slow answers more. Latency alone does not distinguish both, so a limit is in force only after a trial: with fewer requests, an
//! overloaded server has the same throughput. Further trials adapt the limit.

mod limited;
mod open;
mod trial;

use std::time::Duration;

use super::window::{Observed, Window};
use limited::Limited;
use open::Open;
use trial::Trial;

/// Least number of concurrent requests to a server.
pub(super) const FLOOR: usize = 4;

/// Responses after which a [`Window`] is complete, and those that it needs for a conclusion.
const MANY: u64 = 40;
const FEW: u64 = 8;

/// Shortest time of a [`Window`] in seconds.
const SHORTEST: f64 = 0.2;

/// Concurrent requests in proportion to those that the server processes at the same time: above 1, so that the server never waits
/// for the next request.
const HEADROOM: f64 = 1.2;

/// First pause after a [`Trial`] that showed no overload, and the longest one, in seconds. Each pause is four times the last one.
const FIRST_PAUSE: f64 = 0.5;
const LONGEST_PAUSE: f64 = 600.0;

/// A limit of concurrent requests to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    /// Maximum number of requests that wait for a response of the server.
    pub(crate) requests: usize,
    /// Maximum number of requests that wait for a permit; `None` for any number, in a first trial.
    pub(crate) queue: Option<usize>,
    /// Longest wait for a permit; `None` is that of `pool.queue`, in a trial.
    pub(crate) wait: Option<Duration>,
}

/// A change of the state of a [`Limiter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A limit is in force from now on.
    Limited,
    /// No limit is in force any more.
    Opened,
}

/// The limit of one server. The clock is the sum of the times that [`Self::tick`] gets.
#[derive(Debug)]
pub(crate) struct Limiter {
    facts: Facts,
    window: Window,
    phase: Phase,
}

/// Facts that outlive a [`Phase`]. Times are in seconds.
#[derive(Debug)]
struct Facts {
    now: f64,
    /// Latency of a server without a queue.
    base: f64,
    next_trial: f64,
    pause: f64,
}

#[derive(Debug)]
enum Phase {
    /// No limit.
    Open(Open),
    /// A limit on trial.
    Trial(Trial),
    /// A limit in force.
    Limited(Limited),
}

impl Limiter {
    pub(crate) fn new() -> Self {
        let facts = Facts { now: 0.0, base: f64::INFINITY, next_trial: 0.0, pause: FIRST_PAUSE };
        Self { facts, window: Window::default(), phase: Phase::Open(Open::default()) }
    }

    /// Takes the figures of the time since the last call.
    pub(crate) fn tick(&mut self, passed: Duration, observed: &Observed) -> Option<Change> {
        let seconds = passed.as_secs_f64();
        self.facts.now += seconds;
        self.window.add(seconds, observed);
        let was_in_force = self.is_in_force();
        let phase = std::mem::replace(&mut self.phase, Phase::Open(Open::default()));
        self.phase = match phase {
            Phase::Open(open) => open.step(&mut self.window, &mut self.facts),
            Phase::Trial(trial) => trial.step(&mut self.window, &mut self.facts, seconds),
            Phase::Limited(limited) => limited.step(&mut self.window, &mut self.facts),
        };
        match (was_in_force, self.is_in_force()) {
            (false, true) => Some(Change::Limited),
            (true, false) => Some(Change::Opened),
            _ => None,
        }
    }

    /// The limit, also one on trial; `None` without a limit.
    pub(crate) fn limit(&self) -> Option<Limit> {
        match &self.phase {
            Phase::Open(_) => None,
            Phase::Trial(trial) => Some(trial.limit()),
            Phase::Limited(limited) => Some(limited.limit(&self.facts)),
        }
    }

    /// Whether an overload was found: [`Self::limit`] is more than a first [`Trial`].
    pub(crate) fn is_in_force(&self) -> bool {
        match &self.phase {
            Phase::Open(_) => false,
            Phase::Trial(trial) => trial.is_in_force(),
            Phase::Limited(_) => true,
        }
    }
}

impl Facts {
    /// Number of concurrent requests of a server with this throughput, by Little's law; at least 1.
    fn concurrency(&self, rate: f64) -> usize {
        let requests = HEADROOM * rate * self.base;
        // Rounded, so that 4.0000001 is no 5.
        (requests - 1e-6).ceil().max(1.0) as usize
    }

    /// The limit for a server with the throughput `rate`: [`Self::concurrency`], at least [`FLOOR`].
    fn target(&self, rate: f64) -> usize {
        self.concurrency(rate).max(FLOOR)
    }

    /// The latency for which [`Self::target`] is `limit`.
    fn base_of(limit: usize, rate: f64) -> f64 {
        limit as f64 / (HEADROOM * rate.max(1e-9))
    }

    /// Notes a trial that showed no overload: the next one follows after a pause.
    fn refuted(&mut self) {
        self.next_trial = self.now + self.pause;
        self.pause = (4.0 * self.pause).min(LONGEST_PAUSE);
    }
}

/// `share` of a number of requests, at least [`FLOOR`].
fn share_of(requests: f64, share: f64) -> usize {
    ((requests * share).floor() as usize).max(FLOOR)
}

#[cfg(test)]
mod tests;
