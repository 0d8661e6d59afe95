//! Attacks on the gateway itself rather than on single requests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use brisk_behaviour::site::{NAME, NAMES, Site, proxy_to, setup};
use brisk_testkit::brisk::{Setup, base, host};
use brisk_testkit::ca::{LeafKey, TestCa};
use brisk_testkit::client::{TlsClient, TlsStream};
use brisk_testkit::http1::Message;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::{TIMEOUT, wait_until};

/// The preface of HTTP/2 and empty SETTINGS.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// An answer to a PING that nobody sent.
const PING_ACK: [u8; 17] = [0, 0, 8, 6, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

fn h2(site: &Site) -> TlsStream {
    let client = TlsClient::new(&site.ca.root_file(), NAME).alpn(&["h2"]);
    let mut connection = client.connect(site.brisk.https()).expect("a handshake");
    connection.write_all(PREFACE).expect("a server that reads");
    connection
}

/// The most frames without use that a client may send on one connection.
const RESETS: &str = "server.workers = 1\nserver.limits.h2_resets = 10000\n";

/// Sends `count` unasked answers to PINGs and waits until brisk has read them all: its answer to a PING of ours comes.
fn flood(connection: &mut TlsStream, count: usize) {
    connection.write_all(&PING_ACK.repeat(count)).expect("a server that reads");
    let ping = [0, 0, 8, 6, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1];
    connection.write_all(&ping).expect("a server that reads");
    let answer = [8, 7, 6, 5, 4, 3, 2, 1];
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    while !seen.windows(8).any(|window| window == answer) {
        let len = connection.read(&mut buffer).expect("frames");
        assert!(len > 0, "brisk closed the connection");
        seen.extend_from_slice(&buffer[..len]);
    }
}

#[test]
fn frames_of_a_stranger_do_not_fill_the_log() {
    let site = Site::custom(RESETS, "", |setup| setup);
    for _ in 0..2 {
        flood(&mut h2(&site), 9_900);
    }
    site.brisk.terminate();
    wait_until("the end of the drain", || site.brisk.process().stderr().contains("drained").then_some(()));
    let lines = site.brisk.process().stderr().lines().count();
    assert!(lines < 50, "{lines} lines");
}

#[test]
fn a_log_that_nobody_reads_stops_no_worker_and_its_lost_lines_are_counted() {
    let prepare = |setup: Setup| setup.option("--log").option("debug").unread_stderr();
    let site = Site::custom(RESETS, "", prepare);
    // At this level every frame is a line: several times what a pipe and the queue of lines hold.
    for _ in 0..2 {
        flood(&mut h2(&site), 9_900);
    }
    assert_eq!(site.get("/").status(), 200);
    wait_until("a count of dropped lines", || {
        (site.brisk.metrics().sum("brisk_log_dropped_lines_total", &[]) > 0.5).then_some(())
    });
}

#[test]
fn failed_handshakes_are_logged_once_a_second_with_a_count_of_the_others() {
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).key(LeafKey::Rsa2048).issue();
    // Proxies may fill the queue of key operations.
    let keys = "keys.queue = 1\nkeys.threads = 1\nkeys.simd = false\nserver.workers = 1\n\
                server.trusted_proxies = [\"127.0.0.0/8\"]\n";
    let brisk = setup().config(&format!("{}{}", base(keys), host(&NAMES, &[&leaf]))).start();
    let hello = TlsClient::new(&ca.root_file(), NAME).hello();
    let started = Instant::now();
    for _ in 0..5 {
        let hellos: Vec<_> = (0..100)
            .map(|_| {
                let mut tcp = TcpStream::connect(brisk.https()).expect("a listener");
                tcp.set_read_timeout(Some(TIMEOUT)).expect("a socket");
                tcp.write_all(&hello).expect("a connection");
                tcp
            })
            .collect();
        for mut tcp in hellos {
            tcp.read_exact(&mut [0; 5]).expect("an alert or a flight");
        }
    }
    let label = ["outcome=\"key-operation\""];
    let failed = brisk.metrics().sum("brisk_handshakes_failed_total", &label);
    assert!(failed > 50.0, "{failed} refused");
    let written = || brisk.process().stderr().matches("handshake failed").count();
    wait_until("a warning", || (written() > 0).then_some(()));
    let most = started.elapsed().as_secs() as usize + 2;
    assert!(written() <= most, "{} warnings within {most} s", written());
}

/// A connection that begins with a PROXY header for this client.
fn proxied(address: SocketAddr, client: &str) -> TcpStream {
    let mut tcp = TcpStream::connect(address).expect("a listener");
    tcp.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    tcp.write_all(format!("PROXY TCP4 {client} 192.0.2.1 12345 443\r\n").as_bytes()).expect("a connection");
    tcp
}

#[test]
fn behind_a_balancer_each_client_has_a_limit_of_its_own() {
    let keys = "server.proxy_protocol = true\nserver.max_connections_per_client = 2\n";
    let site = Site::custom(keys, "", |setup| setup);
    let connect = |client: &str| site.client().over(proxied(site.brisk.https(), client));
    let clients = ["203.0.113.1", "203.0.113.1", "203.0.113.2", "203.0.113.3", "203.0.113.4"];
    let held: Vec<_> = clients.map(|client| connect(client).expect(client)).into();
    assert!(connect("203.0.113.1").is_err(), "a third connection of one client");
    assert!(site.brisk.logged("\"outcome\":\"limited\"").contains("203.0.113.1"));
    let refused = ["reason=\"client-limit\""];
    assert!(site.brisk.metrics().sum("brisk_connections_refused_total", &refused) > 0.5);
    drop(held);
    wait_until("room for another connection", || connect("203.0.113.1").ok());
}

#[test]
fn a_client_of_the_http_listener_is_named_by_its_proxy_header() {
    let site = Site::custom("server.proxy_protocol = true\n", "", |setup| setup);
    let mut tcp = proxied(site.brisk.http(), "203.0.113.7");
    tcp.write_all(format!("GET /there HTTP/1.1\r\nHost: {NAME}\r\n\r\n").as_bytes()).expect("a connection");
    let answer = Message::read_response(&mut tcp).expect("an answer");
    assert_eq!(answer.status(), 308);
    let open = site.brisk.metrics().sum("brisk_connections_open", &["listener=\"http\""]);
    assert!((open - 1.0).abs() < 0.1, "{open} open");
    let line = site.brisk.logged("/there");
    assert!(line.contains("203.0.113.7") && line.contains("\"status\":308"), "{line}");
    // Without the header there is no client to speak of.
    let mut bare = TcpStream::connect(site.brisk.http()).expect("a listener");
    bare.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    bare.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").expect("a connection");
    let mut answer = Vec::new();
    let _ = bare.read_to_end(&mut answer);
    assert!(answer.is_empty(), "{answer:?}");
}

/// Idle connections of strangers, as many of these as come to be.
fn idle(site: &Site, count: usize) -> Vec<TlsStream> {
    (0..count).filter_map(|_| site.client().connect(site.brisk.https()).ok()).collect()
}

#[test]
fn idle_connections_give_way_at_the_limit_longest_first() {
    let site = Site::custom("server.max_connections = 8\nserver.workers = 1\n", "", |setup| setup);
    let held = idle(&site, 8);
    assert_eq!(held.len(), 8);
    let mut newest = site.client().connect(site.brisk.https()).expect("a place for one more");
    assert_eq!(newest.get(NAME, "/").status(), 200);
    let mut held = held.into_iter();
    let mut oldest = held.next().expect("eight of them");
    assert_eq!(oldest.read(&mut [0; 16]).expect("close_notify"), 0);
    let mut latest = held.next_back().expect("seven of them");
    assert_eq!(latest.get(NAME, "/").status(), 200);
}

#[test]
fn idle_http2_connections_give_way_as_well() {
    let site = Site::custom("server.max_connections = 2\nserver.workers = 1\n", "", |setup| setup);
    let mut held = [h2(&site), h2(&site)];
    for connection in &mut held {
        assert!(connection.read(&mut [0; 64]).expect("frames") > 0);
    }
    assert_eq!(site.get("/").status(), 200);
    let [mut oldest, _] = held;
    oldest.read_to_end(&mut Vec::new()).expect("close_notify");
}

#[test]
fn handshakes_that_do_not_get_on_give_way_as_well() {
    // Handshakes that end by their timeout would not give way.
    let keys = "server.max_connections = 8\nserver.workers = 1\nserver.timeouts.hello = \"10m\"\n";
    let site = Site::custom(keys, "", |setup| setup);
    let hello = site.client().hello();
    // Silent ones, and such as have begun.
    let silent: Vec<_> = (0..32)
        .map(|number| {
            let mut tcp = TcpStream::connect(site.brisk.https()).expect("a listener");
            tcp.write_all(&hello[..number]).expect("a server that reads");
            tcp
        })
        .collect();
    let evicted = || site.brisk.metrics().sum("brisk_handshakes_failed_total", &["outcome=\"evicted\""]);
    // They take the places of one another first: eight stay.
    wait_until("places that are taken", || {
        let refused = site.brisk.metrics().sum("brisk_connections_refused_total", &["reason=\"limit\""]);
        (evicted() + refused > 23.5).then_some(())
    });
    let before = evicted();
    for _ in 0..4 {
        assert_eq!(site.get("/").status(), 200);
    }
    assert!(evicted() > before + 0.5, "{before} evicted before");
    drop(silent);
}

#[test]
fn connections_at_work_are_not_let_go_for_others() {
    let origin = Origin::raw(|mut stream| std::io::copy(&mut stream, &mut std::io::sink()).map(drop));
    let keys = "server.max_connections = 4\nserver.workers = 2\n";
    let site = Site::custom(keys, &proxy_to(&[&origin.url()]), |setup| setup);
    let request = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
    let mut busy = idle(&site, 4);
    for client in &mut busy {
        client.write_all(request.as_bytes()).expect("a server that reads");
    }
    wait_until("all requests at the origin", || {
        (site.brisk.metrics().sum("brisk_upstream_connections_open", &[]) > 3.5).then_some(())
    });
    assert!(site.client().connect(site.brisk.https()).is_err(), "no place for another");
    let refused = site.brisk.metrics().sum("brisk_connections_refused_total", &["reason=\"limit\""]);
    assert!(refused > 0.5);
    let open = site.brisk.metrics().sum("brisk_connections_open", &[]);
    assert!((open - 4.0).abs() < 0.1, "{open} open");
}

#[test]
fn idle_connections_do_not_use_up_the_descriptors() {
    let site = Site::custom("", "", |setup| setup.open_files(160));
    let log = wait_until("a warning at the start", || {
        let log = site.brisk.process().stderr();
        log.contains("max_connections").then_some(log)
    });
    assert!(log.contains("max_connections is 100000") && log.contains("open files is 160"), "{log}");
    let held = idle(&site, 300);
    assert_eq!(site.get("/").status(), 200);
    assert_eq!(site.brisk.ask_admin("/healthz").status(), 200);
    // Those who wait for a place may be many, too.
    assert!(held.len() > 280, "{} of 300 were served", held.len());
    let log = site.brisk.process().stderr();
    assert!(!log.contains("cannot accept"), "{log}");
}
