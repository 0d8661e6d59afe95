//! The gateway's side: an engine that sends its operations to key servers.
//!
//! One thread for each set of key servers owns the connections. Workers pass operations to it through a channel and
//! await the results.

mod address;
mod backoff;
mod engine;
mod engines;
mod fallback;
mod link;
mod pool;
mod settings;
mod statistics;

pub use address::{KeyProcessConnector, KeyServerAddress};
pub use engine::RemoteEngine;
pub use engines::RemoteEngines;
pub use fallback::Fallback;
pub use settings::RemoteSettings;
pub use statistics::RemoteMetrics;
