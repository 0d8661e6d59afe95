//! [`MemoryStore`], the session store of a single process: sharded, with limits on number and memory.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    Claim, Lookup, Miss, SessionOrMiss, SessionStore,
    shard::{Nanos, Shard},
};

/// Exceeds the number of workers that could contend for one shard.
const MOST_SHARDS: usize = 64;

/// A shard with fewer sessions than this would evict by hash distribution rather than by age.
const LEAST_PER_SHARD: usize = 64;

/// Limits of a [`MemoryStore`]. Memory is allocated as needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemorySettings {
    /// Maximum number of sessions; 0 disables the store. Default: 100,000.
    pub max_sessions: usize,
    /// Memory limit in bytes, including the overhead of each session. A single session may use up to the share of a
    /// shard, which is 1/64 in a store of 4,096 sessions or more. Default: 64 MiB.
    pub max_bytes: usize,
}

impl Default for MemorySettings {
    fn default() -> Self {
        Self { max_sessions: 100_000, max_bytes: 64 << 20 }
    }
}

/// Stores sessions in the memory of this process.
///
/// A full store evicts sessions that were not used recently. Each `put` also removes some expired sessions,
/// [`remove_expired`](Self::remove_expired) removes all. Sessions are wiped when they are removed. An operation costs
/// one hash, the lock of one of up to 64 shards, and a copy of the session (`get`; `put`, if it has spare capacity) or
/// none (`take`). A session has an overhead of about 100 bytes, including its ID. IDs longer than 32 bytes, which TLS
/// does not have, are not stored.
///
/// For a minute after a session was taken, look-ups return [`Miss::Used`](crate::Miss::Used), later
/// [`Miss::Unknown`](crate::Miss::Unknown). The store remembers a quarter as many taken sessions as it may hold, at
/// most 262,144, in 16 bytes each; beyond that the oldest become unknown earlier.
pub struct MemoryStore {
    shards: Box<[Padded]>,
    /// Seeded at random: clients choose the IDs that are looked up, so a known seed would permit collision attacks.
    hasher: RandomState,
    /// Origin of the times in the shards.
    made: Instant,
    replays: AtomicU64,
}

/// Aligned, so that the locks of two shards do not share a cache line.
#[repr(align(128))]
struct Padded(Mutex<Shard>);

impl MemoryStore {
    /// Creates an empty store with the limits of `settings`.
    pub fn new(settings: &MemorySettings) -> Self {
        let shards = match settings.max_sessions / LEAST_PER_SHARD {
            0 => 1,
            // The largest power of two that is not greater.
            most => (1 << most.ilog2()).min(MOST_SHARDS),
        };
        // Bytes are rounded down, because their limit is strict. The number of sessions may exceed its
        // limit by less than one per shard.
        let shard = || Shard::new(settings.max_sessions.div_ceil(shards), settings.max_bytes / shards);
        Self {
            shards: (0..shards).map(|_| Padded(Mutex::new(shard()))).collect(),
            hasher: RandomState::new(),
            made: Instant::now(),
            replays: AtomicU64::new(0),
        }
    }

    /// [`put`](SessionStore::put) at the time `now`.
    pub fn put_at(&self, id: &[u8], session: Vec<u8>, lifetime: Duration, now: Instant) -> bool {
        let hash = self.hasher.hash_one(id);
        let now = self.nanos(now);
        let expires = now.saturating_add(nanos(lifetime));
        self.shard(hash).put(hash, id, session, expires, now)
    }

    /// [`get`](SessionStore::get) at the time `now`.
    pub fn get_at(&self, id: &[u8], now: Instant) -> SessionOrMiss {
        let hash = self.hasher.hash_one(id);
        self.shard(hash).get(hash, id, self.nanos(now))
    }

    /// [`take`](SessionStore::take) at the time `now`.
    pub fn take_at(&self, id: &[u8], now: Instant) -> SessionOrMiss {
        let hash = self.hasher.hash_one(id);
        self.shard(hash).take(hash, id, self.nanos(now))
    }

    /// Wipes sessions that have expired at `now`. Locks one shard at a time, for some microseconds per thousand
    /// sessions in it.
    pub fn remove_expired(&self, now: Instant) {
        for shard in &self.shards {
            shard.lock().remove_expired(self.nanos(now));
        }
    }

    /// The [`MemoryStatistics`] of the store.
    pub fn statistics(&self) -> MemoryStatistics {
        let replays = self.replays.load(Ordering::Relaxed);
        self.shards.iter().fold(MemoryStatistics { replays, ..MemoryStatistics::default() }, |sum, shard| {
            sum.plus(&shard.lock().statistics())
        })
    }

    fn nanos(&self, now: Instant) -> Nanos {
        nanos(now.saturating_duration_since(self.made))
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Shard> {
        // The upper half of the hash: the table within the shard uses the lower half.
        let index = (hash >> 32) as usize & (self.shards.len() - 1);
        self.shards[index].lock()
    }
}

/// Nanoseconds of `duration`, at most 584 years.
fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

impl Padded {
    fn lock(&self) -> MutexGuard<'_, Shard> {
        // No operation on a shard panics halfway; even an inconsistent shard would only miss sessions.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionStore for MemoryStore {
    fn put(&self, id: &[u8], session: Vec<u8>, lifetime: Duration) -> Lookup<bool> {
        Lookup::Ready(self.put_at(id, session, lifetime, Instant::now()))
    }

    fn get(&self, id: &[u8]) -> Lookup<SessionOrMiss> {
        Lookup::Ready(self.get_at(id, Instant::now()))
    }

    /// The store is not shared with other gateways, so [`Claim::Here`] and [`Claim::Everywhere`] find the same sessions.
    fn take(&self, id: &[u8], claim: Claim) -> Lookup<SessionOrMiss> {
        let found = self.take_at(id, Instant::now());
        // Only an exclusive claim accompanies early data. Without early data, a second use repeats no request.
        if claim == Claim::Everywhere && found == Err(Miss::Used) {
            self.replays.fetch_add(1, Ordering::Relaxed);
        }
        Lookup::Ready(found)
    }
}

impl fmt::Debug for MemoryStore {
    /// Prints the counters only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").field("statistics", &self.statistics()).finish_non_exhaustive()
    }
}

/// Statistics of a [`MemoryStore`]: `sessions` and `bytes` are current values, the others count from its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStatistics {
    /// Sessions in the store.
    pub sessions: usize,
    /// Bytes that the sessions use.
    pub bytes: usize,
    /// Sessions stored.
    pub stored: u64,
    /// Sessions refused because of their size, or because of an ID of more than 32 bytes.
    pub refused: u64,
    /// Look-ups (`get` and `take`) that found a session.
    pub hits: u64,
    /// Look-ups that found none.
    pub misses: u64,
    /// Look-ups counted in `misses` of a session that was taken recently.
    pub used: u64,
    /// Look-ups counted in `used` that had [`Claim::Everywhere`]: early data was refused.
    pub replays: u64,
    /// Sessions evicted to make room.
    pub evicted: u64,
    /// Sessions removed because they had expired.
    pub expired: u64,
}

impl MemoryStatistics {
    fn plus(self, other: &Self) -> Self {
        Self {
            sessions: self.sessions + other.sessions,
            bytes: self.bytes + other.bytes,
            stored: self.stored + other.stored,
            refused: self.refused + other.refused,
            hits: self.hits + other.hits,
            misses: self.misses + other.misses,
            used: self.used + other.used,
            replays: self.replays + other.replays,
            evicted: self.evicted + other.evicted,
            expired: self.expired + other.expired,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn store(max_sessions: usize, max_bytes: usize) -> MemoryStore {
        MemoryStore::new(&MemorySettings { max_sessions, max_bytes })
    }

    fn id(number: u32) -> [u8; 32] {
        let mut id = [0; 32];
        id[..4].copy_from_slice(&number.to_be_bytes());
        id
    }

    #[test]
    fn a_session_is_found_until_it_is_taken() {
        let (store, now) = (store(100, 1 << 20), Instant::now());
        assert!(store.put_at(b"id", b"session".to_vec(), HOUR, now));
        assert_eq!(store.get_at(b"id", now).as_deref(), Ok(&b"session"[..]));
        assert_eq!(store.get_at(b"id", now).as_deref(), Ok(&b"session"[..]));
        assert_eq!(store.take_at(b"id", now).as_deref(), Ok(&b"session"[..]));
        assert_eq!(store.take_at(b"id", now), Err(Miss::Used));
        let statistics = store.statistics();
        assert_eq!((statistics.hits, statistics.misses, statistics.used), (3, 1, 1));
        assert_eq!((statistics.sessions, statistics.bytes), (0, 0));
    }

    #[test]
    fn a_later_session_replaces_an_earlier_one_of_the_same_id() {
        let (store, now) = (store(100, 1 << 20), Instant::now());
        store.put_at(b"id", vec![1; 500], HOUR, now);
        store.put_at(b"id", vec![2; 10], HOUR, now);
        assert_eq!(store.get_at(b"id", now), Ok(vec![2; 10]));
        assert_eq!(store.statistics().sessions, 1);
        assert!(store.statistics().bytes < 500);
    }

    #[test]
    fn a_session_is_gone_when_its_lifetime_ends() {
        let (store, now) = (store(100, 1 << 20), Instant::now());
        store.put_at(b"id", vec![1], HOUR, now);
        assert!(store.get_at(b"id", now + HOUR.saturating_sub(Duration::from_nanos(1))).is_ok());
        assert_eq!(store.get_at(b"id", now + HOUR), Err(Miss::Unknown));
        assert_eq!(store.statistics().sessions, 0, "the look-up removes it");
    }

    #[test]
    fn expired_sessions_are_removed_unasked() {
        let (store, now) = (store(10_000, 1 << 22), Instant::now());
        for number in 0..1000 {
            let lifetime = if number % 3 == 0 { HOUR } else { HOUR * 2 };
            store.put_at(&id(number), vec![0; 20], lifetime, now);
        }
        store.remove_expired(now + HOUR);
        assert_eq!(store.statistics().expired, 334);
        assert_eq!(store.statistics().sessions, 666);
        for number in 0..1000 {
            let found = store.get_at(&id(number), now + HOUR).is_ok();
            assert_eq!(found, number % 3 != 0, "session {number}");
        }
    }

    #[test]
    fn puts_alone_find_what_has_expired() {
        let (store, now) = (store(10_000, 1 << 22), Instant::now());
        for number in 0..1000 {
            store.put_at(&id(number), vec![0; 20], HOUR, now);
        }
        for number in 1000..5000 {
            store.put_at(&id(number), vec![0; 20], HOUR, now + HOUR);
        }
        assert_eq!(store.statistics().expired, 1000);
        assert_eq!(store.statistics().sessions, 4000);
    }

    #[test]
    fn the_number_of_sessions_is_bounded() {
        let (store, now) = (store(1000, 1 << 22), Instant::now());
        for number in 0..5000 {
            assert!(store.put_at(&id(number), vec![0; 20], HOUR, now));
        }
        let statistics = store.statistics();
        // Shards fill unevenly, and their limits are rounded up.
        assert!((900..=1008).contains(&statistics.sessions), "{statistics:?}");
        assert_eq!(statistics.evicted, 5000 - statistics.sessions as u64);
    }

    #[test]
    fn the_bytes_are_bounded() {
        let (store, now) = (store(1000, 100_000), Instant::now());
        for number in 0..1000 {
            store.put_at(&id(number), vec![0; 1000], HOUR, now);
            assert!(store.statistics().bytes <= 100_000);
        }
        assert!(store.statistics().sessions >= 60, "{store:?}");
    }

    #[test]
    fn a_session_larger_than_the_store_is_refused_and_its_predecessor_forgotten() {
        let (store, now) = (store(1, 1000), Instant::now());
        assert!(store.put_at(b"id", vec![0; 100], HOUR, now));
        assert!(!store.put_at(b"id", vec![0; 1000], HOUR, now));
        assert_eq!(store.get_at(b"id", now), Err(Miss::Unknown));
        assert_eq!(store.statistics().refused, 1);
    }

    #[test]
    fn a_store_for_no_sessions_keeps_none() {
        let (store, now) = (store(0, 1000), Instant::now());
        assert!(!store.put_at(b"id", vec![0; 100], HOUR, now));
        assert_eq!(store.get_at(b"id", now), Err(Miss::Unknown));
    }

    #[test]
    fn what_was_asked_for_stays_and_what_was_not_makes_room() {
        let (store, now) = (store(50, 1 << 20), Instant::now());
        for number in 0..50 {
            store.put_at(&id(number), vec![0; 20], HOUR, now);
        }
        for number in 0..10 {
            assert!(store.get_at(&id(number), now).is_ok());
        }
        for number in 50..90 {
            store.put_at(&id(number), vec![0; 20], HOUR, now);
        }
        for number in 0..10 {
            assert!(store.get_at(&id(number), now).is_ok(), "session {number}");
        }
    }

    #[test]
    fn of_many_who_take_at_once_one_gets_the_session() {
        let (store, now) = (store(1000, 1 << 20), Instant::now());
        for number in 0..200 {
            store.put_at(&id(number), vec![0; 20], HOUR, now);
            let taken: usize = std::thread::scope(|scope| {
                let takers = [(); 3].map(|()| scope.spawn(|| store.take_at(&id(number), now)));
                takers.map(|taker| taker.join().unwrap().iter().count())
            })
            .iter()
            .sum();
            assert_eq!(taken, 1);
        }
    }

    #[test]
    fn a_taken_session_differs_from_an_unknown_one_for_a_minute() {
        let (store, now) = (store(1000, 1 << 20), Instant::now());
        store.put_at(b"id", vec![1], HOUR, now);
        store.take_at(b"id", now).unwrap();
        let minute = Duration::from_mins(1);
        let last = now + minute.saturating_sub(Duration::from_nanos(1));
        assert_eq!(store.take_at(b"id", last), Err(Miss::Used));
        assert_eq!(store.get_at(b"id", last), Err(Miss::Used));
        assert_eq!(store.take_at(b"other", last), Err(Miss::Unknown));
        assert_eq!(store.take_at(b"id", now + minute), Err(Miss::Unknown));
        store.put_at(b"id", vec![2], HOUR, now);
        assert_eq!(store.take_at(b"id", now), Ok(vec![2]), "put again, it is there again");
    }

    #[test]
    fn lately_taken_sessions_are_remembered_within_bounds() {
        let (store, now) = (store(1000, 1 << 20), Instant::now());
        for number in 0..1000 {
            store.put_at(&id(number), vec![1], HOUR, now);
            assert!(store.take_at(&id(number), now).is_ok());
            assert_eq!(store.take_at(&id(number), now), Err(Miss::Used));
        }
        let used = (0..1000).filter(|&number| store.take_at(&id(number), now) == Err(Miss::Used)).count();
        assert!((200..=256).contains(&used), "{used} are remembered of 256 at most");
    }

    #[test]
    fn an_id_longer_than_any_of_tls_is_not_kept() {
        let (store, now) = (store(10, 10_000), Instant::now());
        assert!(!store.put_at(&[1; 33], vec![1], HOUR, now));
        assert_eq!(store.get_at(&[1; 33], now), Err(Miss::Unknown));
        assert!(store.put_at(&[1; 32], vec![1], HOUR, now));
        assert!(store.put_at(&[1; 31], vec![2], HOUR, now));
        assert!(store.put_at(b"", vec![3], HOUR, now));
        assert_eq!(store.get_at(&[1; 32], now), Ok(vec![1]));
        assert_eq!(store.get_at(&[[1; 31].as_slice(), &[0]].concat(), now), Err(Miss::Unknown));
        assert_eq!(store.get_at(b"", now), Ok(vec![3]));
    }

    #[test]
    fn slots_are_filled_again() {
        let (store, now) = (store(64, 1 << 20), Instant::now());
        for round in 0..50 {
            for number in 0..40 {
                assert!(store.put_at(&id(number), vec![round], HOUR, now));
            }
            for number in 0..40 {
                assert_eq!(store.take_at(&id(number), now), Ok(vec![round]));
            }
        }
        assert_eq!((store.statistics().sessions, store.statistics().evicted), (0, 0));
    }

    #[test]
    fn the_trait_answers_at_once() {
        let store: &dyn SessionStore = &MemoryStore::new(&MemorySettings::default());
        assert!(matches!(store.put(b"id", vec![1], HOUR), Lookup::Ready(true)));
        assert!(matches!(store.get(b"id"), Lookup::Ready(Ok(_))));
        assert!(matches!(store.take(b"id", Claim::Here), Lookup::Ready(Ok(_))));
        assert!(matches!(store.take(b"id", Claim::Here), Lookup::Ready(Err(Miss::Used))));
    }

    #[test]
    fn early_data_with_a_session_that_was_used_is_counted_as_a_replay() {
        let store = MemoryStore::new(&MemorySettings::default());
        let take = |claim| matches!(store.take(b"id", claim), Lookup::Ready(Ok(_)));
        assert!(matches!(store.put(b"id", vec![1], HOUR), Lookup::Ready(true)));
        assert!(!matches!(store.take(b"other", Claim::Everywhere), Lookup::Ready(Ok(_))));
        assert!(take(Claim::Everywhere) && !take(Claim::Everywhere) && !take(Claim::Here));
        assert_eq!((store.statistics().replays, store.statistics().used), (1, 2));
    }

    #[test]
    fn debug_shows_no_session() {
        let (store, now) = (store(10, 10_000), Instant::now());
        store.put_at(b"id", b"secret".to_vec(), HOUR, now);
        let shown = format!("{store:?} {:?}", store.get(b"id"));
        assert!(!shown.contains("115") && !shown.contains("secret"), "{shown}");
    }
}
