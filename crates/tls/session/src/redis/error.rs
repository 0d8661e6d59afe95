//! [`RedisError`], the errors of setting up a [`RedisStore`](super::RedisStore). Later errors appear in its statistics and the
//! log.

use std::io;

/// Reasons for which a [`RedisStore`](super::RedisStore) or its key exchange cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedisError {
    /// [`RedisSettings::servers`](super::RedisSettings::servers) is empty.
    #[error("no Redis server is named: name at least one")]
    NoServer,
    /// Several servers are named without a topology.
    #[error("several Redis servers are named: they are the Sentinels of a service, or nodes of a cluster")]
    SeveralServers,
    /// [`RedisSettings::queue`](super::RedisSettings::queue) is 0.
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
