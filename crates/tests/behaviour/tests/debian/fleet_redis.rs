//! Gateways with a common Redis: sessions of one gateway resume at the others.

use std::thread;
use std::time::{Duration, Instant};

use brisk_behaviour::fleet::{Fleet, ids, in_time, sealing};
use brisk_behaviour::fleet::{fleet, fleet_with, keys};
use brisk_behaviour::openssl::{REQUEST, facts_of, s_client};
use brisk_behaviour::site::{LIMIT, NAME};
use brisk_testkit::client::TlsClient;
use brisk_testkit::process::{free_port, run, wait_until};
use brisk_testkit::redis::{Redis, RedisOptions};
use rustls::HandshakeKind;

/// All that brisk needs of Redis, on its own keys, as docs/sessions.md has it.
const USER: &str = "brisk on >hush ~brisk:* resetchannels -@all +get +set +hgetall +hsetnx +hdel +info";

/// Waits until all seal with one key; returns its id.
fn agreed(fleet: &Fleet) -> String {
    wait_until("one key that seals at all of them", || {
        let keys: Vec<_> = fleet.members.iter().map(sealing).collect();
        keys.iter().all(|key| *key == keys[0]).then(|| keys[0].clone()).flatten()
    })
}

#[test]
fn every_kind_of_session_resumes_at_every_member() {
    let create = || {
        let redis = Redis::with(RedisOptions::default().user(USER));
        let user = "sessions.redis.username = \"brisk\"\nsessions.redis.password_file = \"password\"\n";
        let fleet = fleet(3, &keys(redis.port(), &format!("{user}sessions.ticket_keys = \"redis\"")));
        fleet.wait_for_store();
        (redis, fleet)
    };
    in_time(create, |_, fleet| {
        agreed(fleet);
        for (version, kind) in [("-tls1_2", "ticket"), ("-tls1_3", "psk")] {
            let session = fleet.session(0, version);
            for member in [1, 2, 0] {
                assert_eq!(fleet.resume(member, version, &session), kind, "at {member}");
            }
        }
        let file = fleet.members[0].folder().join("id").display().to_string();
        let before = fleet.sessions();
        assert_eq!(fleet.connect(0, &["-tls1_2", "-no_ticket", "-sess_out", &file]), "full");
        fleet.wait_for_sessions(before + 1);
        for member in [1, 2, 0] {
            assert_eq!(fleet.connect(member, &["-tls1_2", "-no_ticket", "-sess_in", &file]), "session-id");
        }
    });
}

#[test]
fn redis_is_not_asked_for_an_id_that_the_fleet_did_not_make() {
    let redis = Redis::start();
    let fleet = fleet(1, &keys(redis.port(), ""));
    fleet.wait_for_store();
    let stranger = Fleet::new().add("", &[]);
    let file = stranger.members[0].folder().join("id").display().to_string();
    assert_eq!(stranger.connect(0, &["-tls1_2", "-no_ticket", "-sess_out", &file]), "full");
    assert_eq!(fleet.connect(0, &["-tls1_2", "-no_ticket", "-sess_in", &file]), "full");
    assert_eq!(fleet.total("brisk_session_store_lookups_total", &[]), 0);
    assert_eq!(fleet.total("brisk_resumption_failures_total", &[]), 0);
}

#[test]
fn early_data_is_accepted_at_every_member() {
    let create = || {
        let redis = Redis::start();
        let keys = keys(redis.port(), "sessions.ticket_keys = \"memory\"\ntls.tickets_per_handshake = 1");
        let fleet = fleet_with(3, &keys, "early_data = \"safe\"\n");
        fleet.wait_for_store();
        (redis, fleet)
    };
    in_time(create, |_, fleet| {
        let request = fleet.members[0].folder().join("request").display().to_string();
        std::fs::write(&request, REQUEST).expect("a temporary file");
        let session = fleet.session(0, "-tls1_3");
        for (sessions, member) in (1..).zip([1, 2, 0]) {
            // Each connection leaves a session for the next one.
            fleet.wait_for_sessions(sessions);
            let options =
                ["-servername", NAME, "-sess_in", &session, "-sess_out", &session, "-early_data", &request];
            let output = run(&mut s_client(&fleet.ca, &fleet.members[member], &options), b"", LIMIT);
            for word in ["Reused, TLSv1.3", "Early data was accepted"] {
                assert!(output.stdout.contains(word), "{word} at {member}: {}", output.text());
            }
            assert_eq!(facts_of(&output)["tls"]["resumption"], "0-rtt", "at {member}");
            let line = fleet.members[member].logged("\"early_data\":\"accepted\"");
            assert!(line.contains("\"resumption\":\"0-rtt\""), "{line}");
        }
        assert_eq!(fleet.total("brisk_handshakes_total", &["resumption=\"0-rtt\""]), 3);
        assert_eq!(fleet.total("brisk_session_store_lookups_total", &["outcome=\"found\""]), 3);
    });
}

/// Resumptions with each of the tickets made at one time: the last one shortly before their end.
const VISITS: u32 = 8;

/// How long tickets live. Exchanged keys change when the clock says so, and twice as often where that is forced.
#[derive(Clone, Copy)]
struct Times {
    lifetime: Duration,
    rotation: Duration,
    /// From one resumption to the next.
    between: Duration,
}

impl Times {
    /// The shortest, or so many times as long.
    fn stretched(factor: u32) -> Self {
        let [lifetime, rotation] = [14, 12].map(|seconds| Duration::from_secs(seconds) * factor);
        Self { lifetime, rotation, between: Duration::from_millis(1600) * factor }
    }

    fn keys(self) -> String {
        let [lifetime, rotation] = [self.lifetime, self.rotation].map(|time| time.as_secs());
        format!(
            "tls.session_lifetime = \"{lifetime}s\"\ntls.ticket_rotation = \"{rotation}s\"\n\
             tls.tickets_per_handshake = {VISITS}\n"
        )
    }
}

/// Clients of one age, one for each version, which resume at one member after another.
struct Cohort {
    clients: [TlsClient; 2],
    made: Instant,
    times: Times,
    visits: u32,
}

impl Cohort {
    fn new(fleet: &Fleet, member: usize, times: Times) -> Self {
        let made = Instant::now();
        let clients = [fleet.client().tls12(), fleet.client()].map(TlsClient::keeping_first_sessions);
        for client in &clients {
            client.connect(fleet.members[member].https()).expect("a handshake").get(NAME, "/");
        }
        Self { clients, made, times, visits: 0 }
    }

    fn is_due(&self) -> bool {
        self.visits < VISITS && self.made.elapsed() >= (self.visits + 1) * self.times.between
    }

    /// Fails the test if one of them is not resumed. `None` if their time was over.
    fn visit(&mut self, fleet: &Fleet, member: usize) -> Option<()> {
        self.visits += 1;
        for client in &self.clients {
            let connection = client.connect(fleet.members[member].https()).expect("a handshake");
            let (kind, age) = (connection.tls().handshake_kind(), self.made.elapsed());
            // Servers count full seconds.
            if age + Duration::from_secs(1) >= self.times.lifetime {
                return None;
            }
            assert_eq!(kind, Some(HandshakeKind::Resumed), "at {member}, {age:?} old: {client:?}");
        }
        Some(())
    }
}

#[test]
fn a_trickle_resumes_through_three_rotations_and_a_key_is_gone_after_its_time() {
    // What a slow machine cannot do within the shorter lifetime it does within the longer one.
    let done = [1, 4, 16].into_iter().any(|factor| trickle(Times::stretched(factor)).is_some());
    assert!(done, "not all sessions were resumed within their lifetime");
}

/// `None` if a session was resumed too late.
fn trickle(times: Times) -> Option<()> {
    let redis = Redis::start();
    let keys = keys(redis.port(), &format!("{}sessions.ticket_keys = \"redis\"", times.keys()));
    let fleet = fleet(3, &keys);
    let first = agreed(&fleet);
    let mut forced = Instant::now();
    let published = redis.cli(&["HKEYS", "brisk:ticket-keys"]);
    let slot = published.lines().min().expect("a published key").to_owned();
    let old = fleet.session(0, "-tls1_2");
    let (mut cohorts, mut seen, mut resumed) = (Vec::<Cohort>::new(), vec![first.clone()], 0);
    let is_gone = || fleet.members.iter().all(|member| !ids(member).contains(&first));
    while seen.len() < 4 || cohorts[0].visits < VISITS || !is_gone() {
        if cohorts.last().is_none_or(|last| last.made.elapsed() > times.between / 4) {
            cohorts.push(Cohort::new(&fleet, cohorts.len() % 3, times));
        }
        for cohort in cohorts.iter_mut().filter(|cohort| cohort.is_due()) {
            cohort.visit(&fleet, resumed % 3)?;
            resumed += 1;
        }
        if forced.elapsed() > times.rotation / 6 {
            let answer = fleet.members[resumed % 3].post_admin("/tickets/rotate");
            assert_eq!(answer.status(), 200);
            assert!(answer.text().contains("on its way"), "{}", answer.text());
            forced = Instant::now();
        }
        seen.extend(sealing(&fleet.members[resumed % 3]).filter(|key| !seen.contains(key)));
        thread::sleep(Duration::from_millis(20));
    }
    let made = cohorts[0].made.elapsed();
    assert!(made >= times.lifetime, "a key lives as long as its tickets: {made:?}");
    eprintln!("{resumed} times two resumptions in {made:?}, {} keys that sealed", seen.len());
    wait_until("Redis without it", || {
        let published = redis.cli(&["HKEYS", "brisk:ticket-keys"]);
        published.lines().all(|published| *published != slot).then_some(())
    });
    assert_eq!(fleet.resume(1, "-tls1_2", &old), "full");
    assert_eq!(
        fleet.total("brisk_tickets_offered_total", &["outcome=\"unknown-key\""]),
        1,
        "no other failed"
    );
    Some(())
}

#[test]
fn a_stateful_session_resumes_anywhere_and_at_no_place_twice() {
    let create = || {
        let redis = Redis::start();
        let fleet = fleet(2, &keys(redis.port(), "tls.stateful = true\nsessions.ticket_keys = \"redis\""));
        fleet.wait_for_store();
        (redis, fleet)
    };
    in_time(create, |_, fleet| {
        for (connections, (made, used)) in (1..).step_by(3).zip([(0, 1), (1, 0), (0, 0)]) {
            let session = fleet.session(made, "-tls1_3");
            // Each connection leaves a session.
            fleet.wait_for_sessions(connections);
            assert_eq!(fleet.resume(used, "-tls1_3", &session), "psk", "made at {made}, used at {used}");
            assert_eq!(
                fleet.resume(used, "-tls1_3", &session),
                "full",
                "made at {made}, used twice at {used}"
            );
        }
    });
}

#[test]
fn a_redis_that_is_not_there_is_waited_for_by_nobody() {
    let fleet = fleet(1, &keys(free_port(), "tls.stateful = true\nsessions.ticket_keys = \"memory\""));
    for _ in 0..3 {
        let session = fleet.session(0, "-tls1_3");
        assert_eq!(fleet.resume(0, "-tls1_3", &session), "psk", "its own memory has it");
    }
    let log = fleet.members[0].log_with("session store: Redis at 127.0.0.1:");
    assert_eq!(log.matches("session store: Redis at 127.0.0.1:").count(), 1, "{log}");
    let metrics = fleet.members[0].metrics();
    assert!((metrics.sum("brisk_session_store_breaker_open", &[]) - 1.0).abs() < 0.5, "{}", metrics.0);
}

#[test]
fn writes_connections_and_problems_of_redis_are_in_the_metrics() {
    let redis = Redis::start();
    let fleet = fleet(1, &keys(redis.port(), "tls.stateful = true\nsessions.ticket_keys = \"memory\""));
    fleet.wait_for_store();
    fleet.session(0, "-tls1_3");
    wait_until("a write that Redis confirmed", || {
        (fleet.total("brisk_session_store_writes_total", &[]) > 0).then_some(())
    });
    assert_eq!(fleet.total("brisk_session_store_connections_open", &[]), 1);
    assert_eq!(fleet.total("brisk_session_store_connections_total", &[]), 1);
    assert_eq!(fleet.total("brisk_session_store_problems", &[]), 0);
    let opened = fleet.total("brisk_session_store_breaker_opened_total", &[]);
    drop(redis);
    wait_until("a lost connection and a problem", || {
        let open = fleet.total("brisk_session_store_connections_open", &[]);
        let problems = fleet.total("brisk_session_store_problems", &[]);
        let breaker = fleet.total("brisk_session_store_breaker_opened_total", &[]);
        (open == 0 && problems == 1 && breaker == opened + 1).then_some(())
    });
    fleet.session(0, "-tls1_3");
    wait_until("writes that were dropped", || {
        (fleet.total("brisk_session_store_dropped_writes_total", &["reason=\"down\""]) > 0).then_some(())
    });
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
    let log = brisk.log_with("only after a restart");
    assert!(log.contains("sessions.redis"), "{log}");
}
