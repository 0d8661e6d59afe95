//! Rate limits per client, and its share of the key queue.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use brisk_behaviour::site::{NAME, NAMES, Site, setup};
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::{LeafKey, TestCa};
use brisk_testkit::client::TlsClient;
use brisk_testkit::http1::Message;
use brisk_testkit::process::{TIMEOUT, wait_until};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

/// A connection from this loopback address.
fn from(source: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&socket, &SocketAddr::from((source, 0))).expect("a loopback address");
    connect(&socket, &to).expect("a listener");
    let tcp = TcpStream::from(socket);
    tcp.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    tcp
}

fn refused(site: &Site, event: &str) -> f64 {
    site.brisk.metrics().sum("brisk_rate_refusals_total", &[&format!("event=\"{event}\"")])
}

#[test]
fn a_client_that_connects_too_often_is_closed() {
    let site = Site::custom("server.rates.connections = \"3/h\"\n", "", |setup| setup);
    for _ in 0..3 {
        assert_eq!(site.get("/").status(), 200);
    }
    let mut fourth = from(Ipv4Addr::LOCALHOST, site.brisk.https());
    assert!(matches!(fourth.read(&mut [0; 16]), Ok(0) | Err(_)));
    let other = site.client().over(from(Ipv4Addr::new(127, 0, 0, 2), site.brisk.https()));
    assert_eq!(other.expect("another client").get(NAME, "/").status(), 200);
    assert!(refused(&site, "connection") > 0.5);
    let label = ["reason=\"connection-rate\""];
    assert!(site.brisk.metrics().sum("brisk_connections_refused_total", &label) > 0.5);
}

#[test]
fn requests_beyond_the_rate_are_429() {
    let site = Site::custom("server.rates.requests = \"4/h\"\n", "", |setup| setup);
    let mut client = site.connect();
    for _ in 0..3 {
        assert_eq!(client.get(NAME, "/").status(), 200);
    }
    // All connections of a client count, those of plain HTTP too.
    let mut http = TcpStream::connect(site.brisk.http()).expect("a listener");
    http.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    http.write_all(format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n").as_bytes()).expect("a connection");
    assert_eq!(Message::read_response(&mut http).expect("an answer").status(), 308);
    let answer = client.get(NAME, "/");
    assert_eq!(answer.status(), 429);
    let wait: u64 = answer.header("retry-after").and_then(|text| text.parse().ok()).expect("seconds");
    assert!((1..=900).contains(&wait), "{wait}");
    assert!(site.brisk.logged("request-rate").contains("\"status\":429"));
    assert!(refused(&site, "request") > 0.5);
    let mut other =
        site.client().over(from(Ipv4Addr::new(127, 0, 0, 2), site.brisk.https())).expect("a handshake");
    assert_eq!(other.get(NAME, "/").status(), 200);
}

#[test]
fn full_handshakes_beyond_the_rate_fail_and_resumed_ones_do_not() {
    let site = Site::custom("server.rates.handshakes = \"2/h\"\n", "", |setup| setup);
    let resuming = site.client();
    assert_eq!(resuming.connect(site.brisk.https()).expect("a handshake").get(NAME, "/").status(), 200);
    site.client().connect(site.brisk.https()).expect("a second full handshake");
    assert!(site.client().connect(site.brisk.https()).is_err(), "a third full handshake");
    assert_eq!(resuming.connect(site.brisk.https()).expect("a resumed one").get(NAME, "/").status(), 200);
    assert!(site.brisk.logged("\"outcome\":\"limited\"").contains("127.0.0.1"));
    assert!(refused(&site, "handshake") > 0.5);
}

#[test]
fn a_client_that_breaks_protocols_is_kept_out() {
    let site = Site::custom("server.rates.errors = \"3/h\"\n", "", |setup| setup);
    for _ in 0..3 {
        let mut stream = from(Ipv4Addr::LOCALHOST, site.brisk.https());
        stream.write_all(&[0; 100]).expect("a connection");
        let _ = stream.read_to_end(&mut Vec::new());
    }
    wait_until("a connection that is refused", || {
        site.client().connect(site.brisk.https()).is_err().then_some(())
    });
    let other = site.client().over(from(Ipv4Addr::new(127, 0, 0, 2), site.brisk.https()));
    assert_eq!(other.expect("another client").get(NAME, "/").status(), 200);
    assert!(refused(&site, "error") > 0.5);
}

#[test]
fn hellos_of_one_client_leave_room_in_the_key_queue_for_others() {
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).key(LeafKey::Rsa2048).issue();
    let keys = "keys.queue = 16\nkeys.threads = 1\nkeys.simd = false\nserver.workers = 1\n";
    let brisk = setup().config(&format!("{}{}", base(keys), host(&NAMES, &[&leaf]))).start();
    let client = TlsClient::new(&ca.root_file(), NAME);
    let hello = client.hello();
    let attacker = Ipv4Addr::new(127, 0, 0, 2);
    let done = AtomicBool::new(false);
    // Hellos without any cryptography, while others come for an honest handshake.
    std::thread::scope(|scope| {
        scope.spawn(|| flood(&hello, attacker, brisk.https(), &done));
        let _stop = Stop(&done);
        wait_until("a client that has had its share", || {
            let label = ["outcome=\"limited\""];
            (brisk.metrics().sum("brisk_handshakes_failed_total", &label) > 0.5).then_some(())
        });
        let failed = (0..5).filter(|_| client.connect(brisk.https()).is_err()).count();
        assert_eq!(failed, 0, "of five honest handshakes");
    });
    let label = ["outcome=\"overloaded\""];
    assert!(brisk.metrics().sum("brisk_key_operations_total", &label) < 0.5);
}

/// Sends `hello` over and over, on fifty connections at a time, each until it is answered.
fn flood(hello: &[u8], source: Ipv4Addr, to: SocketAddr, done: &AtomicBool) {
    let mut held = VecDeque::new();
    while !done.load(Ordering::Relaxed) {
        let mut tcp = from(source, to);
        if tcp.write_all(hello).is_ok() {
            held.push_back(tcp);
        }
        if held.len() > 50 {
            let _ = held.pop_front().map(|mut tcp| tcp.read(&mut [0; 16]));
        }
    }
}

/// Ends the flood, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
