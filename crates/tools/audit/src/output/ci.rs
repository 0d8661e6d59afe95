//! Findings for continuous integration: SARIF 2.1.0 and `JUnit`.

use std::fmt::Write;

use brisk_report::{escape, json};
use serde_json::{Value, json};

use crate::Audit;
use crate::catalogue::{self, Kind, Severity};
use crate::judged::not_judged;

/// SARIF 2.1.0: each kind is a rule, each finding a result.
pub fn sarif(audit: &Audit, version: &str) -> String {
    let rule = |kind: &Kind| {
        json!({
            "id": kind.id,
            "shortDescription": { "text": kind.what },
            "help": { "text": format!("brisk: {}. nginx: {}", kind.brisk, kind.nginx) },
            "defaultConfiguration": { "level": level(kind.severity) },
        })
    };
    // A colon of an IPv6 address could be read as the end of a scheme, which code scanning does not accept.
    let place = format!("{}/{}", audit.host.trim_matches(['[', ']']).replace(':', "-"), audit.port());
    let result = |finding: &crate::Finding| {
        json!({
            "ruleId": finding.kind.id,
            "level": level(finding.kind.severity),
            "message": { "text": format!("{}: {}", finding.kind.what, finding.evidence) },
            // Code scanning refuses results without a place, and addresses with a scheme.
            "locations": [{
                "physicalLocation": {
                    "artifactLocation": { "uri": place },
                    "region": { "startLine": 1 },
                },
                "logicalLocations": [{ "fullyQualifiedName": audit.host, "kind": "resource" }],
            }],
            "partialFingerprints": { "finding/v1": format!("{place}/{}", finding.kind.id) },
        })
    };
    let document: Value = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "brisk probe --audit",
                "version": version,
                "rules": catalogue::ALL.iter().map(rule).collect::<Vec<_>>(),
            } },
            "results": audit.findings.iter().map(result).collect::<Vec<_>>(),
            "properties": { "grade": audit.grade.letter.to_string() },
        }],
    });
    json::document(&document)
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "note",
        Severity::Low | Severity::Medium => "warning",
        Severity::High | Severity::Critical => "error",
    }
}

/// `JUnit`: each kind is a test. It failed if it has a finding above `info`, and was skipped if it could not be judged.
pub fn junit(audit: &Audit) -> String {
    let failed = |kind: &Kind| {
        let own = audit.findings.iter().find(|finding| finding.kind.id == kind.id);
        // Information requires no change, so it must not fail a pipeline.
        own.filter(|finding| finding.kind.severity > Severity::Info)
    };
    let skipped = |kind: &Kind| {
        let is_found = audit.findings.iter().any(|finding| finding.kind.id == kind.id);
        if is_found { None } else { not_judged(audit, kind) }
    };
    let count = catalogue::ALL.iter().filter(|kind| failed(kind).is_some()).count();
    let left_out = catalogue::ALL.iter().filter(|kind| skipped(kind).is_some()).count();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"{}\" tests=\"{}\" failures=\"{count}\" \
         skipped=\"{left_out}\">\n",
        attribute(&audit.host),
        catalogue::ALL.len()
    );
    for kind in catalogue::ALL {
        // Writing to a string cannot fail.
        let _ = write!(text, "  <testcase classname=\"{}\" name=\"{}\"", attribute(&audit.host), kind.id);
        if let Some(reason) = skipped(kind) {
            let _ = writeln!(text, ">\n    <skipped message=\"{}\"/>\n  </testcase>", attribute(reason));
            continue;
        }
        let Some(finding) = failed(kind) else {
            text.push_str("/>\n");
            continue;
        };
        let _ = write!(
            text,
            ">\n    <failure type=\"{}\" message=\"{}\">{}</failure>\n  </testcase>\n",
            finding.kind.severity,
            attribute(kind.what),
            attribute(&finding.evidence)
        );
    }
    text + "</testsuite>\n"
}

/// Removes characters that XML 1.0 cannot represent: evidence contains text of servers.
fn attribute(text: &str) -> String {
    let legal = |letter: &char| !letter.is_control() && !matches!(letter, '\u{fffe}' | '\u{ffff}');
    escape(&text.chars().filter(legal).collect::<String>())
}
