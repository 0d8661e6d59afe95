//! h2spec, including strict cases.

use std::time::Duration;

use brisk_behaviour::site::Site;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::{command, run};

/// In front of an upstream, because an answer of brisk's own may come too early for h2spec. RFC 9113 section 8.1: "A
/// server can send a complete response prior to the client sending an entire request". brisk does, and then some cases,
/// which break the rules after the head of their request, see the answer instead of the error.
#[test]
fn every_case_passes() {
    let origin = Origin::fixed("hello from an upstream");
    let site = Site::proxying(&[&origin.url()]);
    let port = site.brisk.https().port().to_string();
    let mut failures = Vec::new();
    // A pause of the machine may exceed the timeout of a case.
    let is_passed = (0..5).any(|_| {
        let mut h2spec = command("h2spec");
        h2spec.args([
            "--host",
            "127.0.0.1",
            "--port",
            &port,
            "--tls",
            "--insecure",
            "--strict",
            "--timeout",
            "5",
        ]);
        let output = run(&mut h2spec, b"", Duration::from_mins(20)).text();
        failures.push(output.split('×').skip(1).map(str::to_owned).collect::<Vec<_>>());
        output.contains("146 tests, 146 passed, 0 skipped, 0 failed")
    });
    assert!(is_passed, "{failures:#?}");
    site.assert_alive();
}
