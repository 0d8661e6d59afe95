//! Resumption: the keys that seal session tickets, and the stores that keep sessions.
//!
//! What a session contains is no concern of this crate: it seals, keeps and finds bytes.

mod error;
mod keyring;
mod memory;
mod rotation;
mod secret;
mod shard;
mod store;
mod ticket_key;

pub use error::{KeySourceError, OpenError, RotationError, SecretLength};
pub use keyring::{KeyringStatistics, TicketKeyring};
pub use memory::{MemorySettings, MemoryStatistics, MemoryStore};
pub use rotation::RotationSettings;
pub use secret::{FleetSecret, Purpose};
pub use store::{Claim, Found, Lookup, Miss, SessionStore};
