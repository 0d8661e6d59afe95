//! A limit on trial: [`Trial`].

use super::super::window::Window;
use super::limited::{FAST_GROWTH, GROWTH, Limited, PAUSE};
use super::open::{Open, Reference};
use super::{FIRST_PAUSE, Facts, Limit, Phase};

/// Responses after which a [`Trial`] ends, if it has lasted long enough; and the time in seconds after which it ends with fewer.
const ENOUGH: u64 = 100;
const LONG: f64 = 3.0;

/// Responses after which a [first](Trial::first) trial can fail early: requests wait meanwhile.
const EARLY: u64 = 30;

/// Growth of a limit from which a throughput that grows in proportion is no coincidence.
const CLEAR_GROWTH: f64 = 1.4;

/// Longest time in seconds of a [`Trial::rescue`], in which a server answers the requests of clients that have gone.
const RESCUE: f64 = 60.0;

/// Purpose of a [`Trial`] of a server whose [`Limited::requests`] are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Decrease,
    Increase,
}

/// State before the [`Trial`].
#[derive(Debug)]
enum Before {
    /// Without a limit: whether lower concurrency lowers the throughput.
    Open { reference: Option<Reference> },
    /// Without a limit, and without throughput: whether a low concurrency restores it.
    Collapsed { reference: Reference, spent: f64 },
    /// With a limit in force.
    Limited { kind: Kind, limited: Limited, queue: usize },
}

/// A limit on trial. Requests wait meanwhile, and none is refused because of [`Self::first`].
#[derive(Debug)]
pub(super) struct Trial {
    requests: usize,
    /// Throughput before the trial, [`Window::rate`].
    rate: f64,
    /// Latency before the trial, in seconds: requests that were sent before the trial end within this time.
    latency: f64,
    /// Rest of that time.
    settling: f64,
    before: Before,
}

impl Trial {
    /// Whether a server without a limit is overloaded.
    pub(super) fn first(requests: usize, rate: f64, latency: f64, reference: Option<Reference>) -> Self {
        Self::new(requests, rate, latency, Before::Open { reference })
    }

    /// Whether a server that answers hardly any request recovers with few requests.
    pub(super) fn rescue(requests: usize, reference: Reference) -> Self {
        Self::new(requests, reference.rate, 0.0, Before::Collapsed { reference, spent: 0.0 })
    }

    /// Another limit for a server with one.
    pub(super) fn of_limit(
        kind: Kind,
        requests: usize,
        latency: f64,
        limited: Limited,
        facts: &Facts,
    ) -> Self {
        let queue = limited.queue(facts);
        Self::new(requests, limited.rate, latency, Before::Limited { kind, limited, queue })
    }

    fn new(requests: usize, rate: f64, latency: f64, before: Before) -> Self {
        let settling = if matches!(before, Before::Collapsed { .. }) { 0.0 } else { latency.max(0.1) };
        Self { requests, rate, latency, settling, before }
    }

    pub(super) fn is_in_force(&self) -> bool {
        matches!(self.before, Before::Limited { .. })
    }

    pub(super) fn limit(&self) -> Limit {
        let queue = match &self.before {
            Before::Open { .. } => None,
            Before::Collapsed { .. } => Some(self.requests),
            Before::Limited { queue, .. } => Some(*queue),
        };
        Limit { requests: self.requests, queue, wait: None }
    }

    pub(super) fn step(mut self, window: &mut Window, facts: &mut Facts, passed: f64) -> Phase {
        if self.settling > 1e-9 {
            self.settling -= passed;
            if self.settling <= 1e-9 {
                window.take();
            }
            return Phase::Trial(self);
        }
        if !self.is_complete(window) {
            return Phase::Trial(self);
        }
        let seen = window.take();
        // The shares are far from 1 and from the part that was admitted, because both throughputs are samples.
        match self.before {
            Before::Open { reference } => {
                let is_overloaded = seen.rate() >= 0.7 * self.rate;
                Self::after_first(is_overloaded, self.requests, &seen, facts, reference)
            }
            Before::Collapsed { reference, ref mut spent } => {
                *spent += seen.seconds();
                let is_restored = seen.rate() >= 0.5 * reference.rate;
                if !is_restored && *spent < RESCUE {
                    return Phase::Trial(self);
                }
                Self::after_first(is_restored, self.requests, &seen, facts, Some(reference))
            }
            Before::Limited { kind: Kind::Decrease, limited, .. } => {
                Phase::Limited(decreased(limited, self.requests, seen.rate(), facts))
            }
            Before::Limited { kind: Kind::Increase, limited, .. } => {
                increased(limited, self.requests, seen.rate(), facts)
            }
        }
    }

    fn is_complete(&self, window: &Window) -> bool {
        let (seconds, answered) = (window.seconds(), window.answered());
        let shortest = match self.before {
            Before::Collapsed { .. } => return seconds >= 1.0,
            Before::Open { .. } => {
                let fails = seconds >= 0.3 && answered >= EARLY && window.rate() < 0.5 * self.rate;
                if fails {
                    return true;
                }
                self.latency.max(0.4)
            }
            Before::Limited { .. } => self.latency.max(0.3),
        };
        // By Little's law: otherwise slow requests accumulate, whose responses are still to come.
        let is_steady = self.is_in_force() || window.rate() * window.latency() >= 0.7 * window.in_flight();
        seconds >= shortest && ((answered >= ENOUGH && is_steady) || seconds >= LONG.max(shortest))
    }

    /// The [`Phase`] after a [`Trial`] of a server without a limit.
    fn after_first(
        is_overloaded: bool,
        requests: usize,
        seen: &Window,
        facts: &mut Facts,
        reference: Option<Reference>,
    ) -> Phase {
        if !is_overloaded {
            facts.refuted();
            // A throughput that has collapsed is no reference for a later one.
            let known = reference.filter(|reference| seen.rate() < 0.7 * reference.rate);
            return Phase::Open(Open::with(known));
        }
        if seen.answered() > 0 {
            facts.base = facts.base.min(seen.latency());
        }
        Phase::Limited(Limited::new(requests, seen.rate(), facts))
    }
}

/// The limit after a trial of the lower `requests`, which had the throughput `rate`: [`Kind::Decrease`].
fn decreased(mut limited: Limited, requests: usize, rate: f64, facts: &mut Facts) -> Limited {
    if rate >= 0.95 * limited.rate {
        limited.smooth(rate);
        limited.requests = requests;
        // Otherwise the limit would grow again at once.
        facts.base = facts.base.min(Facts::base_of(requests, limited.rate));
        limited.next_decrease = facts.now;
    } else {
        facts.base = facts.base.max(Facts::base_of(limited.requests, limited.rate));
        limited.next_decrease = facts.now + PAUSE;
    }
    limited
}

/// The state after a trial of the higher `requests`, which had the throughput `rate`: [`Kind::Increase`].
fn increased(mut limited: Limited, requests: usize, rate: f64, facts: &mut Facts) -> Phase {
    let growth = requests as f64 / limited.requests as f64;
    if growth >= CLEAR_GROWTH && rate >= 0.9 * growth * limited.rate {
        // In proportion: the limit is the only cause of the throughput.
        facts.pause = facts.pause.max(4.0 * FIRST_PAUSE);
        facts.refuted();
        return Phase::Open(Open::default());
    }
    if rate >= 1.15 * limited.rate {
        (limited.requests, limited.rate, limited.best) = (requests, rate, rate);
        limited.low = 0;
        facts.base = facts.base.max(Facts::base_of(requests, rate));
        limited.growth = FAST_GROWTH;
        limited.next_increase = facts.now;
        limited.next_decrease = facts.now + PAUSE;
    } else {
        limited.growth = GROWTH;
        limited.next_increase = facts.now + PAUSE;
        limited.accept_low(facts);
    }
    Phase::Limited(limited)
}
