//! Sessions that somebody wanted to be alone in having while Redis could not say so.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::sealing::Name;

/// More than this are not remembered: the oldest are forgotten.
const MOST: usize = 10_000;

/// Their names. The client of such a session sends its request again after a full handshake, so its early data is
/// not to be accepted from anyone when Redis is back.
#[derive(Debug, Default)]
pub(super) struct Spent(Mutex<VecDeque<Name>>);

impl Spent {
    pub(super) fn add(&self, name: Name) {
        let mut names = self.lock();
        if names.len() >= MOST {
            names.pop_front();
        }
        names.push_back(name);
    }

    /// All names, which are no longer kept here.
    pub(super) fn take(&self) -> Vec<Name> {
        self.lock().drain(..).collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Name>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_names_are_kept() {
        let spent = Spent::default();
        for number in 0..MOST as u128 + 5 {
            spent.add(number.to_be_bytes());
        }
        let names = spent.take();
        assert_eq!((names.len(), names[0]), (MOST, 5_u128.to_be_bytes()));
        assert!(spent.take().is_empty());
    }
}
