//! What a batch engine has done, counted for metrics.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use brisk_lanes::rsa_lanes::OPERATIONS;

/// What a [`BatchEngine`](super::BatchEngine) has done since its threads were started, and what it has to do.
#[derive(Debug, Default)]
pub struct BatchStatistics {
    waiting: AtomicUsize,
    performed: [AtomicU64; OPERATIONS],
    faults: AtomicU64,
}

impl BatchStatistics {
    /// Operations that wait: in the queue, or for a batch to fill. Abandoned ones count until their turn comes.
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Operations that the threads performed, by how many were performed together: alone, two, three, four.
    pub fn performed(&self) -> [u64; OPERATIONS] {
        self.performed.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Results of lanes that did not stand the check and were not used: operations performed a second time.
    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    pub(super) fn arrived(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that `operations` operations no longer wait.
    pub(super) fn left(&self, operations: usize) {
        self.waiting.fetch_sub(operations, Ordering::Relaxed);
    }

    /// Notes a batch of `together` operations: one to four.
    pub(super) fn perform(&self, together: usize) {
        if let Some(count) = together.checked_sub(1).and_then(|place| self.performed.get(place)) {
            count.fetch_add(together as u64, Ordering::Relaxed);
        }
    }

    /// One more fault; returns how many there were by now.
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
