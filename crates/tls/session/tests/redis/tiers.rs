//! Memory in front of Redis.

use std::{sync::Arc, time::Duration};

use brisk_session::{Claim, Lookup, MemorySettings, MemoryStore, Miss, SessionStore, TieredStore};
use brisk_testkit::{process::wait_until, redis::Redis};

use crate::{HOUR, answer, impatient, put_and_find, session, settings, store, take, wait_for_open};

fn tiered(redis: &Redis) -> TieredStore {
    TieredStore::new(Arc::new(MemoryStore::new(&MemorySettings::default())), store(redis))
}

/// Puts a session, and waits until Redis has it.
fn put(store: &TieredStore, id: &[u8]) {
    let before = store.redis().statistics().written;
    assert!(answer(store.put(id, session(id), HOUR)));
    wait_until("a write", || (store.redis().statistics().written > before).then_some(()));
}

#[test]
fn what_was_put_here_is_found_here_at_once_and_there_through_redis() {
    let redis = Redis::start();
    let (here, there) = (tiered(&redis), tiered(&redis));
    put(&here, b"id");
    assert!(matches!(here.get(b"id"), Lookup::Ready(Ok(_))));
    assert!(matches!(there.get(b"id"), Lookup::Pending(_)));
    assert_eq!(answer(there.get(b"id")), Ok(session(b"id")));
    assert!(matches!(there.get(b"id"), Lookup::Ready(Ok(_))), "it was kept");
    assert_eq!(here.redis().statistics().operations, 0);
}

#[test]
fn a_session_taken_here_is_gone_there() {
    let redis = Redis::start();
    let (here, there) = (tiered(&redis), tiered(&redis));
    // The write and its invalidation are sent in quick succession and must keep their order.
    for number in 0..500_u32 {
        let id = number.to_be_bytes();
        assert!(answer(here.put(&id, session(&id), HOUR)));
        assert_eq!(answer(here.take(&id, Claim::Here)), Ok(session(&id)));
    }
    wait_until("all writes", || (here.redis().statistics().written == 1000).then_some(()));
    for number in 0..500_u32 {
        let id = number.to_be_bytes();
        assert_eq!(take(&there, &id), Err(Miss::Used));
        assert!(answer(here.take(&id, Claim::Here)).is_err());
    }
}

#[test]
fn a_session_taken_there_against_everyone_is_not_given_here_for_early_data() {
    let redis = Redis::start();
    let (here, there) = (tiered(&redis), tiered(&redis));
    put(&here, b"id");
    assert_eq!(take(&there, b"id"), Ok(session(b"id")));
    assert!(take(&here, b"id").is_err());
    assert!(answer(here.get(b"id")).is_err(), "the copy in memory is gone too");
}

#[test]
fn the_copy_in_memory_is_never_given_for_early_data() {
    let redis = Redis::start();
    let here =
        TieredStore::new(Arc::new(MemoryStore::new(&MemorySettings::default())), impatient(settings(&redis)));
    put(&here, b"id");
    put(&here, b"other");
    redis.pause();
    wait_for_open(here.redis());
    assert_eq!(take(&here, b"id"), Err(Miss::Down));
    assert_eq!(answer(here.take(b"other", Claim::Here)), Ok(session(b"other")));
    redis.resume();
}

#[test]
fn without_redis_memory_does_what_it_can() {
    let mut redis = Redis::start();
    let here = tiered(&redis);
    redis.kill();
    wait_for_open(here.redis());
    assert!(answer(here.put(b"id", session(b"id"), HOUR)));
    assert!(matches!(here.get(b"id"), Lookup::Ready(Ok(_))));
    assert!(matches!(here.get(b"other"), Lookup::Ready(Err(Miss::Down))));
    assert_eq!(answer(here.take(b"id", Claim::Here)), Ok(session(b"id")));
}

#[test]
fn what_was_fetched_is_kept_no_longer_than_it_lives() {
    let redis = Redis::start();
    let (here, there) = (tiered(&redis), tiered(&redis));
    let id = put_and_find(&here, Duration::from_secs(3), |id| answer(there.get(id)).ok());
    wait_until("its end", || answer(there.get(&id)).is_err().then_some(()));
}
