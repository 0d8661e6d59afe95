//! Names of upstreams that the system resolves, and failures of its resolver.

use std::ffi::OsString;
use std::fs;

use brisk_behaviour::site::{NAME, NAMES, proxy_to, setup};
use brisk_testkit::brisk::{base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::client::TlsClient;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::{TIMEOUT, command, run, wait_until};

/// Runs a program with the files `hosts` and `resolv.conf` of its folder in place of those of the system.
const OWN_FILES: &str =
    "mount --bind hosts /etc/hosts && mount --bind resolv.conf /etc/resolv.conf && exec \"$0\" \"$@\"";

const UNSHARE: [&str; 5] = ["unshare", "--mount", "--map-root-user", "sh", "-c"];

#[test]
fn the_last_addresses_of_a_name_are_used_while_it_cannot_be_resolved() {
    let mut probe = command("unshare");
    if !run(probe.args(&UNSHARE[1..]).arg("true"), b"", TIMEOUT).status.success() {
        eprintln!("skipped: this user may not create a mount namespace");
        return;
    }
    let origin = Origin::fixed("hello");
    let ca = TestCa::new();
    let url = format!("http://app.internal:{}", origin.address().port());
    // Every request opens a connection.
    let tables = proxy_to(&[&url]) + "pool = { idle_connections = 0 }\n";
    let config = format!("{}{}{tables}", base(""), host(&NAMES, &[&ca.server(&NAMES).issue()]));
    let words: Vec<OsString> = UNSHARE.iter().chain([&OWN_FILES]).map(Into::into).collect();
    // No DNS server listens there, so names without a line in `hosts` fail.
    let setup = setup().config(&config).file("resolv.conf", "nameserver 127.255.255.254\n").behind(&words);
    let hosts = setup.folder().join("hosts");
    fs::write(&hosts, "").expect("a temporary file");
    let brisk = setup.start();
    let mut connection = TlsClient::new(&ca.root_file(), NAME).connect(brisk.https()).expect("a handshake");
    assert_eq!(connection.get(NAME, "/").status(), 502);
    fs::write(&hosts, "127.0.0.1 app.internal\n").expect("a temporary file");
    assert_eq!(connection.get(NAME, "/").text(), "hello");
    fs::write(&hosts, "").expect("a temporary file");
    wait_until("a warning", || {
        assert_eq!(connection.get(NAME, "/").text(), "hello");
        brisk.process().stderr().contains("its last known addresses are used").then_some(())
    });
    fs::write(&hosts, "127.0.0.1 app.internal\n").expect("a temporary file");
    wait_until("the end of the failure", || {
        assert_eq!(connection.get(NAME, "/").text(), "hello");
        brisk.process().stderr().contains("the name is resolved again").then_some(())
    });
}
