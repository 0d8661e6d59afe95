//! Keys of certificates for which the last configuration was refused.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of keys that are kept.
const KEPT: usize = 100;

/// The private key of a certificate that could not be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedKey {
    /// Key of the configuration, for example `host[0].certificates[0].key`.
    pub path: String,
    /// First name of the host.
    pub host: String,
    /// File or token that was to have the key.
    pub holder: String,
    /// The error.
    pub reason: String,
}

/// Keys that the last configuration or renewal of certificates could not load, so that the one before stays in force.
/// Clones share the list.
#[derive(Clone, Debug, Default)]
pub struct RefusedKeys(Arc<Mutex<Vec<RefusedKey>>>);

impl RefusedKeys {
    /// Adds a key. Beyond 100, keys are ignored.
    pub fn add(&self, refused: RefusedKey) {
        let mut all = self.list();
        if all.len() < KEPT {
            all.push(refused);
        }
    }

    /// Forgets all keys, because the configuration is read again.
    pub fn clear(&self) {
        self.list().clear();
    }

    /// All keys, in the order of the configuration.
    pub fn all(&self) -> Vec<RefusedKey> {
        self.list().clone()
    }

    fn list(&self) -> MutexGuard<'_, Vec<RefusedKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
