//! The store on Redis against real Redis servers, working and failing.

mod access;
mod claims;
mod clusters;
mod exchange;
mod faults;
mod tiers;

use std::{
    fmt::{Debug, Write},
    sync::{Mutex, Once},
    time::{Duration, Instant},
};

use brisk_session::{
    Claim, FleetSecret, Lookup, Miss, RedisAddress, RedisSettings, RedisStore, RedisTopology, SessionOrMiss,
    SessionStore,
};
use brisk_testkit::{
    process::wait_until,
    redis::{Redis, Sentinel},
};
use tokio::runtime::{Builder, Runtime};
use tracing::{Event, Metadata, Subscriber, field::Field, span};

const HOUR: Duration = Duration::from_hours(1);

/// Deadline for tests of results: longer than any pause of a loaded machine.
const GENEROUS: Duration = Duration::from_secs(20);

/// Deadline for tests of timeouts.
const SHORT: Duration = Duration::from_millis(100);

thread_local! {
    /// A current-thread runtime, as in a worker.
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
    (settings.deadline, settings.connect_timeout) = (GENEROUS, GENEROUS);
    settings
}

/// A store with short deadlines for replies and connections, which a loaded machine may miss.
fn impatient(settings: RedisSettings) -> RedisStore {
    started(RedisSettings { deadline: SHORT, connect_timeout: 3 * SHORT, ..settings })
}

/// A store that gets its primary from `sentinel`, with the session `id`, which the replica has too.
fn with_a_replicated_session(sentinel: &Sentinel) -> RedisStore {
    let mut settings = settings(&sentinel.primary);
    settings.servers = vec![address(sentinel.address().port())];
    settings.topology = RedisTopology::Sentinel { service: Sentinel::SERVICE.to_owned() };
    let store = started(settings);
    put(&store, b"id");
    wait_until("a replica that has the session", || (sentinel.replica.cli(&["DBSIZE"]) == "1").then_some(()));
    store
}

/// A store that is connected.
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

/// The test session with the ID `id`.
fn session(id: &[u8]) -> Vec<u8> {
    [b"session of ", id].concat()
}

fn take(store: &impl SessionStore, id: &[u8]) -> SessionOrMiss {
    answer(store.take(id, Claim::Everywhere))
}

/// `take` of a session that was taken already, repeated while the store misses its deadline.
fn take_again(store: &RedisStore, id: &[u8]) -> SessionOrMiss {
    wait_until("an answer in time", || {
        let found = take(store, id);
        (!matches!(found, Err(Miss::Late | Miss::Down))).then_some(found)
    })
}

/// Puts a session with this lifetime and looks it up with `find`, again with another ID if it expired before it was
/// found. Returns its ID.
fn put_and_find(
    store: &impl SessionStore,
    lifetime: Duration,
    find: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> Vec<u8> {
    let mut number = 0_u32;
    wait_until("a session that is found within its lifetime", || {
        number += 1;
        let id = number.to_be_bytes().to_vec();
        assert!(answer(store.put(&id, session(&id), lifetime)));
        let limit = Instant::now() + lifetime;
        while Instant::now() < limit {
            if let Some(found) = find(&id) {
                assert_eq!(found, session(&id));
                return Some(id);
            }
        }
        None
    })
}

/// Warnings of all tests of this process.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The warnings so far that contain `word`. The first call starts collecting.
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
