//! The memory store compared with a map over random histories: it may forget, but never mix up or exceed its limits.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use brisk_session::{MemorySettings, MemoryStore};

/// A step of a deterministic random sequence.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

#[test]
fn whatever_happened_before_a_session_found_is_the_one_put_last_and_alive() {
    for seed in 0..200 {
        let mut random = seed;
        let settings = MemorySettings {
            max_sessions: 1 + next(&mut random) as usize % 300,
            max_bytes: 2_000 + next(&mut random) as usize % 100_000,
        };
        let store = MemoryStore::new(&settings);
        let mut model: HashMap<[u8; 8], (Vec<u8>, Instant)> = HashMap::new();
        let mut now = Instant::now();
        for _ in 0..2_000 {
            let id = (next(&mut random) % 400).to_be_bytes();
            now += Duration::from_secs(next(&mut random) % 3);
            let expected =
                model.get(&id).filter(|(_, expires)| now < *expires).map(|(session, _)| session.clone());
            match next(&mut random) % 4 {
                0 | 1 => {
                    let session = next(&mut random).to_be_bytes().repeat(next(&mut random) as usize % 40);
                    let lifetime = Duration::from_secs(next(&mut random) % 500);
                    model.insert(id, (session.clone(), now + lifetime));
                    if !store.put_at(&id, session, lifetime, now) {
                        model.remove(&id);
                    }
                }
                2 => {
                    let found = store.get_at(&id, now);
                    assert!(found.is_err() || found.ok() == expected, "seed {seed}");
                }
                _ => {
                    let found = store.take_at(&id, now);
                    assert!(found.is_err() || found.ok() == expected, "seed {seed}");
                    model.remove(&id);
                }
            }
            let statistics = store.statistics();
            assert!(statistics.bytes <= settings.max_bytes, "seed {seed}: {statistics:?}");
            // The limit of each shard is rounded up, and a store of this size has at most four shards.
            assert!(statistics.sessions <= settings.max_sessions + 3, "seed {seed}: {statistics:?}");
        }
        store.remove_expired(now + Duration::from_secs(1000));
        let statistics = store.statistics();
        assert_eq!((statistics.sessions, statistics.bytes), (0, 0), "seed {seed}");
    }
}
