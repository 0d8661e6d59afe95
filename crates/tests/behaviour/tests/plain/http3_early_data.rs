//! Early data over HTTP/3 from addresses with and without proof.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;

use brisk_behaviour::h3_client::{self as h3, head, response};
use brisk_behaviour::site::{Site, proxy_to};
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::wait_until;
use brisk_testkit::quic::{QuicClient, QuicConnection};
use quinn_proto::{NoneTokenStore, StreamId};

/// The address of another client.
const VICTIM: Ipv4Addr = Ipv4Addr::new(127, 0, 6, 6);

const SAFE: &str = "\n[[host.route]]\npath = \"/\"\nearly_data = \"safe\"\nrespond = { body = \"here\" }\n";

/// A gateway that forwards early data to an upstream.
fn proxying() -> (Origin, Site) {
    let origin = Origin::answering(|_, stream| write_response(stream, b"from the upstream"));
    let route = proxy_to(&[&origin.url()]).replacen("path = \"/\"", "path = \"/\"\nearly_data = \"safe\"", 1);
    let site = h3::h3_site("", &route);
    (origin, site)
}

/// A client without tokens: no other host gets those for the address of a victim.
fn without_tokens(site: &Site) -> QuicClient {
    h3::client(site).token_store(Arc::new(NoneTokenStore))
}

/// A visit whose session the next connection resumes.
fn visit(client: &QuicClient, site: &Site) {
    let mut connection = h3::connect(client, site.brisk.https());
    assert_eq!(h3::get(&mut connection, "/visit").status(), "200");
    connection.close();
}

/// Sends requests in early data from an address.
fn flight(client: &QuicClient, site: &Site, from: Ipv4Addr, requests: usize) -> (QuicConnection, StreamId) {
    let socket = UdpSocket::bind((from, 0)).expect("a loopback address");
    let mut connection = client.connect_from(socket, site.brisk.https());
    assert!(connection.connection.has_0rtt());
    connection.send_uni(&[0, 4, 0]);
    let streams: Vec<_> = (0..requests).map(|_| connection.request(&head("GET", "/early", &[]))).collect();
    (connection, streams[0])
}

/// Sends a flight with the address of the victim, whose sender reads nothing, and waits for its end.
fn forged_flight(site: &Site, requests: usize) {
    let client = without_tokens(site);
    visit(&client, site);
    let _unread = flight(&client, site, VICTIM, requests);
    wait_until("the end of the handshake", || {
        let failed = site.brisk.metrics().sum("brisk_handshakes_failed_total", &["outcome=\"timed-out\""]);
        (failed > 0.5).then_some(())
    });
}

#[test]
fn a_request_with_a_forged_address_reaches_no_upstream_and_no_line_of_the_log() {
    let (origin, site) = proxying();
    forged_flight(&site, 1);
    let client = h3::client(&site);
    let mut other = h3::connect(&client, site.brisk.https());
    assert_eq!(h3::get(&mut other, "/after").body, b"from the upstream");
    site.brisk.logged("/after");
    let forged = |text: &str| text.contains("/early") && text.contains(&VICTIM.to_string());
    assert!(!site.brisk.access_log().iter().any(|line| forged(line)));
    let targets: Vec<_> = origin.requests().iter().map(|request| request.head.line.clone()).collect();
    assert!(targets.iter().all(|target| !target.contains("/early")), "{targets:?}");
}

#[test]
fn requests_with_a_forged_address_are_not_charged_to_its_owner() {
    let site = h3::h3_site("server.rates.requests = \"8/h\"\n", SAFE);
    forged_flight(&site, 12);
    let client = h3::client(&site);
    let socket = UdpSocket::bind((VICTIM, 0)).expect("a loopback address");
    let mut owner = client.connect_from(socket, site.brisk.https());
    owner.handshake().expect("a handshake");
    owner.send_uni(&[0, 4, 0]);
    for _ in 0..4 {
        assert_eq!(h3::get(&mut owner, "/").status(), "200");
    }
}

#[test]
fn requests_in_early_data_of_an_address_without_proof_are_processed_after_the_handshake() {
    let (origin, site) = proxying();
    let client = without_tokens(&site);
    visit(&client, &site);
    let (mut connection, stream) = flight(&client, &site, VICTIM, 1);
    assert_eq!(response(&mut connection, stream).expect("a response").body, b"from the upstream");
    assert!(connection.connection.accepted_0rtt());
    assert_eq!(origin.last_request().header("early-data"), None);
}

#[test]
fn a_client_that_returns_with_a_token_gets_its_response_before_the_handshake_is_complete() {
    let (origin, site) = proxying();
    let client = h3::client(&site);
    visit(&client, &site);
    let (mut connection, stream) = flight(&client, &site, Ipv4Addr::LOCALHOST, 1);
    let mut received = Vec::new();
    connection.wait_without_sending(|this| this.read(stream, &mut received)).expect("a response");
    assert_eq!(h3::Received::read(&received).body, b"from the upstream");
    assert_eq!(origin.last_request().header("early-data"), Some("1"));
    visit(&client, &site);
    // The token is bound to the address: at another one, the request waits.
    let (mut moved, stream) = flight(&client, &site, VICTIM, 1);
    assert_eq!(response(&mut moved, stream).expect("a response").status(), "200");
    assert_eq!(origin.last_request().header("early-data"), None);
}
