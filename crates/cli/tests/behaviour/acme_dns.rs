//! Names that are proven by records: wildcards, by updates of a real DNS server and by a program.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use brisk_testkit::knot::{Knot, UPDATE_KEY};
use brisk_testkit::pebble::PebbleOptions;

use crate::acme::{HOST, base, connect, host, record, state};
use crate::site::setup;

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
    assert!(!log.contains("stays in the DNS"), "each record was taken away: {log}");
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
