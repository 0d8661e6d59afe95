//! CAA records in `brisk probe --audit`, answered by Knot.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use brisk_behaviour::program::brisk_program;
use brisk_testkit::ca::TestCa;
use brisk_testkit::knot::Knot;
use brisk_testkit::nginx::Nginx;
use brisk_testkit::process::{Finished, run};
use serde_json::Value;

/// As long as an audit may last beside builds.
const LIMIT: Duration = Duration::from_mins(3);

/// The top-level domain, at which the search of records ends.
const ZONE: &str = "test";

struct Audited {
    ca: TestCa,
    nginx: Nginx,
}

impl Audited {
    /// A server with a certificate of an authority with this organisation, for a name and a wildcard.
    fn of(organization: &str) -> Self {
        let ca = TestCa::of_organization(organization);
        let leaf = ca.server(&["www.caa.test", "*.wild.caa.test"]).issue();
        Self { nginx: Nginx::https(&leaf), ca }
    }

    fn audit(&self, host: &str, dns: SocketAddr, options: &[&str]) -> Finished {
        let mut brisk = Command::new(brisk_program());
        brisk.arg("probe").arg(format!("https://{host}:{}/1k", self.nginx.address().port()));
        brisk.args(["--audit", "--connect", "127.0.0.1", "--http-port", "0", "--timeout", "150"]);
        brisk.args(["--name-server", &dns.to_string(), "--ca"]).arg(self.ca.root_file()).args(options);
        run(&mut brisk, b"", LIMIT)
    }

    /// The findings about CAA records with their severity, and the records.
    fn found(&self, host: &str, dns: SocketAddr) -> (Vec<(String, String)>, Value) {
        let text = self.audit(host, dns, &["--json"]).success();
        let audit: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error} in {text}"));
        let findings = audit["findings"].as_array().expect("findings").iter();
        let own = findings.filter(|one| one["id"].as_str().is_some_and(|id| id.starts_with("caa-")));
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        (own.map(|one| (text(&one["id"]), text(&one["severity"]))).collect(), audit["caa"].clone())
    }
}

fn finding(id: &str, severity: &str) -> (String, String) {
    (id.to_owned(), severity.to_owned())
}

#[test]
fn records_of_the_closest_parent_are_compared_with_the_authority() {
    let server = Audited::of("Let's Encrypt");
    let knot = Knot::serving(ZONE, "caa CAA 0 issue \"letsencrypt.org\"");
    let (findings, caa) = server.found("www.caa.test", knot.address());
    assert_eq!(findings, []);
    assert_eq!(
        (&caa[0]["name"], &caa[0]["issuers"][0]["permitted"]),
        (&"caa.test".into(), &true.into()),
        "{caa}"
    );

    // Records of the name itself precede those of its parent.
    knot.set(ZONE, "caa CAA 0 issue \"letsencrypt.org\"\nwww.caa CAA 0 issue \"digicert.com; account=1\"");
    let (findings, caa) = server.found("www.caa.test", knot.address());
    assert_eq!(findings, [finding("caa-issuer", "medium")]);
    assert_eq!(caa[0]["name"], "www.caa.test", "{caa}");

    // Other authorities are not guessed.
    let other = Audited::of("An Authority of One's Own");
    let (findings, caa) = other.found("www.caa.test", knot.address());
    assert_eq!((findings, &caa[0]["issuers"][0]["permitted"]), (vec![], &Value::Null), "{caa}");
}

#[test]
fn wildcards_reports_and_unknown_tags_are_said() {
    let server = Audited::of("Let's Encrypt");
    let knot = Knot::serving(
        ZONE,
        "caa CAA 0 issue \"letsencrypt.org\"\ncaa CAA 0 issuewild \";\"\ncaa CAA 0 iodef \"mailto:admin@caa.test\"\n\
         caa CAA 128 tbs \"unknown\"",
    );
    let page = server.ca.unique_file("audit.html");
    let text =
        server.audit("www.caa.test", knot.address(), &["--html", &page.display().to_string()]).success();
    for said in [
        "CAA records for www.caa.test",
        "mailto:admin@caa.test",
        "issuewild",
        "the critical tag tbs",
        "may issue",
    ] {
        assert!(text.contains(said), "{said} is missing: {text}");
        assert!(fs::read_to_string(&page).expect("a page").contains(said), "{said} is missing in the page");
    }
    assert!(!text.contains("caa-"), "{text}");
    let (findings, caa) = server.found("a.wild.caa.test", knot.address());
    assert_eq!(findings, [finding("caa-issuer", "medium")], "{caa}");
    assert_eq!(caa[0]["subject"], "*.wild.caa.test");
}

#[test]
fn missing_records_are_information_and_failed_lookups_are_said() {
    let server = Audited::of("Let's Encrypt");
    let knot = Knot::serving(ZONE, "www.caa A 127.0.0.1");
    let (findings, caa) = server.found("www.caa.test", knot.address());
    assert_eq!((findings, &caa[0]["name"]), (vec![finding("caa-missing", "info")], &Value::Null), "{caa}");
    // Knot refuses names outside of its zone.
    let other = Knot::serving("example", "@ A 127.0.0.1");
    let text = server.audit("www.caa.test", other.address(), &[]).success();
    assert!(
        text.contains("Not judged: CAA records for www.caa.test: ") && text.contains("not known"),
        "{text}"
    );
    assert!(!text.contains("caa-"), "{text}");
}
