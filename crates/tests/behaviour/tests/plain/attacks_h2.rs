//! Attacks with HTTP/2 frames that cause work without requesting responses.

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use brisk_behaviour::h2::{
    CONTINUATION, DATA, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE, frame, get, post_head,
};
use brisk_behaviour::h2_client::{Client, silent};
use brisk_behaviour::h2_origin::{h2_origin, h2c};
use brisk_behaviour::site::{Site, proxy_to};
use brisk_testkit::origin::Origin;
use brisk_testkit::process::wait_until;

const ENHANCE_YOUR_CALM: u32 = 0xb;

fn flooded(site: &Site, reason: &str) {
    let label = format!("reason=\"{reason}\"");
    let count = site.brisk.metrics().sum("brisk_http2_floods_total", &[&label]);
    assert!((count - 1.0).abs() < 0.5, "{count} floods by {reason}");
    site.client().connect(site.brisk.https()).expect("a worker that lives");
}

fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

#[test]
fn requests_that_are_reset_at_a_measured_pace_end_the_connection() {
    let origin = silent();
    let site = Site::proxying(&[&origin.url()]);
    let mut client = Client::connect(&site);
    // Each request has been accepted before it is reset.
    let code = client.until_goaway(200, |client, round| {
        let streams: Vec<u32> = (0..16).map(|number| (2 * (16 * round + number) + 1) as u32).collect();
        client.send(&streams.iter().flat_map(|stream| get(*stream, "/")).collect::<Vec<_>>());
        wait_until("requests at the upstream, or the end", || {
            let frames = client.frames(Duration::from_millis(2));
            let is_over = client.is_closed() || frames.iter().any(|frame| frame.kind == GOAWAY);
            client.put_back(frames);
            (is_over || origin.connections() >= 16 * (round + 1)).then_some(())
        });
        client.send(&streams.iter().flat_map(|stream| reset(*stream)).collect::<Vec<_>>());
    });
    assert_eq!(code, ENHANCE_YOUR_CALM);
    flooded(&site, "reset");
    assert!(origin.connections() < 500, "{} upstream connections", origin.connections());
}

#[test]
fn streams_that_the_server_is_made_to_reset_count_as_well() {
    let origin = silent();
    let site = Site::custom("server.limits.h2_resets = 50\n", &proxy_to(&[&origin.url()]), |setup| setup);
    let mut client = Client::connect(&site);
    // CVE-2025-8671: a window beyond its limit is an error of the stream.
    let code = client.until_goaway(400, |client, round| {
        let stream = (2 * round + 1) as u32;
        client.send(&[get(stream, "/"), frame(WINDOW_UPDATE, 0, stream, &[0x7f, 0xff, 0xff, 0xff])].concat());
    });
    assert_eq!(code, ENHANCE_YOUR_CALM);
    flooded(&site, "stream-error");
}

#[test]
fn control_frames_without_end_end_the_connection() {
    for (reason, piece) in [
        ("ping", frame(PING, 0, 0, &[7; 8])),
        ("ping-ack", frame(PING, 1, 0, &[7; 8])),
        ("settings", frame(SETTINGS, 0, 0, &[])),
        ("settings", frame(SETTINGS, 1, 0, &[])),
        ("priority", frame(2, 0, 1, &[0, 0, 0, 0, 1])),
        ("window-update", frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes())),
        ("other-frame", frame(0x77, 0, 0, &[7; 8])),
    ] {
        let site = Site::new();
        let mut client = Client::connect(&site);
        let flood = piece.repeat(100);
        let code = client.until_goaway(200, |client, _| client.send(&flood));
        assert_eq!(code, ENHANCE_YOUR_CALM, "{reason}");
        flooded(&site, reason);
    }
}

#[test]
fn data_frames_without_data_end_the_connection() {
    let origin = silent();
    // Without data, and with padding of one and of three bytes.
    for piece in [frame(DATA, 0, 1, &[]), frame(DATA, 8, 1, &[0]), frame(DATA, 8, 1, &[2, 0, 0])] {
        let site = Site::proxying(&[&origin.url()]);
        let mut client = Client::connect(&site);
        client.send(&post_head(1, "/"));
        let flood = piece.repeat(100);
        let code = client.until_goaway(200, |client, _| client.send(&flood));
        assert_eq!(code, ENHANCE_YOUR_CALM);
        flooded(&site, "empty-data");
    }
}

#[test]
fn a_client_that_cancels_some_of_its_requests_goes_on() {
    let site = Site::custom("server.limits.h2_resets = 20\n", "", |setup| setup);
    let mut client = Client::connect(&site);
    let mut streams = (0..).map(|number| 2 * number + 1);
    for _ in 0..50 {
        for _ in 0..4 {
            let stream = streams.next().expect("streams");
            client.send(&get(stream, "/"));
            client.wait_for("end of an answer", |frame| {
                frame.stream == stream && frame.kind == DATA && frame.flags & 1 == 1
            });
            // Windows are kept open, as every client does.
            client.open_window();
        }
        let stream = streams.next().expect("streams");
        client.send(&[get(stream, "/"), reset(stream)].concat());
    }
}

/// A field without indexing, with lengths of up to two bytes (RFC 7541 section 5.1).
fn field(start: &[u8], name: &str, value: &str) -> Vec<u8> {
    let length = |length: usize| match length {
        0..127 => vec![length as u8],
        _ => vec![127, ((length - 127) & 127) as u8 | 128, ((length - 127) >> 7) as u8],
    };
    [start, &length(name.len()), name.as_bytes(), &length(value.len()), value.as_bytes()].concat()
}

/// A GET with more fields behind its own.
fn get_with(stream: u32, fields: &[u8]) -> Vec<u8> {
    let plain = get(stream, "/");
    frame(HEADERS, 5, stream, &[&plain[9..], fields].concat())
}

#[test]
fn header_lines_over_http2_are_limited_as_over_http1() {
    let origin = Origin::fixed("passed");
    let site = Site::proxying(&[&origin.url()]);
    let mut client = Client::connect(&site);
    client.send(&get_with(1, &field(&[0], "x-a", "1").repeat(101)));
    assert_eq!(client.status(1), 431);
    client.send(&get_with(3, &field(&[0], "x-a", "1").repeat(99)));
    assert_eq!(client.status(3), 200);
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn heads_of_one_client_leave_memory_for_those_of_others() {
    // An upstream that never responds. Over HTTP/2, many requests take few connections.
    let origin = h2_origin(|peer, _| {
        loop {
            peer.read_frame()?;
        }
    });
    let tables = format!(
        "\n[[host.route]]\npath = \"/ok\"\nrespond = {{ body = \"ok\" }}\n{}timeouts = {{ head = \"10m\" }}\n",
        proxy_to(&[&h2c(&origin)])
    );
    // The budget for heads is 16 MiB, of which one client gets half, apart from 64 KiB for each connection.
    let site = Site::custom("server.limits.buffered_total = \"32MiB\"\n", &tables, |setup| setup);
    let lines: Vec<u8> = (0..4).flat_map(|_| field(&[0], "x-a", &"a".repeat(3900))).collect();
    let ask = |stream, path| {
        let plain = get(stream, path);
        frame(HEADERS, 5, stream, &[&plain[9..], &lines].concat())
    };
    let held = || site.brisk.metrics().sum("brisk_budget_held_bytes", &["budget=\"heads\""]);
    let refused = || site.brisk.metrics().sum("brisk_budget_refusals_total", &["budget=\"heads\""]) > 0.5;
    let mut attackers = Vec::new();
    wait_until("a client with its share", || {
        let mut client = Client::connect(&site);
        client.send(&(0..100).flat_map(|number| ask(2 * number + 1, "/")).collect::<Vec<_>>());
        client.frames(Duration::from_millis(100));
        attackers.push(client);
        refused().then_some(())
    });
    assert!(held() > f64::from(7 << 20) && held() <= f64::from(8 << 20), "{}", held());
    let mut last = Client::connect(&site);
    last.send(&(0..5).flat_map(|number| ask(2 * number + 1, "/")).collect::<Vec<_>>());
    assert_eq!(last.status(9), 503);
    // Heads of another client that need the budget as well.
    let mut other = Client::connect_from(&site, Ipv4Addr::new(127, 0, 0, 2));
    other.send(&(0..20).flat_map(|number| ask(2 * number + 1, "/")).collect::<Vec<_>>());
    other.send(&ask(41, "/ok"));
    assert_eq!(other.status(41), 200);
    drop((attackers, last, other));
    wait_until("memory that is free again", || (held() < 0.5).then_some(()));
}

/// What an upstream received, and on how many connections it still waits for more.
#[derive(Default)]
struct Swallowed {
    bytes: AtomicUsize,
    open: AtomicUsize,
}

/// An upstream that reads as fast as it can and answers each head.
fn swallowing() -> (Origin, Arc<Swallowed>) {
    let swallowed = Arc::new(Swallowed::default());
    let counts = Arc::clone(&swallowed);
    let origin = Origin::raw(move |mut stream| {
        counts.open.fetch_add(1, Ordering::SeqCst);
        let (mut piece, mut read) = (vec![0; 1 << 16], Vec::new());
        while let Ok(length @ 1..) = stream.read(&mut piece) {
            counts.bytes.fetch_add(length, Ordering::SeqCst);
            read.extend_from_slice(&piece[..length]);
            if read.ends_with(b"\r\n\r\n") {
                read.clear();
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            }
        }
        counts.open.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    });
    (origin, swallowed)
}

/// All that reached the upstream, once nothing more can come.
fn all_of(swallowed: &Swallowed, site: Site) -> usize {
    drop(site);
    wait_until("the end of all connections", || (swallowed.open.load(Ordering::SeqCst) == 0).then_some(()));
    swallowed.bytes.load(Ordering::SeqCst)
}

#[test]
fn decompressed_headers_have_a_limit_and_a_price() {
    let (origin, swallowed) = swallowing();
    let site = Site::proxying(&[&origin.url()]);
    let mut client = Client::connect(&site);
    // One field of 3,900 bytes goes into the table, at index 62; each further byte stands for it.
    client.send(&get_with(1, &field(&[0x40], "x-a", &"a".repeat(3900))));
    assert_eq!(client.status(1), 200);
    client.send(&get_with(3, &[0xbe; 20]));
    assert_eq!(client.status(3), 431);
    let code = client.until_goaway(500, |client, round| {
        client.send(&get_with(2 * round as u32 + 5, &[0xbe; 15]));
        std::thread::sleep(Duration::from_millis(2));
    });
    assert_eq!(code, ENHANCE_YOUR_CALM);
    flooded(&site, "header-size");
    let sent = all_of(&swallowed, site);
    assert!(sent < 500_000, "{sent} bytes sent to the upstream");
}

#[test]
fn decompressed_headers_of_many_requests_at_once_go_no_further() {
    let (origin, swallowed) = swallowing();
    let site = Site::proxying(&[&origin.url()]);
    let mut client = Client::connect(&site);
    client.send(&get_with(1, &field(&[0x40], "x-a", &"a".repeat(3900))));
    assert_eq!(client.status(1), 200);
    let burst: Vec<u8> = (0..100).flat_map(|number| get_with(2 * number + 3, &[0xbe; 15])).collect();
    client.send(&burst);
    client.wait_for("GOAWAY", |frame| frame.kind == GOAWAY);
    flooded(&site, "header-size");
    let sent = all_of(&swallowed, site);
    assert!(sent < 1_000_000, "{sent} bytes sent to the upstream");
}

#[test]
fn http2_connections_without_a_whole_request_end_when_they_are_idle() {
    // After the idle time a client that does not acknowledge the end has the time of `write`.
    let keys = "server.timeouts.idle = \"500ms\"\nserver.timeouts.write = \"500ms\"\n";
    let site = Site::custom(keys, "", |setup| setup);
    let ends = |client: &mut Client| {
        client.frames(Duration::from_millis(200));
        client.is_closed().then_some(())
    };
    let mut silent = Client::connect(&site);
    wait_until("the end of a silent connection", || ends(&mut silent));
    // A head without its end: the pieces come within the timeout.
    let mut halting = Client::connect(&site);
    halting.send(&frame(HEADERS, 1, 1, &[0x82]));
    let mut pieces = 0..8;
    wait_until("the end of a connection without a whole request", || {
        if pieces.next().is_some() {
            halting.send(&frame(CONTINUATION, 0, 1, &[0x87]));
        }
        ends(&mut halting)
    });
}
