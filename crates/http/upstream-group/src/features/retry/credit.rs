//! Credit of a worker for repeated requests: [`Credit`].

use std::cell::Cell;

/// Credit for one repetition. [`Credit`] keeps ten times as much: a burst of ten.
const COST: u32 = 100;
const MOST: u32 = 10 * COST;

/// Credit of a worker for requests that it sends to a second server: each request adds its percentage. Without this limit, a
/// group whose servers are all slow would get twice the requests.
#[derive(Debug)]
pub struct Credit(Cell<u32>);

impl Credit {
    /// No credit.
    pub const fn empty() -> Self {
        Self(Cell::new(0))
    }

    /// Credit for a burst of ten.
    pub const fn full() -> Self {
        Self(Cell::new(MOST))
    }

    /// Adds the credit of a request: `percent` of a repetition.
    pub fn earn(&self, percent: u32) {
        // Bounded, so that a long time without repetitions is no credit for a flood of them.
        self.0.set((self.0.get() + percent).min(MOST));
    }

    /// Whether there is enough credit for a repetition.
    pub fn suffices(&self) -> bool {
        self.0.get() >= COST
    }

    /// Takes the credit for a repetition, if it [suffices](Self::suffices).
    pub fn spend(&self) -> bool {
        let suffices = self.suffices();
        if suffices {
            self.0.set(self.0.get() - COST);
        }
        suffices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_requests_are_a_share_of_all_with_a_bounded_burst() {
        let credit = Credit::empty();
        assert!(!credit.spend(), "nothing is lent");
        let sent = (0..1000).filter(|_| {
            credit.earn(5);
            credit.spend()
        });
        assert_eq!(sent.count(), 50);
        (0..1000).for_each(|_| credit.earn(5));
        for credit in [credit, Credit::full()] {
            assert_eq!((0..100).filter(|_| credit.spend()).count(), 10);
        }
    }
}
