//! testssl.sh with the CA trusted: nothing above LOW.

use std::fs;
use std::time::Duration;

use brisk_behaviour::site::Site;
use brisk_testkit::process::{command, run};
use serde_json::Value;

/// What testssl.sh says of the tests' CA and not of brisk: it offers no list of revoked certificates.
const OF_THE_CA: [&str; 2] = ["cert_revocation <cert#1>", "cert_revocation <cert#2>"];

#[test]
fn no_finding_is_above_low() {
    let hsts = "hsts = { max_age = \"365d\" }\n";
    let site = Site::with_both_certificates(hsts);
    let report = site.brisk.folder().join("testssl.json");
    let target = format!("localhost:{}", site.brisk.https().port());
    let mut testssl = command("testssl");
    testssl.current_dir(site.brisk.folder()).env("TERM", "dumb");
    testssl.args(["--quiet", "--color", "0", "--warnings", "off", "--nodns", "none", "--ip", "127.0.0.1"]);
    testssl.arg("--add-ca").arg(site.ca.root_file()).arg("--jsonfile").arg(&report);
    let output = run(testssl.arg(&target), b"", Duration::from_mins(20));
    let findings: Vec<Value> = fs::read_to_string(&report)
        .ok()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_else(|| panic!("no report: {}", output.text()));
    assert!(findings.len() > 150, "{findings:?}");
    // WARN is no judgement: a check of its own that did not work.
    let above_low = |finding: &&Value| {
        let is_low = matches!(finding["severity"].as_str(), Some("OK" | "INFO" | "LOW" | "DEBUG" | "WARN"));
        !is_low && !OF_THE_CA.iter().any(|id| finding["id"] == *id)
    };
    let wrong: Vec<_> = findings.iter().filter(above_low).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
