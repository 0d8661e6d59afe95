//! Gateways that share only a secret file: sessions of one gateway resume at the others, without traffic between them.

use std::time::{Duration, Instant};

use brisk_behaviour::fleet::{Fleet, ids, sealing};
use brisk_testkit::process::wait_until;

const SECRET: &str = "a secret of the fleet that is long enough for it\n";

const KEYS: &str = "sessions.ticket_keys = \"secret\"\nsessions.secret = \"fleet.secret\"\n";

/// A fleet of `members` gateways with one secret.
fn with_secret(members: usize) -> Fleet {
    rotating(members, "")
}

/// The same with the keys `times`: the lifetime of tickets and the interval of key rotation.
fn rotating(members: usize, times: &str) -> Fleet {
    let keys = format!("{KEYS}{times}");
    (0..members).fold(Fleet::new(), |fleet, _| fleet.add(&keys, &[("fleet.secret", SECRET.as_bytes())]))
}

const KINDS: [(&str, &str); 2] = [("-tls1_2", "ticket"), ("-tls1_3", "psk")];

#[test]
fn tickets_resume_at_every_member_through_three_rotations_and_then_their_key_is_gone() {
    // A slow machine may need a longer lifetime.
    let done = [20, 60, 240].into_iter().any(|lifetime| resumes_through_three_rotations(lifetime).is_some());
    assert!(done, "no session was resumed within its lifetime through three rotations");
}

/// With tickets that live for so many seconds, and five keys within that time. `None` if a session was resumed too late.
fn resumes_through_three_rotations(lifetime: u64) -> Option<()> {
    let rotation = lifetime / 5;
    let times = format!("tls.session_lifetime = \"{lifetime}s\"\ntls.ticket_rotation = \"{rotation}s\"\n");
    let (fleet, lifetime) = (rotating(3, &times), Duration::from_secs(lifetime));
    // At the beginning of a key's time, so that three changes of it are within the lifetime.
    let before = sealing(&fleet.members[0]).expect("a key that seals");
    let first = wait_until("the next key", || sealing(&fleet.members[0]).filter(|key| *key != before));
    let made = Instant::now();
    let sessions = KINDS.map(|(version, kind)| (version, kind, fleet.session(0, version)));
    let mut seen = vec![first.clone()];
    while seen.len() < 4 {
        for member in [1, 2, 0] {
            for (version, kind, file) in &sessions {
                let resumed = fleet.resume(member, version, file);
                if made.elapsed() >= lifetime {
                    return None;
                }
                assert_eq!(resumed, *kind, "at {member} after {:?}, keys {seen:?}", made.elapsed());
            }
        }
        seen.extend(sealing(&fleet.members[1]).filter(|key| !seen.contains(key)));
    }
    wait_until("the end of the first key", || {
        fleet.members.iter().all(|member| !ids(member).contains(&first)).then_some(())
    });
    assert!(made.elapsed() >= lifetime, "a key lives as long as its tickets");
    for (version, _, file) in &sessions {
        assert_eq!(fleet.resume(1, version, file), "full");
    }
    let metrics = fleet.members[1].metrics();
    // Once: in TLS 1.3 openssl itself knows that its session is too old, and offers it no more.
    let unknown = metrics.sum("brisk_tickets_offered_total", &["outcome=\"unknown-key\""]);
    assert!((unknown - 1.0).abs() < 0.5, "{}", metrics.0);
    Some(())
}

#[test]
fn two_members_show_the_same_keys() {
    let fleet = with_secret(2);
    // Not at the moment when keys change.
    wait_until("equal keys", || (ids(&fleet.members[0]) == ids(&fleet.members[1])).then_some(()));
}

#[test]
fn tickets_survive_a_restart() {
    let fleet = with_secret(1);
    let sessions = KINDS.map(|(version, kind)| (version, kind, fleet.session(0, version)));
    let fleet = fleet.add(KEYS, &[("fleet.secret", SECRET.as_bytes())]);
    for (version, kind, file) in &sessions {
        assert_eq!(fleet.resume(1, version, file), *kind);
    }
}

#[test]
fn the_id_of_another_member_is_known_as_one_of_the_fleet() {
    let fleet = with_secret(2);
    let file = fleet.members[0].folder().join("id").display().to_string();
    let options = |session| ["-tls1_2", "-no_ticket", session, &file];
    assert_eq!(fleet.connect(0, &options("-sess_out")), "full");
    // Without a store in common it does not resume, which the operator should see.
    assert_eq!(fleet.connect(1, &options("-sess_in")), "full");
    assert_eq!(fleet.total("brisk_resumption_failures_total", &["reason=\"no-session\""]), 1);
}

#[test]
fn another_secret_opens_nothing() {
    let other = b"another secret that is just as long as the first one is\n";
    let fleet = with_secret(1).add(KEYS, &[("fleet.secret", other)]);
    for (version, _) in KINDS {
        let file = fleet.session(0, version);
        assert_eq!(fleet.resume(1, version, &file), "full");
    }
}

#[test]
fn a_new_secret_seals_and_the_old_one_still_opens() {
    let other = b"another secret that is just as long as the first one is\n";
    let fleet = with_secret(2);
    let old = fleet.session(0, "-tls1_3");
    let before = sealing(&fleet.members[0]);
    fleet.members[0].write("fleet.secret", other);
    // A change of the file is noticed as it is.
    wait_until("the new key", || (sealing(&fleet.members[0]) != before).then_some(()));
    assert_eq!(fleet.resume(0, "-tls1_3", &old), "psk");
    let new = fleet.session(0, "-tls1_3");
    assert_eq!(fleet.resume(1, "-tls1_3", &new), "full", "the other has the old secret");
    fleet.members[1].write("fleet.secret", other);
    wait_until("the new key at the other", || (sealing(&fleet.members[1]) != before).then_some(()));
    assert_eq!(fleet.resume(1, "-tls1_3", &old), "psk");
    let new = fleet.session(0, "-tls1_3");
    assert_eq!(fleet.resume(1, "-tls1_3", &new), "psk");
}

#[test]
fn the_first_key_file_seals_and_all_of_them_open() {
    let (old, new) = ([1_u8; 80], [2_u8; 48]);
    let both = "sessions.ticket_keys = [\"new.key\", \"old.key\"]\n";
    let fleet = Fleet::new()
        .add("sessions.ticket_keys = [\"old.key\"]\n", &[("old.key", &old)])
        .add(both, &[("old.key", &old), ("new.key", &new)]);
    for (version, kind) in KINDS {
        let session = fleet.session(0, version);
        assert_eq!(fleet.resume(1, version, &session), kind);
        let session = fleet.session(1, version);
        assert_eq!(fleet.resume(0, version, &session), "full", "it lacks the new key");
    }
    // Put in place there as well, the new key opens there.
    let session = fleet.session(1, "-tls1_3");
    fleet.members[0].write("new.key", new);
    let config = std::fs::read_to_string(fleet.members[0].folder().join("brisk.toml")).expect("a file");
    fleet.members[0].write("brisk.toml", config.replace("[\"old.key\"]", "[\"old.key\", \"new.key\"]"));
    wait_until("the key", || (fleet.resume(0, "-tls1_3", &session) == "psk").then_some(()));
}
