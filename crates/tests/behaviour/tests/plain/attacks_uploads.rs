//! Attacks with slow requests, which keep upstreams waiting.

use std::io::{Read, Write};
use std::time::Duration;

use brisk_behaviour::h2::{frame, post_head};
use brisk_behaviour::h2_client::{Client, silent};
use brisk_behaviour::site::{NAME, Site, proxy_to, upstream};
use brisk_testkit::client::TlsStream;
use brisk_testkit::http1::Message;
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::{TIMEOUT, wait_until};

/// Pauses are short, but little comes.
const KEYS: &str = "server.timeouts.body = \"500ms\"\nserver.limits.body_rate = \"1KiB\"\n";

fn upload(site: &Site, length: usize) -> TlsStream {
    let mut client = site.connect();
    let head = format!("POST / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: {length}\r\n\r\n");
    client.write_all(head.as_bytes()).expect("a server that reads");
    client
}

fn upstream_is_left(site: &Site) {
    wait_until("no upstream connection", || {
        (site.brisk.metrics().sum("brisk_upstream_connections_open", &[]) < 0.5).then_some(())
    });
}

#[test]
fn a_body_that_comes_byte_by_byte_is_refused() {
    let origin = silent();
    let site = Site::custom(KEYS, &proxy_to(&[&origin.url()]), |setup| setup);
    let mut client = upload(&site, 100_000);
    client.tcp().set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
    let mut first = [0];
    wait_until("the first byte of an answer", || {
        let _ = client.write_all(b"x");
        client.read_exact(&mut first).ok()
    });
    client.tcp().set_read_timeout(Some(TIMEOUT)).expect("a socket");
    let answer =
        Message::read_response(&mut (&first[..]).chain(&mut client)).expect("the rest of the answer");
    assert_eq!(answer.status(), 408);
    upstream_is_left(&site);
}

#[test]
fn over_http2_the_slow_body_ends_and_its_connection_does_not() {
    let origin = silent();
    let site = Site::custom(KEYS, &proxy_to(&[&origin.url()]), |setup| setup);
    let mut client = Client::connect(&site);
    client.send(&post_head(1, "/"));
    wait_until("an answer", || {
        client.send(&frame(0, 0, 1, b"x"));
        client.frames(Duration::from_millis(50)).iter().any(|frame| frame.kind == 1).then_some(())
    });
    upstream_is_left(&site);
    client.send(&post_head(3, "/"));
    client.wait_for("answer on the same connection", |frame| frame.kind == 1 && frame.stream == 3);
}

#[test]
fn a_body_that_comes_fast_enough_goes_through() {
    let origin = Origin::fixed("taken");
    // Slower machines are fast enough, too: they have 40 s for each piece and a minute for all of them.
    let keys = KEYS.replace("500ms", "40s");
    let site = Site::custom(&keys, &proxy_to(&[&origin.url()]), |setup| setup);
    let mut client = upload(&site, 20 * 3000);
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(100));
        client.write_all(&[b'x'; 3000]).expect("a server that reads");
    }
    assert_eq!(client.response().text(), "taken");
}

#[test]
fn a_buffered_upload_reaches_the_upstream_when_it_is_complete() {
    let origin = Origin::answering(|request, stream| {
        write_response(stream, format!("{} bytes", request.body.len()).as_bytes())
    });
    let tables =
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\nbuffer_request = true\nbody_size = \"1MiB\"\n";
    let site = Site::with(&(tables.to_owned() + &upstream(&[&origin.url()])));
    // In memory, and in a file.
    for length in [1000, 500_000] {
        let before = origin.connections();
        let mut client = upload(&site, length);
        let body = vec![b'x'; length];
        client.write_all(&body[..length - 1]).expect("a server that reads");
        wait_until("a body that is buffered but for its last byte", || {
            let held = site.brisk.metrics().sum("brisk_budget_held_bytes", &["budget=\"requests\""]);
            (held >= length as f64 - 1.0).then_some(())
        });
        assert_eq!(origin.connections(), before, "{length} bytes");
        client.write_all(b"x").expect("a server that reads");
        assert_eq!(client.response().text(), format!("{length} bytes"));
        assert_eq!(origin.last_request().header("content-length"), Some(&*length.to_string()));
    }
    // Of unknown length.
    let mut client = site.connect();
    let chunked =
        format!("POST / HTTP/1.1\r\nHost: {NAME}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    assert_eq!(client.request(&chunked).text(), "3 bytes");
    assert_eq!(origin.last_request().header("content-length"), Some("3"));
    assert_eq!(origin.last_request().header("transfer-encoding"), None);
    // And too much of it.
    let mut client = upload(&site, 2 << 20);
    assert_eq!(client.response().status(), 413);
}

#[test]
fn buffered_uploads_take_no_more_room_than_they_may_all_together() {
    let origin = Origin::answering(|request, stream| {
        write_response(stream, format!("{} bytes", request.body.len()).as_bytes())
    });
    let tables =
        "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\nbuffer_request = true\nbody_size = \"2MiB\"\n";
    let tables = tables.to_owned() + &upstream(&[&origin.url()]);
    // The first body waits for the second one.
    let keys = "server.limits.buffered_requests = \"2MiB\"\nserver.timeouts.body = \"10m\"\n";
    let site = Site::custom(keys, &tables, |setup| setup);
    let gathered = || site.brisk.metrics().sum("brisk_budget_held_bytes", &["budget=\"requests\""]);
    let body = vec![b'x'; 700_000];
    let mut first = upload(&site, body.len());
    first.write_all(&body[..600_000]).expect("a server that reads");
    wait_until("a body that is gathered", || (gathered() > 599_999.0).then_some(()));
    let mut second = upload(&site, body.len());
    // The answer may come before all of it is sent.
    let _ = second.write_all(&body);
    assert_eq!(second.response().status(), 503);
    site.brisk.log_with("limits.buffered_requests");
    first.write_all(&body[600_000..]).expect("a server that reads");
    assert_eq!(first.response().text(), "700000 bytes");
    wait_until("room", || (gathered() < 0.5).then_some(()));
    let mut third = upload(&site, body.len());
    third.write_all(&body).expect("a server that reads");
    assert_eq!(third.response().text(), "700000 bytes");
}

#[test]
fn a_request_may_take_no_longer_than_its_limit() {
    let origin = silent();
    let keys = "server.timeouts.request = \"500ms\"\n";
    let site = Site::custom(keys, &proxy_to(&[&origin.url()]), |setup| setup);
    let mut client = site.connect();
    client
        .write_all(format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n").as_bytes())
        .expect("a server that reads");
    assert!(Message::read_response(&mut client).is_err(), "the connection ends");
    upstream_is_left(&site);
}

#[test]
fn a_connection_ends_after_its_last_request() {
    let site = Site::custom("server.limits.requests = 3\n", "", |setup| setup);
    let mut client = site.connect();
    for _ in 0..2 {
        assert_eq!(client.get(NAME, "/").header("connection"), None);
    }
    assert_eq!(client.get(NAME, "/").header("connection"), Some("close"));
    let mut client = Client::connect(&site);
    for stream in [1, 3, 5] {
        client.send(&brisk_behaviour::h2::get(stream, "/"));
        assert_eq!(client.status(stream), 200);
        client.open_window();
    }
    client.wait_for("GOAWAY", |frame| frame.kind == brisk_behaviour::h2::GOAWAY);
}

#[test]
fn a_connection_ends_when_its_time_is_over() {
    let site = Site::custom("server.timeouts.connection = \"3s\"\n", "", |setup| setup);
    // A pause of the machine before the request may use up the time.
    let mut client = wait_until("a response in time", || {
        let mut client = site.connect();
        write!(client, "GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n").ok()?;
        let response = Message::read_response(&mut client).ok()?;
        assert_eq!(response.status(), 200);
        Some(client)
    });
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).expect("close_notify");
    assert!(rest.is_empty());
}
