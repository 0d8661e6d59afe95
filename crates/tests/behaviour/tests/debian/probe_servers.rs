//! `brisk probe` beside `openssl s_client -msg`: both list the same messages of the same servers, byte for byte.

use std::fs;

use brisk_behaviour::site::{LIMIT, NAME, NAMES, setup};
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::{Leaf, LeafKey, TestCa};
use brisk_testkit::haproxy::Haproxy;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::{Process, command, run, serve_on_free_port};
use serde_json::Value;

use crate::probe::{messages, probe, report, s_server_with, seen};

/// Bytes that a share of ML-KEM-768 adds to a `ServerHello`, which OpenSSL before 3.5 cannot ask for.
const CIPHERTEXT: u64 = 1088;

const COMPRESSED: &str = "CompressedCertificate";

/// Bytes of a block of AES.
const BLOCK: u64 = 16;

/// A HAProxy with this certificate, which answers everything.
fn haproxy(leaf: &Leaf, alpn: &str) -> Haproxy {
    let text = format!(
        "defaults\n  mode http\n  timeout client 1m\n  timeout connect 1m\n  timeout server 1m\nfrontend all\n  \
         bind 127.0.0.1:PORT ssl crt FOLDER/pair.pem alpn {alpn}\n  http-request return status 200\n"
    );
    Haproxy::with_certificate(leaf, &text)
}

/// An h2o with this certificate, which serves a file.
fn h2o(ca: &TestCa, leaf: &Leaf) -> (Process, u16) {
    let (file, pages) = (ca.unique_file("h2o.conf"), ca.unique_file("pages"));
    fs::create_dir(&pages).expect("a folder");
    fs::write(pages.join("index.html"), "hello").expect("a file");
    let (chain, key, pages) = (leaf.chain.display(), leaf.key.display(), pages.display());
    let (process, address) = serve_on_free_port(|port| {
        let text = format!(
            "num-threads: 1\nlisten: {{ host: 127.0.0.1, port: {port}, ssl: {{ certificate-file: {chain}, \
             key-file: {key} }} }}\nhosts: {{ default: {{ paths: {{ /: {{ file.dir: {pages} }} }} }} }}\n"
        );
        fs::write(&file, text).expect("a file");
        let mut h2o = command("h2o");
        h2o.arg("-c").arg(&file);
        h2o
    });
    (process, address.port())
}

/// Name and bytes of each message that `openssl s_client` got from this server.
fn seen_by_openssl(port: u16, version: &str, suite: &str) -> Vec<(String, u64)> {
    let mut openssl = command("openssl");
    openssl.args(["s_client", "-msg", version, "-alpn", "h2,http/1.1", "-status", "-groups", "X25519:P-256"]);
    if version == "-tls1_3" {
        openssl.args(["-ciphersuites", suite]);
    }
    openssl.args(["-servername", NAME, "-connect"]).arg(format!("127.0.0.1:{port}"));
    let output = run(&mut openssl, b"", LIMIT).text();
    let all = seen(&output, "<<<");
    assert!(all.len() > 3, "{output}");
    all
}

fn is_message_before_tickets((name, _): &(String, u64)) -> bool {
    name != "NewSessionTicket"
}

/// The messages of a full handshake as both saw them: those of TLS 1.2 as they are. Of TLS 1.3 without what OpenSSL has no word
/// for: the share of ML-KEM, and tickets, for which `s_client` does not wait. From 3.2 on it takes compressed certificates too, with
/// other algorithms: where one is compressed its length is not compared.
fn agrees(server: &str, ca: &TestCa, port: u16) {
    let tls12 = report(&mut probe(ca, port, "/", "--tls 1.2"));
    assert_eq!(messages(&tls12, "server"), seen_by_openssl(port, "-tls1_2", ""), "{server}");

    let tls13 = report(&mut probe(ca, port, "/", "--tls 1.3"));
    let (tls, mut ours) = (&tls13["tls"], messages(&tls13, "server"));
    let mut theirs = seen_by_openssl(port, "-tls1_3", tls["suite"].as_str().expect("a suite"));
    if tls["group"] == "X25519MLKEM768" {
        theirs[0].1 += CIPHERTEXT;
    }
    let compressed = ours.iter().find(|(name, _)| name == COMPRESSED).map(|(_, bytes)| *bytes);
    assert_eq!(compressed, tls["chain"]["compressed"][0].as_u64(), "{server}");
    if [&ours, &theirs].iter().any(|all| all.iter().any(|(name, _)| name == COMPRESSED)) {
        for all in [&mut ours, &mut theirs] {
            let place =
                all.iter_mut().find(|(name, _)| name.ends_with("Certificate")).expect("a certificate");
            *place = ("Certificate".to_owned(), 0);
        }
    }
    let tickets = |all: &[(String, u64)]| {
        let all = all.iter().filter(|message| !is_message_before_tickets(message));
        all.map(|(_, bytes)| *bytes).collect::<Vec<_>>()
    };
    let (own, others) = (tickets(&ours), tickets(&theirs));
    assert!(own.len() >= others.len(), "{server}: {ours:?} {theirs:?}");
    // OpenSSL's have a random number in as few bytes as it takes, and are encrypted in blocks.
    let is_near = |(one, other): (&u64, &u64)| one.abs_diff(*other) <= BLOCK;
    assert!(own.iter().zip(&others).all(is_near), "{server}: {ours:?} {theirs:?}");
    ours.retain(is_message_before_tickets);
    theirs.retain(is_message_before_tickets);
    assert_eq!(ours, theirs, "{server}");
    for report in [&tls12, &tls13] {
        assert_eq!(report["answer"]["status"], 200, "{server}");
        let protocol = if server == "openssl" { "http/1.1" } else { "h2" };
        assert_eq!(report["answer"]["protocol"], protocol, "{server}");
    }
}

#[test]
fn five_servers_send_what_openssl_sees() {
    let ca = TestCa::new();
    // Signatures of ECDSA differ in length, those of RSA do not.
    let leaf = ca.server(&NAMES).key(LeafKey::Rsa2048).issue();
    let nginx = Nginx::https_with(&leaf, "ssl_protocols TLSv1.2 TLSv1.3; location = / { return 200 hello; }");
    agrees("nginx", &ca, nginx.address().port());
    let haproxy = haproxy(&leaf, "h2,http/1.1");
    agrees("haproxy", &ca, haproxy.address().port());
    let (_h2o, port) = h2o(&ca, &leaf);
    agrees("h2o", &ca, port);
    let brisk = setup().config(&format!("{}{}", base(""), host(&NAMES, &[&leaf]))).start();
    agrees("brisk", &ca, brisk.https().port());
    let (_openssl, port) = s_server_with(&leaf, &[]);
    agrees("openssl", &ca, port);
}

/// The checks of a client like Chrome, by name: what it gets, and whether that is right.
fn chrome(ca: &TestCa, port: u16, options: &str) -> Vec<(String, String, bool)> {
    let report = report(&mut probe(ca, port, "/", &format!("--browser {options}")));
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let check = |check: &Value| (text(&check["name"]), text(&check["gets"]), check["is_right"] == true);
    report["browser"]["checks"].as_array().expect("checks").iter().map(check).collect()
}

fn has(checks: &[(String, String, bool)], name: &str, gets: &str, is_right: bool) {
    let wanted = (name.to_owned(), gets.to_owned(), is_right);
    assert!(checks.contains(&wanted), "{wanted:?} of {checks:?}");
}

#[test]
fn a_client_like_chrome_completes_its_handshake_and_gets_an_answer() {
    let ca = TestCa::new();
    let leaf = ca.server(&NAMES).issue();
    let brisk = setup().config(&format!("{}{}", base(""), host(&NAMES, &[&leaf]))).start();
    let checks = chrome(&ca, brisk.https().port(), "");
    has(&checks, "handshake", "completed", true);
    has(&checks, "answer", "200 over h2", true);
    has(&checks, "group", "X25519MLKEM768", true);
    let haproxy = haproxy(&leaf, "h2,http/1.1");
    has(&chrome(&ca, haproxy.address().port(), ""), "answer", "200 over h2", true);
    let (_h2o, port) = h2o(&ca, &leaf);
    has(&chrome(&ca, port, ""), "answer", "200 over h2", true);
    // It asks for a certificate, and takes that there is none; a suite with another hash.
    for options in [&["-verify", "1"][..], &["-ciphersuites", "TLS_AES_256_GCM_SHA384"]] {
        let (_openssl, port) = s_server_with(&leaf, options);
        let checks = chrome(&ca, port, "");
        has(&checks, "answer", "200 over http/1.1", true);
        has(&checks, "ALPN", "http/1.1", false);
    }
    // The rest of it is not spoken here.
    let (_openssl, port) = s_server_with(&leaf, &["-tls1_2"]);
    let checks = chrome(&ca, port, "");
    has(&checks, "version", "TLS 1.2", false);
    assert!(checks.iter().all(|(name, ..)| name != "handshake"), "{checks:?}");
}

#[test]
fn haproxy_without_http2_is_found() {
    let ca = TestCa::new();
    let haproxy = haproxy(&ca.server(&NAMES).issue(), "http/1.1");
    let report = report(&mut probe(&ca, haproxy.address().port(), "/", ""));
    assert_eq!(report["answer"]["protocol"], "http/1.1");
    let ids: Vec<_> =
        report["findings"].as_array().expect("findings").iter().map(|found| &found["id"]).collect();
    assert!(ids.contains(&&Value::from("no-http2")), "{report}");
    // OpenSSL 3.5 has the group.
    let is_old = report["tls"]["group"] == "x25519";
    assert_eq!(ids.contains(&&Value::from("not-post-quantum")), is_old, "{report}");
}
