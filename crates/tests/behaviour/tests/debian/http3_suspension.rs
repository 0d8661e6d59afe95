//! Handshakes of HTTP/3 that wait for Redis or for a private key: others continue, and early requests are answered.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use brisk_behaviour::fleet::{Fleet, fleet_with, keys};
use brisk_behaviour::h3_client::{self as h3, head, response};
use brisk_behaviour::site::NAME;
use brisk_testkit::brisk::{Brisk, base, host};
use brisk_testkit::ca::{LeafKey, TestCa};
use brisk_testkit::quic::QuicClient;
use brisk_testkit::redis::Redis;
use brisk_testkit::relay::Relay;

const ROUTE: &str = "\n[[host.route]]\npath = \"/\"\nearly_data = \"safe\"\nrespond = { body = \"here\" }\n";

/// Two gateways whose sessions are in Redis, behind a relay that can delay it.
fn stage() -> (Redis, Relay, Fleet) {
    let redis = Redis::start();
    let relay = Relay::to(&[SocketAddr::from(([127, 0, 0, 1], redis.port()))]);
    let keys = keys(relay.address().port(), "server.http3 = true\nserver.workers = 1");
    let fleet = fleet_with(2, &keys, ROUTE);
    fleet.wait_for_store();
    (redis, relay, fleet)
}

fn client(fleet: &Fleet) -> QuicClient {
    QuicClient::new(&fleet.ca.root_file(), NAME, "h3")
}

fn visit(client: &QuicClient, brisk: &Brisk) {
    let mut connection = h3::connect(client, brisk.https());
    assert_eq!(h3::get(&mut connection, "/visit").status(), "200");
    connection.close();
}

fn accepted(brisk: &Brisk) -> f64 {
    brisk.metrics().sum("brisk_early_data_total", &["outcome=\"accepted\""])
}

/// Delay of Redis, less than the deadline of a second.
const DELAY: Duration = Duration::from_millis(700);

#[test]
fn a_slow_session_store_delays_only_its_own_handshakes_and_early_requests_are_answered() {
    // A busy machine may add more to the delay than the deadline permits, or need longer than the delay for the other handshakes.
    let is_done = (0..20).any(|_| delays_only_its_own_handshakes().is_some());
    assert!(is_done, "Redis never replied within the deadline, and after the handshakes of others");
}

/// `None` if the machine was too slow.
fn delays_only_its_own_handshakes() -> Option<()> {
    let (_redis, relay, fleet) = stage();
    let [first, second] = &fleet.members[..] else { panic!("two members") };
    let returning = client(&fleet);
    visit(&returning, first);
    fleet.wait_for_sessions(1);
    relay.set_delay(DELAY);
    // The session is at the other gateway, so that this handshake waits for Redis.
    let begun = Instant::now();
    let mut waiting = returning.connect(second.https());
    assert!(waiting.connection.has_0rtt());
    waiting.send_uni(&[0, 4, 0]);
    let streams: Vec<_> =
        (0..40).map(|number| waiting.request(&head("GET", &format!("/early-{number}"), &[]))).collect();
    // A flood of copies of its first packet, which have to wait too.
    for _ in 0..500 {
        waiting.repeat();
    }
    for _ in 0..3 {
        visit(&client(&fleet), second);
    }
    let before = accepted(second);
    if begun.elapsed() >= DELAY || fleet.was_late() {
        return None;
    }
    assert!(before < 0.5, "the handshake did not wait");
    for stream in streams {
        assert_eq!(response(&mut waiting, stream).expect("a response").body, b"here");
    }
    if fleet.was_late() {
        return None;
    }
    assert!(waiting.connection.accepted_0rtt());
    assert!((accepted(second) - 1.0).abs() < 0.5);
    Some(())
}

#[test]
fn rsa_is_signed_by_its_threads_and_p256_and_x25519_in_lanes() {
    let ca = TestCa::new();
    let keys = "server.http3 = true\nserver.workers = 1\n";
    for (key, metric, labels) in [
        (LeafKey::Rsa2048, "brisk_key_operations_total", "algorithm=\"rsa\""),
        (LeafKey::EcdsaP256, "brisk_key_gathered_operations_total", "operation=\"signature\""),
    ] {
        let leaf = ca.server(&[NAME]).key(key).issue();
        let setup = brisk_behaviour::site::setup().config(&(base(keys) + &host(&[NAME], &[&leaf]) + ROUTE));
        let brisk = setup.start();
        let client = QuicClient::new(&ca.root_file(), NAME, "h3");
        // Hellos that arrive in one turn are gathered. At most eight addresses without proof are permitted.
        for _ in 0..8 {
            let mut connections: Vec<_> = (0..8).map(|_| client.connect(brisk.https())).collect();
            for connection in &mut connections {
                connection.handshake().expect("a handshake");
                connection.close();
            }
        }
        let log = brisk.log_with("X25519 and ECDSA with P-256: ");
        let has_lanes = log.lines().any(|line| line.contains("P-256: batches of eight"));
        if !has_lanes {
            eprintln!("lanes are not tested: this processor has no AVX-512 IFMA");
        }
        if has_lanes || key == LeafKey::Rsa2048 {
            let done = brisk.metrics().sum(metric, &[labels]);
            assert!(done > 0.5, "{metric} {labels}: {done}");
        }
        let exchanges =
            brisk.metrics().sum("brisk_key_gathered_operations_total", &["operation=\"exchange\""]);
        assert_eq!(exchanges > 0.5, has_lanes, "{exchanges} exchanges");
    }
}
