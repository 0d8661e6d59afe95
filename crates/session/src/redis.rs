//! Sessions and ticket keys shared by a fleet through Redis or Valkey.
mod breaker;
mod client;
mod command;
mod epoch;
mod error;
mod exchange;
mod link;
mod node;
mod router;
mod sealing;
mod settings;
mod shared;
mod slot;
mod spent;
mod statistics;
mod store;
mod trouble;

pub(crate) use command::{How, Kept};
pub use error::RedisError;
pub use exchange::KeyExchange;
pub use settings::{RedisAddress, RedisCredentials, RedisSettings, RedisTls, RedisTopology};
pub use statistics::RedisStatistics;
pub use store::RedisStore;
