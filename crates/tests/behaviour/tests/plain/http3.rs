//! HTTP/3: requests, changes of the client's port, reloads, handshakes beside TCP, and the drain.

use brisk_behaviour::h3_client::{self, DATA, frame, head};
use brisk_behaviour::site::{NAME, setup};
use brisk_testkit::brisk::{Brisk, base, host};
use brisk_testkit::ca::{Leaf, TestCa};
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::wait_until;
use brisk_testkit::quic::{QuicClient, QuicConnection};
use quinn_proto::{ConnectionError, StreamId};
use serde_json::Value;

pub(crate) fn config(leaf: &Leaf, body: &str, keys: &str) -> String {
    let start = base(&format!("server.http3 = true\n{keys}")) + &host(&[NAME], &[leaf]);
    format!("{start}\n[[host.route]]\npath = \"/\"\nrespond = {{ body = {body:?} }}\n")
}

/// A gateway with HTTP/3, and a client for it.
pub(crate) struct Site {
    pub(crate) brisk: Brisk,
    pub(crate) leaf: Leaf,
    pub(crate) client: QuicClient,
    pub(crate) ca: TestCa,
}

impl Site {
    pub(crate) fn new(body: &str, keys: &str) -> Self {
        Self::with(|leaf| config(leaf, body, keys))
    }

    pub(crate) fn with(config: impl FnOnce(&Leaf) -> String) -> Self {
        let ca = TestCa::new();
        let leaf = ca.server(&[NAME]).issue();
        let brisk = setup().config(&config(&leaf)).start();
        let client = QuicClient::new(&ca.root_file(), NAME, "h3");
        Self { brisk, leaf, client, ca }
    }

    /// A connection with its control stream.
    pub(crate) fn connect(&self) -> QuicConnection {
        h3_client::connect(&self.client, self.brisk.https())
    }
}

/// Sends a GET.
pub(crate) fn request(connection: &mut QuicConnection, path: &str) -> StreamId {
    connection.request(&head("GET", path, &[]))
}

/// Waits for the response to a request: its status and body.
pub(crate) fn response(
    connection: &mut QuicConnection,
    stream: StreamId,
) -> Result<(String, String), ConnectionError> {
    let received = h3_client::response(connection, stream)?;
    let body = String::from_utf8(received.body.clone()).expect("text");
    Ok((received.status().to_owned(), body))
}

pub(crate) fn get(connection: &mut QuicConnection, path: &str) -> (String, String) {
    let stream = request(connection, path);
    response(connection, stream).expect("a response")
}

fn ok(body: &str) -> (String, String) {
    ("200".to_owned(), body.to_owned())
}

#[test]
fn requests_are_answered_and_logged() {
    let site = Site::new("here", "");
    let mut connection = site.connect();
    assert_eq!(get(&mut connection, "/a"), ok("here"));
    assert_eq!(get(&mut connection, "/b"), ok("here"));
    let line = site.brisk.logged("/b");
    assert!(line.contains("\"HTTP/3.0\""), "{line}");
    connection.close();
    wait_until("the end of the connection", || {
        (site.brisk.metrics().sum("brisk_connections_open", &[]) < 0.5).then_some(())
    });
    assert!(site.brisk.metrics().sum("brisk_handshakes_total", &[]) > 0.5);
}

#[test]
fn an_upload_reaches_an_upstream_and_its_response_the_client() {
    let origin = Origin::answering(|message, stream| write_response(stream, &message.body));
    let upstream = format!(
        "[[host.route]]\npath = \"/\"\nupstream = \"app\"\n\n[upstream.app]\nservers = [{:?}]\n",
        origin.url()
    );
    let site = Site::with(|leaf| base("server.http3 = true\n") + &host(&[NAME], &[leaf]) + "\n" + &upstream);
    let mut connection = site.connect();
    // More than the layer of HTTP/3 holds for one request, in frames of 10 kB.
    let body: Vec<u8> = (0..300_000_u32).map(|number| b'a' + (number % 23) as u8).collect();
    let data = body.chunks(10_000).flat_map(|piece| frame(DATA, piece));
    let bytes: Vec<_> = head("POST", "/upload", &[]).into_iter().chain(data).collect();
    let stream = connection.request(&bytes);
    let (status, echo) = response(&mut connection, stream).expect("a response");
    assert_eq!((&status[..], echo.len()), ("200", body.len()));
    assert_eq!(echo.as_bytes(), body);
    assert!(origin.last_request().head.is_chunked(), "without a stated length");
}

#[test]
fn requests_of_one_turn_are_all_answered() {
    let site = Site::new("here", "");
    let mut connection = site.connect();
    let streams: Vec<_> = (0..100).map(|number| request(&mut connection, &format!("/{number}"))).collect();
    for stream in streams {
        assert_eq!(response(&mut connection, stream).expect("a response"), ok("here"));
    }
}

#[test]
fn clients_that_change_their_port_keep_their_connections() {
    let site = Site::new("here", "server.workers = 4\n");
    let mut connections: Vec<_> = (0..16).map(|_| site.connect()).collect();
    for _ in 0..4 {
        for connection in &mut connections {
            connection.rebind();
            assert_eq!(get(connection, "/"), ok("here"));
        }
    }
    connections.iter_mut().for_each(QuicConnection::close);
    let metrics = wait_until("the end of the connections", || {
        let metrics = site.brisk.metrics();
        (metrics.sum("brisk_connections_open", &[]) < 0.5).then_some(metrics)
    });
    // More, if a pause of the machine is longer than the gateway waits for the proof of a new address: then it returns to the
    // former one, and the client's next datagram is another change.
    let migrations = metrics.sum("brisk_quic_migrations_total", &[]);
    assert!((63.5..128.0).contains(&migrations), "{migrations} changes");
    assert!(metrics.sum("brisk_quic_packets_sent_total", &[]) > 64.0);
    let first = wait_until("a connection on the page", || {
        let ended: Value = serde_json::from_str(&site.brisk.ask_admin("/connections").text()).expect("JSON");
        ended["connections"].get(0).cloned()
    });
    assert_eq!(first["tls"]["alpn"], "h3");
    assert!(first["migrations"].as_u64() >= Some(4), "{first}");
    assert!(first["packets_sent"].as_u64() > Some(4) && first["rtt_us"].as_u64() > Some(0), "{first}");
}

#[test]
fn a_reload_keeps_connections_and_answers_by_the_new_configuration() {
    let site = Site::new("old", "");
    let mut kept = site.connect();
    assert_eq!(get(&mut kept, "/"), ok("old"));
    site.brisk.write("brisk.toml", config(&site.leaf, "new", ""));
    let line = site.brisk.reload();
    assert!(line.contains("reloaded:"), "{line}");
    wait_until("the new answer", || {
        let mut fresh = site.connect();
        (get(&mut fresh, "/") == ok("new")).then_some(())
    });
    kept.rebind();
    assert_eq!(get(&mut kept, "/"), ok("new"));
}

#[test]
fn a_reload_without_http3_refuses_new_connections() {
    let site = Site::new("here", "");
    assert_eq!(get(&mut site.connect(), "/"), ok("here"));
    let without = config(&site.leaf, "here", "").replace("http3 = true", "http3 = false");
    site.brisk.write("brisk.toml", without);
    assert!(site.brisk.reload().contains("reloaded:"));
    wait_until("a refusal", || site.client.connect(site.brisk.https()).handshake().is_err().then_some(()));
}

#[test]
fn a_drain_answers_requests_and_closes_the_connection() {
    let mut site = Site::new("here", "");
    let mut connection = site.connect();
    assert_eq!(get(&mut connection, "/"), ok("here"));
    site.brisk.terminate();
    let lost = connection.wait(|_| false).expect_err("the drain");
    let ConnectionError::ApplicationClosed(close) = lost else { panic!("{lost}") };
    // RFC 9114 section 8.1: H3_NO_ERROR.
    assert_eq!(u64::from(close.error_code), 0x100);
    assert!(site.brisk.wait().success());
}

#[test]
fn a_reload_changes_the_time_limit_of_handshakes() {
    let site = Site::new("here", "server.timeouts.hello = \"1h\"\n");
    site.brisk.write("brisk.toml", config(&site.leaf, "here", "server.timeouts.hello = \"500ms\"\n"));
    assert!(site.brisk.reload().contains("reloaded:"));
    drop(site.client.connect(site.brisk.https()));
    wait_until("the end of the handshake", || {
        let failed = site.brisk.metrics().sum("brisk_handshakes_failed_total", &["outcome=\"timed-out\""]);
        (failed > 0.5).then_some(())
    });
}

#[test]
fn a_handshake_that_never_ends_frees_its_place() {
    let site = Site::new("here", "server.timeouts.hello = \"1s\"\n");
    // The first packet alone: the client never reads the answer.
    drop(site.client.connect(site.brisk.https()));
    wait_until("the end of the handshake", || {
        let failed = site.brisk.metrics().sum("brisk_handshakes_failed_total", &["outcome=\"timed-out\""]);
        (failed > 0.5).then_some(())
    });
    // On a slow machine, a handshake may exceed this timeout.
    let mut connection = wait_until("a good handshake", || {
        let mut connection = site.client.connect(site.brisk.https());
        connection.handshake().ok().map(|()| connection)
    });
    connection.send_uni(&[0, 4, 0]);
    assert_eq!(get(&mut connection, "/"), ok("here"));
}
