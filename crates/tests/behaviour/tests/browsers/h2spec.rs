//! h2spec, including strict cases.

use std::collections::BTreeSet;
use std::time::Duration;

use brisk_behaviour::site::Site;
use brisk_testkit::origin::Origin;
use brisk_testkit::process::{command, run};

/// Runs of h2spec at most.
const RUNS: usize = 5;

/// In front of an upstream, because an answer of brisk's own may come too early for h2spec. RFC 9113 section 8.1: "A
/// server can send a complete response prior to the client sending an entire request". brisk does, and then some cases,
/// which break the rules after the head of their request, see the answer instead of the error.
#[test]
fn every_case_passes() {
    let origin = Origin::fixed("hello from an upstream");
    let site = Site::proxying(&[&origin.url()]);
    let port = site.brisk.https().port().to_string();
    let mut failed = BTreeSet::new();
    // A pause of the machine may exceed the timeout of a case, but not that of the same case again.
    for run_number in 1..=RUNS {
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
        if output.contains("146 tests, 146 passed, 0 skipped, 0 failed") {
            return site.assert_alive();
        }
        let cases = output.split('×').skip(1).filter_map(|rest| rest.lines().next());
        let cases: BTreeSet<_> = cases.map(|case| case.trim().to_owned()).collect();
        let is_other = !cases.is_empty() && failed.is_disjoint(&cases);
        assert!(is_other && run_number < RUNS, "run {run_number}, before it {failed:#?}\n{output}");
        failed.extend(cases);
    }
}
