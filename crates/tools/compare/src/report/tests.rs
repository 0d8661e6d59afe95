//! The reports of an artificial comparison of three servers, one of which is missing.

use std::path::Path;
use std::time::Duration;

use brisk_report::terminal::WIDTH;
use serde_json::Value;

use super::*;
use crate::{Cell, Measure, Sample};

const PLAN: &str = r#"
title = "Peers & others"
about = "What this is about."
published = "1,241 and 8,574 requests per second"
[compare]
target = "nginx"
measures = ["rate", "server-cpu", "p99"]
[[target]]
name = "nginx"
[[target]]
name = "brisk"
[[target]]
name = "caddy"
[[mode]]
name = "TLS 1.3, full"
options = "--tls 1.3"
[[mode]]
name = "TLS 1.2, session ID"
options = "--mix session-id"
"#;

fn plan(from: &str, to: &str) -> Plan {
    Plan::parse(&PLAN.replace(from, to), Path::new("p.toml")).unwrap()
}

fn cell(target: usize, mode: usize, operations: u64) -> Cell {
    let samples = (0..6).map(|round| {
        Some(Sample::new(|measure| match measure {
            Measure::Rate => Some((operations + round * 400) as f64 / 40.0),
            Measure::ServerCpu => (mode == 0).then_some(334.0),
            Measure::ServerBusy => (mode == 0).then_some(0.775),
            Measure::P99 => Some(25_000.0),
            _ => None,
        }))
    });
    let there = target != 2;
    let samples = if there { samples.collect() } else { vec![None; 6] };
    Cell { target, mode, samples, errors: 0, failures: 0, failure: None, given_up: !there }
}

fn comparison() -> Comparison {
    let rates = [(0, 0, 160_000), (1, 0, 320_000), (2, 0, 1), (0, 1, 800_000), (1, 1, 0), (2, 1, 1)];
    let mut cells: Vec<_> = rates.into_iter().map(|(target, mode, rate)| cell(target, mode, rate)).collect();
    cells[4].samples = vec![None; 6];
    cells[4].given_up = true;
    cells[4].failure = Some("9 of 9 failed: not-resumed: it was full".to_owned());
    let started = std::time::SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
    Comparison { started, elapsed: Duration::from_secs(200), rounds: 6, ended: Ended::Time, cells }
}

fn report<'a>(plan: &'a Plan, comparison: &'a Comparison) -> Report<'a> {
    Report {
        plan,
        comparison,
        versions: vec!["nginx 1.22.1".to_owned(), "brisk 0.1.0".to_owned(), String::new()],
        missing: vec![None, None, Some("get it with: make caddy".to_owned())],
        machine: Machine::this(),
        program: "brisk 1.2.3",
    }
}

#[test]
fn the_text_fits_a_terminal_and_has_ratios_with_intervals() {
    let (plan, comparison) = (plan("", ""), comparison());
    let text = report(&plan, &comparison).text(WIDTH);
    let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(longest <= WIDTH, "{longest} characters:\n{text}");
    for part in [
        "6 rounds in 3 min 20 s; not every ratio of rate is known to ± 3.0 %: time is up.\n",
        "All: rate /s\n                        nginx   brisk\n",
        "  TLS 1.3, full         4,025   8,025\n",
        "  TLS 1.2, session ID  20,025  failed\n",
        "TLS 1.3, full\n",
        "  brisk    8,025  1.99 (1.99–2.00)",
        "  caddy was left out: get it with: make caddy.\n",
        "  brisk   failed",
        "  brisk: given up, it failed twice: 9 of 9 failed: not-resumed: it was full.\n",
        "In 2 cells the server was less than 90 % busy",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

#[test]
fn modes_can_be_compared_within_each_target() {
    let (plan, comparison) = (plan("target = \"nginx\"", "mode = \"TLS 1.3, full\""), comparison());
    let text = report(&plan, &comparison).text(WIDTH);
    assert!(text.contains("\nnginx\n"), "{text}");
    assert!(text.contains("  TLS 1.2, session ID   20,025  4.98 (4.95–5.00)"), "{text}");
}

#[test]
fn without_a_baseline_values_have_intervals() {
    let (plan, comparison) = (plan("target = \"nginx\"", ""), comparison());
    let text = report(&plan, &comparison).text(WIDTH);
    assert!(text.contains("4,025  4,000–4,050"), "{text}");
}

#[test]
fn markdown_has_the_words_of_the_plan_and_the_machine() {
    let (plan, comparison) = (plan("", ""), comparison());
    let text = report(&plan, &comparison).markdown();
    for part in [
        "# Peers & others\n\nWhat this is about.\n\nPublished: 1,241 and 8,574 requests per second\n\n- Machine: ",
        "- Measured: 2027-01-15T08:00:00Z, brisk 1.2.3\n",
        "### TLS 1.3, full\n\n|  | rate /s | ratio | server CPU µs | ratio | p99 µs | ratio | runs |\n",
        "| brisk | 8,025 | 1.99 (1.99–2.00) |",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
}

/// Programs read these names: removing one is a change to announce.
#[test]
fn the_fields_of_the_json_stay() {
    let (plan, comparison) = (plan("", ""), comparison());
    let value: Value = serde_json::from_str(&report(&plan, &comparison).json()).unwrap();
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(
        names(&value),
        "baseline cells elapsed_s ended machine modes precision program rounds schema started targets title"
    );
    let cell = &value["cells"][1];
    assert_eq!(names(cell), "errors failure given_up measures mode target");
    assert_eq!(names(&cell["measures"]["rate"]), "ratio rounds value");
    assert_eq!(names(&cell["measures"]["rate"]["ratio"]), "confidence count high low median");
    assert_eq!(names(&value["targets"][0]), "missing name version");
    assert_eq!(names(&value["modes"][0]), "name options");
    assert_eq!(value["ended"], "time");
    assert_eq!(value["baseline"]["target"], "nginx");
    assert_eq!(cell["measures"]["rate"]["rounds"].as_array().unwrap().len(), 6);
    assert!(value["cells"][4]["measures"].as_object().unwrap().is_empty());
}

#[test]
fn the_page_draws_the_ratios() {
    let (plan, comparison) = (plan("", ""), comparison());
    let page = report(&plan, &comparison).html();
    for part in [
        "<h1>Peers &amp; others</h1>",
        "rate /s, ratio",
        "8,025, × 1.99",
        "<li>caddy",
        "class=\"base\"",
        "nginx 1.22.1",
    ] {
        assert!(page.contains(part), "no {part:?}");
    }
    assert!(!page.contains("NaN"));
    let Some(folder) = std::env::var_os("BRISK_PAGES").map(std::path::PathBuf::from) else { return };
    std::fs::write(folder.join("compare.html"), page).unwrap();
    std::fs::write(folder.join("compare.txt"), report(&plan, &comparison).text(WIDTH)).unwrap();
}
