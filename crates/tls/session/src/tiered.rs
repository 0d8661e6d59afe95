//! A store in memory in front of the store of a fleet.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use zeroize::Zeroizing;

use crate::{
    Claim, Lookup, MemoryStore, Miss, RedisStore, SessionOrMiss, SessionStore,
    redis::{FindMode, FoundSession},
    rotation::seconds,
};

/// Stores sessions in this process and in Redis. Own sessions are found at once, even while Redis does not work;
/// sessions of other gateways are found in Redis.
///
/// `put` writes to memory at once and to Redis asynchronously. `get` queries Redis only for sessions that are not in
/// memory, and keeps the result in memory for the rest of its lifetime. `take` with [`Claim::Here`] does the same, and
/// marks the session in Redis asynchronously. For [`Claim::Everywhere`] Redis alone decides and the copy in memory is
/// only wiped, since another gateway may have taken the session already.
///
/// After an exclusive take, the session may still be in the memory of another process, where [`Claim::Here`] finds it
/// until it expires. Therefore that claim is not sufficient for early data.
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
    /// Returns whether at least one of the two stores it, as far as known yet.
    fn put(&self, id: &[u8], session: Vec<u8>, lifetime: Duration) -> Lookup<bool> {
        // The store in Redis wipes its copy.
        let shared = ready(self.redis.put(id, session.clone(), lifetime));
        let kept = ready(self.memory.put(id, session, lifetime));
        Lookup::Ready(shared || kept)
    }

    fn get(&self, id: &[u8]) -> Lookup<SessionOrMiss> {
        match ready(self.memory.get(id)) {
            // Any other result of the memory store is final; only unknown IDs may be in Redis.
            Err(Miss::Unknown) => {}
            known => return Lookup::Ready(known),
        }
        match self.redis.find(id, FindMode::Get) {
            Lookup::Ready(found) => Lookup::Ready(found.map(FoundSession::into_session)),
            Lookup::Pending(found) => {
                let (memory, id) = (Arc::clone(&self.memory), Box::<[u8]>::from(id));
                Lookup::Pending(Box::pin(async move {
                    let found = found.await;
                    if let Ok(kept) = &found {
                        // The copy must not outlive the session in Redis.
                        let left = kept.expires.saturating_sub(seconds(SystemTime::now()));
                        ready(memory.put(&id, kept.session.to_vec(), Duration::from_secs(left)));
                    }
                    found.map(FoundSession::into_session)
                }))
            }
        }
    }

    fn take(&self, id: &[u8], claim: Claim) -> Lookup<SessionOrMiss> {
        let here = ready(self.memory.take(id, claim));
        match (claim, here) {
            // A replay to this machine need not reach Redis.
            (_, Err(Miss::Used)) => Lookup::Ready(Err(Miss::Used)),
            (Claim::Here, Ok(session)) => {
                self.redis.forget(id);
                Lookup::Ready(Ok(session))
            }
            (Claim::Everywhere, here) => {
                // The copy in memory is discarded: only Redis can prove that no other gateway took the session.
                drop(here.map(Zeroizing::new));
                self.redis.take(id, claim)
            }
            (Claim::Here, Err(_)) => self.redis.take(id, claim),
        }
    }
}

/// The result of a store in memory, or of an asynchronous write.
fn ready<T>(lookup: Lookup<T>) -> T {
    match lookup {
        Lookup::Ready(answer) => answer,
        Lookup::Pending(_) => unreachable!("memory answers at once, and writes are not waited for"),
    }
}
