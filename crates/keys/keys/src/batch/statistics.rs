//! Counters of a [`BatchEngine`](crate::BatchEngine) for metrics.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use brisk_lanes::rsa_lanes::OPERATIONS;

/// Counters of a [`BatchEngine`](super::BatchEngine) since its threads started, and the length of its queue.
#[derive(Debug, Default)]
pub struct BatchStatistics {
    waiting: AtomicUsize,
    performed: [AtomicU64; OPERATIONS],
    faults: AtomicU64,
}

impl BatchStatistics {
    /// Operations waiting in the queue or for a batch to fill. Abandoned ones count until they are removed.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Operations performed by the threads, by size of their batch: one, two, three, four.
    pub fn performed(&self) -> [u64; OPERATIONS] {
        self.performed.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Results of lanes that failed verification and were discarded; their operations were performed again.
    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    pub(super) fn arrived(&self) {
        // Relaxed: metrics and the choice of a GPU tolerate a value that is a moment old.
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that `operations` operations no longer wait.
    pub(super) fn left(&self, operations: usize) {
        self.waiting.fetch_sub(operations, Ordering::Relaxed);
    }

    /// Counts a batch of `together` operations, 1 to 4.
    pub(super) fn perform(&self, together: usize) {
        if let Some(count) = together.checked_sub(1).and_then(|place| self.performed.get(place)) {
            count.fetch_add(together as u64, Ordering::Relaxed);
        }
    }

    /// Counts a fault and returns the total.
    pub(super) fn fault(&self) -> u64 {
        self.faults.fetch_add(1, Ordering::Relaxed) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_counted_by_how_many_went_together() {
        let statistics = BatchStatistics::default();
        for together in [0, 1, 1, 3, 4, 4, 4] {
            statistics.perform(together);
        }
        assert_eq!(statistics.performed(), [2, 0, 3, 12]);
    }

    #[test]
    fn what_has_left_does_not_wait() {
        let statistics = BatchStatistics::default();
        (0..5).for_each(|_| statistics.arrived());
        statistics.left(4);
        assert_eq!(statistics.waiting(), 1);
    }
}
