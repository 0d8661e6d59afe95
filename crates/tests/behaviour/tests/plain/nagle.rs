//! Clients and upstreams with Nagle's algorithm, which delay small segments until earlier ones are acknowledged.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use brisk_behaviour::site::{NAME, Site, proxy_to};
use brisk_testkit::client::TlsClient;
use brisk_testkit::http1::Message;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::TIMEOUT;
use brisk_testkit::uninterrupted::Uninterrupted;
use rustls::HandshakeKind;

/// Half of the 40 ms by which Linux delays an acknowledgement at least.
const HALF_A_DELAY: Duration = Duration::from_millis(20);

/// Pairs of tries. On a busy machine, most tries take longer than an acknowledgement is delayed; the fastest one of each kind does
/// not.
const PAIRS: usize = 40;

/// Whether segments are held back until earlier ones are acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nagle {
    On,
    Off,
}

/// Whether the fastest try with Nagle's algorithm takes no longer than the fastest one without it.
fn waits_for_no_acknowledgement(mut time: impl FnMut(Nagle) -> Duration) -> bool {
    let (mut with, mut without) = (Duration::MAX, Duration::MAX);
    for _ in 0..PAIRS {
        without = without.min(time(Nagle::Off));
        with = with.min(time(Nagle::On));
    }
    with < without + HALF_A_DELAY
}

/// A request on a new connection, each record in a write of its own: the time to its answer.
#[track_caller]
fn time_to_answer(site: &Site, client: &TlsClient, kind: HandshakeKind, nagle: Nagle) -> Duration {
    let started = Instant::now();
    let mut tls = client.start();
    let mut tcp = TcpStream::connect(site.brisk.https()).expect("a server");
    tcp.set_read_timeout(Some(TIMEOUT)).expect("a socket");
    tcp.set_nodelay(nagle == Nagle::Off).expect("a socket");
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
    assert_ne!(tls.read_tls(&mut Uninterrupted(&*tcp)).expect("a server that answers"), 0);
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
    time_to_answer(&site, &client, HandshakeKind::Full, Nagle::Off);
    let time = |nagle| time_to_answer(&site, &client, HandshakeKind::Resumed, nagle);
    assert!(waits_for_no_acknowledgement(time));
}

#[test]
fn a_full_handshake_of_tls12_waits_for_no_acknowledgement() {
    let site = Site::new();
    let time = |nagle| time_to_answer(&site, &site.client().tls12(), HandshakeKind::Full, nagle);
    assert!(waits_for_no_acknowledgement(time));
}

#[test]
fn a_handshake_of_tls13_waits_for_no_acknowledgement() {
    for keys in ["", "tls.tickets_per_handshake = 0\n"] {
        let site = Site::custom(keys, "", |setup| setup);
        let time = |nagle| time_to_answer(&site, &site.client(), HandshakeKind::Full, nagle);
        assert!(waits_for_no_acknowledgement(time));
    }
}

/// Serves kept connections: writes the head of each response, then its body.
fn serve_in_two_segments(mut stream: TcpStream, nagle: Nagle) -> io::Result<()> {
    stream.set_nodelay(nagle == Nagle::Off)?;
    while Message::read_request(&mut stream)?.is_some() {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n")?;
        stream.write_all(b"body")?;
    }
    Ok(())
}

#[test]
fn an_upstream_with_a_head_in_its_own_segment_waits_for_no_acknowledgement() {
    let kinds = [Nagle::On, Nagle::Off];
    let origins = kinds.map(|nagle| Origin::raw(move |stream| serve_in_two_segments(stream, nagle)));
    let sites = origins
        .each_ref()
        .map(|origin| Site::custom("server.workers = 1\n", &proxy_to(&[&origin.url()]), |setup| setup));
    let mut connections = sites.each_ref().map(Site::connect);
    let mut time = |nagle: Nagle| {
        let started = Instant::now();
        assert_eq!(connections[nagle as usize].get(NAME, "/").text(), "body");
        started.elapsed()
    };
    // The kernel acknowledges the first segments of a connection at once.
    for _ in 0..30 {
        for nagle in kinds {
            time(nagle);
        }
    }
    assert!(waits_for_no_acknowledgement(time));
    assert_eq!(origins.each_ref().map(Origin::connections), [1, 1]);
}
