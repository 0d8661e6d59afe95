//! Sentinels and clusters: the store follows the primaries after failovers and migrations.

use std::{sync::Arc, time::SystemTime};

use brisk_session::{
    Claim, KeySource, Lookup, Miss, RedisSettings, RedisStore, RedisTopology, RotationSettings, SessionStore,
    TicketKeySync, TicketKeyring,
};
use brisk_testkit::{
    process::wait_until,
    redis::{Cluster, Redis, Sentinel},
};

use crate::{
    address, answer, impatient, put, secret, session, settings, started, take, wait_for_closed,
    wait_for_open, with_a_replicated_session,
};

fn clustered(cluster: &Cluster) -> RedisStore {
    let store = started(RedisSettings { topology: RedisTopology::Cluster, ..settings(&cluster.nodes[1]) });
    wait_until("connections to all nodes", || (store.statistics().connections == 3).then_some(()));
    store
}

#[test]
fn sessions_are_spread_over_a_cluster_and_each_is_taken_once() {
    let cluster = Cluster::start();
    let (here, there) = (clustered(&cluster), clustered(&cluster));
    for number in 0..100_u32 {
        put(&here, &number.to_be_bytes());
    }
    for node in &cluster.nodes {
        assert!(node.cli(&["DBSIZE"]).parse::<u32>().unwrap() > 10, "no node has them all");
    }
    for number in 0..100_u32 {
        let id = number.to_be_bytes();
        assert_eq!(answer(there.get(&id)), Ok(session(&id)), "session {number}");
        assert_eq!(take(&there, &id), Ok(session(&id)), "session {number}");
        assert_eq!(take(&here, &id), Err(Miss::Used), "session {number}");
    }
    assert_eq!(there.statistics().troubles, [""; 0]);
}

/// The slot of a session, and a node that it can move to.
struct Place<'a> {
    key: String,
    slot: String,
    from: &'a Redis,
    to: &'a Redis,
}

fn place_of_the_only_session(cluster: &Cluster) -> Place<'_> {
    place_of(cluster, cluster.nodes.iter().map(|node| node.cli(&["KEYS", "*"])).collect())
}

fn place_of(cluster: &Cluster, key: String) -> Place<'_> {
    let slot = cluster.nodes[0].cli(&["CLUSTER", "KEYSLOT", &key]);
    let from = cluster.node_of(slot.parse().expect("a slot is a number"));
    let to =
        cluster.nodes.iter().find(|node| node.port() != from.port()).expect("a cluster has several nodes");
    Place { key, slot, from, to }
}

/// Moves the slot with its key.
fn migrate(slot: &str, key: &str, from: &Redis, to: &Redis) {
    begin_migration(slot, key, from, to);
    end_migration(slot, from, to);
}

/// Moves the key, after which both nodes refuse commands for it.
fn begin_migration(slot: &str, key: &str, from: &Redis, to: &Redis) {
    let [source, target] = [from, to].map(|node| node.cli(&["CLUSTER", "MYID"]));
    to.cli(&["CLUSTER", "SETSLOT", slot, "IMPORTING", &source]);
    from.cli(&["CLUSTER", "SETSLOT", slot, "MIGRATING", &target]);
    let port = to.port().to_string();
    assert_eq!(from.cli(&["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS", key]), "OK");
}

fn end_migration(slot: &str, from: &Redis, to: &Redis) {
    let target = to.cli(&["CLUSTER", "MYID"]);
    for node in [to, from] {
        assert_eq!(node.cli(&["CLUSTER", "SETSLOT", slot, "NODE", &target]), "OK");
    }
}

#[test]
fn a_session_that_moved_to_another_node_resumes_and_is_not_taken_for_early_data() {
    let cluster = Cluster::start();
    let store = clustered(&cluster);
    put(&store, b"id");
    let Place { key, slot, from, to } = place_of_the_only_session(&cluster);
    migrate(&slot, &key, from, to);
    wait_until("a session that is found where it is now", || answer(store.get(b"id")).ok());
    assert_eq!(take(&store, b"id"), Err(Miss::Unknown));
    assert_eq!(store.statistics().outlived, 1);
}

#[test]
fn a_session_that_moved_away_and_came_back_is_not_taken_for_early_data() {
    let cluster = Cluster::start();
    let store = clustered(&cluster);
    put(&store, b"id");
    let Place { key, slot, from, to } = place_of_the_only_session(&cluster);
    migrate(&slot, &key, from, to);
    migrate(&slot, &key, to, from);
    wait_until("a session that is found", || answer(store.get(b"id")).ok());
    assert_eq!(take(&store, b"id"), Err(Miss::Unknown), "it may have been taken there in the meantime");
}

#[test]
fn a_node_that_is_gone_takes_its_own_sessions_only() {
    let mut cluster = Cluster::start();
    let store = clustered(&cluster);
    for number in 0..30_u32 {
        put(&store, &number.to_be_bytes());
    }
    // The others must continue without it.
    for node in &cluster.nodes {
        node.cli(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    cluster.nodes[0].kill();
    wait_until("two connections", || (store.statistics().connections == 2).then_some(()));
    let found = (0..30_u32).filter(|number| answer(store.get(&number.to_be_bytes())).is_ok()).count();
    assert!((1..30).contains(&found), "{found}");
    assert!(!store.statistics().breaker_open);
}

#[test]
fn early_data_refused_while_a_cluster_hung_is_refused_by_each_node_afterwards() {
    let cluster = Cluster::start();
    let other = clustered(&cluster);
    let settings = RedisSettings { topology: RedisTopology::Cluster, ..settings(&cluster.nodes[1]) };
    let impatient = impatient(settings);
    for number in 0..30_u32 {
        put(&other, &number.to_be_bytes());
    }
    cluster.nodes.iter().for_each(Redis::pause);
    wait_for_open(&impatient);
    for number in 0..30_u32 {
        let found = impatient.take(&number.to_be_bytes(), Claim::Everywhere);
        assert!(matches!(found, Lookup::Ready(Err(Miss::Down))));
    }
    cluster.nodes.iter().for_each(Redis::resume);
    let marks = |node: &Redis| {
        let keys = node.cli(&["KEYS", "*"]);
        keys.lines().filter(|key| node.cli(&["STRLEN", key]) == "0").count()
    };
    wait_until("marks on every node", || {
        (cluster.nodes.iter().map(marks).sum::<usize>() == 30).then_some(())
    });
}

#[test]
fn a_server_that_is_no_cluster_is_said_clearly() {
    let redis = Redis::start();
    let settings = RedisSettings { topology: RedisTopology::Cluster, ..settings(&redis) };
    let store = RedisStore::start(settings, &secret()).unwrap();
    let line = wait_until("words about the trouble", || store.statistics().troubles.pop());
    assert!(line.contains("it has to be a cluster"), "{line}");
}

const TICKET_KEYS: &str = "brisk:ticket-keys";

/// An exchange of ticket keys, after its first round.
fn exchanging(store: &RedisStore) -> TicketKeySync {
    let rotation = RotationSettings::default();
    let keyring = Arc::new(TicketKeyring::new(KeySource::Shared { rotation }, SystemTime::now()));
    let exchange = TicketKeySync::prepare(store, &secret(), rotation, Arc::clone(&keyring));
    let exchange = exchange.expect("an empty queue").begin();
    wait_until("ticket keys", || (!keyring.keys(SystemTime::now()).is_empty()).then_some(()));
    exchange
}

/// The former node kept the problem `refuses HGETALL (MOVED ...)`.
#[test]
fn ticket_keys_that_moved_to_another_node_are_read_there_without_a_problem() {
    let cluster = Cluster::start();
    let store = clustered(&cluster);
    let _exchange = exchanging(&store);
    let Place { key, slot, from, to } = place_of(&cluster, TICKET_KEYS.to_owned());
    migrate(&slot, &key, from, to);
    wait_until("a read from the new node", || {
        assert_eq!(store.statistics().troubles, [""; 0]);
        to.cli(&["INFO", "commandstats"]).contains("cmdstat_hgetall:calls=").then_some(())
    });
}

/// Every round failed until the end of the migration.
#[test]
fn ticket_keys_of_an_open_migration_are_read_from_the_node_that_receives_them() {
    let cluster = Cluster::start();
    let store = clustered(&cluster);
    let _exchange = exchanging(&store);
    let Place { key, slot, from, to } = place_of(&cluster, TICKET_KEYS.to_owned());
    begin_migration(&slot, &key, from, to);
    wait_until("a read from the receiving node", || {
        assert_eq!(store.statistics().troubles, [""; 0]);
        to.cli(&["INFO", "commandstats"]).contains("cmdstat_hgetall:calls=").then_some(())
    });
    end_migration(&slot, from, to);
    wait_until("a read without ASKING", || {
        assert_eq!(store.statistics().troubles, [""; 0]);
        let before = calls(to, "asking");
        (calls(to, "hgetall") > before).then_some(())
    });
}

/// The number of executions of a command on a node.
fn calls(node: &Redis, command: &str) -> u64 {
    let statistics = node.cli(&["INFO", "commandstats"]);
    let calls = statistics.split_once(&format!("cmdstat_{command}:calls="));
    calls.and_then(|(_, rest)| rest.split(',').next()?.parse().ok()).unwrap_or(0)
}

/// Every command for a key of the slot failed in silence.
#[test]
fn sessions_of_an_open_migration_are_found_where_they_are_and_not_taken_for_early_data() {
    let cluster = Cluster::start();
    let store = clustered(&cluster);
    put(&store, b"id");
    let Place { key, slot, from, to } = place_of_the_only_session(&cluster);
    begin_migration(&slot, &key, from, to);
    wait_until("a session at the receiving node", || answer(store.get(b"id")).ok());
    assert_eq!(store.statistics().troubles, [""; 0]);
    assert_eq!(take(&store, b"id"), Err(Miss::Unknown));
    assert_eq!(answer(store.get(b"id")), Ok(session(b"id")), "it has not been taken");
    end_migration(&slot, from, to);
    // Its early data was refused once, so it is never accepted.
    wait_until("the mark of a spent session", || (to.cli(&["STRLEN", &key]) == "0").then_some(()));
}

#[test]
fn a_migration_that_takes_no_commands_is_a_problem_until_it_ends() {
    let cluster = Cluster::start();
    let store = clustered(&cluster);
    put(&store, b"id");
    let Place { key, slot, from, to } = place_of_the_only_session(&cluster);
    assert_eq!(to.cli(&["ACL", "SETUSER", "default", "-asking"]), "OK");
    begin_migration(&slot, &key, from, to);
    let line = wait_until("words about the trouble", || {
        assert!(answer(store.get(b"id")).is_err());
        store.statistics().troubles.pop()
    });
    assert!(line.contains("permit our user +asking"), "{line}");
    end_migration(&slot, from, to);
    wait_until("no trouble", || {
        drop(answer(store.get(b"id")));
        store.statistics().troubles.is_empty().then_some(())
    });
}

/// The problem began with each query and ended with each heartbeat, so that the log had "works again" every second.
#[test]
fn a_cluster_that_refuses_its_slots_has_a_problem_until_it_reports_them() {
    let cluster = Cluster::start();
    let store = clustered(&cluster);
    let permit = |rule| {
        for node in &cluster.nodes {
            assert_eq!(node.cli(&["ACL", "SETUSER", "default", rule]), "OK");
        }
    };
    permit("-cluster|slots");
    let refusals = || {
        let troubles = store.statistics().troubles;
        troubles.iter().filter(|line| line.contains("our user needs +cluster|slots")).count()
    };
    let beats = || {
        let commands = cluster.nodes[0].cli(&["INFO", "commandstats"]);
        let calls = commands.split_once("cmdstat_cluster|info:calls=")?.1.split(',').next()?;
        calls.parse::<u32>().ok()
    };
    wait_until("words about the trouble", || (refusals() == 3).then_some(()));
    let before = beats().expect("heartbeats");
    wait_until("further heartbeats", || {
        assert_eq!(refusals(), 3);
        (beats()? > before + 2).then_some(())
    });
    permit("+cluster|slots");
    wait_until("no trouble", || (refusals() == 0).then_some(()));
}

#[test]
fn the_store_follows_a_failover_and_finds_what_the_replica_had() {
    let mut sentinel = Sentinel::start();
    let store = with_a_replicated_session(&sentinel);
    sentinel.primary.kill();
    sentinel.wait_for_failover();
    wait_until("a session that is found again", || answer(store.get(b"id")).ok());
    wait_for_closed(&store);
    put(&store, b"new");
    assert_eq!(take(&store, b"new"), Ok(session(b"new")));
}

#[test]
fn an_unknown_service_is_said_clearly() {
    let sentinel = Sentinel::start();
    let mut settings = settings(&sentinel.primary);
    settings.servers = vec![address(sentinel.address().port())];
    settings.topology = RedisTopology::Sentinel { service: "other".to_owned() };
    let store = RedisStore::start(settings, &secret()).unwrap();
    let line = wait_until("words about the trouble", || store.statistics().troubles.pop());
    assert!(line.contains("knows no service \"other\""), "{line}");
}
