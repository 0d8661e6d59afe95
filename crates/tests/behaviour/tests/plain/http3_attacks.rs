//! Hostile clients of HTTP/3: each has an end or costs little memory, and others are served meanwhile.

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use brisk_behaviour::h2_client::silent;
use brisk_behaviour::h3_client::{self as h3, HEADERS, frame, head};
use brisk_behaviour::site::{Site, proxy_to};
use brisk_testkit::process::wait_until;
use brisk_testkit::quic::QuicConnection;
use brisk_wire::h3::qpack;
use quinn_proto::{ConnectionError, Dir, Side, StreamId};

const FIXED: &str = "\n[[host.route]]\npath = \"/\"\nrespond = { body = \"here\" }\n";

/// `H3_EXCESSIVE_LOAD` (RFC 9114 section 8.1).
const EXCESSIVE_LOAD: u64 = 0x107;

const MEBIBYTE: u64 = 1 << 20;

/// Performs an attack while other clients connect and request. Returns by how many bytes the memory of the gateway grew.
fn attack(site: &Site, attack: impl FnOnce()) -> u64 {
    // A first visit allocates memory that stays.
    visit(site).expect("a response");
    let before = site.brisk.process().resident_bytes();
    let is_over = AtomicBool::new(false);
    let served = thread::scope(|scope| {
        let others = scope.spawn(|| {
            // A handshake that takes a busy machine longer than its limit is repeated.
            let (mut served, mut late) = (0, 0);
            while !is_over.load(Ordering::SeqCst) || served < 5 {
                match visit(site) {
                    Ok(()) => served += 1,
                    Err(ConnectionError::Reset | ConnectionError::TimedOut) if late < 20 => late += 1,
                    Err(error) => panic!("{error} after {served} visits"),
                }
            }
            served
        });
        attack();
        is_over.store(true, Ordering::SeqCst);
        others.join().expect("other clients")
    });
    assert!(served >= 5);
    site.brisk.process().resident_bytes().saturating_sub(before)
}

fn visit(site: &Site) -> Result<(), ConnectionError> {
    let mut connection = h3::client(site).connect(site.brisk.https());
    connection.handshake()?;
    connection.send_uni(&[0, 4, 0]);
    let stream = connection.request(&head("GET", "/fixed", &[]));
    assert_eq!(h3::response(&mut connection, stream)?.status(), "200");
    connection.close();
    Ok(())
}

/// Repeats `round` until the gateway closes the connection. Returns the error code and the number of rounds.
#[track_caller]
fn until_closed(site: &Site, rounds: u32, mut round: impl FnMut(&mut QuicConnection, u32)) -> (u64, u32) {
    let mut connection = h3::connect(&h3::client(site), site.brisk.https());
    for number in 0..rounds {
        round(&mut connection, number);
        // One turn sends, and receives all datagrams that have arrived.
        let mut turns = 0;
        let turn = |_: &mut QuicConnection| std::mem::replace(&mut turns, 1) == 1;
        match connection.wait(turn) {
            Ok(()) => {}
            Err(ConnectionError::ApplicationClosed(close)) => return (close.error_code.into(), number),
            Err(other) => panic!("{other}"),
        }
    }
    panic!("not closed after {rounds} rounds")
}

#[test]
fn a_flood_of_first_packets_from_many_addresses_leaves_others_served() {
    let site = h3::h3_site("", FIXED);
    let client = h3::client(&site);
    let hole = UdpSocket::bind("127.0.0.1:0").expect("a socket").local_addr().expect("an address");
    let grown = attack(&site, || {
        for number in 0..3000_u16 {
            let [high, low] = number.to_be_bytes();
            let socket = UdpSocket::bind((Ipv4Addr::new(127, 9, high, low), 0)).expect("a socket");
            let _ = socket.send_to(client.connect(hole).first(), site.brisk.https());
        }
    });
    assert!(grown < 64 * MEBIBYTE, "{grown} bytes");
    // The handshakes end without their clients.
    wait_until("the end of the handshakes", || {
        (site.brisk.metrics().sum("brisk_connections_open", &[]) < 0.5).then_some(())
    });
}

#[test]
fn a_flood_of_tiny_datagrams_leaves_others_served() {
    let site = h3::h3_site("", FIXED);
    let grown = attack(&site, || {
        let sockets: Vec<_> = (1..=20)
            .map(|host| UdpSocket::bind((Ipv4Addr::new(127, 8, 0, host), 0)).expect("a socket"))
            .collect();
        let mut bytes = [0_u8; 40];
        for number in 0..200_000_u32 {
            bytes[..4].copy_from_slice(&number.wrapping_mul(0x9e37_79b9).to_be_bytes());
            bytes[4..8].copy_from_slice(&number.to_be_bytes());
            let length = number as usize % bytes.len();
            let _ = sockets[number as usize % sockets.len()].send_to(&bytes[..length], site.brisk.https());
        }
    });
    assert!(grown < 16 * MEBIBYTE, "{grown} bytes");
}

#[test]
fn requests_that_are_reset_end_the_connection() {
    let origin = silent();
    let tables = proxy_to(&[&origin.url()]);
    let fixed = "\n[[host.route]]\npath = \"/fixed\"\nrespond = { body = \"here\" }\n";
    let site = h3::h3_site("", &(fixed.to_owned() + &tables));
    let (code, rounds) = until_closed(&site, 20_000, |connection, _| {
        let Some(stream) = connection.connection.streams().open(Dir::Bi) else { return };
        let mut sending = connection.connection.send_stream(stream);
        sending.write(&head("GET", "/slow", &[])).expect("an open stream");
        sending.reset(0x10c_u32.into()).expect("an open stream");
        let _ = connection.connection.recv_stream(stream).stop(0x10c_u32.into());
    });
    assert_eq!(code, EXCESSIVE_LOAD, "after {rounds} rounds");
    assert!(origin.connections() < 2000, "{} upstream connections", origin.connections());
}

#[test]
fn priorities_of_streams_that_are_never_opened_end_the_connection() {
    let site = h3::h3_site("", FIXED);
    // The first unidirectional stream is the control stream of `h3::connect`.
    let control = StreamId::new(Side::Client, Dir::Uni, 0);
    let (code, rounds) = until_closed(&site, 20_000, |connection, number| {
        let id = u16::try_from(number % 100 * 4).expect("a small ID") | 0x4000;
        let payload = [&id.to_be_bytes()[..], b"u=1"].concat();
        // PRIORITY_UPDATE is type 0xf0700 (RFC 9218 section 7.2), as a varint of four bytes.
        let update = [&[0x80, 0x0f, 0x07, 0x00, 5][..], &payload].concat();
        let _ = connection.connection.send_stream(control).write(&update.repeat(100));
    });
    assert_eq!(code, EXCESSIVE_LOAD, "after {rounds} rounds");
    visit(&site).expect("a response");
}

#[test]
fn heads_that_grow_when_they_are_decoded_are_refused_and_end_the_connection() {
    let site = h3::h3_site("", FIXED);
    // 15,000 times the longest field of the static table, by one or two bytes each.
    let longest = (0..99_usize).max_by_key(|index| qpack::CONSTANTS[*index].1.len()).expect("fields");
    let reference = match u8::try_from(longest).expect("a small index") {
        index @ 0..63 => vec![0xc0 | index],
        index => vec![0xff, index - 63],
    };
    let bomb = frame(HEADERS, &[&[0, 0][..], &reference.repeat(15_000 / reference.len())].concat());
    let grown = attack(&site, || {
        let (code, rounds) = until_closed(&site, 20_000, |connection, _| {
            let Some(stream) = connection.connection.streams().open(Dir::Bi) else { return };
            let mut sending = connection.connection.send_stream(stream);
            let _ = sending.write(&bomb);
            let _ = sending.finish();
        });
        assert_eq!(code, EXCESSIVE_LOAD, "after {rounds} rounds");
    });
    assert!(grown < 16 * MEBIBYTE, "{grown} bytes");
}

#[test]
fn clients_that_read_nothing_hold_little_memory() {
    let large = "x".repeat(200_000);
    let tables = format!("\n[[host.route]]\npath = \"/large\"\nrespond = {{ body = {large:?} }}\n{FIXED}");
    let site = h3::h3_site("", &tables);
    let mut held = Vec::new();
    let grown = attack(&site, || {
        for _ in 0..20 {
            let mut connection = h3::connect(&h3::client(&site), site.brisk.https());
            // Responses of 20 MB in all, of which the client acknowledges nothing.
            for _ in 0..100 {
                connection.request(&head("GET", "/large", &[]));
            }
            held.push(connection);
        }
        wait_until("requests", || {
            (site.brisk.metrics().sum("brisk_requests_total", &[]) >= 2000.0).then_some(())
        });
    });
    assert!(grown < 64 * MEBIBYTE, "{grown} bytes for {} connections", held.len());
}
