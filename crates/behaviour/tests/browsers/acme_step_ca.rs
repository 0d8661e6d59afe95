//! Certificates from step-ca: another implementation of ACME than pebble, with short lifetimes, and without profiles and
//! renewal information.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use brisk_behaviour::site::setup;
use brisk_testkit::brisk::Brisk;
use brisk_testkit::client::TlsClient;
use brisk_testkit::pebble::PebbleOptions;
use brisk_testkit::process::wait_until;
use brisk_testkit::step_ca::StepCa;

use crate::acme::{HOST, host, record, state};

fn config(authority: &StepCa, state: &Path, more: &str) -> String {
    format!(
        "{more}server.https = [\"127.0.0.1:{}\"]\nserver.http = [\"127.0.0.1:{}\"]\nserver.workers = 2\n\
         server.state_dir = {:?}\nadmin.listen = \"127.0.0.1:0\"\naccess_log.format = \"off\"\n\
         acme.directory = {:?}\nacme.ca = {:?}\n{}",
        authority.https(),
        authority.http(),
        state.display().to_string(),
        authority.directory(),
        authority.root().display().to_string(),
        host(&[HOST], "")
    )
}

fn connect(authority: &StepCa, brisk: &Brisk) {
    let root = authority.root();
    wait_until(&format!("a certificate of step-ca: {}", authority.log()), || {
        TlsClient::new(&root, HOST).connect(brisk.https()).ok()
    });
}

#[test]
fn step_ca_verifies_by_each_challenge_of_the_listeners_and_both_kinds_of_keys() {
    let authority = StepCa::start();
    for challenge in ["tls-alpn-01", "http-01"] {
        let state = state();
        let more = format!("acme.challenges = [\"{challenge}\"]\nacme.keys = [\"ecdsa\", \"rsa\"]\n");
        let config = config(&authority, state.path(), &more);
        let brisk = setup().config(&config).option("--log").option("info,brisk_acme=debug").start();
        connect(&authority, &brisk);
        brisk.log_with(&format!("challenge=\"{challenge}\""));
        for kind in ["ecdsa", "rsa"] {
            wait_until(kind, || record(state.path(), "certificates", HOST, kind));
        }
        drop(brisk);
        // Renewal information is missing, so the lifetime of a day decides, and a restart orders nothing.
        let before = record(state.path(), "certificates", HOST, "ecdsa");
        let again = setup().config(&config).start();
        connect(&authority, &again);
        assert_eq!(record(state.path(), "certificates", HOST, "ecdsa"), before);
    }
}

#[test]
fn step_ca_verifies_a_record_of_a_hook() {
    let (authority, state) = (StepCa::start(), state());
    let url = authority.dns_management();
    let hook = format!(
        "#!/bin/sh\ncase $1 in\npresent) curl --silent --fail --data \"{{\\\"host\\\":\\\"$2\\\",\\\"value\\\":\\\"$3\\\"}}\" {url}/set-txt;;\n\
         cleanup) curl --silent --fail --data \"{{\\\"host\\\":\\\"$2\\\"}}\" {url}/clear-txt;;\nesac\n"
    );
    let setup = setup().file("hook", hook);
    fs::set_permissions(setup.folder().join("hook"), fs::Permissions::from_mode(0o700)).expect("a file");
    let brisk = setup.config(&config(&authority, state.path(), "acme.dns = { hook = \"hook\" }\n")).start();
    connect(&authority, &brisk);
    brisk.log_with("a certificate was obtained");
}

#[test]
fn step_ca_is_the_fallback_of_an_authority_that_refuses_a_name_and_ignores_profiles() {
    let (authority, pebble, state) = (StepCa::start(), PebbleOptions::default().start(), state());
    let fallback = format!(
        "[[acme.fallback]]\ndirectory = {:?}\nca = {:?}\nprofile = \"shortlived\"\n",
        authority.directory(),
        authority.root().display().to_string()
    );
    let own = |directory: &str, ca: &Path| format!("acme.directory = {directory:?}\nacme.ca = {ca:?}\n");
    let config = config(&authority, state.path(), "")
        .replace(
            &own(&authority.directory(), &authority.root()),
            &own(&pebble.directory(), &pebble.ca_file()),
        )
        .replace(HOST, "blocked.test");
    let start = || setup().config(&format!("{config}{fallback}")).start();
    let first = start();
    let log = first.log_with("no certificate was obtained");
    assert!(log.contains("policy"), "the reason is that of the authority: {log}");
    drop(first);
    // As after two more failures, and their pauses.
    let mut status = record(state.path(), "status", "blocked.test", "ecdsa").expect("a status");
    status["failures"] = 3.into();
    status["retry"] = 0.into();
    let file = state.path().join("certificates/status/blocked.test/ecdsa");
    fs::write(file, status.to_string()).expect("a record");
    let second = start();
    let root = authority.root();
    wait_until("a certificate of the fallback", || {
        TlsClient::new(&root, "blocked.test").connect(second.https()).ok()
    });
}
