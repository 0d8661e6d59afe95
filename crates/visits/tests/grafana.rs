//! The dashboard and the rules for alerts in `docs/grafana` ask for metrics that there are.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let is_part = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
    let words = text.split(|sign| !is_part(sign));
    words.filter(|word| word.starts_with("brisk_")).collect()
}

/// The metrics of `docs/metrics.md` with the names of their series.
fn documented() -> BTreeSet<String> {
    let text = read(&docs().join("metrics.md"));
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `brisk_"));
    let series = rows.flat_map(|row| {
        let (name, rest) = row.split_once('`').expect("a name ends");
        let name = format!("brisk_{name}");
        match rest.split('|').nth(1).map(str::trim) {
            Some("histogram") => ["bucket", "count", "sum"].map(|series| format!("{name}_{series}")).to_vec(),
            _ => vec![name],
        }
    });
    series.collect()
}

#[test]
fn dashboards_and_alerts_ask_for_metrics_that_there_are() {
    let documented = documented();
    assert!(documented.len() > 100, "only {} metrics found", documented.len());
    let files = fs::read_dir(docs().join("grafana"))
        .expect("the folder")
        .map(|entry| entry.expect("an entry").path());
    let mut checked = 0;
    for file in files {
        let text = read(&file);
        let unknown: Vec<_> = names(&text).into_iter().filter(|name| !documented.contains(*name)).collect();
        assert!(
            unknown.is_empty(),
            "{} asks for {unknown:?}, which docs/metrics.md does not have",
            file.display()
        );
        checked += names(&text).len();
    }
    assert!(checked >= 12, "only {checked} names found");
}

#[test]
fn the_dashboard_is_one() {
    let text = read(&docs().join("grafana/visits.json"));
    let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    assert!(panels.len() >= 8);
    for panel in panels {
        let targets = panel["targets"].as_array().expect("targets");
        let asks =
            |target: &serde_json::Value| target["expr"].as_str().is_some_and(|text| text.contains("brisk_"));
        assert!(!targets.is_empty() && targets.iter().all(asks), "{}", panel["title"]);
    }
}
