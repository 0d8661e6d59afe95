//! Exchange of ticket keys through Redis: the same on every gateway, restored when Redis loses them, removed when
//! expired.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use brisk_session::{KeyOrigin, KeySource, RedisStore, RotationSettings, TicketKeySync, TicketKeyring};
use brisk_testkit::{process::wait_until, redis::Redis};

use crate::{secret, store};

struct Gateway {
    keyring: Arc<TicketKeyring>,
    store: RedisStore,
    _exchange: TicketKeySync,
}

impl Gateway {
    fn start(redis: &Redis, rotation: RotationSettings) -> Self {
        let store = store(redis);
        let keyring = Arc::new(TicketKeyring::new(KeySource::Shared { rotation }, SystemTime::now()));
        let exchange = TicketKeySync::prepare(&store, &secret(), rotation, Arc::clone(&keyring));
        let exchange = exchange.expect("an empty queue").begin();
        Self { keyring, store, _exchange: exchange }
    }

    fn seal(&self) -> Option<Vec<u8>> {
        self.keyring.seal(b"session", SystemTime::now())
    }

    fn opens(&self, ticket: &[u8]) -> bool {
        self.keyring.open_ticket(ticket, SystemTime::now()).is_ok()
    }
}

fn hourly() -> RotationSettings {
    RotationSettings::new(Duration::from_hours(2), Duration::from_hours(1), Duration::ZERO)
        .expect("right settings")
}

#[test]
fn gateways_that_start_together_have_the_same_keys_before_they_seal() {
    let redis = Redis::start();
    let gateways = [(); 3].map(|()| Gateway::start(&redis, hourly()));
    let ticket = wait_until("a first ticket", || gateways[0].seal());
    for gateway in &gateways {
        assert!(gateway.opens(&ticket));
    }
    let late = Gateway::start(&redis, hourly());
    wait_until("keys of a gateway that came later", || late.opens(&ticket).then_some(()));
    let sealed = wait_until("a ticket of it", || late.seal());
    assert!(gateways.iter().all(|gateway| gateway.opens(&sealed)));
    let values = redis.cli(&["HVALS", "brisk:ticket-keys"]);
    assert!(values.lines().count() >= 2, "the present one, and the next: {values}");
}

#[test]
fn keys_that_redis_forgot_are_put_back() {
    let redis = Redis::start();
    let gateways = [(); 2].map(|()| Gateway::start(&redis, hourly()));
    let ticket = wait_until("a first ticket", || gateways[0].seal());
    let before = redis.cli(&["HKEYS", "brisk:ticket-keys"]);
    redis.cli(&["FLUSHALL"]);
    wait_until("the same keys", || {
        let after = redis.cli(&["HKEYS", "brisk:ticket-keys"]);
        before.lines().all(|slot| after.lines().any(|other| other == slot)).then_some(())
    });
    let late = Gateway::start(&redis, hourly());
    wait_until("keys of a gateway that came later", || late.opens(&ticket).then_some(()));
    assert!(gateways.iter().all(|gateway| gateway.opens(&ticket) && gateway.seal().is_some()));
}

#[test]
fn a_forced_rotation_reaches_all_and_fails_none() {
    let redis = Redis::start();
    let gateways = [(); 2].map(|()| Gateway::start(&redis, hourly()));
    let old = wait_until("a first ticket", || gateways[0].seal());
    let sealing = |gateway: &Gateway| {
        let keys = gateway.keyring.keys(SystemTime::now());
        keys.iter().find(|key| key.seals).map(|key| key.id)
    };
    let first = sealing(&gateways[0]);
    gateways[1].keyring.force_rotation(SystemTime::now()).unwrap();
    wait_until("another key", || (sealing(&gateways[0]) != first).then_some(()));
    let new = gateways[0].seal().unwrap();
    wait_until("another key", || (sealing(&gateways[1]) != first).then_some(()));
    assert!(gateways.iter().all(|gateway| gateway.opens(&old) && gateway.opens(&new)));
}

#[test]
fn a_forced_rotation_that_redis_refuses_is_made_up_for() {
    let redis = Redis::start();
    let gateway = Gateway::start(&redis, hourly());
    wait_until("a first ticket", || gateway.seal());
    let keys = || redis.cli(&["HLEN", "brisk:ticket-keys"]);
    let before = keys();
    redis.cli(&["ACL", "SETUSER", "default", "-hsetnx"]);
    gateway.keyring.force_rotation(SystemTime::now()).unwrap();
    wait_until("words about the trouble", || gateway.store.statistics().troubles.pop());
    redis.cli(&["ACL", "SETUSER", "default", "+hsetnx"]);
    wait_until("another key", || (keys() != before).then_some(()));
}

#[test]
fn a_keyring_that_turns_to_shared_keys_after_they_were_read_has_them() {
    let redis = Redis::start();
    let store = store(&redis);
    let keyring = Arc::new(TicketKeyring::new(KeySource::Generated(hourly()), SystemTime::now()));
    let _exchange =
        TicketKeySync::prepare(&store, &secret(), hourly(), Arc::clone(&keyring)).unwrap().begin();
    wait_until("a second round", || {
        let commands = redis.cli(&["INFO", "commandstats"]);
        let calls = commands.split_once("cmdstat_hgetall:calls=")?.1.split(',').next()?;
        (calls.parse::<u32>().ok()? > 2).then_some(())
    });
    keyring.configure(KeySource::Shared { rotation: hourly() }, SystemTime::now());
    wait_until("a shared key", || {
        keyring.keys(SystemTime::now()).iter().any(|key| key.origin == KeyOrigin::Shared).then_some(())
    });
}

#[test]
fn dead_keys_are_deleted() {
    let redis = Redis::start();
    let rotation =
        RotationSettings::new(Duration::from_secs(1), Duration::from_secs(14), Duration::ZERO).unwrap();
    let gateway = Gateway::start(&redis, rotation);
    wait_until("a first ticket", || gateway.seal());
    let first = redis.cli(&["HKEYS", "brisk:ticket-keys"]);
    let first = first.lines().min().unwrap();
    wait_until("its end", || {
        let slots = redis.cli(&["HKEYS", "brisk:ticket-keys"]);
        slots.lines().all(|slot| slot != first).then_some(())
    });
    assert!(gateway.seal().is_some());
}

#[test]
fn what_others_write_into_the_hash_is_passed_over() {
    let redis = Redis::start();
    redis.cli(&["HSET", "brisk:ticket-keys", "1", "nonsense", "x", "y"]);
    let gateway = Gateway::start(&redis, hourly());
    wait_until("a first ticket", || gateway.seal());
    assert_eq!(gateway.store.statistics().troubles, [""; 0]);
}
