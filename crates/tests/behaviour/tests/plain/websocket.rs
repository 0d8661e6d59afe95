//! WebSocket through brisk, from a tungstenite client to a tungstenite server.

use std::io::{self, Write};
use std::time::Duration;

use brisk_behaviour::site::{NAME, Site, proxy_to};
use brisk_behaviour::websocket::echo;
use brisk_testkit::client::TlsStream;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::wait_until;
use serde_json::Value;
use tungstenite::{Message, WebSocket};

fn open(site: &Site) -> WebSocket<TlsStream> {
    let url = format!("wss://{NAME}/chat");
    let (socket, response) = tungstenite::client(url, site.connect()).expect("an upgrade");
    assert_eq!(response.status(), 101);
    socket
}

#[test]
fn messages_go_both_ways() {
    let origin = echo();
    let site = Site::proxying(&[&origin.url()]);
    let mut socket = open(&site);
    let sizes = [1, 125, 126, 65_535, 65_536, 1_000_000];
    for message in sizes.map(|size| Message::binary(vec![7; size])).into_iter().chain([Message::text("text")])
    {
        socket.send(message.clone()).expect("a server that reads");
        let echo = socket.read().unwrap_or_else(|error| panic!("{error} after {} bytes", message.len()));
        assert_eq!(echo, message);
    }
    socket.send(Message::Ping(b"still there?".to_vec().into())).expect("a server that reads");
    assert_eq!(socket.read().expect("a pong"), Message::Pong(b"still there?".to_vec().into()));
    socket.close(None).expect("a close frame");
    while socket.read().is_ok() {}
}

#[test]
fn the_end_of_either_side_ends_the_other() {
    let origin = Origin::raw(|stream| {
        let mut socket = tungstenite::accept(stream).map_err(io::Error::other)?;
        // Closes without a word after the first message.
        socket.read().map(drop).map_err(io::Error::other)
    });
    let site = Site::proxying(&[&origin.url()]);
    let mut socket = open(&site);
    socket.send(Message::text("bye")).expect("a server that reads");
    assert!(socket.read().is_err());
    drop(socket);
    // And the other way: a client that vanishes leaves no connection to the upstream.
    let origin = echo();
    let site = Site::proxying(&[&origin.url()]);
    drop(open(&site));
    wait_until("the end of the upstream's connection", || {
        let open = site.brisk.metrics().sum("brisk_upstream_connections_open", &[]);
        (open < 0.5).then_some(())
    });
}

#[test]
fn an_upstream_that_does_not_switch_answers_as_usual() {
    let origin = Origin::fixed("no socket here");
    let site = Site::proxying(&[&origin.url()]);
    let answer = site.connect().request(&format!(
        "GET / HTTP/1.1\r\nHost: {NAME}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ));
    assert_eq!((answer.status(), answer.text().as_str()), (200, "no socket here"));
}

#[test]
fn a_socket_without_traffic_ends_after_its_own_time() {
    let origin = echo();
    let tables = format!("{}timeouts.upgraded = \"1s\"\n", proxy_to(&[&origin.url()]));
    let site = Site::custom("server.timeouts.idle = \"30s\"\n", &tables, |setup| setup);
    // A pause of the machine may come before the message.
    let mut socket = wait_until("an echo in time", || {
        let mut socket = open(&site);
        socket.send(Message::text("here")).ok()?;
        socket.read().ok().map(|_| socket)
    });
    assert!(socket.read().is_err());
}

/// The log line of a switched connection, after its end.
fn line(site: &Site) -> Value {
    serde_json::from_str(&site.brisk.logged("/chat")).expect("a line of JSON")
}

/// Site with an access log, to `origin`.
fn logging(origin: &Origin, upstream: &str) -> Site {
    Site::custom("", &format!("{}{upstream}", proxy_to(&[&origin.url()])), |setup| setup)
}

#[test]
fn the_access_log_has_the_bytes_and_the_end_of_a_switched_connection() {
    let origin = echo();
    let site = logging(&origin, "");
    let mut socket = open(&site);
    socket.send(Message::binary(vec![7; 100_000])).expect("a server that reads");
    assert_eq!(socket.read().expect("an echo").len(), 100_000);
    // No line before the end, which would lack the bytes.
    assert!(!site.brisk.access_log().iter().any(|line| line.contains("/chat")));
    drop(socket);
    let line = line(&site);
    assert_eq!((&line["status"], &line["upgraded_end"]), (&101.into(), &"client-closed".into()), "{line}");
    for bytes in ["bytes_sent", "bytes_received"] {
        assert!(line[bytes].as_u64().is_some_and(|bytes| (100_000..101_000).contains(&bytes)), "{line}");
    }
    assert!(line["duration_us"].is_u64() && line["error"].is_null(), "{line}");
}

#[test]
fn the_access_log_names_the_upstream_that_closes_a_switched_connection() {
    let origin = Origin::raw(|stream| {
        let mut socket = tungstenite::accept(stream).map_err(io::Error::other)?;
        socket.read().map(drop).map_err(io::Error::other)
    });
    let site = logging(&origin, "");
    let mut socket = open(&site);
    socket.send(Message::text("bye")).expect("a server that reads");
    assert!(socket.read().is_err());
    drop(socket);
    let line = line(&site);
    assert_eq!((&line["upgraded_end"], &line["error"]), (&"upstream-closed".into(), &Value::Null), "{line}");
}

#[test]
fn the_access_log_names_the_failure_of_a_switched_connection() {
    let origin = Origin::raw(|stream| {
        let mut socket = tungstenite::accept(stream).map_err(io::Error::other)?;
        socket.read().map_err(io::Error::other)?;
        // The end of the connection becomes a reset.
        rustix::net::sockopt::set_socket_linger(socket.get_ref(), Some(Duration::ZERO))?;
        Ok(())
    });
    let site = logging(&origin, "");
    let mut socket = open(&site);
    socket.send(Message::text("bye")).expect("a server that reads");
    assert!(socket.read().is_err());
    drop(socket);
    let line = line(&site);
    let error = (&line["error"], &line["error_side"]);
    assert_eq!(
        (&line["upgraded_end"], error),
        (&"error".into(), (&"response-body".into(), &"upstream".into()))
    );
}

#[test]
fn the_access_log_names_the_timeout_of_a_switched_connection() {
    let origin = echo();
    let site = logging(&origin, "timeouts.upgraded = \"1s\"\n");
    let mut socket = open(&site);
    assert!(socket.read().is_err());
    let line = line(&site);
    assert_eq!((&line["upgraded_end"], &line["error"]), (&"idle-timeout".into(), &Value::Null), "{line}");
}

#[test]
fn the_access_log_names_the_drain_that_ends_a_switched_connection() {
    let origin = echo();
    let tables = proxy_to(&[&origin.url()]);
    let mut site = Site::custom("server.drain_timeout = \"1s\"\n", &tables, |setup| setup);
    let mut socket = open(&site);
    socket.send(Message::text("four")).expect("a server that reads");
    assert!(socket.read().is_ok());
    site.brisk.terminate();
    site.brisk.wait();
    let line = line(&site);
    // A frame has 2 bytes before its text, and 4 more from a client.
    let bytes = (&line["bytes_received"], &line["bytes_sent"]);
    assert_eq!((bytes, &line["upgraded_end"]), ((&10.into(), &6.into()), &"drain".into()), "{line}");
}

#[test]
fn a_protocol_that_the_client_did_not_request_is_a_bad_gateway() {
    for protocol in ["h2c", "other", "websocket, h2c"] {
        let origin = Origin::answering(move |_, stream| {
            write!(stream, "HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n")
        });
        let site = Site::proxying(&[&origin.url()]);
        let request =
            format!("GET / HTTP/1.1\r\nHost: {NAME}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
        assert_eq!(site.connect().request(&request).status(), 502, "{protocol}");
    }
}
