//! Errors of setting up a store on Redis. Later errors appear in its statistics and the log.

use std::io;

/// Invalid settings for Redis.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedisError {
    /// No server is named.
    #[error("no Redis server is named: name at least one")]
    NoServer,
    /// Several servers are named without a topology.
    #[error("several Redis servers are named: they are the Sentinels of a service, or nodes of a cluster")]
    SeveralServers,
    /// The queue has no capacity.
    #[error("the queue to Redis holds at least one command")]
    NoQueue,
    /// The trusted authorities cannot be parsed.
    #[error("the authorities to trust for Redis are not certificates in PEM form: {0}")]
    Authorities(String),
    /// The queue is full of commands, so nothing can be started.
    #[error("the queue to Redis is full: Redis is too slow for this machine, try again later")]
    Busy,
    /// The thread could not be started.
    #[error("cannot start the thread that talks to Redis: {0}")]
    Thread(#[source] io::Error),
}
