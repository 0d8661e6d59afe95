//! Resumption of TLS sessions: keys that seal session tickets ([`TicketKeyring`]), and stores for sessions ([`SessionStore`]).
//!
//! The content of a session is opaque to this crate, which seals, stores and finds bytes.

mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz;
mod key_file;
mod key_source;
mod keyring;
mod memory;
mod redis;
mod ring;
mod rotation;
mod secret;
mod session_ids;
mod shard;
mod shared_key;
mod store;
mod ticket_key;
mod tiered;

pub use error::{ForceError, KeySourceError, OpenError, RotationError, SecretLength, TicketKeyLength};
pub use key_file::TicketKeyFile;
pub use key_source::{KeyOrigin, KeySource};
pub use keyring::{KeyStatistics, KeyringStatistics, OpenedTicket, TicketKeyring};
pub use memory::{MemorySettings, MemoryStatistics, MemoryStore};
pub use redis::{
    BlockingRedis, FleetRate, PreparedKeySync, RedisAddress, RedisCredentials, RedisError, RedisSettings,
    RedisStatistics, RedisStore, RedisTls, RedisTopology, Taken, TicketKeySync,
};
pub use rotation::RotationSettings;
pub use secret::{FleetSecret, Purpose};
pub use session_ids::SessionIds;
pub use shared_key::SharedKey;
pub use store::{Claim, Lookup, Miss, SessionOrMiss, SessionStore};
pub use ticket_key::TicketKeyId;
pub use tiered::TieredStore;
