//! A server without a limit: [`Open`] looks for signs of an overload.

use super::super::window::Window;
use super::trial::{Sight, Trial};
use super::{FEW, FLOOR, Facts, MANY, Phase, SHORTEST, share_of};

/// Part of the concurrent requests that [`Trial::first`] admits: so few that the throughput of a server that is only slow falls
/// clearly.
const PART: f64 = 0.4;

/// Latency in seconds below which no server is overloaded: no client notices it, and programs that send one request after the other
/// get all of their responses.
const SHORTEST_LATENCY: f64 = 0.05;

/// Latency in proportion to the delay of the event loops below which this process is the cause of the latency.
const OF_SERVER: f64 = 4.0;

/// Latency in seconds from which no trial is made, because it would take longer than clients wait.
pub(super) const LONGEST_LATENCY: f64 = 5.0;

/// Consecutive windows with [`Window::is_lossy`] before [`Trial::rescue`].
const LOSSES: u32 = 2;

/// [`Window`] with the highest [`rate`](Window::rate), at the least concurrency.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reference {
    pub(super) rate: f64,
    in_flight: f64,
}

/// A server without a limit.
#[derive(Debug, Default)]
pub(super) struct Open {
    reference: Option<Reference>,
    /// [`Window::rate`] of the last window, if it had a sign of an overload.
    sign: Option<f64>,
    /// Consecutive windows in which most requests were lost.
    losses: u32,
}

impl Open {
    /// A server with this [`Reference`].
    pub(super) fn with(reference: Option<Reference>) -> Self {
        Self { reference, ..Self::default() }
    }

    pub(super) fn step(mut self, window: &mut Window, facts: &mut Facts) -> Phase {
        if !is_complete(window) {
            return Phase::Open(self);
        }
        let seen = window.take();
        if seen.is_lossy(FEW) {
            return self.after_losses(&seen, facts);
        }
        self.losses = 0;
        if seen.answered() < FEW {
            return Phase::Open(self);
        }
        let latency = seen.latency();
        // More requests wait for the server than before, and it answers no more of them.
        let is_slow = latency >= SHORTEST_LATENCY.max(OF_SERVER * seen.delay());
        let is_sign = is_slow
            && self.reference.is_some_and(|reference| {
                seen.rate() <= 1.05 * reference.rate && reference.is_exceeded(seen.in_flight())
            });
        if latency < facts.base {
            facts.base = latency;
        } else if !is_sign {
            // Slowly, because requests of another kind may take longer for a while only.
            facts.base += 0.02 * (latency - facts.base);
        }
        if !is_sign {
            self.learn(&seen);
            return Phase::Open(self);
        }
        // Two windows in a row, because a burst fills one.
        let before = self.sign.replace(seen.rate());
        let Some(before) = before.filter(|_| facts.now >= facts.next_trial) else {
            return Phase::Open(self);
        };
        if latency > LONGEST_LATENCY {
            return Phase::Open(Self::with(Some(Reference::of(&seen))));
        }
        // The higher one of both: a latency that rises lowers the throughput for a moment.
        let rate = before.max(seen.rate());
        let before = Sight { rate, latency, in_flight: seen.in_flight() };
        Phase::Trial(Trial::first(share_of(seen.in_flight(), PART), before, self.reference))
    }

    fn learn(&mut self, seen: &Window) {
        self.sign = None;
        let mut new = Reference::of(seen);
        if let Some(before) = self.reference {
            if new.rate <= 1.05 * before.rate && new.in_flight > before.in_flight {
                return;
            }
            // An overload may begin in the window in which the throughput rises: only these requests belong to the throughput.
            let growth = (new.rate / before.rate.max(1e-9)).max(1.0);
            new.in_flight = new.in_flight.min(2.0 * growth * before.in_flight);
        }
        self.reference = Some(new);
    }

    /// A server whose clients leave before their responses: it may have more requests than it can answer in time, and process
    /// those of clients that have gone.
    fn after_losses(mut self, seen: &Window, facts: &Facts) -> Phase {
        let collapsed = self.reference.filter(|reference| {
            reference.is_exceeded(seen.in_flight()) && seen.rate() < 0.5 * reference.rate
        });
        let Some(reference) = collapsed else {
            self.losses = 0;
            return Phase::Open(self);
        };
        self.losses += 1;
        if self.losses < LOSSES || facts.now < facts.next_trial {
            return Phase::Open(self);
        }
        Phase::Trial(Trial::rescue(facts.target(reference.rate), reference))
    }
}

impl Reference {
    fn of(seen: &Window) -> Self {
        // By Little's law, since samples of a fast server may all be 0.
        let in_flight = seen.in_flight().max(seen.rate() * seen.latency());
        Self { rate: seen.rate(), in_flight }
    }

    /// This reference after a trial showed that the server bears `in_flight` requests.
    pub(super) fn raised_to(self, in_flight: f64) -> Self {
        Self { in_flight: self.in_flight.max(in_flight), ..self }
    }

    /// Whether twice as many requests wait for the server.
    fn is_exceeded(&self, in_flight: f64) -> bool {
        in_flight >= 2.0 * self.in_flight.max(FLOOR as f64)
    }
}

fn is_complete(window: &Window) -> bool {
    let (seconds, answered) = (window.seconds(), window.answered());
    seconds >= SHORTEST && (answered >= MANY || seconds >= 1.0) && (answered >= FEW || seconds >= 2.0)
}
