//! An exclusively taken session is returned at most once, also while Redis fails.

use std::{thread, time::Duration};

use brisk_session::{
    Claim, FleetSecret, Lookup, Miss, RedisSettings, RedisStore, SessionOrMiss, SessionStore,
};
use brisk_testkit::{
    process::wait_until,
    redis::{Redis, RedisOptions, Sentinel},
};

use crate::{
    SHORT, answer, impatient, put, put_and_find, session, settings, started, store, take, take_again,
    wait_for_closed, wait_for_open, with_a_replicated_session,
};

#[test]
fn what_one_store_puts_another_takes_once() {
    let redis = Redis::start();
    let (here, there) = (store(&redis), store(&redis));
    put(&here, b"id");
    assert_eq!(answer(there.get(b"id")), Ok(session(b"id")));
    assert_eq!(take(&there, b"id"), Ok(session(b"id")));
    assert_eq!(take(&there, b"id"), Err(Miss::Used));
    assert_eq!(take(&here, b"id"), Err(Miss::Used));
    assert_eq!(answer(here.get(b"id")), Err(Miss::Used));
    assert_eq!(take(&here, b"unknown"), Err(Miss::Unknown));
    let statistics = there.statistics();
    assert_eq!((statistics.hits, statistics.used, statistics.operations), (2, 1, 3));
    assert!(redis.cli(&["KEYS", "*"]).starts_with("brisk:s:"));
    assert_eq!(redis.cli(&["DBSIZE"]), "1", "nothing is kept of unknown IDs");
}

#[test]
fn of_200_who_take_at_once_in_three_stores_one_gets_the_session() {
    let redis = Redis::start();
    let stores = [(); 3].map(|()| store(&redis));
    for claims in [[Claim::Everywhere; 2], [Claim::Here, Claim::Everywhere]] {
        let id = format!("{claims:?}").into_bytes();
        put(&stores[0], &id);
        let take_often = |store: &RedisStore| -> Vec<SessionOrMiss> {
            let asked: Vec<_> = (0..67).map(|number| store.take(&id, claims[number % 2])).collect();
            asked.into_iter().map(answer).collect()
        };
        let found: Vec<SessionOrMiss> = thread::scope(|scope| {
            let workers: Vec<_> = stores.iter().map(|store| scope.spawn(|| take_often(store))).collect();
            workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect()
        });
        assert_eq!(found.len(), 201);
        let given = found.iter().filter(|found| found.is_ok()).count();
        assert_eq!(given, 1, "{claims:?}");
        assert!(found.iter().all(|found| matches!(found, Ok(_) | Err(Miss::Used))));
    }
}

#[test]
fn a_session_that_was_taken_does_not_come_back_with_a_snapshot() {
    let mut redis = Redis::start();
    let store = store(&redis);
    put(&store, b"taken");
    put(&store, b"not taken");
    redis.cli(&["SAVE"]);
    assert_eq!(take(&store, b"taken"), Ok(session(b"taken")));
    redis.kill();
    wait_for_open(&store);
    redis.restart();
    wait_for_closed(&store);
    assert_eq!(redis.cli(&["DBSIZE"]), "2", "Redis itself has brought it back");
    assert_eq!(take(&store, b"taken"), Err(Miss::Unknown));
    // Redis cannot prove that this session was not taken.
    assert_eq!(answer(store.get(b"not taken")), Ok(session(b"not taken")));
    assert_eq!(take(&store, b"not taken"), Err(Miss::Unknown));
    assert_eq!(store.statistics().outlived, 2);
    put(&store, b"new");
    assert_eq!(take(&store, b"new"), Ok(session(b"new")));
}

#[test]
fn a_restart_does_not_keep_a_session_from_a_handshake_without_early_data() {
    let mut redis = Redis::start();
    let store = store(&redis);
    put(&store, b"id");
    redis.cli(&["SAVE"]);
    redis.kill();
    wait_for_open(&store);
    redis.restart();
    wait_for_closed(&store);
    assert_eq!(answer(store.take(b"id", Claim::Here)), Ok(session(b"id")));
    assert_eq!(answer(store.take(b"id", Claim::Here)), Err(Miss::Used));
}

#[test]
fn a_session_that_was_taken_does_not_come_back_with_a_replica() {
    let mut sentinel = Sentinel::start();
    let store = with_a_replicated_session(&sentinel);
    // The replica must not learn of the take.
    sentinel.replica.pause();
    sentinel.primary.cli(&["CLIENT", "KILL", "TYPE", "replica"]);
    assert_eq!(take(&store, b"id"), Ok(session(b"id")));
    sentinel.primary.kill();
    sentinel.replica.resume();
    wait_for_open(&store);
    sentinel.wait_for_failover();
    wait_for_closed(&store);
    assert_eq!(sentinel.replica.cli(&["DBSIZE"]), "1", "the replica has brought it back");
    assert_eq!(take(&store, b"id"), Err(Miss::Unknown));
    assert_eq!(store.statistics().outlived, 1);
    put(&store, b"new");
    assert_eq!(take(&store, b"new"), Ok(session(b"new")));
}

#[test]
fn a_primary_that_was_a_replica_for_a_while_brings_nothing_back() {
    let first = Redis::start();
    let second = Redis::with(RedisOptions::default().replica_of(&first));
    let store = store(&first);
    put(&store, b"id");
    wait_until("a replica that has the session", || (second.cli(&["DBSIZE"]) == "1").then_some(()));
    second.cli(&["REPLICAOF", "NO", "ONE"]);
    assert_eq!(take(&store, b"id"), Ok(session(b"id")));
    // The same process gets the session back from the other one, and is made a primary again.
    first.cli(&["REPLICAOF", "127.0.0.1", &second.port().to_string()]);
    wait_until("a replica in step", || (first.info("master_link_status") == "up").then_some(()));
    first.cli(&["REPLICAOF", "NO", "ONE"]);
    wait_for_closed(&store);
    wait_until("a session that is found again", || answer(store.get(b"id")).ok());
    assert_eq!(take(&store, b"id"), Err(Miss::Unknown));
}

#[test]
fn a_take_whose_answer_is_late_is_not_made_up_for() {
    let redis = Redis::start();
    let store = started(RedisSettings { deadline: SHORT, ..settings(&redis) });
    put(&store, b"id");
    redis.pause();
    assert_eq!(take(&store, b"id"), Err(Miss::Late));
    redis.resume();
    wait_until("a take that was done too late", || (store.statistics().operations == 1).then_some(()));
    assert_eq!(take_again(&store, b"id"), Err(Miss::Used));
}

#[test]
fn a_take_on_a_connection_that_was_given_up_may_be_done_and_is_not_repeated() {
    let redis = Redis::start();
    let impatient = impatient(settings(&redis));
    let patient = store(&redis);
    put(&patient, b"id");
    redis.pause();
    // Late, or down if the connection was closed before.
    assert!(matches!(take(&impatient, b"id"), Err(Miss::Late | Miss::Down)));
    wait_for_open(&impatient);
    redis.resume();
    wait_for_closed(&impatient);
    wait_for_closed(&patient);
    assert_eq!(take(&patient, b"id"), Err(Miss::Used));
    assert_eq!(take_again(&impatient, b"id"), Err(Miss::Used));
}

#[test]
fn early_data_refused_while_redis_was_down_is_refused_afterwards() {
    let redis = Redis::start();
    let impatient = impatient(settings(&redis));
    let other = store(&redis);
    put(&other, b"id");
    redis.pause();
    wait_for_open(&impatient);
    assert!(matches!(impatient.take(b"id", Claim::Everywhere), Lookup::Ready(Err(Miss::Down))));
    redis.resume();
    wait_for_closed(&impatient);
    wait_for_closed(&other);
    assert_eq!(take(&other, b"id"), Err(Miss::Used));
}

#[test]
fn early_data_refused_for_want_of_room_is_refused_afterwards() {
    let redis = Redis::start();
    let crowded =
        started(RedisSettings { queue: 1, connect_timeout: Duration::from_mins(1), ..settings(&redis) });
    let other = store(&redis);
    put(&other, b"id");
    let key = redis.cli(&["KEYS", "*"]);
    redis.pause();
    let _waiting = crowded.get(b"another");
    assert_eq!(take(&crowded, b"id"), Err(Miss::Late));
    assert!(!crowded.statistics().breaker_open, "Redis is not out of order");
    redis.resume();
    wait_until("a mark in Redis", || (redis.cli(&["STRLEN", &key]) == "0").then_some(()));
    assert_eq!(take(&other, b"id"), Err(Miss::Used));
}

#[test]
fn a_session_that_was_taken_is_not_put_again() {
    let redis = Redis::start();
    let store = store(&redis);
    put(&store, b"id");
    assert_eq!(take(&store, b"id"), Ok(session(b"id")));
    put(&store, b"id");
    assert_eq!(take(&store, b"id"), Err(Miss::Used));
}

#[test]
fn a_value_under_another_name_or_of_another_fleet_does_not_open() {
    let redis = Redis::start();
    let store = store(&redis);
    put(&store, b"id");
    put(&store, b"other");
    let keys = redis.cli(&["KEYS", "*"]);
    let (first, second) = keys.split_once('\n').unwrap();
    redis.cli(&["COPY", first, second, "REPLACE"]);
    let found = [take(&store, b"id"), take(&store, b"other")];
    assert_eq!(found.iter().filter(|found| found.is_ok()).count(), 1, "{found:?}");
    assert!(found.contains(&Err(Miss::Forged)));
    put(&store, b"third");
    let strangers = FleetSecret::from_bytes(&[8; 32]).unwrap();
    let stranger = RedisStore::start(settings(&redis), &strangers).unwrap();
    wait_for_closed(&stranger);
    assert_eq!(take(&stranger, b"third"), Err(Miss::Unknown), "it does not even find it");
}

#[test]
fn a_session_ends_with_its_lifetime() {
    let redis = Redis::start();
    let store = store(&redis);
    let id = put_and_find(&store, Duration::from_secs(2), |id| answer(store.get(id)).ok());
    wait_until("the end of a session", || (redis.cli(&["DBSIZE"]) == "0").then_some(()));
    assert_eq!(answer(store.get(&id)), Err(Miss::Unknown));
}
