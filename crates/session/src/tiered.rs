//! A store in memory in front of the one that a fleet shares.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use zeroize::Zeroizing;

use crate::{
    Claim, Found, Lookup, MemoryStore, Miss, RedisStore, SessionStore,
    redis::{How, Kept},
    rotation::seconds,
};

/// Keeps sessions in this process and in Redis: what was made here is found here at once, even when Redis is out of
/// order, and what was made elsewhere is found there.
///
/// `put` writes to memory at once and to Redis behind. `get` asks Redis only for what memory does not have, and keeps
/// what it gets for the rest of its lifetime. `take` against this process does the same, and Redis learns of it
/// behind; against everyone Redis alone decides, and what memory has is only wiped: others may have taken the session
/// already.
///
/// A session that is taken against everyone may still be in the memory of another process, where `Claim::Here` finds
/// it until it expires. That is what [`Claim::Here`] says, and why it is not for early data.
#[derive(Clone, Debug)]
pub struct TieredStore {
    memory: Arc<MemoryStore>,
    redis: RedisStore,
}

impl TieredStore {
    /// `memory` in front of `redis`.
    pub const fn new(memory: Arc<MemoryStore>, redis: RedisStore) -> Self {
        Self { memory, redis }
    }

    /// The store in memory, for its statistics.
    pub fn memory(&self) -> &MemoryStore {
        &self.memory
    }

    /// The store on Redis, for its statistics.
    pub const fn redis(&self) -> &RedisStore {
        &self.redis
    }
}

impl SessionStore for TieredStore {
    /// Whether at least one of the two keeps it, as far as is known by now.
    fn put(&self, id: &[u8], session: Vec<u8>, lifetime: Duration) -> Lookup<bool> {
        let shared = ready(self.redis.put(id, session.clone(), lifetime));
        let kept = ready(self.memory.put(id, session, lifetime));
        Lookup::Ready(shared || kept)
    }

    fn get(&self, id: &[u8]) -> Lookup<Found> {
        match ready(self.memory.get(id)) {
            Err(Miss::Unknown) => {}
            known => return Lookup::Ready(known),
        }
        match self.redis.find(id, How::Get) {
            Lookup::Ready(found) => Lookup::Ready(found.map(Kept::into_session)),
            Lookup::Pending(found) => {
                let (memory, id) = (Arc::clone(&self.memory), Box::<[u8]>::from(id));
                Lookup::Pending(Box::pin(async move {
                    let found = found.await;
                    if let Ok(kept) = &found {
                        let left = kept.expires.saturating_sub(seconds(SystemTime::now()));
                        ready(memory.put(&id, kept.session.to_vec(), Duration::from_secs(left)));
                    }
                    found.map(Kept::into_session)
                }))
            }
        }
    }

    fn take(&self, id: &[u8], claim: Claim) -> Lookup<Found> {
        let here = ready(self.memory.take(id, claim));
        match (claim, here) {
            // A replay to this machine need not trouble Redis.
            (_, Err(Miss::Used)) => Lookup::Ready(Err(Miss::Used)),
            (Claim::Here, Ok(session)) => {
                self.redis.forget(id);
                Lookup::Ready(Ok(session))
            }
            (Claim::Everywhere, here) => {
                drop(here.map(Zeroizing::new));
                self.redis.take(id, claim)
            }
            (Claim::Here, Err(_)) => self.redis.take(id, claim),
        }
    }
}

/// The answer of a store in memory, or of a write that is done behind.
fn ready<T>(lookup: Lookup<T>) -> T {
    match lookup {
        Lookup::Ready(answer) => answer,
        Lookup::Pending(_) => unreachable!("memory answers at once, and writes are not waited for"),
    }
}
