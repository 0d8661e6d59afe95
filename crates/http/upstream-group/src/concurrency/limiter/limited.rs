//! A server with a limit: [`Limited`] adapts it, and ends it after the overload.

use std::time::Duration;

use super::super::window::Window;
use super::open::Open;
use super::trial::{Kind, Trial};
use super::{FLOOR, Facts, Limit, MANY, Phase, SHORTEST};

/// Time in seconds without [`Window::is_saturated`] after which the limit ends.
const CALM: f64 = 10.0;

/// Part of the best throughput below which a limit ends if it lasts for [`CALM`].
const STARVED: f64 = 0.1;

/// Pause between two trials of the same [`Kind`] in seconds.
pub(super) const PAUSE: f64 = 10.0;

/// Weight of a new [`Window::rate`] in [`Limited::rate`].
const WEIGHT: f64 = 0.3;

/// Part of the best throughput below which the limit may be the cause of the lower one, latency in proportion to that of a server
/// without a queue above which it may be too, and the number of windows.
const LOW: f64 = 0.75;
const SLOW: f64 = 2.0 * super::HEADROOM;
const LOW_WINDOWS: u32 = 3;

/// Growth of the limit in a trial: usually, while the limit may be too low, and after a success.
pub(super) const GROWTH: f64 = 1.25;
const LOW_GROWTH: f64 = 1.5;
pub(super) const FAST_GROWTH: f64 = 2.0;

/// Shortest wait for a permit: shorter ones would refuse the requests of a burst.
const SHORTEST_WAIT: f64 = 0.1;

/// A server with a limit in force.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limited {
    pub(super) requests: usize,
    /// Smoothed throughput while the server has as many as [`Self::requests`].
    pub(super) rate: f64,
    /// The highest [`Self::rate`], which slowly falls to the present one.
    pub(super) best: f64,
    calm: f64,
    /// Time in seconds for which hardly any request had a response.
    starved: f64,
    /// Consecutive windows in which the limit may have been too low.
    pub(super) low: u32,
    pub(super) next_decrease: f64,
    pub(super) next_increase: f64,
    pub(super) growth: f64,
}

impl Limited {
    /// A limit after a trial in which the server had the throughput `rate` with `requests`.
    pub(super) fn new(requests: usize, rate: f64, facts: &Facts) -> Self {
        Self {
            requests: requests.min(facts.target(rate)),
            rate,
            best: rate,
            calm: 0.0,
            starved: 0.0,
            low: 0,
            next_decrease: facts.now,
            next_increase: facts.now + PAUSE,
            growth: GROWTH,
        }
    }

    /// Not longer than the requests in the server take, so that accepted requests are fast.
    pub(super) fn queue(&self, facts: &Facts) -> usize {
        facts.concurrency(self.rate).min(self.requests)
    }

    pub(super) fn limit(&self, facts: &Facts) -> Limit {
        let wait = (2.0 * self.requests as f64 / self.rate.max(1e-3)).clamp(SHORTEST_WAIT, 60.0);
        let wait = Some(Duration::from_secs_f64(wait));
        Limit { requests: self.requests, queue: Some(self.queue(facts)), wait }
    }

    pub(super) fn smooth(&mut self, rate: f64) {
        self.rate += WEIGHT * (rate - self.rate);
    }

    pub(super) fn step(mut self, window: &mut Window, facts: &mut Facts) -> Phase {
        if window.seconds() < SHORTEST || (window.answered() < MANY && window.seconds() < 1.0) {
            return Phase::Limited(self);
        }
        let seen = window.take();
        if !seen.is_saturated(self.requests as f64) {
            self.calm += seen.seconds();
            if self.calm < CALM {
                return Phase::Limited(self);
            }
            facts.pause = super::FIRST_PAUSE;
            return Phase::Open(Open::default());
        }
        self.calm = 0.0;
        // Requests that are only slow hold the permits, or the server has failed, for which a limit is no remedy.
        self.starved = if seen.rate() < STARVED * self.best { self.starved + seen.seconds() } else { 0.0 };
        if self.starved >= CALM {
            facts.refuted();
            return Phase::Open(Open::default());
        }
        // A server that stands still has no throughput to learn from.
        if seen.answered() == 0 {
            return Phase::Limited(self);
        }
        self.smooth(seen.rate());
        facts.base = facts.base.min(seen.latency());
        // A server that has lost a part of its capacity for good must not look limited by the limit.
        self.best = self.rate.max(self.best - 0.01 * (self.best - self.rate));
        // The server has become slower, or the limit is the cause, for example because requests of another kind arrive.
        let is_low = self.rate < LOW * self.best || seen.latency() > SLOW * facts.base;
        self.low = if is_low { self.low + 1 } else { 0 };
        if self.is_low() && self.growth < FAST_GROWTH {
            (self.growth, self.next_increase) = (LOW_GROWTH, facts.now);
        }
        self.adapt(seen.latency(), facts)
    }

    /// Whether the limit may be too low.
    pub(super) fn is_low(&self) -> bool {
        self.low >= LOW_WINDOWS
    }

    /// Takes the present throughput as that of a server that has become slower.
    pub(super) fn accept_low(&mut self, facts: &mut Facts) {
        self.best = self.rate;
        if self.is_low() {
            facts.base = facts.base.max(Facts::base_of(self.requests, self.rate));
        }
        self.low = 0;
    }

    /// The next limit, [`Facts::target`], or a [`Trial`] of one.
    fn adapt(mut self, latency: f64, facts: &Facts) -> Phase {
        let target = facts.target(self.rate);
        if facts.now >= self.next_increase {
            let more = ((self.growth * self.requests as f64).floor() as usize).max(self.requests + 1);
            return Phase::Trial(Trial::of_limit(Kind::Increase, more, latency, self, facts));
        }
        // At most by a quarter: one lucky window must not lift the limit.
        if target > self.requests {
            self.requests = target.min((GROWTH * self.requests as f64).ceil() as usize);
        } else if self.requests > FLOOR && facts.now >= self.next_decrease {
            let fewer = ((0.8 * self.requests as f64).floor() as usize).clamp(FLOOR, self.requests - 1);
            return Phase::Trial(Trial::of_limit(Kind::Decrease, fewer, latency, self, facts));
        }
        Phase::Limited(self)
    }
}
