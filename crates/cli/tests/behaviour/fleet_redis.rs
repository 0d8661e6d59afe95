//! Gateways with a Redis in common: whatever session is made at one resumes at the others.

use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use brisk_testkit::process::wait_until;
use brisk_testkit::redis::{Redis, RedisOptions};

use crate::fleet::{Fleet, sealing};

const SECRET: &[u8] = b"a secret of the fleet that is long enough for it\n";

/// All that brisk needs of Redis, on its own keys, as docs/sessions.md has it.
const USER: &str = "brisk on >hush ~brisk:* resetchannels -@all +get +set +hgetall +hsetnx +hdel +info";

/// A Redis for sessions, and more keys. Its deadline is long, since tests run beside one another.
pub(crate) fn keys(port: u16, more: &str) -> String {
    let redis = format!("servers = [\"redis://127.0.0.1:{port}\"]\nsessions.redis.deadline = \"1s\"");
    format!("sessions.secret = \"fleet.secret\"\nsessions.redis.{redis}\n{more}\n")
}

/// As many gateways as that with these keys.
pub(crate) fn fleet(members: usize, keys: &str) -> Fleet {
    fleet_with(members, keys, "")
}

/// The same, with tables after the `[[host]]`.
pub(crate) fn fleet_with(members: usize, keys: &str, tables: &str) -> Fleet {
    let files: [(&str, &[u8]); 2] = [("fleet.secret", SECRET), ("password", b"hush\n")];
    (0..members).fold(Fleet::new(), |fleet, _| fleet.add_with(keys, tables, &files))
}

/// As many in front of `upstream`, on all routes with early data, that have Redis at hand.
pub(crate) fn early_fleet(members: usize, redis: u16, upstream: &str) -> Fleet {
    let route = "early_data = \"safe\"\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n";
    let tables = format!("{route}{}", crate::site::upstream(&[upstream]));
    let keys = keys(redis, "sessions.ticket_keys = \"memory\"");
    let fleet = fleet_with(members, &keys, &tables);
    fleet.wait_for_store();
    fleet
}

/// Waits until all seal with one key; returns its id.
pub(crate) fn agreed(fleet: &Fleet) -> String {
    wait_until("one key that seals at all of them", || {
        let keys: Vec<_> = fleet.members.iter().map(sealing).collect();
        keys.iter().all(|key| *key == keys[0]).then(|| keys[0].clone()).flatten()
    })
}

#[test]
fn every_kind_of_session_resumes_at_every_member() {
    let redis = Redis::with(RedisOptions::default().user(USER));
    let user = "sessions.redis.username = \"brisk\"\nsessions.redis.password_file = \"password\"\n";
    let fleet = fleet(3, &keys(redis.port(), &format!("{user}sessions.ticket_keys = \"redis\"")));
    agreed(&fleet);
    for (version, kind) in [("-tls1_2", "ticket"), ("-tls1_3", "psk")] {
        let session = fleet.session(0, version);
        for member in [1, 2, 0] {
            assert_eq!(fleet.resume(member, version, &session), kind, "at {member}");
        }
    }
    let file = fleet.members[0].folder().join("id").display().to_string();
    assert_eq!(fleet.connect(0, &["-tls1_2", "-no_ticket", "-sess_out", &file]), "full");
    for member in [1, 2, 0] {
        assert_eq!(fleet.connect(member, &["-tls1_2", "-no_ticket", "-sess_in", &file]), "session-id");
    }
}

#[test]
fn tickets_resume_through_three_rotations_of_exchanged_keys() {
    let redis = Redis::start();
    let times =
        "tls.session_lifetime = \"1m\"\ntls.ticket_rotation = \"12s\"\nsessions.ticket_keys = \"redis\"\n";
    let fleet = fleet(2, &keys(redis.port(), times));
    agreed(&fleet);
    let (sessions, made) =
        (["-tls1_2", "-tls1_3"].map(|version| (version, fleet.session(0, version))), Instant::now());
    let mut seen = vec![agreed(&fleet)];
    while seen.len() < 4 {
        for (version, session) in &sessions {
            for member in [1, 0] {
                let resumed = fleet.resume(member, version, session);
                assert!(made.elapsed() < Duration::from_mins(1), "this machine is too slow for the test");
                assert_ne!(
                    resumed,
                    "full",
                    "{version} at {member} after {:?}, keys {seen:?}",
                    made.elapsed()
                );
            }
        }
        // There is always one that seals, and it is the same at both but for the moment when it changes.
        let sealing = sealing(&fleet.members[1]).expect("a key that seals");
        if !seen.contains(&sealing) {
            assert_eq!(agreed(&fleet), sealing);
            seen.push(sealing);
        }
    }
}

#[test]
fn a_stateful_session_resumes_anywhere_and_at_no_place_twice() {
    let redis = Redis::start();
    let fleet = fleet(2, &keys(redis.port(), "tls.stateful = true\nsessions.ticket_keys = \"redis\""));
    for (made, used) in [(0, 1), (1, 0), (0, 0)] {
        let session = fleet.session(made, "-tls1_3");
        assert_eq!(fleet.resume(used, "-tls1_3", &session), "psk", "made at {made}, used at {used}");
        assert_eq!(fleet.resume(used, "-tls1_3", &session), "full", "made at {made}, used twice at {used}");
    }
}

#[test]
fn a_forced_rotation_reaches_all_before_any_seals_with_it() {
    let redis = Redis::start();
    let fleet = fleet(2, &keys(redis.port(), "sessions.ticket_keys = \"redis\""));
    let old = agreed(&fleet);
    let session = fleet.session(0, "-tls1_3");
    let forced = fleet.members[0].post_admin("/tickets/rotate");
    assert_eq!(forced.status(), 200);
    assert!(forced.text().contains("on its way"), "{}", forced.text());
    wait_until("another key", || (agreed(&fleet) != old).then_some(()));
    assert_eq!(fleet.resume(1, "-tls1_3", &session), "psk");
    let session = fleet.session(0, "-tls1_3");
    assert_eq!(fleet.resume(1, "-tls1_3", &session), "psk");
}

#[test]
fn a_redis_that_is_not_there_is_waited_for_by_nobody() {
    let unused = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = unused.local_addr().expect("an address").port();
    drop(unused);
    let fleet = fleet(1, &keys(port, "tls.stateful = true\nsessions.ticket_keys = \"memory\""));
    for _ in 0..3 {
        let session = fleet.session(0, "-tls1_3");
        assert_eq!(fleet.resume(0, "-tls1_3", &session), "psk", "its own memory has it");
    }
    let log = fleet.members[0].process().stderr();
    assert_eq!(log.matches("session store: Redis at 127.0.0.1:").count(), 1, "{log}");
    let metrics = fleet.members[0].metrics();
    assert!((metrics.sum("brisk_session_store_breaker_open", &[]) - 1.0).abs() < 0.5, "{}", metrics.0);
}

#[test]
fn another_redis_takes_a_restart_and_says_so() {
    let redis = Redis::start();
    let fleet = fleet(1, &keys(redis.port(), "sessions.ticket_keys = \"memory\""));
    let brisk = &fleet.members[0];
    let config = std::fs::read_to_string(brisk.folder().join("brisk.toml")).expect("a file");
    brisk.write("brisk.toml", config.replace(&format!(":{}", redis.port()), ":1"));
    let line = brisk.reload();
    assert!(line.contains("reloaded:"), "{line}");
    let log = brisk.process().stderr();
    assert!(log.contains("sessions.redis") && log.contains("only after a restart"), "{log}");
}
