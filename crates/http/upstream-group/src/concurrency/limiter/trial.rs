//! A limit on trial: [`Trial`].

use super::super::window::Window;
use super::limited::{FAST_GROWTH, GROWTH, Limited, PAUSE};
use super::open::{LONGEST_LATENCY, Open, Reference};
use super::{FIRST_PAUSE, Facts, Limit, Phase};

/// Responses after which a [`Trial`] ends, if it has lasted long enough; and the time in seconds after which it ends with fewer.
const ENOUGH: u64 = 100;
const LONG: f64 = 3.0;

/// Responses to be expected after which a [first](Trial::first) trial can fail early: requests wait meanwhile.
const EARLY: f64 = 30.0;

/// While a [first](Trial::first) trial settles: time in seconds and responses to be expected after which its throughput is looked
/// at, and the part of the throughput below which it ends. Requests that are only slow hold its permits then.
const GLANCE: f64 = 0.4;
const EXPECTED: f64 = 10.0;
const STALLED: f64 = 0.3;

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

/// Figures of a server without a limit that showed a sign of an overload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    /// Throughput, [`Window::rate`].
    pub(super) rate: f64,
    /// Latency in seconds.
    pub(super) latency: f64,
    /// [`Window::in_flight`].
    pub(super) in_flight: f64,
}

/// State before the [`Trial`].
#[derive(Debug)]
enum Before {
    /// Without a limit: whether lower concurrency lowers the throughput.
    Open { reference: Option<Reference>, in_flight: f64 },
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
    /// Rest of that time, below 0 while requests from before a [first](Self::first) trial still wait for their responses.
    settling: f64,
    is_settled: bool,
    before: Before,
}

impl Trial {
    /// Whether a server without a limit is overloaded.
    pub(super) fn first(requests: usize, sight: Sight, reference: Option<Reference>) -> Self {
        let Sight { rate, latency, in_flight } = sight;
        Self::new(requests, rate, latency, Before::Open { reference, in_flight })
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
        // Slow requests of some clients must not prolong a trial for all of them.
        let latency = latency.min(LONGEST_LATENCY);
        let is_settled = matches!(before, Before::Collapsed { .. });
        Self { requests, rate, latency, settling: latency.max(0.1), is_settled, before }
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
        if !self.is_settled {
            return self.settle(window, facts, passed);
        }
        if !self.is_complete(window) {
            return Phase::Trial(self);
        }
        let seen = window.take();
        // The shares are far from 1 and from the part that was admitted, because both throughputs are samples.
        match self.before {
            Before::Open { .. } => {
                if seen.rate() >= 0.7 * self.rate && self.is_drained(&seen) {
                    return Self::confirmed(self.requests, &seen, facts);
                }
                self.refuted(&seen, facts)
            }
            Before::Collapsed { reference, ref mut spent } => {
                *spent += seen.seconds();
                if seen.rate() >= 0.5 * reference.rate {
                    return Self::confirmed(self.requests, &seen, facts);
                }
                if *spent < RESCUE {
                    return Phase::Trial(self);
                }
                self.refuted(&seen, facts)
            }
            Before::Limited { kind: Kind::Decrease, limited, .. } => {
                Phase::Limited(decreased(limited, self.requests, seen.rate(), facts))
            }
            Before::Limited { kind: Kind::Increase, limited, .. } => {
                increased(limited, self.requests, seen.rate(), facts)
            }
        }
    }

    /// Waits until the server has only requests of the trial.
    fn settle(mut self, window: &mut Window, facts: &mut Facts, passed: f64) -> Phase {
        self.settling -= passed;
        let is_first = matches!(self.before, Before::Open { .. });
        if self.settling <= 1e-9 && (!is_first || self.is_drained(window)) {
            self.is_settled = true;
            window.take();
        } else if is_first && window.seconds() >= GLANCE && window.seconds() * self.rate >= EXPECTED {
            let seen = window.take();
            if seen.rate() < STALLED * self.rate || self.settling <= -LONGEST_LATENCY {
                return self.refuted(&seen, facts);
            }
        }
        Phase::Trial(self)
    }

    /// Whether the requests from before a [first](Self::first) trial have had their responses. Those in the queue of an overloaded
    /// server have; requests that take long themselves have not.
    fn is_drained(&self, window: &Window) -> bool {
        2 * window.without_permit() <= self.requests as u64
    }

    fn is_complete(&self, window: &Window) -> bool {
        let (seconds, answered) = (window.seconds(), window.answered());
        let shortest = match self.before {
            Before::Collapsed { .. } => return seconds >= 1.0,
            Before::Open { .. } => {
                // In proportion to the expected responses, not to the seen ones: a trial without any fails first.
                let fails = seconds >= 0.3 && self.rate * seconds >= EARLY && window.rate() < 0.5 * self.rate;
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

    /// The [`Phase`] after a [`Trial`] with as many `requests` that showed the overload of a server without a limit.
    fn confirmed(requests: usize, seen: &Window, facts: &mut Facts) -> Phase {
        if seen.answered() > 0 {
            facts.base = facts.base.min(seen.latency());
        }
        Phase::Limited(Limited::new(requests, seen.rate(), facts))
    }

    /// The [`Phase`] after a [`Trial`] that showed no overload of a server without a limit.
    fn refuted(self, seen: &Window, facts: &mut Facts) -> Phase {
        facts.refuted();
        // A throughput that has collapsed is no reference for a later one.
        let has_fallen = |reference: &Reference| seen.rate() < 0.7 * reference.rate;
        let known = match self.before {
            // The server bears these requests: the next trial follows only after more of them.
            Before::Open { reference: Some(reference), in_flight } if self.rate >= 0.95 * reference.rate => {
                Some(reference.raised_to(in_flight))
            }
            Before::Open { reference, .. } => reference.filter(has_fallen),
            Before::Collapsed { reference, .. } => Some(reference).filter(has_fallen),
            Before::Limited { .. } => None,
        };
        Phase::Open(Open::with(known))
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
