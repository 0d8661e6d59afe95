//! [`Fill`], the number of operations that a batch is expected to have: decides whether operations wait for each other, and for
//! how long.

use std::time::{Duration, Instant};

use brisk_keys::{Encapsulation, LanesUse};

/// Operations of a full batch.
const FULL: u16 = 8;

/// Average number of operations per batch from which operations wait for each other, if lanes pay off for fewer.
const COMPANY: usize = 2;

/// Weight of past batches in the average of [`Fill`].
const BATCHES: f32 = 8.0;

/// Time over which the rate of operations is averaged.
const MEMORY: Duration = Duration::from_millis(50);

/// Kinds of gathered operations, in the order of [`Fill::of_this_processor`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Exchange,
    Encapsulation,
    Signature,
}

/// Number of operations of a [`Kind`] per batch of a worker, whether or not they waited.
#[derive(Default)]
pub(super) struct Fill {
    /// Expected number of operations from which one waits. `None`: operations neither wait nor are counted.
    pub(super) company: Option<f32>,
    /// Maximum wait for a full batch.
    wait: Duration,
    /// Operations of this batch.
    operations: u16,
    /// Time of the first operation of this batch, if operations may wait.
    since: Option<Instant>,
    pub(super) average: f32,
    /// Operations per second, averaged over [`MEMORY`].
    pub(super) rate: f32,
    /// End of the last batch.
    ended: Option<Instant>,
}

impl Fill {
    /// For operations with which lanes are faster from `break_even` operations on; never if that exceeds [`FULL`].
    pub(super) fn new(break_even: usize, wait: Duration) -> Self {
        let company = (break_even <= FULL.into()).then(|| break_even.max(COMPANY) as f32);
        Self { company, wait, ..Self::default() }
    }

    /// One [`Fill`] for each [`Kind`], with the measured values of this processor.
    pub(super) fn of_this_processor(wait: Duration) -> [Self; 3] {
        let (exchanges, signatures) = LanesUse::of_this_processor()
            .map_or((usize::MAX, usize::MAX), |lanes| (lanes.exchanges, lanes.signatures));
        let encapsulations = Encapsulation::break_even().unwrap_or(usize::MAX);
        // The exchanges of a batch make their signatures ready in one turn. A second wait would gain little.
        let kinds = [(exchanges, wait), (encapsulations, wait), (signatures, Duration::ZERO)];
        kinds.map(|(break_even, wait)| Self::new(break_even, wait))
    }

    /// Counts an operation. Returns whether others are likely to join it; `None` if it is not counted.
    pub(super) fn count(&mut self) -> Option<bool> {
        let company = self.company?;
        // Reads the clock once per batch.
        if !self.wait.is_zero() && self.since.is_none() {
            self.since = Some(Instant::now());
        }
        self.operations = self.operations.saturating_add(1);
        Some(f32::from(self.operations) > company || self.average >= company)
    }

    /// Whether the batch has operations.
    pub(super) const fn has_begun(&self) -> bool {
        self.operations > 0
    }

    pub(super) const fn is_full(&self) -> bool {
        self.operations >= FULL
    }

    /// The end of the wait for a full batch; `None` if the batch is empty, or if the rate is too low to fill it in time.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        let is_worthwhile = self.rate * self.wait.as_secs_f32() >= self.company?;
        self.since.filter(|_| is_worthwhile).map(|since| since + self.wait)
    }

    /// Ends a batch.
    pub(super) fn end(&mut self, now: Instant) {
        let operations = f32::from(std::mem::take(&mut self.operations));
        self.since = None;
        if operations == 0.0 {
            return;
        }
        self.average += (operations - self.average) / BATCHES;
        if let Some(ended) = self.ended.replace(now) {
            // Two batches within the resolution of the clock would otherwise have an infinite rate.
            let time = now.saturating_duration_since(ended).as_secs_f32().max(1e-6);
            self.rate += (operations / time - self.rate) * (time / MEMORY.as_secs_f32()).min(1.0);
        }
    }
}
