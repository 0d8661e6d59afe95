//! Bytes by name, kept over restarts: accounts, orders, keys and chains that were obtained, staples, revocation lists.
//!
//! The [folder](Folder) is the kind that needs nothing else. A fleet shares another kind, which this crate does not know.
//! Callers block: a store belongs on threads that may wait, and never on a worker.

mod folder;
mod name;

use std::fmt;

use thiserror::Error;
use zeroize::Zeroizing;

pub use folder::Folder;
pub use name::Name;

/// Bytes by name. Values are replaced whole: who reads finds one that was written, and never a part of it.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// The value of `name`; `None` if there is none. Wiped when dropped, as it may hold a private key.
    fn read(&self, name: &Name) -> Result<Option<Zeroizing<Vec<u8>>>, StoreError>;

    /// Gives `name` this value. It has it after a crash of the machine, too, once this has returned.
    fn write(&self, name: &Name, value: &[u8]) -> Result<(), StoreError>;

    /// Removes `name` with its value, if it is there.
    fn remove(&self, name: &Name) -> Result<(), StoreError>;

    /// The names right below `parent` that have values, or values below them; in no order.
    fn list(&self, parent: &Name) -> Result<Vec<Name>, StoreError>;

    /// Takes the lock of `name`; `None` if it is held now, by a thread here, by another process, or by another machine that
    /// shares the store. Locks are apart from values. The lock of a process that died is free again: at once in a folder,
    /// after a while elsewhere.
    fn try_lock(&self, name: &Name) -> Result<Option<Box<dyn Lock>>, StoreError>;

    /// Where it keeps things, for messages: a path or an address.
    fn place(&self) -> String;
}

/// A lock that is held until it is dropped.
pub trait Lock: fmt::Debug + Send {
    /// Whether it is still held. To be asked before each step that must not be done twice, and at least every minute: where a
    /// store lends locks for a time, this asks for more.
    fn holds(&mut self) -> bool;
}

/// Why a store did not do what it was asked.
#[derive(Debug, Error)]
#[error("cannot {attempt} {what}: {reason}")]
pub struct StoreError {
    /// What was tried: a verb.
    pub attempt: &'static str,
    /// The file, or the name and where it is kept.
    pub what: String,
    /// Why.
    #[source]
    pub reason: Box<dyn std::error::Error + Send + Sync>,
}

impl StoreError {
    /// An error of an attempt to do something to `what`.
    pub fn new(
        attempt: &'static str,
        what: impl fmt::Display,
        reason: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { attempt, what: what.to_string(), reason: reason.into() }
    }
}
