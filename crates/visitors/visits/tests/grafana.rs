//! The dashboard and the rules for alerts in `docs/grafana` ask for metrics that there are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs")
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

/// The series of the metrics of `docs/metrics.md`, with their labels.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let text = read(&docs().join("metrics.md"));
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `brisk_"));
    let series = rows.flat_map(|row| {
        let (name, rest) = row.split_once('`').expect("a name ends");
        let name = format!("brisk_{name}");
        let cells: Vec<_> = rest.split('|').map(str::trim).collect();
        // What scrapes adds `instance`.
        let labels = cells[2].split('`').skip(1).step_by(2).chain(["instance"]);
        let labels: BTreeSet<_> = labels.map(str::to_owned).collect();
        let names = match cells[1] {
            "histogram" => ["bucket", "count", "sum"].map(|series| format!("{name}_{series}")).to_vec(),
            _ => vec![name],
        };
        names.into_iter().map(move |name| {
            let bound = name.ends_with("_bucket").then(|| "le".to_owned());
            (name, labels.iter().cloned().chain(bound).collect())
        })
    });
    series.collect()
}

/// The labels that a text selects series by, each with the name of the metric.
fn selected(text: &str) -> Vec<(&str, String)> {
    let is_part = |sign: char| sign.is_ascii_alphanumeric() || sign == '_';
    let found = text.split('{').zip(text.split('{').skip(1)).flat_map(|(before, after)| {
        let name = before.rsplit(|sign| !is_part(sign)).next().unwrap_or_default();
        let selectors = after.split('}').next().unwrap_or_default().replace('\\', "");
        // Within the quotes are values.
        let labels: Vec<_> = selectors.split('"').step_by(2).map(str::to_owned).collect();
        let label = move |text: String| {
            let label: String =
                text.trim_start_matches(',').chars().take_while(|sign| is_part(*sign)).collect();
            (name, label)
        };
        labels.into_iter().map(label)
    });
    found.filter(|(name, label)| name.starts_with("brisk_") && !label.is_empty()).collect()
}

#[test]
fn dashboards_and_alerts_ask_for_metrics_that_there_are() {
    let documented = documented();
    assert!(documented.len() > 100, "only {} metrics found", documented.len());
    let files = fs::read_dir(docs().join("grafana"))
        .expect("the folder")
        .map(|entry| entry.expect("an entry").path());
    let (mut checked, mut labels) = (0, 0);
    for file in files {
        let text = read(&file);
        let unknown: Vec<_> =
            names(&text).into_iter().filter(|name| !documented.contains_key(*name)).collect();
        assert!(
            unknown.is_empty(),
            "{} asks for {unknown:?}, which docs/metrics.md does not have",
            file.display()
        );
        checked += names(&text).len();
        for (name, label) in selected(&text) {
            assert!(documented[name].contains(&label), "{}: {name} has no label {label}", file.display());
            labels += 1;
        }
    }
    assert!(checked >= 12 && labels >= 20, "only {checked} names and {labels} labels found");
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

#[test]
fn decisions_on_experiments_are_shown_and_reported() {
    for file in ["grafana/visits.json", "grafana/alerts.yml"] {
        let text = read(&docs().join(file));
        assert!(names(&text).contains("brisk_experiment_decision"), "{file}");
    }
    let of_arms = read(&docs().join("grafana/visits.json"));
    assert!(names(&of_arms).contains("brisk_experiment_seconds_count"));
}
