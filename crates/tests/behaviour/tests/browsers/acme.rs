//! Certificates from an authority: pebble issues, checks by every challenge, injects errors, and counts orders.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use brisk_behaviour::site::{LIMIT, setup};
use brisk_testkit::brisk::Brisk;
use brisk_testkit::ca_site::{Answer, CaSite, revoking_responder};
use brisk_testkit::client::{TlsClient, TlsStream};
use brisk_testkit::origin::Origin;
use brisk_testkit::pebble::{EXTERNAL_KEY, Pebble, PebbleOptions};
use brisk_testkit::process::{command, run, wait_until};
use serde_json::Value;

pub(crate) const HOST: &str = "shop.test";

/// Where pebble checks, a state folder that outlives the program, and pebble as the authority.
pub(crate) fn base(pebble: &Pebble, state: &Path) -> String {
    format!(
        "server.https = [\"127.0.0.1:{}\"]\nserver.http = [\"127.0.0.1:{}\"]\nserver.workers = 2\n\
         server.timeouts.hello = \"1m\"\nserver.timeouts.head = \"1m\"\n\
         server.state_dir = {:?}\nadmin.listen = \"127.0.0.1:0\"\naccess_log.format = \"off\"\n\
         acme.directory = {:?}\nacme.ca = {:?}\n",
        pebble.https(),
        pebble.http(),
        state.display().to_string(),
        pebble.directory(),
        pebble.ca_file().display().to_string(),
    )
}

/// A host whose certificates are obtained, with more keys.
pub(crate) fn host(names: &[&str], more: &str) -> String {
    format!("\n[[host]]\nnames = {names:?}\nacme = true\n{more}\n")
}

pub(crate) fn state() -> tempfile::TempDir {
    tempfile::TempDir::with_prefix("brisk-test-acme-").expect("a temporary folder")
}

fn start(config: &str) -> Brisk {
    setup().config(config).start()
}

/// A client's handshake as soon as there is a certificate that it trusts.
#[track_caller]
pub(crate) fn connect(pebble: &Pebble, https: SocketAddr, name: &str) -> TlsStream {
    let root = pebble.root();
    wait_until(&format!("a trusted certificate for {name}"), || {
        TlsClient::new(&root, name).connect(https).ok()
    })
}

/// What the store has of a host: `certificates`, `orders` or `status`.
pub(crate) fn record(state: &Path, kind: &str, host: &str, key: &str) -> Option<Value> {
    let file = state.join("certificates").join(kind).join(host).join(key);
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

/// Changes the record of the certificate of [`HOST`].
pub(crate) fn change(state: &Path, edit: impl FnOnce(&mut Value)) {
    let mut issued = record(state, "certificates", HOST, "ecdsa").expect("a certificate");
    edit(&mut issued);
    fs::write(state.join("certificates/certificates").join(HOST).join("ecdsa"), issued.to_string())
        .expect("a record");
}

fn ends(stream: &TlsStream) -> usize {
    stream.tls().peer_certificates().expect("certificates")[0].len()
}

#[test]
fn four_lines_are_enough_for_a_site_that_browsers_trust() {
    let (pebble, origin) = (PebbleOptions::default().start(), Origin::fixed("hello"));
    let config = format!("[[host]]\nnames = [\"{HOST}\"]\nacme = true\nupstream = \"{}\"\n", origin.url());
    assert_eq!(config.lines().count(), 4);
    let brisk = setup()
        .config(&config)
        .option("--listen")
        .option(&format!("127.0.0.1:{}", pebble.https()))
        .option("--acme-directory")
        .option(&pebble.directory())
        .option("--acme-ca")
        .option(&pebble.ca_file().display().to_string())
        .start();
    let mut stream = connect(&pebble, brisk.https(), HOST);
    assert_eq!(stream.get(HOST, "/").text(), "hello");
    let log = brisk.log_with("a certificate was obtained");
    assert!(log.contains("account created"), "{log}");
    let is_of_server = |line: &str| line.contains("brisk_server") || line.contains("brisk runs as root");
    let complains = |line: &&str| (line.contains("WARN") || line.contains("ERROR")) && !is_of_server(line);
    assert_eq!(log.lines().find(complains), None, "what a new operator has not caused");
    assert_eq!(pebble.orders(), 1);
}

#[test]
fn names_are_proven_by_each_challenge_for_both_kinds_of_keys() {
    let pebble = PebbleOptions::default().start();
    for challenge in ["tls-alpn-01", "http-01"] {
        let state = state();
        let config = format!(
            "{}acme.challenges = [\"{challenge}\"]\nacme.keys = [\"ecdsa\", \"rsa\"]\n{}",
            base(&pebble, state.path()),
            host(&[HOST, "www.shop.test"], "")
        );
        let before = pebble.orders();
        let brisk = setup().config(&config).option("--log").option("info,brisk_acme=debug").start();
        for name in [HOST, "www.shop.test"] {
            connect(&pebble, brisk.https(), name);
        }
        brisk.log_with(&format!("challenge=\"{challenge}\""));
        wait_until("both certificates", || {
            ["ecdsa", "rsa"]
                .iter()
                .all(|key| record(state.path(), "certificates", HOST, key).is_some())
                .then_some(())
        });
        assert_eq!(pebble.orders() - before, 2, "one for each kind of key");
    }
}

#[test]
fn a_restart_orders_nothing_and_serves_at_once() {
    let (pebble, state) = (PebbleOptions::default().start(), state());
    let config = base(&pebble, state.path()) + &host(&[HOST], "");
    let first = start(&config);
    let before = ends(&connect(&pebble, first.https(), HOST));
    first.log_with("a certificate was obtained");
    drop(first);
    let second = start(&config);
    assert_eq!(ends(&connect(&pebble, second.https(), HOST)), before);
    assert_eq!(pebble.orders(), 1);
}

#[test]
fn before_its_first_certificate_a_host_refuses_handshakes() {
    let (pebble, state) = (PebbleOptions::default().start(), state());
    // The authority cannot verify this name, and says so.
    let config = base(&pebble, state.path()) + &host(&["blocked.test"], "");
    let brisk = start(&config);
    let log = brisk.log_with("no certificate was obtained");
    assert!(log.contains("blocked.test") && log.contains("next="), "{log}");
    let error = TlsClient::new(&pebble.root(), "blocked.test").connect(brisk.https()).expect_err("refused");
    assert!(error.to_string().contains("HandshakeFailure"), "{error}");
    let status = record(state.path(), "status", "blocked.test", "ecdsa").expect("a status");
    assert_eq!(status["failures"], 1, "{status}");
}

#[test]
fn nonces_that_are_refused_cost_no_further_order() {
    let (pebble, state) = (PebbleOptions::default().rejecting_nonces(40).start(), state());
    let brisk = start(&(base(&pebble, state.path()) + &host(&[HOST], "")));
    connect(&pebble, brisk.https(), HOST);
    brisk.log_with("a certificate was obtained");
    assert_eq!(pebble.orders(), 1);
}

#[test]
fn an_account_is_bound_to_an_external_one() {
    let (pebble, state) = (PebbleOptions::default().external_account().start(), state());
    let config = base(&pebble, state.path()) + &host(&[HOST], "");
    let without = start(&config);
    let log = without.log_with("no certificate was obtained");
    assert!(log.contains("external_account = "), "the log says what to write: {log}");
    drop(without);
    let _ = fs::remove_dir_all(state.path());
    let config =
        format!("acme.external_account = {{ key_id = \"kid-1\", key_file = \"eab.key\" }}\n{config}");
    let brisk = setup().file("eab.key", EXTERNAL_KEY).config(&config).start();
    connect(&pebble, brisk.https(), HOST);
}

#[test]
fn a_host_may_have_a_profile_of_its_own() {
    let (pebble, state) = (PebbleOptions::default().start(), state());
    let hosts = format!(
        "{}\n[[host]]\nnames = [\"short.test\"]\nacme = {{ profile = \"shortlived\" }}\n",
        host(&[HOST], "")
    );
    let brisk = start(&(base(&pebble, state.path()) + &hosts));
    for name in [HOST, "short.test"] {
        connect(&pebble, brisk.https(), name);
    }
    let issued = |host| {
        wait_until("a certificate in the store", || record(state.path(), "certificates", host, "ecdsa"))
    };
    assert_eq!(issued(HOST)["profile"], Value::Null);
    assert_eq!(issued("short.test")["profile"], "shortlived");
}

#[test]
fn the_authority_decides_when_a_certificate_is_renewed() {
    let (pebble, state) = (PebbleOptions::default().start(), state());
    let config = base(&pebble, state.path()) + &host(&[HOST], "");
    let first = start(&config);
    connect(&pebble, first.https(), HOST);
    first.log_with("the authority advises when to renew");
    drop(first);
    let issued = record(state.path(), "certificates", HOST, "ecdsa").expect("a certificate");
    let chain = issued["chain"].as_str().expect("PEM");
    let leaf = chain.split_inclusive("-----END CERTIFICATE-----\n").next().expect("a certificate");
    pebble.advise(leaf, "2020-01-01T00:00:00Z", "2020-01-02T00:00:00Z");
    // As if the time had come at which the authority is asked again, and it had not just been obtained.
    fs::remove_dir_all(state.path().join("certificates/status")).expect("a status");
    change(state.path(), |issued| issued["obtained"] = 1.into());
    let second = start(&config);
    let log = second.log_with("a certificate was obtained");
    assert!(log.contains("2020-01-01"), "{log}");
    assert_eq!(pebble.orders(), 2);
    let renewed = wait_until("another certificate", || {
        record(state.path(), "certificates", HOST, "ecdsa").filter(|now| now["chain"] != issued["chain"])
    });
    assert_ne!(renewed["key"], issued["key"], "a new certificate has a new key");
}

#[test]
fn a_certificate_of_another_authority_is_replaced_at_once() {
    let (pebble, state) = (PebbleOptions::default().start(), state());
    let config = base(&pebble, state.path()) + &host(&[HOST], "");
    let first = start(&config);
    connect(&pebble, first.https(), HOST);
    first.log_with("a certificate was obtained");
    drop(first);
    // As if the configuration had named a staging authority then.
    change(state.path(), |issued| issued["authority"] = "https://staging.test/directory".into());
    let second = start(&config);
    second.log_with("a certificate was obtained");
    assert_eq!(pebble.orders(), 2);
    let issued = record(state.path(), "certificates", HOST, "ecdsa").expect("a certificate");
    assert_eq!(issued["authority"].as_str(), Some(&*pebble.directory()));
}

#[test]
fn a_revoked_certificate_is_replaced_at_once() {
    let site = CaSite::new();
    let (pebble, state) = (PebbleOptions::default().ocsp_at(&site.url("/ocsp")).start(), state());
    let config = format!(
        "{}certificates.staple_wait = \"300ms\"\ncertificates.allow_private = [\"127.0.0.1\"]\n{}",
        base(&pebble, state.path()),
        host(&[HOST], "")
    );
    let first = start(&config);
    connect(&pebble, first.https(), HOST);
    first.log_with("a certificate was obtained");
    drop(first);
    let before = record(state.path(), "certificates", HOST, "ecdsa").expect("a certificate");
    let file = state.path().join("leaf.pem");
    fs::write(&file, before["chain"].as_str().expect("PEM")).expect("a file");
    let mut openssl = command("openssl");
    let serial = run(openssl.args(["x509", "-noout", "-serial", "-in"]).arg(&file), b"", LIMIT).success();
    let serial = serial.trim().strip_prefix("serial=").expect("a serial number");
    // The authority has no responder of its own, and no list; what a real one says with its key is what counts.
    let (_openssl, address) = revoking_responder(&pebble.intermediate(), serial);
    site.set("/ocsp", Answer::Of(address));
    // As if it had not just been obtained.
    change(state.path(), |issued| issued["obtained"] = 1.into());
    let second = start(&config);
    let log = second.log_with("a certificate was obtained");
    assert!(log.contains("REVOKED"), "{log}");
    assert_eq!(pebble.orders(), 2, "{}", pebble.log());
    let renewed = record(state.path(), "certificates", HOST, "ecdsa").expect("a certificate");
    assert_ne!((&renewed["chain"], &renewed["key"]), (&before["chain"], &before["key"]));
    // The new one, of which the responder knows nothing, stays.
    second.log_with("the responder does not know this certificate");
    assert_eq!(pebble.orders(), 2);
}
