//! Redis paused, killed, and too slow: no caller waits, and the store recovers by itself.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use brisk_session::{Claim, Lookup, Miss, RedisSettings, RedisStore, RedisTopology, SessionStore};
use brisk_testkit::{process::wait_until, redis::Redis};

use crate::{
    GENEROUS, HOUR, SHORT, address, answer, put, secret, session, settings, started, take, wait_for_closed,
    wait_for_open,
};

/// Far longer than the short deadline, and far shorter than any other timeout of a look-up.
const LONG: Duration = GENEROUS;
const VERY_LONG: Duration = Duration::from_mins(5);

/// A store with a short deadline, which a loaded machine may miss from time to time. It keeps silent connections.
fn hurried(redis: &Redis) -> RedisStore {
    started(RedisSettings { deadline: SHORT, connect_timeout: VERY_LONG, ..settings(redis) })
}

fn put_in_time(store: &RedisStore, id: &[u8]) {
    wait_until("a session in Redis", || {
        let before = store.statistics().written;
        answer(store.put(id, session(id), HOUR)).then_some(())?;
        wait_until("a write", || {
            let statistics = store.statistics();
            (statistics.queue_length == 0).then_some(statistics.written > before)
        })
        .then_some(())
    });
}

fn found_in_time(store: &RedisStore, id: &[u8]) {
    wait_until("a session that is found in time", || answer(store.get(id)).ok());
}

#[test]
fn while_redis_hangs_look_ups_end_at_the_deadline_and_then_at_once() {
    let redis = Redis::start();
    let store = hurried(&redis);
    put_in_time(&store, b"id");
    found_in_time(&store, b"id");
    redis.pause();
    let mut late = 0;
    while !store.statistics().breaker_open {
        let started = Instant::now();
        let found = answer(store.get(b"id"));
        assert!(started.elapsed() < LONG, "{:?}", started.elapsed());
        late += usize::from(found == Err(Miss::Late));
    }
    assert!(late <= 20, "{late} look-ups waited");
    let before = store.statistics();
    for _ in 0..10_000 {
        assert!(matches!(store.get(b"id"), Lookup::Ready(Err(Miss::Down))));
        assert!(matches!(store.put(b"other", vec![1], HOUR), Lookup::Ready(false)));
    }
    let statistics = store.statistics();
    assert_eq!(statistics.down - before.down, 10_000);
    assert_eq!(statistics.dropped_down - before.dropped_down, 10_000);
    redis.resume();
    wait_for_closed(&store);
    found_in_time(&store, b"id");
}

#[test]
fn when_redis_is_killed_nothing_blocks_and_a_restart_is_noticed() {
    let mut redis = Redis::start();
    let store = hurried(&redis);
    put_in_time(&store, b"id");
    redis.kill();
    while !store.statistics().breaker_open {
        let asked = Instant::now();
        let _ = answer(store.put(b"other", vec![1], HOUR));
        let _ = answer(store.get(b"id"));
        assert!(asked.elapsed() < LONG, "{:?}", asked.elapsed());
    }
    wait_until("words about it", || {
        let troubles = store.statistics().troubles;
        troubles.iter().any(|line| line.contains("nothing listens there")).then_some(())
    });
    assert_eq!(store.statistics().connections, 0);
    redis.restart();
    wait_for_closed(&store);
    put_in_time(&store, b"new");
    found_in_time(&store, b"new");
    wait_until("no trouble", || store.statistics().troubles.is_empty().then_some(()));
    assert!(store.statistics().connected >= 2);
}

#[test]
fn what_waits_is_bounded_and_the_rest_is_dropped_and_counted() {
    let redis = Redis::start();
    let store = started(RedisSettings { queue: 8, connect_timeout: VERY_LONG, ..settings(&redis) });
    redis.pause();
    for number in 0..1000_u32 {
        answer(store.put(&number.to_be_bytes(), vec![0; 100], HOUR));
    }
    wait_until("a thread that has sent what it may", || {
        let statistics = store.statistics();
        (statistics.queue_length == 8 && statistics.dropped_full == 992).then_some(())
    });
    redis.resume();
    wait_until("writes that are done", || (store.statistics().queue_length == 0).then_some(()));
    let statistics = store.statistics();
    assert_eq!(statistics.written + statistics.dropped_full, 1000, "{statistics:?}");
}

#[test]
fn a_look_up_that_finds_the_queue_full_is_late_at_once() {
    let redis = Redis::start();
    let (deadline, connect_timeout) = (VERY_LONG, VERY_LONG);
    let store = started(RedisSettings { queue: 1, deadline, connect_timeout, ..settings(&redis) });
    redis.pause();
    let _waiting = store.get(b"id");
    let started = Instant::now();
    // As many failures as open the breaker. Whether the caller or the thread finds the queue full is a matter of
    // chance.
    for _ in 0..10 {
        assert!(!store.statistics().breaker_open);
        assert_eq!(answer(store.get(b"id")), Err(Miss::Late));
    }
    assert!(store.statistics().breaker_open);
    assert!(matches!(store.get(b"id"), Lookup::Ready(Err(Miss::Down))));
    assert!(started.elapsed() < LONG, "{:?}", started.elapsed());
    redis.resume();
}

#[test]
fn a_session_that_is_too_long_is_not_put() {
    let redis = Redis::start();
    let store = started(settings(&redis));
    assert!(!answer(store.put(b"long", vec![0; 100_000], HOUR)));
    put(&store, b"short");
    assert_eq!(redis.cli(&["DBSIZE"]), "1");
}

#[test]
fn the_thread_ends_with_the_last_copy_and_what_was_put_is_written() {
    let redis = Redis::start();
    let store = started(settings(&redis));
    let copy = store.clone();
    drop(store);
    for number in 0..100_u32 {
        assert!(answer(copy.put(&number.to_be_bytes(), vec![0; 100], HOUR)));
    }
    drop(copy);
    wait_until("all writes", || (redis.cli(&["DBSIZE"]) == "100").then_some(()));
    wait_until("the end of the connection", || (redis.info("connected_clients") == "1").then_some(()));
}

#[test]
fn look_ups_that_were_given_up_by_their_callers_do_no_harm() {
    let redis = Redis::start();
    let store = started(settings(&redis));
    put(&store, b"id");
    for _ in 0..100 {
        drop(store.get(b"id"));
    }
    assert_eq!(take(&store, b"id"), Ok(session(b"id")));
    drop(store.take(b"unknown", Claim::Everywhere));
    wait_for_closed(&store);
    wait_until("an empty queue", || (store.statistics().queue_length == 0).then_some(()));
}

#[test]
fn a_store_without_redis_is_down_from_the_start() {
    let mut redis = Redis::start();
    redis.kill();
    let store = RedisStore::start(settings(&redis), &secret()).unwrap();
    wait_for_open(&store);
    assert!(matches!(store.get(b"id"), Lookup::Ready(Err(Miss::Down))));
    redis.restart();
    wait_for_closed(&store);
    put(&store, b"id");
    assert_eq!(take(&store, b"id"), Ok(session(b"id")));
}

/// Far more than the limit of a reply and the buffers of two sockets.
const MUCH: usize = 64 << 20;

#[test]
fn a_reply_without_an_end_ends_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let servers = vec![address(listener.local_addr().expect("its address").port())];
    for topology in [RedisTopology::Single, RedisTopology::Sentinel { service: "main".to_owned() }] {
        for head in ["$2000000000\r\n", "*2000000\r\n", "$900000\r\n", "+"] {
            let mut settings = RedisSettings::new(servers.clone(), topology.clone());
            (settings.deadline, settings.connect_timeout) = (GENEROUS, GENEROUS);
            let _store = RedisStore::start(settings, &secret()).expect("a thread");
            // Connections of the stores before have ended.
            let mut stream = wait_until("a command", || {
                let (mut stream, _) = listener.accept().expect("a connection");
                stream.read(&mut [0; 1024]).is_ok_and(|length| length > 0).then_some(stream)
            });
            let line = if head.starts_with('*') { "+abc\r\n" } else { "abcdef" };
            let reply = [head, &line.repeat(1 << 20)].concat();
            let mut sent = 0;
            while sent < MUCH && stream.write_all(reply.as_bytes()).is_ok() {
                sent += reply.len();
            }
            assert!(sent < MUCH, "{topology:?}, {head:?}: {sent} bytes");
        }
    }
}
