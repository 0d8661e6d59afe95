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
