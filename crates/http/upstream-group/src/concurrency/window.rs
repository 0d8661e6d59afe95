//! Figures of a server over a time: [`Window`], and those of one call: [`Observed`].

use std::time::Duration;

/// Requests to a server since the last call, from all workers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Observed {
    /// Requests whose response has begun.
    pub(crate) answered: u64,
    /// Sum of their times to the head of the response.
    pub(crate) latency: Duration,
    /// Requests that ended before, for example because the client has gone.
    pub(crate) lost: u64,
    /// Requests that wait for the head of a response now.
    pub(crate) in_flight: u64,
    /// Those of them that began without a limit.
    pub(crate) without_permit: u64,
    /// Delay of the event loops, which is a part of the latency.
    pub(crate) delay: Duration,
    /// Whether requests wait for a permit now.
    pub(crate) has_queue: bool,
}

/// Sums of the [`Observed`] of several calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    seconds: f64,
    observed: Observed,
    calls: u64,
    calls_with_queue: u64,
}

impl Window {
    pub(super) fn add(&mut self, seconds: f64, observed: &Observed) {
        self.seconds += seconds;
        self.calls += 1;
        self.calls_with_queue += u64::from(observed.has_queue);
        let sum = &mut self.observed;
        sum.answered += observed.answered;
        sum.latency += observed.latency;
        sum.lost += observed.lost;
        sum.delay += observed.delay;
        sum.in_flight += observed.in_flight;
        sum.without_permit = observed.without_permit;
    }

    /// Returns the window and begins a new one.
    pub(super) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    pub(super) fn seconds(&self) -> f64 {
        self.seconds
    }

    pub(super) fn answered(&self) -> u64 {
        self.observed.answered
    }

    /// Whether more requests were lost than had a response, and enough for a conclusion.
    pub(super) fn is_lossy(&self, few: u64) -> bool {
        self.observed.lost >= few.max(self.observed.answered)
    }

    /// Throughput: responses per second.
    pub(super) fn rate(&self) -> f64 {
        self.observed.answered as f64 / self.seconds.max(1e-9)
    }

    /// Mean latency to the head of a response in seconds; 0 without a response.
    pub(super) fn latency(&self) -> f64 {
        self.observed.latency.as_secs_f64() / self.observed.answered.max(1) as f64
    }

    /// Mean delay of the event loops in seconds.
    pub(super) fn delay(&self) -> f64 {
        self.observed.delay.as_secs_f64() / self.calls.max(1) as f64
    }

    /// Mean number of requests that wait for a response.
    pub(super) fn in_flight(&self) -> f64 {
        self.observed.in_flight as f64 / self.calls.max(1) as f64
    }

    /// Number of requests at the end of the window that began without a limit, and still wait for a response.
    pub(super) fn without_permit(&self) -> u64 {
        self.observed.without_permit
    }

    /// Whether requests waited for permits most of the time, or nearly all of `permits` were in use.
    pub(super) fn is_saturated(&self, permits: f64) -> bool {
        // Either one: a short queue is empty at times, and permits are free for a moment.
        2 * self.calls_with_queue >= self.calls || self.in_flight() >= 0.9 * permits
    }
}
