//! Passwords, users and TLS, and the messages about missing or wrong ones.

use std::time::Duration;

use brisk_session::{
    Claim, Lookup, Miss, RedisCredentials, RedisSettings, RedisStore, RedisTls, RedisTopology, SessionStore,
};
use brisk_testkit::{
    ca::TestCa,
    process::{free_port, wait_until},
    redis::{Redis, RedisOptions},
};

use crate::{address, answer, put, secret, session, settings, started, take, warnings};

fn with_user(redis: &Redis, username: Option<&str>, password: &str) -> RedisSettings {
    let credentials =
        RedisCredentials { username: username.map(str::to_owned), password: password.to_owned().into() };
    RedisSettings { credentials: Some(credentials), ..settings(redis) }
}

/// Starts a store that cannot work, and waits until it has logged one warning with `expected`.
fn trouble(settings: RedisSettings, expected: &str) {
    let port = format!(":{}", settings.servers[0].port);
    assert_eq!(warnings(&port), [""; 0]);
    let store = RedisStore::start(settings, &secret()).expect("a thread");
    let line = wait_until("words about the trouble", || store.statistics().troubles.pop());
    assert!(line.contains(&port) && line.contains(expected), "{line}");
    assert!(matches!(store.get(b"id"), Lookup::Ready(Err(Miss::Down))));
    // Further attempts after 100, 300 and 700 ms must not log again.
    std::thread::sleep(Duration::from_secs(1));
    let warnings = warnings(&port);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains(expected), "{warnings:?}");
}

#[test]
fn a_password_is_given() {
    let redis = Redis::with(RedisOptions::default().password("hush"));
    let store = started(with_user(&redis, None, "hush"));
    put(&store, b"id");
    assert_eq!(take(&store, b"id"), Ok(session(b"id")));
}

#[test]
fn a_user_needs_no_more_than_get_set_and_info_on_our_keys() {
    let rules = "brisk on >hush ~brisk:* -@all +get +set +info";
    let redis = Redis::with(RedisOptions::default().user(rules));
    let store = started(with_user(&redis, Some("brisk"), "hush"));
    put(&store, b"id");
    assert_eq!(answer(store.get(b"id")), Ok(session(b"id")));
    assert_eq!(take(&store, b"id"), Ok(session(b"id")));
    assert_eq!(store.statistics().troubles, [""; 0]);
    assert_eq!(redis.cli(&["ACL", "LOG"]), "", "nothing was asked for that is not allowed");
}

#[test]
fn without_info_no_session_is_taken_for_early_data() {
    let redis = Redis::with(RedisOptions::default().user("brisk on >hush ~brisk:* -@all +get +set"));
    let store = started(with_user(&redis, Some("brisk"), "hush"));
    put(&store, b"id");
    assert_eq!(take(&store, b"id"), Err(Miss::Down));
    let line = store.statistics().troubles.pop().unwrap();
    assert!(line.contains("+info"), "{line}");
    put(&store, b"other");
    assert_eq!(answer(store.take(b"other", Claim::Here)), Ok(session(b"other")));
}

#[test]
fn commands_that_are_not_allowed_are_named_and_open_the_breaker() {
    let redis = Redis::with(RedisOptions::default().user("brisk on >hush ~brisk:* -@all +get +info"));
    let store = started(with_user(&redis, Some("brisk"), "hush"));
    assert!(answer(store.put(b"id", session(b"id"), crate::HOUR)));
    let line = wait_until("words about the trouble", || store.statistics().troubles.pop());
    assert!(line.contains("refuses SET") && line.contains("+get +set +info"), "{line}");
    assert_eq!(store.statistics().dropped_down, 1);
}

#[test]
fn a_wrong_password_is_said_once_and_clearly() {
    let redis = Redis::with(RedisOptions::default().password("hush"));
    trouble(with_user(&redis, None, "wrong"), "the user name and the password have to be those of its ACL");
}

#[test]
fn an_unknown_user_is_said_once_and_clearly() {
    let redis = Redis::start();
    trouble(with_user(&redis, Some("nobody"), "x"), "refuses our user or password");
}

#[test]
fn a_missing_password_is_said_once_and_clearly() {
    let redis = Redis::with(RedisOptions::default().password("hush"));
    trouble(settings(&redis), "asks for a password, and none is set");
}

#[test]
fn an_address_where_nothing_listens_is_said_once_and_clearly() {
    let settings = RedisSettings::new(vec![address(free_port())], RedisTopology::Single);
    trouble(settings, "refuses connections: nothing listens there");
}

#[test]
fn a_replica_is_said_once_and_clearly() {
    let primary = Redis::start();
    let replica = Redis::with(RedisOptions::default().replica_of(&primary));
    trouble(settings(&replica), "is a replica, and takes no writes");
}

#[test]
fn a_server_that_hangs_is_said_once_and_clearly() {
    let redis = Redis::start();
    redis.pause();
    let connect_timeout = Duration::from_millis(200);
    trouble(RedisSettings { connect_timeout, ..settings(&redis) }, "did not answer within 200ms");
    redis.resume();
}

#[test]
fn tls_needs_a_certificate_of_a_trusted_authority() {
    let ca = TestCa::new();
    let leaf = ca.server(&["127.0.0.1"]).issue();
    let redis = Redis::with(RedisOptions::default().tls(&leaf, ca.root_file()));
    let tls = RedisTls::trusting(ca.root_pem().as_bytes()).unwrap();
    let store = started(RedisSettings { tls: Some(tls), ..settings(&redis) });
    put(&store, b"id");
    assert_eq!(take(&store, b"id"), Ok(session(b"id")));

    let other = RedisTls::trusting(TestCa::new().root_pem().as_bytes()).unwrap();
    trouble(RedisSettings { tls: Some(other), ..settings(&redis) }, "certificate");
}
