//! Names of a [`Catalogue`](super::Catalogue) whose files cannot be loaded: a key that belongs to another certificate, for
//! example.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of names that are kept.
const KEPT: usize = 1000;

/// Names with the error of their last load, until a load succeeds or the name is removed. The certificate loaded before
/// stays in use.
#[derive(Debug, Default)]
pub(super) struct FaultyNames(Mutex<BTreeMap<String, String>>);

impl FaultyNames {
    /// Notes the error of a name. Beyond 1,000, names are ignored.
    pub(super) fn add(&self, name: &str, reason: String) {
        let mut all = self.names();
        if all.len() < KEPT || all.contains_key(name) {
            all.insert(name.to_owned(), reason);
        }
    }

    /// Forgets a name, which was loaded or removed.
    pub(super) fn remove(&self, name: &str) {
        self.names().remove(name);
    }

    /// Number of names, and the first `most` with their errors.
    pub(super) fn first(&self, most: usize) -> (usize, Vec<(String, String)>) {
        let all = self.names();
        let first = all.iter().take(most).map(|(name, reason)| (name.clone(), reason.clone()));
        (all.len(), first.collect())
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
