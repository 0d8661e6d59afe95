//! Upstreams that break the protocol, fall silent, or bind a login to a connection: what clients see of them.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use brisk_testkit::http1::Message;
use brisk_testkit::origin::Origin;
use serde_json::Value;

use crate::h2_origin::{h2_origin, h2c};
use crate::site::{NAME, Site, proxy_to};

/// One worker: all requests meet the same upstream connections.
const ONE_WORKER: &str = "server.workers = 1\n";

fn single(tables: &str) -> Site {
    Site::custom(ONE_WORKER, tables, |setup| setup)
}

/// An origin whose first connection answers one request and then falls silent; others answer everything.
fn silent_after_one() -> Origin {
    h2_origin(|peer, number| {
        while let Some(stream) = peer.request()? {
            peer.answer(stream, b"hello", true)?;
            if number == 0 {
                return peer.fall_silent();
            }
        }
        Ok(())
    })
}

#[test]
fn a_silent_http2_connection_is_left_after_one_request_that_timed_out() {
    let origin = silent_after_one();
    let site = single(&(proxy_to(&[&h2c(&origin)]) + "timeouts = { head = \"300ms\" }\nretry = false\n"));
    let mut connection = site.connect();
    let answers: Vec<_> = (0..4).map(|_| connection.get(NAME, "/").status()).collect();
    assert_eq!(answers, [200, 504, 200, 200]);
    assert_eq!(origin.connections(), 2);
}

#[test]
fn an_http2_connection_that_answers_no_ping_is_replaced() {
    let origin = silent_after_one();
    let timeouts = "timeouts = { connect = \"500ms\", head = \"60s\", ping = \"500ms\" }\n";
    let site = single(&(proxy_to(&[&h2c(&origin)]) + timeouts));
    let mut connection = site.connect();
    let started = Instant::now();
    for _ in 0..3 {
        assert_eq!(connection.get(NAME, "/").text(), "hello");
    }
    assert_eq!(origin.connections(), 2);
    assert!(started.elapsed() < Duration::from_secs(30), "the head timeout was waited for");
}

/// Sends `bytes` and the end of the connection in one segment.
fn send_with_end(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    rustix::net::sockopt::set_tcp_cork(&*stream, true)?;
    stream.write_all(bytes)?;
    stream.shutdown(Shutdown::Write)
}

#[test]
fn what_came_of_a_broken_answer_is_passed_on() {
    for head in ["Content-Length: 1000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n3e8\r\n"] {
        let origin = Origin::raw(move |mut stream| {
            Message::read_request(&mut stream)?;
            send_with_end(&mut stream, format!("HTTP/1.1 200 OK\r\nX-Own: 1\r\n{head}half").as_bytes())
        });
        let site = Site::proxying(&[&origin.url()]);
        let mut connection = site.connect();
        write!(connection, "GET /one HTTP/1.1\r\nHost: {NAME}\r\n\r\n").expect("a server that reads");
        let mut received = Vec::new();
        // The connection breaks without close_notify, so that the end cannot be taken for one that was meant.
        let end = connection.read_to_end(&mut received).expect_err("no close_notify");
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof, "{end}");
        let text = String::from_utf8(received).expect("text");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("half"), "{text:?}");
        assert!(!text.ends_with("0\r\n\r\n"), "{text:?}");
        let h2 = site.curl(&["--http2", "--include"], "/two");
        assert!(!h2.status.success() && h2.stdout.contains("x-own: 1"), "{}", h2.text());
        assert!(h2.stdout.ends_with("half"), "{}", h2.text());
        for path in ["/one", "/two"] {
            let line: Value = serde_json::from_str(&site.brisk.logged(path)).expect("a line of JSON");
            assert_eq!((&line["status"], &line["bytes_sent"]), (&200.into(), &4.into()), "{line}");
            assert_eq!((&line["error"], &line["error_side"]), (&"response-body".into(), &"upstream".into()));
        }
        site.connect();
    }
}
