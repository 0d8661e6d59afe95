//! The gateway's side: an engine that has key servers perform its operations.
//!
//! One thread for each set of key servers holds the connections. Workers hand operations over and wait, as they do for Redis.

mod backoff;
mod engine;
mod fallback;
mod link;
mod place;
mod pool;
mod settings;
mod statistics;

pub use engine::RemoteEngine;
pub use fallback::Fallback;
pub use place::{Passage, Place};
pub use settings::RemoteSettings;
pub use statistics::RemoteMetrics;
