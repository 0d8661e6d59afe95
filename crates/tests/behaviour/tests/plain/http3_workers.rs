//! HTTP/3 with several workers: 200 connections whose clients change their ports and addresses, across a reload and a drain.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use brisk_behaviour::site::NAME;
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::Leaf;
use brisk_testkit::origin::GatedOrigin;
use brisk_testkit::process::wait_until;
use brisk_testkit::quic::QuicConnection;
use quinn_proto::ConnectionError;

use super::http3::{Site, get, request, response};

const CONNECTIONS: usize = 200;
/// Timeouts that last until hundreds of connections were opened and used on a busy machine.
pub(crate) const LONG: &str = "server.timeouts.idle = \"10m\"\nserver.drain_timeout = \"2m\"\n";
/// Time from the beginning of a drain in which no connection refuses requests yet: the final GOAWAY is a tick later.
const PROMPT: Duration = Duration::from_millis(50);
/// `H3_REQUEST_REJECTED` (RFC 9114 section 8.1).
const REQUEST_REJECTED: u64 = 0x10b;

/// A configuration that answers with `body`, and below `/slow` by `slow`.
pub(crate) fn config(slow: &GatedOrigin, leaf: &Leaf, server: &str, body: &str) -> String {
    let route = "\n[[host.route]]\npath = ";
    base(&format!("server.http3 = true\n{server}"))
        + &host(&[NAME], &[leaf])
        + &format!("{route}\"/slow\"\nupstream = \"app\"\n{route}\"/\"\nrespond = {{ body = {body:?} }}\n")
        + &format!("\n[upstream.app]\nservers = [{:?}]\ntimeouts = {{ head = \"10m\" }}\n", slow.url())
}

/// Changes the port of a connection, its address and port, or neither.
pub(crate) fn change(connection: &mut QuicConnection, random: &mut fastrand::Rng) {
    match random.u8(..3) {
        0 => connection.rebind(),
        1 => {
            let address = Ipv4Addr::new(127, 0, 0, random.u8(2..252));
            connection.rebind_to(IpAddr::V4(address));
        }
        _ => {}
    }
}

fn ok(body: &str) -> (String, String) {
    ("200".to_owned(), body.to_owned())
}

#[test]
fn connections_survive_changes_of_ports_and_addresses_a_reload_and_a_drain() {
    let slow = GatedOrigin::new("slow");
    let workers = &format!("server.workers = 4\n{LONG}");
    let mut site = Site::with(|leaf| config(&slow, leaf, workers, "old"));
    let mut random = fastrand::Rng::with_seed(37);
    let mut connections: Vec<_> = (0..CONNECTIONS).map(|_| site.connect()).collect();
    for connection in &mut connections {
        // A client moves after the handshake is confirmed (RFC 9000 section 9), and this one is by the response.
        assert_eq!(get(connection, "/"), ok("old"));
    }
    let mut visit = |body: &str| {
        for connection in &mut connections {
            change(connection, &mut random);
            assert_eq!(get(connection, "/"), ok(body));
        }
    };
    visit("old");
    site.brisk.write("brisk.toml", config(&slow, &site.leaf, workers, "new"));
    assert!(site.brisk.reload().contains("reloaded:"));
    wait_until("all workers", || (0..8).all(|_| get(&mut site.connect(), "/") == ok("new")).then_some(()));
    visit("new");
    let metrics = site.brisk.metrics();
    assert!(metrics.sum("brisk_quic_migrations_total", &[]) > 100.0);
    // Without the program that distributes packets, most would be passed from one worker to another.
    let passed = metrics.sum("brisk_quic_datagrams_passed_total", &[]);
    assert!(passed < 0.5, "{passed} datagrams reached a wrong socket");

    let streams: Vec<_> = connections.iter_mut().map(|own| request(own, "/slow")).collect();
    wait_until("the requests", || (slow.requests().len() == CONNECTIONS).then_some(()));
    let began = Instant::now();
    site.brisk.terminate();
    // Clients do not know of the drain yet: each of these requests is answered, or may be repeated elsewhere.
    let mut late = Vec::new();
    let mut prompt = 0;
    for connection in &mut connections {
        change(connection, &mut random);
        late.push(request(connection, "/late"));
        prompt += usize::from(began.elapsed() < PROMPT);
    }
    slow.open();
    let mut answered = 0;
    for ((connection, stream), late) in connections.iter_mut().zip(streams).zip(late) {
        assert_eq!(response(connection, stream).expect("a response"), ok("slow"));
        match connection.response_or_reset(late) {
            Ok(Ok(response)) => {
                assert!(!response.is_empty());
                answered += 1;
            }
            Ok(Err(code)) => assert_eq!(code, REQUEST_REJECTED),
            // The connection is over: the request was sent after the final GOAWAY.
            Err(error) => assert!(matches!(error, ConnectionError::ApplicationClosed(_)), "{error}"),
        }
    }
    // Unless a pause of the machine came before all of them.
    assert!(answered > 0 || prompt == 0, "no request of {prompt} at the beginning of the drain");
    connections.iter_mut().for_each(QuicConnection::close);
    assert!(site.brisk.wait().success());
}
