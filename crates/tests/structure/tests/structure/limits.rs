//! Tables in `docs/security.md`. Limits: every cell has a value and names a test that exists, or states why no limit is
//! necessary. Findings of the review: every row names tests that exist. Requirements in `docs/http-conformance.md` and
//! `docs/http3-conformance.md`: the same.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::tree::{crates, read, root, sources};

/// Heading of the section with the table.
const HEADING: &str = "## Limits by protocol";

/// Heading of the section with the findings of the review, and their number.
const REVIEW: &str = "## Findings of the second review";
const FINDINGS: usize = 21;

/// Heading of the section with the loops over the bytes of peers.
const LOOPS: &str = "## Work for one peer in a turn";

/// Columns with limits, after the name of the limit.
const COLUMNS: usize = 5;

/// The files with a test of each name.
pub(crate) fn tests() -> BTreeMap<String, Vec<PathBuf>> {
    let folders = crates().into_iter().flat_map(|path| [path.join("src"), path.join("tests")]);
    let mut tests: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for file in folders.flat_map(|folder| sources(&folder)) {
        for name in tests_in(&read(&file)) {
            tests.entry(name).or_default().push(file.clone());
        }
    }
    tests
}

/// The names of the functions with `#[test]` or an attribute like `#[tokio::test]`.
fn tests_in(text: &str) -> Vec<String> {
    let mut is_test = false;
    let mut names = Vec::new();
    for line in text.lines().map(str::trim_start) {
        if line.starts_with("#[") {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        } else if let Some((_, name)) = line.split_once("fn ").filter(|_| is_test) {
            names.extend(name.split('(').next().map(str::to_owned));
            is_test = false;
        }
    }
    names
}

/// Whether a cell names a test, given as `module::name`, in a file of that module, and no other code with `::`.
pub(crate) fn is_tested(cell: &str, tests: &BTreeMap<String, Vec<PathBuf>>) -> bool {
    let spans: Vec<_> = cell.split('`').skip(1).step_by(2).filter(|span| span.contains("::")).collect();
    let exists = |span: &&str| {
        let (modules, name) = span.rsplit_once("::")?;
        let files = tests.get(name)?;
        let parts = |file: &PathBuf| file.with_extension("").display().to_string() + "/";
        let is_there = |file| modules.split("::").all(|module| parts(file).contains(&format!("/{module}/")));
        files.iter().any(is_there).then_some(())
    };
    !spans.is_empty() && spans.iter().all(|span| exists(span).is_some())
}

/// The cells of the first table below `heading`, and there below `subheading`, without the head of the table.
pub(crate) fn rows<'t>(text: &'t str, heading: &str, subheading: &str) -> Vec<Vec<&'t str>> {
    let section = text.split(heading).nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    let section = &section[section.find(subheading).unwrap_or(section.len())..];
    let rows = section.lines().filter(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// Errors in the table of a document.
fn findings(text: &str, tests: &BTreeMap<String, Vec<PathBuf>>) -> Vec<String> {
    let rows = rows(text, HEADING, "");
    let mut findings = Vec::new();
    if rows.is_empty() {
        findings.push(format!("no table below {HEADING:?}"));
    }
    for row in rows {
        let [limit, cells @ ..] = &row[..] else { continue };
        if cells.len() != COLUMNS {
            findings.push(format!("{limit}: {} columns", cells.len()));
        }
        let wrong = cells.iter().filter(|cell| !is_tested(cell, tests) && !cell.starts_with("none: "));
        findings.extend(wrong.map(|cell| format!("{limit}: no test that exists: {cell:?}")));
    }
    findings
}

#[test]
fn every_limit_has_a_test_for_every_protocol() {
    let all = findings(&read(&root().join("docs/security.md")), &tests());
    assert!(all.is_empty(), "{all:#?}");
}

#[test]
fn every_loop_over_the_bytes_of_a_peer_has_a_bound_with_a_test() {
    let (text, tests) = (read(&root().join("docs/security.md")), tests());
    let rows = rows(&text, LOOPS, "");
    assert!(rows.len() >= 20, "{} rows", rows.len());
    for row in rows {
        let [_, bound, cell] = &row[..] else { panic!("three columns: {row:?}") };
        assert!(!bound.is_empty() && (is_tested(cell, &tests) || cell.starts_with("none: ")), "{row:?}");
    }
}

#[test]
fn every_finding_of_the_review_has_a_test() {
    let (text, tests) = (read(&root().join("docs/security.md")), tests());
    let rows = rows(&text, REVIEW, "");
    assert_eq!(rows.len(), FINDINGS);
    for row in rows {
        let [finding, defence, cell] = &row[..] else { panic!("three columns: {row:?}") };
        assert!(!finding.is_empty() && !defence.is_empty(), "{row:?}");
        assert!(is_tested(cell, &tests), "{finding}: no test that exists: {cell:?}");
    }
}

#[test]
fn every_requirement_of_http_and_defect_of_other_servers_has_a_test_or_a_reason() {
    let tests = tests();
    let http = ["## Conditions of requests for files", "## Ranges of files", "## Intermediary"];
    let http3 = ["## RFC 9114", "## RFC 9204", "## Interoperability", "## Defects of other servers"];
    for (document, headings, least) in
        [("docs/http-conformance.md", &http[..], 7), ("docs/http3-conformance.md", &http3, 10)]
    {
        let text = read(&root().join(document));
        for heading in headings {
            let rows = rows(&text, heading, "");
            assert!(rows.len() >= least, "{heading}: {} rows", rows.len());
            for row in rows {
                let cell = row.last().expect("a column");
                assert!(
                    is_tested(cell, &tests) || cell.starts_with("none: "),
                    "no test that exists: {row:?}"
                );
            }
        }
    }
}

#[test]
fn cells_without_a_test_are_found() {
    let tests = BTreeMap::from([("it_holds".to_owned(), vec![PathBuf::from("/crates/a/src/b.rs")])]);
    let found = |cells: &str| {
        findings(&format!("# A\n\n{HEADING}\n\n|a|b|\n|-|-|\n| size | {cells} |\n\n## B\n|x|"), &tests).len()
    };
    assert_eq!(found("1: `b::it_holds` | none: no | 2: `a::src::b::it_holds` | none: nothing | none: no"), 0);
    assert_eq!(found("1: `c::it_holds` | 2: `b::it_fails` | none | 3 `b` | none: no"), 4);
    assert_eq!(found("1: `b::it_holds`"), 1);
    assert_eq!(findings("# A", &tests).len(), 1);
    assert_eq!(
        tests_in("#[test]\nfn a() {}\nfn b() {}\n#[tokio::test(x)]\n#[x]\nasync fn c() {}"),
        ["a", "c"]
    );
}
