//! Reload by SIGHUP and by changed files, and the drain on SIGTERM: no connection and no download is lost.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use brisk_behaviour::site::{NAME, setup};
use brisk_testkit::brisk::{Brisk, base, host};
use brisk_testkit::ca::{Leaf, TestCa};
use brisk_testkit::client::{TlsClient, TlsStream};
use brisk_testkit::origin::Origin;
use brisk_testkit::process::wait_until;
use rustix::process::Signal;

fn config(leaf: &Leaf, body: &str, tables: &str) -> String {
    let start = base("") + &host(&[NAME], &[leaf]);
    format!("{start}\n[[host.route]]\npath = \"/\"\nrespond = {{ body = {body:?} }}\n{tables}")
}

fn client(ca: &TestCa) -> TlsClient {
    TlsClient::new(&ca.root_file(), NAME)
}

/// An origin that sends half of a body, and the rest when told to.
fn two_halves() -> (Origin, Sender<()>) {
    let (release, held) = channel();
    let held = Mutex::new(held);
    let origin = Origin::answering(move |_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n")?;
        stream.write_all(&vec![b'a'; 100_000])?;
        // The test's end releases it too.
        let _ = held.lock().expect("one download").recv();
        stream.write_all(&vec![b'b'; 100_000])
    });
    (origin, release)
}

fn with_download(origin: &Origin) -> String {
    format!(
        "[[host.route]]\npath = \"/download\"\nupstream = \"app\"\n{}timeouts = {{ body = \"10m\" }}\n",
        brisk_behaviour::site::upstream(&[&origin.url()])
    )
}

/// Asks for the download and reads its first half.
fn begin_download(connection: &mut TlsStream) {
    write!(connection, "GET /download HTTP/1.1\r\nHost: {NAME}\r\n\r\n").expect("a server that reads");
    let head = brisk_testkit::http1::Head::read(connection).expect("an answer").expect("an answer");
    assert_eq!(head.length(), Some(200_000));
    let mut half = vec![0; 100_000];
    connection.read_exact(&mut half).expect("the first half");
}

fn finish_download(connection: &mut TlsStream) {
    let mut half = vec![0; 100_000];
    connection.read_exact(&mut half).expect("the second half");
    assert!(half.iter().all(|byte| *byte == b'b'));
}

#[test]
fn a_reload_that_is_asked_for_at_once_ends_nothing() {
    // Whether the signal finds its handler is a matter of microseconds: several tries make a miss all but sure.
    for _ in 0..8 {
        let ca = TestCa::new();
        let leaf = ca.server(&[NAME]).issue();
        let brisk = setup().config(&config(&leaf, "here", "")).start();
        assert!(brisk.reload().contains("reloaded"));
    }
}

#[test]
fn a_reload_keeps_connections_and_downloads() {
    let ca = TestCa::new();
    let leaf = ca.server(&[NAME]).issue();
    let (origin, release) = two_halves();
    let brisk = setup().config(&config(&leaf, "old", &with_download(&origin))).start();
    let mut kept = client(&ca).connect(brisk.https()).expect("a handshake");
    assert_eq!(kept.get(NAME, "/").text(), "old");
    let mut download = client(&ca).connect(brisk.https()).expect("a handshake");
    begin_download(&mut download);
    brisk.write("brisk.toml", config(&leaf, "new", &with_download(&origin)));
    let line = brisk.reload();
    assert!(line.contains("reloaded:"), "{line}");
    wait_until("the new answer", || {
        let mut fresh = client(&ca).connect(brisk.https()).expect("a handshake");
        (fresh.get(NAME, "/").text() == "new").then_some(())
    });
    // A connection from before answers by the new configuration.
    assert_eq!(kept.get(NAME, "/").text(), "new");
    release.send(()).expect("a download in progress");
    finish_download(&mut download);
    assert!(brisk.metrics().sum("brisk_reloads_total", &[]) > 0.5);
}

fn serial(brisk: &Brisk, ca: &TestCa) -> Vec<u8> {
    let connection = client(ca).connect(brisk.https()).expect("a handshake");
    connection.tls().peer_certificates().expect("certificates")[0].to_vec()
}

#[test]
fn a_changed_certificate_is_noticed() {
    let ca = TestCa::new();
    let (old, new) = (ca.server(&[NAME]).issue(), ca.server(&[NAME]).issue());
    let mut files = old.clone();
    (files.chain, files.key) = ("tls/site.pem".into(), "tls/site.key".into());
    let setup = setup().config(&config(&files, "body", ""));
    let brisk = setup.file("tls/site.pem", &old.chain_pem).file("tls/site.key", &old.key_pem).start();
    let mut kept = client(&ca).connect(brisk.https()).expect("a handshake");
    let before = serial(&brisk, &ca);
    assert_eq!(serial(&brisk, &ca), before);
    brisk.write("tls/site.key", &new.key_pem);
    brisk.write("tls/site.pem", &new.chain_pem);
    wait_until("the new certificate", || (serial(&brisk, &ca) != before).then_some(()));
    let log = brisk.log_with("new handshakes are shown a new certificate");
    assert!(log.contains("host=\"site.test\" file=tls/site.pem"), "{log}");
    assert_eq!(kept.get(NAME, "/").text(), "body");
}

#[test]
fn a_wrong_file_keeps_the_old_configuration() {
    let ca = TestCa::new();
    let leaf = ca.server(&[NAME]).issue();
    let brisk = setup().config(&config(&leaf, "old", "")).start();
    brisk.write("brisk.toml", config(&leaf, "new", "[servr]\n"));
    let line = brisk.reload();
    assert!(line.contains("not reloaded") && line.contains("servr"), "{line}");
    let mut fresh = client(&ca).connect(brisk.https()).expect("a handshake");
    assert_eq!(fresh.get(NAME, "/").text(), "old");
    assert!(brisk.metrics().sum("brisk_reloads_total", &["outcome=\"refused\""]) > 0.5);
    // And the next right one is taken.
    brisk.write("brisk.toml", config(&leaf, "new", ""));
    wait_until("the new answer", || (fresh.get(NAME, "/").text() == "new").then_some(()));
}

#[test]
fn sessions_survive_a_reload() {
    let ca = TestCa::new();
    let leaf = ca.server(&[NAME]).issue();
    let brisk = setup().config(&config(&leaf, "body", "")).start();
    let client = client(&ca);
    client.connect(brisk.https()).expect("a handshake").get(NAME, "/");
    brisk.reload();
    let again = client.connect(brisk.https()).expect("a handshake");
    assert_eq!(again.tls().handshake_kind(), Some(rustls::HandshakeKind::Resumed));
}

#[test]
fn sigterm_and_sigquit_drain() {
    drains_by(Signal::TERM);
    drains_by(Signal::QUIT);
}

fn drains_by(signal: Signal) {
    let ca = TestCa::new();
    let leaf = ca.server(&[NAME]).issue();
    let (origin, release) = two_halves();
    let text = format!("server.drain_timeout = \"2m\"\n{}", config(&leaf, "body", &with_download(&origin)));
    let mut brisk = setup().config(&text).start();
    let mut download = client(&ca).connect(brisk.https()).expect("a handshake");
    begin_download(&mut download);
    let mut idle = client(&ca).connect(brisk.https()).expect("a handshake");
    // Signals without a meaning end nothing: the server still listens.
    for (ignored, name) in [(Signal::USR2, "SIGUSR2"), (Signal::ALARM, "SIGALRM")] {
        brisk.process().signal(ignored);
        wait_until("a warning", || brisk.process().stderr().contains(name).then_some(()));
    }
    assert_eq!(idle.get(NAME, "/").text(), "body");
    brisk.process().signal(signal);
    wait_until("a closed listener", || TcpStream::connect(brisk.https()).err());
    assert_eq!(brisk.ask_admin("/readyz").status(), 503);
    // Whoever asked for nothing is told that nothing more comes.
    assert_eq!(idle.read(&mut [0; 16]).expect("close_notify"), 0);
    release.send(()).expect("a download in progress");
    finish_download(&mut download);
    let status = brisk.wait();
    assert!(status.success(), "{status}");
}

#[test]
fn a_drain_ends_when_its_time_is_over() {
    let ca = TestCa::new();
    let leaf = ca.server(&[NAME]).issue();
    let (origin, _release) = two_halves();
    let text =
        format!("server.drain_timeout = \"300ms\"\n{}", config(&leaf, "body", &with_download(&origin)));
    let mut brisk = setup().config(&text).start();
    let mut download = client(&ca).connect(brisk.https()).expect("a handshake");
    begin_download(&mut download);
    brisk.terminate();
    brisk.wait();
    let mut rest = Vec::new();
    // Cut off: with or without a reset, but not whole.
    let _ = download.read_to_end(&mut rest);
    assert!(rest.len() < 100_000);
    // The client did nothing wrong.
    let line = brisk.logged("/download");
    for part in [r#""error":"drain-timeout""#, r#""error_side":"internal""#] {
        assert!(line.contains(part), "{line}");
    }
}

#[test]
fn a_broken_configuration_is_reported_once() {
    let ca = TestCa::new();
    let leaf = ca.server(&[NAME]).issue();
    let brisk = setup().config(&config(&leaf, "body", "")).start();
    let mut attempt = 0;
    let before = wait_until("a signal before the change is noticed", || {
        attempt += 1;
        let (before, written) = (brisk.reload_lines().len(), Instant::now());
        brisk.write("brisk.toml", format!("broken{attempt} = ["));
        brisk.reload();
        // A change is noticed half a second later. After that, the signal is a second reason for a line.
        (written.elapsed() < Duration::from_millis(400)).then_some(before)
    });
    // Longer than a change remains unnoticed.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(brisk.reload_lines().len(), before + 1, "{:?}", brisk.reload_lines());
    // Further changes are noticed all the same.
    brisk.write("brisk.toml", config(&leaf, "other", ""));
    brisk.log_with("reloaded: the new configuration");
    assert_eq!(client(&ca).connect(brisk.https()).expect("a handshake").get(NAME, "/").text(), "other");
}
