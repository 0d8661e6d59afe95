//! Persistent values by name: accounts, orders, keys, obtained chains, staples, revocation lists.
//!
//! A [`Folder`] needs nothing else. Fleets share a store in Redis, implemented in another crate. All methods block, so
//! they are called on threads that may block and never on a worker.

mod folder;
mod name;

use std::fmt;

use thiserror::Error;
use zeroize::Zeroizing;

pub use folder::Folder;
pub use name::Name;

/// Persistent values by name. A value is replaced atomically: readers never see a part of it.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// The value of `name`; `None` if it does not exist. Wiped when dropped, since it may contain a private key.
    fn read(&self, name: &Name) -> Result<Option<Zeroizing<Vec<u8>>>, StoreError>;

    /// Sets the value of `name`. Durable when this returns, even if the machine crashes.
    fn write(&self, name: &Name, value: &[u8]) -> Result<(), StoreError>;

    /// Removes `name` and its value if it exists.
    fn remove(&self, name: &Name) -> Result<(), StoreError>;

    /// The names directly below `parent` that have values or have names below them, in any order.
    fn list(&self, parent: &Name) -> Result<Vec<Name>, StoreError>;

    /// Locks `name`; `None` if another thread, process or machine holds the lock. Locks are independent of values. The
    /// lock of a dead process is released: at once in a folder, after a timeout in other stores.
    fn try_lock(&self, name: &Name) -> Result<Option<Box<dyn Lock>>, StoreError>;

    /// Location of the store for messages: a path or an address.
    fn place(&self) -> String;
}

/// A held lock, released when dropped.
pub trait Lock: fmt::Debug + Send {
    /// Whether the lock is still held; also extends it in stores that lend locks for a time. Must be called before each
    /// step that must not be repeated, and at least every minute.
    fn holds(&mut self) -> bool;
}

/// Error of an operation on a [`Store`].
#[derive(Debug, Error)]
#[error("cannot {attempt} {what}: {reason}")]
pub struct StoreError {
    /// The operation, as a verb.
    pub attempt: &'static str,
    /// The file, or the name and the store.
    pub what: String,
    /// The cause.
    #[source]
    pub reason: Box<dyn std::error::Error + Send + Sync>,
}

impl StoreError {
    /// The error of applying `attempt` to `what`.
    pub fn new(
        attempt: &'static str,
        what: impl fmt::Display,
        reason: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self { attempt, what: what.to_string(), reason: reason.into() }
    }
}
