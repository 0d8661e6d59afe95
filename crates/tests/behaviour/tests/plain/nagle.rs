//! Clients and upstreams with Nagle's algorithm, which delay small segments until earlier ones are acknowledged.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use brisk_behaviour::site::{NAME, Site, proxy_to};
use brisk_testkit::client::TlsClient;
use brisk_testkit::http1::Message;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::TIMEOUT;
use rustls::HandshakeKind;

/// Linux delays an acknowledgement by 40 ms at least, so that no try is faster that has to wait for one.
const DELAY: Duration = Duration::from_millis(40);

/// One of them is not held up by something else.
const TRIES: usize = 100;

/// A request on a new connection, each record in a write of its own: the time to its answer.
#[track_caller]
fn time_to_answer(site: &Site, client: &TlsClient, kind: HandshakeKind) -> Duration {
    let started = Instant::now();
    let mut tls = client.start();
    let mut tcp = TcpStream::connect(site.brisk.https()).expect("a server");
    tcp.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    assert!(!tcp.nodelay().expect("a socket"));
    while tls.is_handshaking() {
        send(&mut tls, &mut tcp);
        if tls.is_handshaking() {
            receive(&mut tls, &mut tcp);
        }
    }
    send(&mut tls, &mut tcp);
    assert_eq!(tls.handshake_kind(), Some(kind));
    let request = format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
    tls.writer().write_all(request.as_bytes()).expect("a vector takes everything");
    send(&mut tls, &mut tcp);
    while tls.reader().read(&mut [0; 16384]).is_err() {
        receive(&mut tls, &mut tcp);
    }
    started.elapsed()
}

fn receive(tls: &mut rustls::ClientConnection, tcp: &mut TcpStream) {
    assert_ne!(tls.read_tls(tcp).expect("a server that answers"), 0);
    tls.process_new_packets().expect("records");
}

fn send(tls: &mut rustls::ClientConnection, tcp: &mut TcpStream) {
    let mut flight = Vec::new();
    while tls.wants_write() {
        tls.write_tls(&mut flight).expect("a vector takes everything");
    }
    let mut rest = &flight[..];
    while let [_, _, _, high, low, ..] = *rest {
        let (record, behind) = rest.split_at(5 + usize::from(u16::from_be_bytes([high, low])));
        tcp.write_all(record).expect("a server that reads");
        rest = behind;
    }
}

#[test]
fn a_resumed_handshake_of_tls12_waits_for_no_acknowledgement() {
    let site = Site::new();
    let client = site.client().tls12();
    time_to_answer(&site, &client, HandshakeKind::Full);
    assert!((0..TRIES).any(|_| time_to_answer(&site, &client, HandshakeKind::Resumed) < DELAY));
}

#[test]
fn a_full_handshake_of_tls12_waits_for_no_acknowledgement() {
    let site = Site::new();
    assert!((0..TRIES).any(|_| time_to_answer(&site, &site.client().tls12(), HandshakeKind::Full) < DELAY));
}

#[test]
fn a_handshake_of_tls13_waits_for_no_acknowledgement() {
    for keys in ["", "tls.tickets_per_handshake = 0\n"] {
        let site = Site::custom(keys, "", |setup| setup);
        assert!((0..TRIES).any(|_| time_to_answer(&site, &site.client(), HandshakeKind::Full) < DELAY));
    }
}

/// Serves kept connections: writes the head of each response, then its body, with Nagle's algorithm.
fn serve_in_two_segments(mut stream: TcpStream) -> io::Result<()> {
    assert!(!stream.nodelay()?);
    while Message::read_request(&mut stream)?.is_some() {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")?;
        stream.write_all(b"body")?;
    }
    Ok(())
}

#[test]
fn an_upstream_with_a_head_in_its_own_segment_waits_for_no_acknowledgement() {
    let origin = Origin::raw(serve_in_two_segments);
    let site = Site::custom("server.workers = 1\n", &proxy_to(&[&origin.url()]), |setup| setup);
    let mut connection = site.connect();
    let mut time = || {
        let started = Instant::now();
        assert_eq!(connection.get(NAME, "/").text(), "body");
        started.elapsed()
    };
    // The kernel acknowledges the first segments of a connection at once.
    for _ in 0..30 {
        time();
    }
    assert!((0..TRIES).any(|_| time() < DELAY));
    assert_eq!(origin.connections(), 1);
}
