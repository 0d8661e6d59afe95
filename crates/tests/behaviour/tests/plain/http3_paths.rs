//! HTTP/3 over paths that lose, repeat and delay datagrams, and change the address of the client.

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

use brisk_behaviour::h3_client::{self as h3, DATA, frame, head, response};
use brisk_behaviour::site::{NAME, proxy_to, setup};
use brisk_testkit::brisk::{Brisk, base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::datagram_relay::{DatagramRelay, Fate, Way};
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::wait_until;
use brisk_testkit::quic::{QuicClient, QuicConnection};

const FIXED: &str = "\n[[host.route]]\npath = \"/\"\nrespond = { body = \"here\" }\n";

fn echo() -> Origin {
    Origin::answering(|message, stream| write_response(stream, &message.body))
}

/// Body whose bytes differ by their place.
fn body(length: usize) -> Vec<u8> {
    (0..length).map(|at| b'a' + (at / 7 % 23) as u8).collect()
}

/// Sends a body and returns the echo, in steps that fit the window.
fn exchange(connection: &mut QuicConnection, path: &str, body: &[u8]) -> Vec<u8> {
    let data = body.chunks(10_000).flat_map(|piece| frame(DATA, piece));
    let bytes: Vec<_> = head("POST", path, &[]).into_iter().chain(data).collect();
    let stream = connection.upload(&bytes).expect("an upload");
    let received = response(connection, stream).expect("a response");
    assert_eq!(received.status(), "200");
    received.body
}

/// Handshake and request over a relay with this rule; returns the relay.
fn visit(
    client: &QuicClient,
    server: SocketAddr,
    rule: impl Fn(Way, usize, &[u8]) -> Fate + Send + Sync + 'static,
) -> DatagramRelay {
    let relay = DatagramRelay::new(server, rule);
    let mut connection = h3::connect(client, relay.address());
    assert_eq!(h3::get(&mut connection, "/").body, b"here");
    connection.close();
    relay
}

/// Gateway whose certificate has this number of further names.
fn with_long_certificate(names: usize) -> (TestCa, Brisk) {
    let ca = TestCa::new();
    let names: Vec<_> =
        (0..names).map(|number| format!("name-{number}.of.a.long.certificate.test")).collect();
    let names: Vec<&str> = std::iter::once(NAME).chain(names.iter().map(String::as_str)).collect();
    let leaf = ca.server(&names).issue();
    let brisk = setup().config(&(base("server.http3 = true\n") + &host(&[NAME], &[&leaf]) + FIXED)).start();
    (ca, brisk)
}

#[test]
fn each_datagram_of_a_handshake_may_be_lost_or_repeated() {
    // The flight has about 5 kB: four datagrams.
    let (ca, brisk) = with_long_certificate(100);
    let client = &QuicClient::new(&ca.root_file(), NAME, "h3");
    let cases = [(Way::Up, 4), (Way::Down, 3)];
    let cases = cases.into_iter().flat_map(|(way, count)| (0..count).map(move |number| (way, number)));
    thread::scope(|scope| {
        for (way, number) in cases {
            for fate in [Fate::Drop, Fate::Repeat] {
                let server = brisk.https();
                scope.spawn(move || {
                    let relay =
                        visit(
                            client,
                            server,
                            move |this, at, _| if (this, at) == (way, number) { fate } else { Fate::Pass },
                        );
                    // The relay may still hold the last ones.
                    wait_until(&format!("datagram {number} {way:?}, {fate:?}"), || {
                        (relay.datagrams(way) > number).then_some(())
                    });
                });
            }
        }
    });
}

#[test]
fn a_handshake_survives_the_loss_of_every_third_datagram() {
    let site = h3::h3_site("", FIXED);
    let relay =
        visit(
            &h3::client(&site),
            site.brisk.https(),
            |_, number, _| if number % 3 == 1 { Fate::Drop } else { Fate::Pass },
        );
    assert!(relay.datagrams(Way::Down) > 3);
}

#[test]
fn bodies_arrive_whole_over_a_path_with_loss_and_repeated_datagrams() {
    let origin = echo();
    let site = h3::h3_site("", &proxy_to(&[&origin.url()]));
    let relay = DatagramRelay::new(site.brisk.https(), |_, number, _| match number % 40 {
        19 => Fate::Drop,
        29 => Fate::Repeat,
        _ => Fate::Pass,
    });
    let mut connection = h3::connect(&h3::client(&site), relay.address());
    let body = body(1 << 20);
    assert!(exchange(&mut connection, "/", &body) == body, "1 MiB in both directions");
    // Without the rule, both would be about 800.
    assert!(relay.datagrams(Way::Down) > 700 && relay.datagrams(Way::Up) > 700);
}

#[test]
fn many_requests_at_a_time_are_answered_over_a_path_with_loss() {
    let origin = echo();
    let site = h3::h3_site("", &proxy_to(&[&origin.url()]));
    let relay =
        DatagramRelay::new(
            site.brisk.https(),
            |_, number, _| {
                if number % 20 == 13 { Fate::Drop } else { Fate::Pass }
            },
        );
    let mut connection = h3::connect(&h3::client(&site), relay.address());
    let request = |number: usize| {
        let content = frame(DATA, format!("body {number}").as_bytes());
        [head("POST", &format!("/{number}"), &[]), content].concat()
    };
    let streams: Vec<_> = (0..100).map(|number| connection.request(&request(number))).collect();
    for (number, stream) in streams.into_iter().enumerate() {
        let received = response(&mut connection, stream).expect("a response");
        assert_eq!(received.body, format!("body {number}").as_bytes());
    }
}

/// Changes the address of a client between and during requests.
fn rebinding(address: impl Fn(u8) -> Ipv4Addr) {
    let origin = echo();
    let site = h3::h3_site("server.workers = 4\n", &proxy_to(&[&origin.url()]));
    let relay = DatagramRelay::to(site.brisk.https());
    let mut connection = h3::connect(&h3::client(&site), relay.address());
    let body = body(300_000);
    // RFC 9000 section 9: a client moves after the handshake is confirmed, and this one is by the response.
    assert_eq!(exchange(&mut connection, "/before", b"x"), b"x");
    for round in 0..5 {
        relay.rebind(address(round));
        assert!(exchange(&mut connection, &format!("/{round}"), &body) == body, "round {round}");
    }
    connection.close();
    let opened = site.brisk.metrics().sum("brisk_handshakes_total", &[]);
    assert!((opened - 1.0).abs() < 0.5, "{opened} handshakes");
    let line = site.brisk.logged("/4");
    assert!(line.contains("HTTP/3.0"), "{line}");
}

#[test]
fn a_nat_that_changes_the_port_keeps_the_connection() {
    rebinding(|_| Ipv4Addr::LOCALHOST);
}

#[test]
fn a_client_that_changes_its_address_keeps_the_connection() {
    rebinding(|round| Ipv4Addr::new(127, 0, 1, round + 1));
}

#[test]
fn an_address_that_was_not_validated_gets_at_most_three_times_its_bytes() {
    let (ca, brisk) = with_long_certificate(300);
    let client = QuicClient::new(&ca.root_file(), NAME, "h3");
    // Only the first datagram arrives: the flight may fit the limit, and the second one then completes the handshake.
    let relay = DatagramRelay::new(brisk.https(), |way, number, _| match way {
        Way::Up if number < 1 => Fate::Pass,
        Way::Up => Fate::Drop,
        Way::Down => Fate::Pass,
    });
    let mut silent = client.connect(relay.address());
    silent.wait(|_| relay.datagrams(Way::Up) > 2).expect("repeated hellos");
    wait_until("the end of the handshake", || {
        let failed = brisk.metrics().sum("brisk_handshakes_failed_total", &["outcome=\"timed-out\""]);
        (failed > 0.5).then_some(())
    });
    let (up, down) = (relay.bytes(Way::Up), relay.bytes(Way::Down));
    assert!(down <= 3 * up, "{down} bytes for {up}");
    assert!(down > up, "{down} bytes for {up}: no flight was sent");
    // The same flight reaches a client that proves its address by its acknowledgements.
    let relay = DatagramRelay::to(brisk.https());
    let mut connection = h3::connect(&client, relay.address());
    assert_eq!(h3::get(&mut connection, "/").body, b"here");
}
