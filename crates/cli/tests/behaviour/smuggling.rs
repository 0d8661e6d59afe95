//! Requests on whose end two servers could disagree are refused, and nothing of them reaches the upstream as a request.

use std::io::{Read, Write};

use brisk_testkit::http1::Message;
use brisk_testkit::origin::Origin;

use crate::site::{NAME, Site};

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
fn a_transfer_coding_that_others_may_read_differently() {
    let chunked = format!("0\r\n\r\n{HIDDEN}");
    for (name, coding) in [
        ("unknown", "Transfer-Encoding: xchunked\r\n"),
        ("twice", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
        ("not last", "Transfer-Encoding: chunked, identity\r\n"),
        ("identity", "Transfer-Encoding: identity\r\nContent-Length: 3\r\n"),
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
    let site = Site::custom("server.workers = 1\n", &crate::site::proxy_to(&[&origin.url()]), |setup| setup);
    for _ in 0..4 {
        assert_ne!(site.get("/").text(), "evil");
    }
}
