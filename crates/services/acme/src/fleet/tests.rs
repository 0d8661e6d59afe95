use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use brisk_session::{RedisAddress, RedisTopology};
use brisk_testkit::redis::Redis;
use tempfile::TempDir;

use super::*;

fn store(redis: &Redis) -> FleetStore {
    let server = RedisAddress { host: "127.0.0.1".to_owned(), port: redis.port() };
    let mut settings = RedisSettings::new(vec![server], RedisTopology::Single);
    // More than any pause of the machine.
    settings.connect_timeout = Duration::from_mins(3);
    FleetStore::new(settings, &FleetSecret::from_bytes(&[7; 32]).unwrap())
}

fn with_copy(redis: &Redis, folder: &TempDir) -> FleetStore {
    store(redis).with_copy(folder.path().to_owned())
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.is_dir() { found.extend(files(&entry)) } else { found.push(entry) }
    }
    found
}

fn text(value: Option<Zeroizing<Vec<u8>>>) -> Option<String> {
    value.map(|value| String::from_utf8(value.to_vec()).unwrap())
}

#[test]
fn a_start_without_redis_reads_sealed_copies_and_nothing_else_is_copied() {
    let (mut redis, folder) = (Redis::start(), tempfile::tempdir().unwrap());
    let certificate = Name::of([CERTIFICATES, "a.test", "ecdsa"]);
    let status = Name::of(["status", "a.test", "ecdsa"]);
    let other = store(&redis);
    for name in [&certificate, &status] {
        other.write(name, b"secret").unwrap();
        assert!(with_copy(&redis, &folder).read(name).unwrap().is_some());
    }
    redis.kill();
    let files = files(folder.path());
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(files[0].metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!std::fs::read(&files[0]).unwrap().windows(6).any(|part| part == b"secret"));
    let again = with_copy(&redis, &folder);
    assert_eq!(text(again.read(&certificate).unwrap()).as_deref(), Some("secret"));
    again.read(&status).expect_err("it is in Redis only");
    again.write(&certificate, b"new").expect_err("no gateway may write alone");
    assert_eq!(text(again.read(&certificate).unwrap()).as_deref(), Some("secret"));
    store(&redis).read(&certificate).expect_err("a command of the operator uses no copy");
    let secret = FleetSecret::from_bytes(&[8; 32]).unwrap();
    let stranger = FleetStore::new(again.redis.settings().clone(), &secret);
    stranger.with_copy(folder.path().to_owned()).read(&certificate).expect_err("of another secret");
}

#[test]
fn a_command_removes_the_copy_of_the_gateway_on_its_machine() {
    let (mut redis, folder) = (Redis::start(), tempfile::tempdir().unwrap());
    let certificate = Name::of([CERTIFICATES, "a.test", "ecdsa"]);
    with_copy(&redis, &folder).write(&certificate, b"secret").unwrap();
    let command = store(&redis).removing_copies_in(folder.path().to_owned());
    assert_eq!(text(command.read(&certificate).unwrap()).as_deref(), Some("secret"));
    command.remove(&certificate).unwrap();
    redis.kill();
    assert_eq!(files(folder.path()), Vec::<PathBuf>::new());
    with_copy(&redis, &folder).read(&certificate).expect_err("Redis is away, and there is no copy");
}

#[test]
fn a_redis_that_lost_its_data_receives_it_back_but_not_removed_values() {
    let redis = Redis::start();
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [one, two] = folders.each_ref().map(|folder| with_copy(&redis, folder));
    let certificate = |name| Name::of([CERTIFICATES, name, "ecdsa"]);
    let demanded = |name| Name::of([ON_DEMAND, name]);
    for name in ["kept.test", "removed.test"] {
        one.write(&certificate(name), name.as_bytes()).unwrap();
        one.write(&demanded(name), b"{}").unwrap();
        two.read(&certificate(name)).unwrap();
        two.read(&demanded(name)).unwrap();
    }
    one.remove(&certificate("removed.test")).unwrap();
    one.remove(&demanded("removed.test")).unwrap();
    assert_eq!(two.list(&Name::of([ON_DEMAND])).unwrap(), [demanded("kept.test")]);
    redis.cli(&["FLUSHALL"]);
    assert!(two.read(&certificate("removed.test")).unwrap().is_none());
    assert_eq!(text(two.read(&certificate("kept.test")).unwrap()).as_deref(), Some("kept.test"));
    assert_eq!(two.list(&Name::of([ON_DEMAND])).unwrap(), [demanded("kept.test")]);
    // Without a copy: the values are in Redis again, and a newer value is not replaced by an older copy.
    let plain = store(&redis);
    assert_eq!(plain.list(&Name::of([CERTIFICATES])).unwrap(), [Name::of([CERTIFICATES, "kept.test"])]);
    plain.write(&certificate("kept.test"), b"newer").unwrap();
    assert_eq!(text(one.read(&certificate("kept.test")).unwrap()).as_deref(), Some("newer"));
}

/// One failed call used to end a running order.
#[test]
fn a_lock_outlasts_failed_extensions_for_a_minute_but_not_another_holder() {
    let mut redis = Redis::start();
    let store = store(&redis);
    let name = Name::of(["order", "a.test"]);
    let held = |seconds| RedisLock {
        redis: Arc::clone(&store.redis),
        key: format!("{}lock/{name}", store.prefix),
        mark: [7; 16],
        extended: (Instant::now(), SystemTime::now() - Duration::from_secs(seconds)),
    };
    let other = store.try_lock(&name).unwrap().unwrap();
    assert!(held(0).holds(), "it is not extended yet");
    assert!(!held(31).holds(), "another gateway holds it");
    assert!(store.try_lock(&name).unwrap().is_none(), "only its holder releases it");
    redis.kill();
    let mut lock = held(31);
    assert!(lock.holds() && lock.holds());
    assert!(!held(60).holds(), "the next call may be too late");
    drop(other);
}
