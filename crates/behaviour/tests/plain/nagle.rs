//! Clients with Nagle's algorithm, which delay small segments until earlier ones are acknowledged.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use brisk_behaviour::site::{NAME, Site};
use brisk_testkit::client::TlsClient;
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
