//! Request smuggling: requests whose end is ambiguous are refused, and no part of them reaches the upstream as a request.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use brisk_behaviour::h2::{self, Frames};
use brisk_behaviour::site::{NAME, Site};
use brisk_testkit::http1::Message;
use brisk_testkit::origin::Origin;

/// A request hidden in the body of the one before it.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: site.test\r\n\r\n";

/// Sends bytes and returns everything that comes back until brisk closes.
fn converse(site: &Site, bytes: &[u8]) -> String {
    let mut connection = site.connect();
    connection.write_all(bytes).expect("a server that reads");
    connection.close_write();
    let mut answer = Vec::new();
    // A connection that ends without close_notify has said what it had to say.
    let _ = connection.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[track_caller]
fn assert_refused(name: &str, lines: &str, body: &str) {
    let origin = Origin::fixed("reached");
    let site = Site::proxying(&[&origin.url()]);
    let answer =
        converse(&site, format!("POST /first HTTP/1.1\r\nHost: {NAME}\r\n{lines}\r\n{body}").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 400 ") || answer.starts_with("HTTP/1.1 501 "), "{name}: {answer:?}");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{name}: {answer:?}");
    assert!(!reached(&origin, "/hidden"), "{name}: {:?}", origin.requests());
}

fn reached(origin: &Origin, path: &str) -> bool {
    origin.requests().iter().any(|request| request.head.line.contains(path) || request.text().contains(path))
}

#[test]
fn a_length_that_is_said_twice_or_wrongly() {
    assert_refused(
        "different lengths",
        "Content-Length: 4\r\nContent-Length: 5\r\n",
        &format!("abcde{HIDDEN}"),
    );
    assert_refused("a list of lengths", "Content-Length: 4, 5\r\n", &format!("abcd{HIDDEN}"));
    assert_refused("a signed length", "Content-Length: +4\r\n", &format!("abcd{HIDDEN}"));
    assert_refused("a negative length", "Content-Length: -1\r\n", HIDDEN);
    assert_refused("a hexadecimal length", "Content-Length: 0x4\r\n", &format!("abcd{HIDDEN}"));
    assert_refused("an endless length", "Content-Length: 99999999999999999999\r\n", HIDDEN);
}

#[test]
fn a_length_that_http_2_lets_through() {
    let origin = Origin::fixed("reached");
    let site = Site::proxying(&[&origin.url()]);
    for (lengths, body) in [(&["4", "04"][..], "body"), (&["4", "4"], "body"), (&[""], "")] {
        let headers: Vec<_> = lengths.iter().map(|length| ("content-length", *length)).collect();
        let mut connection = site.client().alpn(&["h2"]).connect(site.brisk.https()).expect("a handshake");
        let request = [h2::preface(), h2::post_with(1, "/first", &headers, body)].concat();
        let answer = Frames::exchange(&mut connection, &request, 1).body(1);
        assert!(answer.contains("<title>400 "), "{lengths:?}: {answer:?}");
    }
    assert_eq!(origin.requests().len(), 0);
}

#[test]
fn a_bare_line_feed_ends_no_line_of_a_head() {
    let origin = Origin::fixed("reached");
    let site = Site::proxying(&[&origin.url()]);
    let first = format!("POST /first HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 4\r\n\r\n\n\r\n\n");
    let chunked = format!(
        "POST /first HTTP/1.1\r\nHost: {NAME}\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n\n\n\r\n0\r\n\r\n"
    );
    for head in [
        format!("GET /hidden HTTP/1.1\nHost: {NAME}\r\n\r\n"),
        format!("GET /hidden HTTP/1.1\r\nHost: {NAME}\nX-Own: a\r\n\r\n"),
        format!("GET /hidden HTTP/1.1\r\nHost: {NAME}\r\n\n"),
        format!("\nGET /hidden HTTP/1.1\r\nHost: {NAME}\r\n\r\n"),
    ] {
        for (before, answers) in [("", 1), (&first, 2), (&chunked, 2)] {
            let answer = converse(&site, format!("{before}{head}").as_bytes());
            assert_eq!(answer.matches("HTTP/1.1 400 ").count(), 1, "{before:?}, {head:?}: {answer:?}");
            assert_eq!(answer.matches("HTTP/1.1 ").count(), answers, "{before:?}, {head:?}: {answer:?}");
        }
    }
    assert!(!reached(&origin, "/hidden"), "{:?}", origin.requests());
    // Bodies and what follows them are as they were.
    let answer = converse(&site, format!("{first}{chunked}{first}").as_bytes());
    assert_eq!(answer.matches("HTTP/1.1 200 ").count(), 3, "{answer:?}");
    let bodies: Vec<_> = origin.requests().iter().rev().take(3).map(Message::text).collect();
    assert_eq!(bodies, ["\n\r\n\n", "\n\n", "\n\r\n\n"]);
}

#[test]
fn a_bare_line_feed_ends_no_line_over_plain_http_either() {
    let site = Site::new();
    let converse = |bytes: &str| {
        let mut tcp = TcpStream::connect(site.brisk.http()).expect("a listener");
        tcp.write_all(bytes.as_bytes()).expect("a server that reads");
        tcp.shutdown(Shutdown::Write).expect("a connection");
        let mut answer = Vec::new();
        let _ = tcp.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let body = format!("POST /first HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 4\r\n\r\n\n\r\n\n");
    for head in [
        format!("GET /hidden HTTP/1.1\nHost: {NAME}\r\n\r\n"),
        format!("GET /hidden HTTP/1.1\r\nHost: {NAME}\nX-Own: a\r\n\r\n"),
        format!("GET /hidden HTTP/1.1\r\nHost: {NAME}\r\n\n"),
    ] {
        for (before, answers) in [("", 1), (&body, 2)] {
            let answer = converse(&format!("{before}{head}"));
            assert!(!answer.contains("/hidden"), "{before:?}, {head:?}: {answer:?}");
            assert_eq!(answer.matches("HTTP/1.1 400 ").count(), 1, "{before:?}, {head:?}: {answer:?}");
            assert_eq!(answer.matches("HTTP/1.1 ").count(), answers, "{before:?}, {head:?}: {answer:?}");
        }
    }
    let right = format!("GET /a HTTP/1.1\r\nHost: {NAME}\r\n\r\n");
    let answer = converse(&format!("{body}{right}{right}"));
    assert_eq!(answer.matches("HTTP/1.1 308 ").count(), 3, "{answer:?}");
}

#[test]
fn a_target_of_another_scheme() {
    let origin = Origin::fixed("reached");
    let site = Site::proxying(&[&origin.url()]);
    let answer =
        converse(&site, format!("GET ftp://{NAME}/hidden HTTP/1.1\r\nHost: {NAME}\r\n\r\n").as_bytes());
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer:?}");
    assert!(!reached(&origin, "/hidden"));
}

#[test]
fn a_transfer_coding_that_others_may_read_differently() {
    let chunked = format!("0\r\n\r\n{HIDDEN}");
    for (name, coding) in [
        ("unknown", "Transfer-Encoding: xchunked\r\n"),
        ("twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        ("not last", "Transfer-Encoding: chunked, identity\r\n"),
        ("identity", "Transfer-Encoding: identity\r\nContent-Length: 3\r\n"),
        ("identity before", "Transfer-Encoding: identity, chunked\r\n"),
        ("nothing before", "Transfer-Encoding: ,chunked\r\n"),
        ("gzip before", "Transfer-Encoding: gzip, chunked\r\n"),
        ("with a vertical tab", "Transfer-Encoding: \x0bchunked\r\n"),
    ] {
        assert_refused(name, coding, &chunked);
    }
}

#[test]
fn a_head_that_is_not_well_formed() {
    assert_refused("a folded line", "X-Own: a\r\n b\r\nContent-Length: 0\r\n", HIDDEN);
    assert_refused("a space before the colon", "Content-Length : 0\r\n", HIDDEN);
    assert_refused("a nul in a value", "X-Own: a\0b\r\n", HIDDEN);
    assert_refused("a name with a space", "X Own: a\r\n", HIDDEN);
    assert_refused("a second host", "Host: other.test\r\n", HIDDEN);
}

#[test]
fn a_length_beside_chunks_never_splits_one_request_into_two() {
    // RFC 9112 section 6.1: refuse it, or go by the chunks, forward no length and close.
    let origin = Origin::fixed("reached");
    let site = Site::proxying(&[&origin.url()]);
    for lines in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 48\r\nTransfer-Encoding: chunked\r\n",
    ] {
        let text = format!("POST /first HTTP/1.1\r\nHost: {NAME}\r\n{lines}\r\n0\r\n\r\n{HIDDEN}");
        let answer = converse(&site, text.as_bytes());
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{lines:?}: {answer:?}");
        assert!(!reached(&origin, "/hidden"), "{lines:?}: {:?}", origin.requests());
    }
    assert!(
        origin
            .requests()
            .iter()
            .all(|request| !(request.head.is_chunked() && request.head.length().is_some()))
    );
}

#[test]
fn chunks_that_are_not_well_formed() {
    for (name, chunks) in [
        ("a size that is no number", format!("zz\r\n{HIDDEN}")),
        ("an endless size", format!("fffffffffffffffff\r\n{HIDDEN}")),
        ("a chunk longer than its size", format!("3\r\nabcd\r\n0\r\n\r\n{HIDDEN}")),
        ("a signed size", format!("-1\r\n{HIDDEN}")),
        ("a bare line feed", format!("0\n\n{HIDDEN}")),
    ] {
        let origin = Origin::fixed("reached");
        let site = Site::proxying(&[&origin.url()]);
        let head = format!("POST /first HTTP/1.1\r\nHost: {NAME}\r\nTransfer-Encoding: chunked\r\n\r\n");
        let answer = converse(&site, format!("{head}{chunks}").as_bytes());
        assert!(!answer.starts_with("HTTP/1.1 200"), "{name}: {answer:?}");
        assert!(answer.matches("HTTP/1.1 ").count() <= 1, "{name}: {answer:?}");
        assert!(!reached(&origin, "/hidden"), "{name}: {:?}", origin.requests());
        site.assert_alive();
    }
}

#[test]
fn an_upstreams_answer_is_framed_anew() {
    // Two answers where one was asked for: the second belongs to nobody.
    let origin = Origin::raw(|mut stream| {
        while Message::read_request(&mut stream)?.is_some() {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\noneHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")?;
        }
        Ok(())
    });
    let site =
        Site::custom("server.workers = 1\n", &brisk_behaviour::site::proxy_to(&[&origin.url()]), |setup| {
            setup
        });
    for _ in 0..4 {
        assert_ne!(site.get("/").text(), "evil");
    }
}
