//! HTTP/3 with clients of other implementations: quic-go, aioquic, and libcurl with ngtcp2.

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use brisk_behaviour::h3_client::{client, h3_site};
use brisk_behaviour::site::{LIMIT, NAME, Site, proxy_to, upstream};
use brisk_behaviour::websocket::echo as websocket_echo;
use brisk_testkit::datagram_relay::{DatagramRelay, Fate, Way};
use brisk_testkit::origin::{Origin, write_response};
use brisk_testkit::process::{command, run, wait_until};
use brisk_testkit::programs::python_modules;
use serde_json::{Value, json};

/// Scripts and sources of the clients.
const CLIENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../clients/http3");

const FIXED: &str = "\n[[host.route]]\npath = \"/\"\nearly_data = \"safe\"\nrespond = { body = \"here\" }\n";

/// A client.
#[derive(Clone, Copy, Debug)]
enum Peer {
    QuicGo,
    Aioquic,
    Curl,
}

impl Peer {
    /// Command that runs a case against `server`.
    fn command(self, site: &Site, server: SocketAddr, case: &str) -> Command {
        let python = |script: &str, package: &str| {
            let mut command = command("python3");
            command.env("PYTHONPATH", python_modules(package)).arg(Path::new(CLIENTS).join(script));
            command
        };
        let mut command = match self {
            Self::QuicGo => command("http3-client"),
            Self::Aioquic => python("aioquic_client.py", "aioquic"),
            Self::Curl => python("curl_client.py", "boringssl"),
        };
        command.arg(site.ca.root_file()).args([NAME, &server.to_string(), case]);
        command
    }

    /// Runs a case and returns the outcome.
    #[track_caller]
    fn run(self, site: &Site, case: &str) -> Value {
        outcome(&mut self.command(site, site.brisk.https(), case))
    }
}

#[track_caller]
fn outcome(command: &mut Command) -> Value {
    let text = run(command, b"", LIMIT).success();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Checks that a request came over HTTP/3.
#[track_caller]
fn assert_logged(site: &Site, path: &str) {
    let line: Value = serde_json::from_str(&site.brisk.logged(path)).expect("a line of JSON");
    assert_eq!((&line["protocol"], &line["status"]), (&"HTTP/3.0".into(), &200.into()), "{line}");
}

#[test]
fn all_clients_get_a_response() {
    let site = h3_site("", FIXED);
    assert_eq!(Peer::QuicGo.run(&site, "get"), json!({ "body": "here" }));
    assert_logged(&site, "/quic-go");
    assert_eq!(Peer::Aioquic.run(&site, "get"), json!({ "body": "here" }));
    assert_logged(&site, "/aioquic");
    // CURL_HTTP_VERSION_3 is 30.
    assert_eq!(Peer::Curl.run(&site, "get"), json!({ "bodies": ["here", "here", "here"], "version": 30 }));
    assert_logged(&site, "/curl");
}

#[test]
fn bodies_of_a_mebibyte_are_sent_and_returned() {
    let origin = Origin::answering(|message, stream| write_response(stream, &message.body));
    let site = h3_site("", &proxy_to(&[&origin.url()]));
    for peer in [Peer::QuicGo, Peer::Aioquic, Peer::Curl] {
        assert_eq!(peer.run(&site, "echo"), json!({ "same": true }), "{peer:?}");
    }
}

#[test]
fn trailers_follow_the_response() {
    let origin = Origin::answering(|_, stream| {
        let head = "HTTP/1.1 200 OK\r\nTrailer: X-End\r\nTransfer-Encoding: chunked\r\n\r\n";
        write!(stream, "{head}4\r\nhere\r\n0\r\nX-End: 1\r\n\r\n")
    });
    let site = h3_site("", &proxy_to(&[&origin.url()]));
    for peer in [Peer::QuicGo, Peer::Aioquic] {
        assert_eq!(peer.run(&site, "trailers"), json!({ "body": "here", "trailer": "1" }), "{peer:?}");
    }
}

#[test]
fn early_hints_precede_the_response() {
    let origin = Origin::answering(|_, stream| {
        thread::sleep(Duration::from_millis(300));
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 4\r\n\r\nhere")
    });
    let route = "\n[[host.route]]\npath = \"/\"\nupstream = \"app\"\n";
    let hints = "early_hints = [\"</main.js>; rel=modulepreload\"]\n";
    let site = h3_site("", &format!("{route}{hints}{}", upstream(&[&origin.url()])));
    let expected = json!({ "body": "here", "hints": ["103 </main.js>; rel=modulepreload"] });
    let mut seen = Vec::new();
    // An answer that is read together with its hints has none: on a busy machine it may be.
    let is_hinted = (0..20).any(|_| {
        seen.push(Peer::QuicGo.run(&site, "hints"));
        seen.contains(&expected)
    });
    assert!(is_hinted, "{seen:#?}");
}

#[test]
fn sessions_are_resumed_and_early_requests_answered() {
    let site = h3_site("", FIXED);
    let resumed = Peer::QuicGo.run(&site, "resume");
    assert_eq!((&resumed["resumed"], &resumed["early"]), (&true.into(), &false.into()), "{resumed}");
    let expected = json!({ "resumed": true, "early": true, "answered": 40 });
    assert_eq!(Peer::QuicGo.run(&site, "early"), expected);
    assert_eq!(Peer::Aioquic.run(&site, "early"), expected);
    let accepted = site.brisk.metrics().sum("brisk_early_data_total", &["outcome=\"accepted\""]);
    assert!((accepted - 2.0).abs() < 0.5, "{accepted} connections with early data");
}

#[test]
fn keys_and_connection_ids_change_while_requests_are_answered() {
    let site = h3_site("", FIXED);
    assert_eq!(Peer::Aioquic.run(&site, "key_update"), json!({ "phases": [1, 0, 1, 0, 1] }));
    assert_eq!(Peer::Aioquic.run(&site, "ids"), json!({ "answered": 20 }));
}

#[test]
fn an_unknown_version_is_replaced_by_version_1() {
    let site = h3_site("", FIXED);
    assert_eq!(Peer::Aioquic.run(&site, "versions"), json!({ "body": "here", "version": 1 }));
}

#[test]
fn a_websocket_is_opened_by_extended_connect() {
    let origin = websocket_echo();
    let site = h3_site("", &proxy_to(&[&origin.url()]));
    assert_eq!(Peer::Aioquic.run(&site, "websocket"), json!({ "status": "200", "message": "hello" }));
    let line: Value = serde_json::from_str(&site.brisk.logged("CONNECT")).expect("a line of JSON");
    assert_eq!(
        (&line["protocol"], &line["upgraded_end"]),
        (&"HTTP/3.0".into(), &"client-closed".into()),
        "{line}"
    );
    // A frame with the message and its head of 2 bytes, and from the client a mask of 4 bytes.
    assert_eq!((&line["bytes_received"], &line["bytes_sent"]), (&11.into(), &7.into()), "{line}");
}

#[test]
fn a_connection_moves_to_further_sockets_of_its_client() {
    let site = h3_site("server.workers = 4\n", FIXED);
    assert_eq!(Peer::QuicGo.run(&site, "migrate"), json!({ "moves": 3 }));
    for number in 0..3 {
        assert_logged(&site, &format!("/moved-{number}"));
    }
    let handshakes = site.brisk.metrics().sum("brisk_handshakes_total", &[]);
    assert!((handshakes - 1.0).abs() < 0.5, "{handshakes} handshakes");
}

#[test]
fn a_thousand_requests_of_one_connection_are_answered() {
    let site = h3_site("", FIXED);
    assert_eq!(Peer::QuicGo.run(&site, "parallel"), json!({ "answered": 1000 }));
}

#[test]
fn responses_that_are_cancelled_leave_the_connection() {
    let body = vec![b'x'; 300_000];
    let origin = Origin::answering(move |_, stream| write_response(stream, &body));
    let site = h3_site("", &proxy_to(&[&origin.url()]));
    assert_eq!(Peer::QuicGo.run(&site, "cancel"), json!({ "body": 300_000 }));
}

#[test]
fn clients_prove_their_address_by_a_retry() {
    let site = h3_site("", FIXED);
    for (peer, body) in [(Peer::QuicGo, "body"), (Peer::Aioquic, "body"), (Peer::Curl, "bodies")] {
        let retries = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&retries);
        let relay = DatagramRelay::new(site.brisk.https(), move |way, _, datagram| {
            // RFC 9000 section 17.2.5: a long header of type 3.
            if way == Way::Down && datagram[0] & 0xf0 == 0xf0 {
                seen.fetch_add(1, Ordering::SeqCst);
            }
            Fate::Pass
        });
        wait_until(&format!("a Retry for {peer:?}"), || {
            // Handshakes that do not end use up the share of an address that is not validated, until they have exceeded their
            // timeout, which a client on a busy machine may do as well before it sends its hello.
            let silent: Vec<_> = (0..24).map(|_| client(&site).connect(site.brisk.https())).collect();
            let outcome = outcome(&mut peer.command(&site, relay.address(), "get"));
            assert!(outcome[body].to_string().contains("here"), "{peer:?}: {outcome}");
            drop(silent);
            // One for each datagram of the hello.
            (retries.load(Ordering::SeqCst) >= 1).then_some(())
        });
    }
}

#[test]
fn congestion_is_signalled_by_ecn() {
    let site = h3_site("", FIXED);
    let folder = site.brisk.folder().join("qlog");
    let mut command = Peer::QuicGo.command(&site, site.brisk.https(), "parallel");
    outcome(command.env("QLOGDIR", &folder));
    let files = fs::read_dir(&folder).expect("a folder of logs");
    let log: String =
        files.map(|file| fs::read_to_string(file.expect("a file").path()).expect("text")).collect();
    // The client has marked its packets, and the gateway has counted the marks.
    let states: Vec<_> = log.lines().filter(|line| line.contains("ecn_state_updated")).collect();
    assert!(states.last().is_some_and(|line| line.contains("\"capable\"")), "{states:?}");
}

#[test]
fn floods_of_challenges_and_connection_ids_are_bounded() {
    let site = h3_site("", FIXED);
    let before = site.brisk.process().resident_bytes();
    assert_eq!(Peer::Aioquic.run(&site, "challenges"), json!({ "body": "here" }));
    assert_eq!(Peer::Aioquic.run(&site, "retired_ids"), json!({ "body": "here" }));
    // RFC 9000 section 20.1: CONNECTION_ID_LIMIT_ERROR.
    assert_eq!(Peer::Aioquic.run(&site, "new_ids"), json!({ "closed": 9 }));
    let grown = site.brisk.process().resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes");
    assert_eq!(Peer::QuicGo.run(&site, "get"), json!({ "body": "here" }));
}
