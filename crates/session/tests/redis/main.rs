//! The store on Redis against real Redis servers, well and ill.

mod access;
mod claims;
mod clusters;
mod exchange;
mod faults;
mod tiers;

use std::{
    fmt::{Debug, Write},
    sync::{Mutex, Once},
    time::Duration,
};

use brisk_session::{
    Claim, FleetSecret, Found, Lookup, RedisAddress, RedisSettings, RedisStore, RedisTopology, SessionStore,
};
use brisk_testkit::{
    process::wait_until,
    redis::{Redis, Sentinel},
};
use tokio::runtime::{Builder, Runtime};
use tracing::{Event, Metadata, Subscriber, field::Field, span};

const HOUR: Duration = Duration::from_hours(1);

/// For tests of what is found, not of when: longer than any pause of a loaded machine.
const GENEROUS: Duration = Duration::from_secs(5);

thread_local! {
    /// As a worker has one.
    static RUNTIME: Runtime = Builder::new_current_thread().enable_all().build().expect("a runtime for tests");
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.with(|runtime| runtime.block_on(future))
}

fn answer<T>(lookup: Lookup<T>) -> T {
    block_on(lookup.answer())
}

fn secret() -> FleetSecret {
    FleetSecret::from_bytes(&[7; 32]).expect("32 bytes")
}

fn address(port: u16) -> RedisAddress {
    RedisAddress { host: "127.0.0.1".to_owned(), port }
}

fn settings(redis: &Redis) -> RedisSettings {
    let mut settings = RedisSettings::new(vec![address(redis.port())], RedisTopology::Single);
    settings.deadline = GENEROUS;
    settings
}

/// A store that asks `sentinel` for its Redis, with the session `id`, which the replica has too.
fn with_a_replicated_session(sentinel: &Sentinel) -> RedisStore {
    let mut settings = settings(&sentinel.primary);
    settings.servers = vec![address(sentinel.address().port())];
    settings.topology = RedisTopology::Sentinel { service: Sentinel::SERVICE.to_owned() };
    let store = started(settings);
    put(&store, b"id");
    wait_until("a replica that has the session", || (sentinel.replica.cli(&["DBSIZE"]) == "1").then_some(()));
    store
}

/// A store that has reached its Redis.
fn started(settings: RedisSettings) -> RedisStore {
    let store = RedisStore::start(settings, &secret()).expect("a thread");
    wait_for_closed(&store);
    store
}

fn store(redis: &Redis) -> RedisStore {
    started(settings(redis))
}

fn wait_for_closed(store: &RedisStore) {
    wait_until("a breaker that closes", || (!store.statistics().breaker_open).then_some(()));
}

fn wait_for_open(store: &RedisStore) {
    wait_until("a breaker that opens", || store.statistics().breaker_open.then_some(()));
}

/// Puts a session, and waits until Redis has it.
fn put(store: &RedisStore, id: &[u8]) {
    let before = store.statistics().written;
    assert!(answer(store.put(id, session(id), HOUR)));
    wait_until("a write that is done", || (store.statistics().written > before).then_some(()));
}

/// The session that tests keep under `id`.
fn session(id: &[u8]) -> Vec<u8> {
    [b"session of ", id].concat()
}

fn take(store: &impl SessionStore, id: &[u8]) -> Found {
    answer(store.take(id, Claim::Everywhere))
}

/// Warnings of all tests of this process.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The warnings so far that mention `word`. The first call begins to collect.
fn warnings(word: &str) -> Vec<String> {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Collector).expect("no other subscriber"));
    let warnings = WARNINGS.lock().expect("nobody panics with it");
    warnings.iter().filter(|line| line.contains(word)).cloned().collect()
}

struct Collector;

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::WARN
    }

    fn new_span(&self, _span: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _span: &span::Id, _values: &span::Record<'_>) {}

    fn record_follows_from(&self, _span: &span::Id, _follows: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = String::new();
        event.record(&mut |_: &Field, value: &dyn Debug| write!(line, "{value:?}").expect("a string"));
        WARNINGS.lock().expect("nobody panics with it").push(line);
    }

    fn enter(&self, _span: &span::Id) {}

    fn exit(&self, _span: &span::Id) {}
}
