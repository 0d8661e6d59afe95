//! `brisk probe --http3`: a server with HTTP/3 and early data, and a server that announces HTTP/3 without serving it.

use std::process::Command;

use brisk_behaviour::h3_client::h3_site;
use brisk_behaviour::program::brisk_program;
use brisk_behaviour::site::{LIMIT, NAME, Site};
use brisk_testkit::process::run;
use serde_json::Value;

/// A pause of the machine may be longer than a probe waits for a session or for a list of versions.
const TRIES: usize = 5;

const EARLY: &str = "\n[[host.route]]\npath = \"/\"\nearly_data = \"safe\"\nrespond = { body = \"here\" }\n";

/// `brisk probe --http3` of the site, with these options.
fn probe(site: &Site, options: &[&str]) -> String {
    let port = site.brisk.https().port();
    let mut command = Command::new(brisk_program());
    command.arg("probe").arg(format!("https://{NAME}:{port}/")).args(["--connect", "127.0.0.1", "--http3"]);
    // A machine that stands still for some seconds ends no probe.
    command.args(["--timeout", "50"]);
    command.arg("--ca").arg(site.ca.root_file()).args(options);
    run(&mut command, b"", LIMIT).success()
}

/// The part about HTTP/3 of the report.
fn document(site: &Site) -> Value {
    let text = probe(site, &["--json"]);
    let document: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    document["http3"].clone()
}

#[test]
fn a_server_with_http3_is_tested_with_a_full_handshake_and_early_data() {
    let site = h3_site("", EARLY);
    let port = site.brisk.https().port();
    let mut reports = (0..TRIES).map(|_| document(&site));
    let is_whole =
        |http3: &Value| http3["resumed"].is_object() && http3["versions"] != Value::Array(Vec::new());
    let http3 = reports.find(is_whole).expect("a report with a second handshake and versions");
    assert_eq!(http3["alt_svc"], format!("h3=\":{port}\"; ma=86400"));
    assert_eq!(http3["address"], format!("127.0.0.1:{port}"));
    assert_eq!((&http3["in_record"], &http3["versions"]), (&Value::Null, &Value::from(vec!["1"])));
    let [full, resumed] = ["full", "resumed"].map(|which| &http3[which]);
    for (outcome, resumption, early_data) in [(full, "full", "none"), (resumed, "0-rtt", "accepted")] {
        assert_eq!((&outcome["status"], &outcome["failure"]), (&Value::from(200), &Value::Null), "{outcome}");
        assert_eq!(
            (&outcome["resumption"], &outcome["early_data"]),
            (&Value::from(resumption), &Value::from(early_data))
        );
        assert!(outcome["handshake_ms"].is_f64() && outcome["first_byte_ms"].is_f64(), "{outcome}");
    }
    let mut texts = (0..TRIES).map(|_| probe(&site, &[]));
    let is_whole =
        |text: &String| text.contains("early data accepted") && text.contains("QUIC versions     1");
    let text = texts.find(is_whole).expect("a report with a second handshake and versions");
    for line in ["✓ announced", "? QUIC versions     1", "✓ full handshake", "early data accepted"] {
        assert!(text.contains(line.trim_start_matches('?')), "{line}: {text}");
    }
}

#[test]
fn a_server_that_announces_another_port_than_it_serves_is_reported() {
    // No program has this port, and the system gives it to none.
    let port = 1;
    let site = h3_site(&format!("server.alt_svc.port = {port}\n"), EARLY);
    let http3 = document(&site);
    assert_eq!(http3["address"], format!("127.0.0.1:{port}"));
    assert_eq!((&http3["versions"], &http3["resumed"]), (&Value::Array(Vec::new()), &Value::Null));
    let failure = http3["full"]["failure"].as_str().expect("a failure");
    assert!(failure.contains("no datagram reaches the server over UDP"), "{failure}");
}
