//! `include`: further files of the configuration are reloaded as the main one is.

use brisk_behaviour::site::{NAME, setup};
use brisk_testkit::brisk::{Brisk, base, host};
use brisk_testkit::ca::TestCa;
use brisk_testkit::client::TlsClient;
use brisk_testkit::process::wait_until;

const OTHER: &str = "other.test";

fn serial(brisk: &Brisk, ca: &TestCa) -> Vec<u8> {
    let connection = TlsClient::new(&ca.root_file(), NAME).connect(brisk.https()).expect("a handshake");
    connection.tls().peer_certificates().expect("certificates")[0].to_vec()
}

#[test]
fn included_files_are_reloaded_as_they_come_change_and_go() {
    let ca = TestCa::new();
    let leaf = ca.server(&[NAME, OTHER]).issue();
    let of = |name: &str, body: &str| {
        let route = format!("[[host.route]]\npath = \"/\"\nrespond = {{ body = {body:?} }}\n");
        host(&[name], &[&leaf]) + &route
    };
    let main = format!("include = \"conf.d/*.toml\"\nserver.unknown_host = \"default\"\n{}", base(""))
        + &of(NAME, "main");
    let brisk = setup().config(&main).file("conf.d/.keep", "").start();
    let body = || {
        let client = TlsClient::new(&ca.root_file(), OTHER);
        client.connect(brisk.https()).expect("a handshake").get(OTHER, "/").text()
    };
    assert_eq!(body(), "main");
    for text in ["one", "two"] {
        brisk.write("conf.d/other.toml", of(OTHER, text));
        wait_until("the included host", || (body() == text).then_some(()));
    }
    // A mistake in an included file changes nothing, and the message has the name of the file.
    brisk.write("conf.d/wrong.toml", "[[host]]\nnames = [\"third.test\"]\nrouts = 1\n");
    brisk.log_with("conf.d/wrong.toml:3:1: host[2].routs: unknown key");
    assert_eq!(body(), "two");
    for file in ["conf.d/wrong.toml", "conf.d/other.toml"] {
        std::fs::remove_file(brisk.folder().join(file)).expect("removed");
    }
    wait_until("the main host alone", || (body() == "main").then_some(()));
}

/// Only `SIGHUP` had an effect after the correction.
#[test]
fn a_file_that_was_wrong_or_missing_when_it_was_first_named_is_read_again_after_its_correction() {
    let ca = TestCa::new();
    let leaf = ca.server(&[NAME, OTHER]).issue();
    let of = |name: &str, body: &str| {
        let route = format!("[[host.route]]\npath = \"/\"\nrespond = {{ body = {body:?} }}\n");
        host(&[name], &[&leaf]) + &route
    };
    let main = format!("server.unknown_host = \"default\"\n{}", base("")) + &of(NAME, "main");
    let brisk = setup().config(&main).start();
    let body = || {
        let client = TlsClient::new(&ca.root_file(), OTHER);
        client.connect(brisk.https()).expect("a handshake").get(OTHER, "/").text()
    };
    brisk.write("other.toml", "[[host]]\nnames = [\"other.test\"]\nrouts = 1\n");
    brisk.write("brisk.toml", format!("include = \"other.toml\"\n{main}"));
    brisk.log_with("other.toml:3:1: host[1].routs: unknown key");
    assert_eq!(body(), "main");
    brisk.write("other.toml", of(OTHER, "corrected"));
    wait_until("the included host", || (body() == "corrected").then_some(()));
    brisk.write("brisk.toml", format!("include = [\"other.toml\", \"late.toml\"]\n{main}"));
    brisk.log_with("late.toml: cannot be read");
    // A change of a file in force is noticed too while another one is missing.
    brisk.write("other.toml", of(OTHER, "changed"));
    brisk.write("late.toml", "# no hosts yet\n");
    wait_until("both files", || (body() == "changed").then_some(()));
}

#[test]
fn a_changed_certificate_of_an_included_host_is_noticed() {
    let ca = TestCa::new();
    let (old, new) = (ca.server(&[NAME]).issue(), ca.server(&[NAME]).issue());
    let mut files = old.clone();
    (files.chain, files.key) = ("tls/site.pem".into(), "tls/site.key".into());
    let setup = setup().config(&format!("include = \"site.toml\"\n{}", base("")));
    let setup = setup.file("site.toml", host(&[NAME], &[&files]));
    let brisk = setup.file("tls/site.pem", &old.chain_pem).file("tls/site.key", &old.key_pem).start();
    let before = serial(&brisk, &ca);
    brisk.write("tls/site.key", &new.key_pem);
    brisk.write("tls/site.pem", &new.chain_pem);
    wait_until("the new certificate", || (serial(&brisk, &ca) != before).then_some(()));
    brisk.log_with("new handshakes are shown a new certificate");
}

#[test]
fn the_explanation_of_a_request_names_the_included_file() {
    let ca = TestCa::new();
    let site = host(&[NAME], &[&ca.server(&[NAME]).issue()]) + "[[host.route]]\npath = \"/\"\nrespond = {}\n";
    let setup = setup().config(&format!("include = \"site.toml\"\n{}", base(""))).file("site.toml", site);
    let said = setup.run("check", &["brisk.toml", "--explain", &format!("GET https://{NAME}/")]).success();
    assert!(said.contains("route: host[0].route[0], path \"/\", line 5 of "), "{said}");
    assert!(said.contains("site.toml"), "{said}");
}
