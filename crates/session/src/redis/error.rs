//! Why a store on Redis cannot be set up at all. What goes wrong later is in its statistics and the log.

use std::io;

/// Invalid settings for Redis.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedisError {
    /// No server is named.
    #[error("no Redis server is named: name at least one")]
    NoServer,
    /// Several servers, and nothing that says how they belong together.
    #[error("several Redis servers are named: they are the Sentinels of a service, or nodes of a cluster")]
    SeveralServers,
    /// A queue of no length.
    #[error("the queue to Redis holds at least one command")]
    NoQueue,
    /// The certificates of the authorities to trust cannot be read.
    #[error("the authorities to trust for Redis are not certificates in PEM form: {0}")]
    Authorities(String),
    /// Nothing can be started on a queue that is full of commands.
    #[error("the queue to Redis is full: Redis is too slow for this machine, try again later")]
    Busy,
    /// The system gave no thread.
    #[error("cannot start the thread that talks to Redis: {0}")]
    Thread(#[source] io::Error),
}
