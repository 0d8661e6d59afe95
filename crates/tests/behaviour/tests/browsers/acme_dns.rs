//! ACME challenges by DNS records: wildcards, through updates of a real DNS server and through a program.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use brisk_behaviour::site::setup;
use brisk_testkit::knot::{Knot, UPDATE_KEY};
use brisk_testkit::pebble::PebbleOptions;
use brisk_testkit::process::wait_until;
use rustix::process::Signal;

use crate::acme::{HOST, base, connect, host, record, state};

const NAMES: [&str; 2] = [HOST, "*.shop.test"];

#[test]
fn a_wildcard_is_proven_by_updates_of_the_zone() {
    let knot = Knot::primary(HOST);
    let (pebble, state) = (PebbleOptions::default().dns(knot.address()).start(), state());
    let dns = format!(
        "acme.dns = {{ server = \"{}\", key_name = \"{}\", key_file = \"tsig.key\" }}\n\
         acme.challenges = [\"dns-01\"]\nacme.keys = [\"ecdsa\", \"rsa\"]\n",
        knot.address(),
        UPDATE_KEY.0
    );
    let config = dns + &base(&pebble, state.path()) + &host(&NAMES, "");
    let brisk = setup().file("tsig.key", UPDATE_KEY.1).config(&config).start();
    for name in [HOST, "www.shop.test"] {
        connect(&pebble, brisk.https(), name);
    }
    brisk.log_with("key=rsa ends");
    assert_eq!(pebble.orders(), 2);
    let log = brisk.process().stderr();
    assert!(!log.contains("cannot remove a dns-01 record"), "each record was taken away: {log}");
}

#[test]
fn a_key_that_the_server_does_not_know_is_reported_as_such() {
    let knot = Knot::primary(HOST);
    let (pebble, state) = (PebbleOptions::default().dns(knot.address()).start(), state());
    let dns = format!(
        "acme.dns = {{ server = \"{}\", zone = \"shop.test\", key_name = \"another-key\", key_file = \"tsig.key\" }}\n",
        knot.address(),
    );
    let config = dns + &base(&pebble, state.path()) + &host(&["*.shop.test"], "");
    let brisk = setup().file("tsig.key", UPDATE_KEY.1).config(&config).start();
    let log = brisk.log_with("no certificate was obtained");
    assert!(log.contains("zone shop.test") && log.contains("the key"), "{log}");
}

#[test]
fn a_wildcard_is_proven_by_a_program() {
    let (pebble, state) = (PebbleOptions::default().start(), state());
    let url = pebble.dns_management();
    let hook = format!(
        "#!/bin/sh\ncase $1 in\npresent) curl --silent --fail --data \"{{\\\"host\\\":\\\"$2\\\",\\\"value\\\":\\\"$3\\\"}}\" {url}/set-txt;;\n\
         cleanup) curl --silent --fail --data \"{{\\\"host\\\":\\\"$2\\\"}}\" {url}/clear-txt;;\nesac\n\
         echo \"$1 $CERTBOT_DOMAIN\" >> \"$(dirname \"$0\")/calls\"\n"
    );
    let config = "acme.dns = { hook = \"hook\" }\n".to_owned()
        + &base(&pebble, state.path())
        + &host(&["*.shop.test"], "");
    let setup = setup().file("hook", hook);
    fs::set_permissions(setup.folder().join("hook"), fs::Permissions::from_mode(0o700)).expect("a file");
    let brisk = setup.config(&config).start();
    connect(&pebble, brisk.https(), "www.shop.test");
    brisk.log_with("a certificate was obtained");
    let calls = fs::read_to_string(brisk.folder().join("calls")).expect("calls");
    assert_eq!(calls, "present shop.test\ncleanup shop.test\n");
    assert!(record(state.path(), "certificates", "%2a.shop.test", "ecdsa").is_some());
}

#[test]
fn a_wildcard_without_dns_is_refused_at_the_check() {
    let config = "server.https = [\"127.0.0.1:0\"]\n".to_owned() + &host(&["*.shop.test"], "");
    let output = setup().config(&config).check("brisk.toml");
    assert_eq!(output.status.code(), Some(2), "{}", output.text());
    assert!(output.stderr.contains("dns-01") && output.stderr.contains("[acme.dns]"), "{}", output.stderr);
}

#[test]
fn records_of_a_gateway_that_was_killed_are_taken_away_after_the_start() {
    let (pebble, state) = (PebbleOptions::default().start(), state());
    let url = pebble.dns_management();
    let hook = format!(
        "#!/bin/sh\ncase $1 in\npresent) curl --silent --fail --data \"{{\\\"host\\\":\\\"$2\\\",\\\"value\\\":\\\"$3\\\"}}\" {url}/set-txt;;\n\
         cleanup) curl --silent --fail --data \"{{\\\"host\\\":\\\"$2\\\"}}\" {url}/clear-txt;;\nesac\n\
         echo \"$1 $3\" >> {:?}\n",
        state.path().join("calls").display().to_string()
    );
    let config = |wait: &str| {
        format!("acme.dns = {{ hook = \"hook\", wait = \"{wait}\" }}\n")
            + &base(&pebble, state.path())
            + &host(&["*.shop.test"], "")
    };
    let start = |wait: &str| {
        let setup = setup().file("hook", &hook);
        fs::set_permissions(setup.folder().join("hook"), fs::Permissions::from_mode(0o700)).expect("a file");
        setup.config(&config(wait)).start()
    };
    let calls = || fs::read_to_string(state.path().join("calls")).unwrap_or_default();
    let mut first = start("1h");
    wait_until("a record", || calls().contains("present ").then_some(()));
    first.process().signal(Signal::KILL);
    first.wait();
    let second = start("0s");
    connect(&pebble, second.https(), "www.shop.test");
    second.log_with("a certificate was obtained");
    let calls = calls();
    let lines: Vec<_> = calls.lines().filter_map(|line| line.split_once(' ')).collect();
    let actions: Vec<_> = lines.iter().map(|(action, _)| *action).collect();
    assert_eq!(actions, ["present", "cleanup", "present", "cleanup"], "{calls}");
    assert_eq!(lines[0].1, lines[1].1, "the record that was left was taken away: {calls}");
    assert_eq!(pebble.orders(), 1);
}

#[test]
fn a_record_that_stands_proves_a_wildcard_without_any_right_in_the_dns() {
    let (pebble, state) = (PebbleOptions::default().start(), state());
    let config = "acme.challenges = [\"dns-persist-01\"]\n".to_owned()
        + &base(&pebble, state.path())
        + &host(&NAMES, "");
    let by_hand = setup().file("brisk.toml", &config);
    let shown = by_hand.run("cert", &["records", "--config", "brisk.toml"]).success();
    let record = shown.lines().find(|line| !line.starts_with(';')).expect("a record");
    let (name, value) = record.split_once(" IN TXT ").expect("name and value");
    assert_eq!(name, "_validation-persist.shop.test.", "{shown}");
    assert!(value.ends_with("; policy=wildcard\"") && value.contains("; accounturi=https://"), "{shown}");
    assert_eq!(shown.lines().count(), 2, "one is enough for both names: {shown}");
    let without = setup().config(&config).start();
    let log = without.log_with("no certificate was obtained");
    assert!(log.contains("dns-persist-01 needs this DNS record") && log.contains(name), "{log}");
    drop(without);
    pebble.set_txt(name, value.trim_matches('"'));
    let _ = fs::remove_dir_all(state.path().join("certificates/status"));
    let brisk = setup().config(&config).start();
    for name in [HOST, "www.shop.test"] {
        connect(&pebble, brisk.https(), name);
    }
}
