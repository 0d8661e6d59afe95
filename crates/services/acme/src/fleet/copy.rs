//! Copy of a fleet's values in a local folder: certificates with their keys, accounts, and the list of on-demand names.
//!
//! A gateway that starts while Redis is unavailable serves from the copy, and a Redis that has lost its data receives
//! the values back. The files contain the bytes of Redis, sealed with the key of the fleet.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use brisk_certs::store::{Folder, Name};
use brisk_certs::{Store, StoreError};
use zeroize::Zeroizing;

use crate::records::{ACCOUNTS, CERTIFICATES, ON_DEMAND};

/// Kinds of records that are copied. Orders, challenge responses and states of attempts are of use only with the locks
/// of Redis.
const KINDS: [&str; 3] = [ACCOUNTS, CERTIFICATES, ON_DEMAND];

/// Returns whether values with this name, or below it, are copied. Their removal leaves a mark in Redis, so that a
/// removed value differs from a lost one.
pub(super) fn is_copied(name: &Name) -> bool {
    KINDS.contains(&name.as_str().split('/').next().unwrap_or_default())
}

/// Sealed values in a folder. Errors of the folder are logged, and the first of several alone: the fleet's store is in
/// Redis, and works without the copy.
#[derive(Debug)]
pub(super) struct LocalCopy {
    folder: Folder,
    fails: AtomicBool,
}

impl LocalCopy {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self { folder: Folder::new(folder), fails: AtomicBool::new(false) }
    }

    /// The sealed value of `name`.
    pub(super) fn read(&self, name: &Name) -> Option<Zeroizing<Vec<u8>>> {
        self.noted(self.folder.read(name)).flatten()
    }

    /// Copies the sealed value of `name` if the copy differs.
    pub(super) fn keep(&self, name: &Name, sealed: &[u8]) {
        // Compared first: hosts read the store every 20 seconds, and each write syncs a file and its
        // folder.
        if self.read(name).is_none_or(|copied| *copied != sealed) {
            self.noted(self.folder.write(name, sealed));
        }
    }

    pub(super) fn remove(&self, name: &Name) {
        self.noted(self.folder.remove(name));
    }

    /// The copied names directly below `parent`.
    pub(super) fn list(&self, parent: &Name) -> Vec<Name> {
        self.noted(self.folder.list(parent)).unwrap_or_default()
    }

    fn noted<T>(&self, result: Result<T, StoreError>) -> Option<T> {
        let fails = self.fails.swap(result.is_err(), Ordering::Relaxed);
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                if !fails {
                    tracing::warn!(%error, "cannot use the local copy of the fleet's certificates");
                }
                None
            }
        }
    }
}
