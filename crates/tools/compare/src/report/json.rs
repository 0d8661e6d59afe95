//! A comparison as JSON.

use std::collections::BTreeMap;

use brisk_report::Machine;
use brisk_report::json::document;
use serde::Serialize;

use super::Report;
use crate::{Cell, Measure, baseline, ratio};

/// Value of the field `schema`. Incremented when a field changes its meaning or is removed.
const SCHEMA: u32 = 1;

pub(super) fn text(report: &Report<'_>) -> String {
    document(&Json::new(report))
}

#[derive(Serialize)]
struct Json<'a> {
    schema: u32,
    program: &'a str,
    machine: &'a Machine,
    title: &'a str,
    started: String,
    elapsed_s: f64,
    rounds: usize,
    ended: &'static str,
    precision: f64,
    baseline: Baseline<'a>,
    targets: Vec<Target<'a>>,
    modes: Vec<Mode<'a>>,
    cells: Vec<JsonCell<'a>>,
}

#[derive(Serialize)]
struct Baseline<'a> {
    target: Option<&'a str>,
    mode: Option<&'a str>,
}

#[derive(Serialize)]
struct Target<'a> {
    name: &'a str,
    version: &'a str,
    missing: Option<&'a str>,
}

#[derive(Serialize)]
struct Mode<'a> {
    name: &'a str,
    options: &'a str,
}

#[derive(Serialize)]
struct JsonCell<'a> {
    target: &'a str,
    mode: &'a str,
    errors: u64,
    failure: Option<&'a str>,
    given_up: bool,
    measures: BTreeMap<&'static str, Figures>,
}

#[derive(Serialize)]
struct Figures {
    value: Estimate,
    ratio: Option<Estimate>,
    /// One value for each round; `null` if the cell was not measured in it.
    rounds: Vec<Option<f64>>,
}

#[derive(Serialize)]
struct Estimate {
    median: f64,
    low: f64,
    high: f64,
    confidence: f64,
    count: usize,
}

impl From<crate::Estimate> for Estimate {
    fn from(found: crate::Estimate) -> Self {
        let crate::Estimate { median, low, high, confidence, count } = found;
        Self { median, low, high, confidence, count }
    }
}

impl<'a> Json<'a> {
    fn new(report: &'a Report<'a>) -> Self {
        let (plan, comparison) = (report.plan, report.comparison);
        let targets = plan.targets.iter().zip(report.versions.iter().zip(&report.missing));
        let cells = 0..comparison.cells.len();
        Self {
            schema: SCHEMA,
            program: report.program,
            machine: &report.machine,
            title: &plan.title,
            started: report.started(),
            elapsed_s: comparison.elapsed.as_secs_f64(),
            rounds: comparison.rounds,
            ended: comparison.ended.name(),
            precision: plan.limits.precision,
            baseline: Baseline {
                target: plan.baseline.target.map(|index| plan.targets[index].name.as_str()),
                mode: plan.baseline.mode.map(|index| plan.modes[index].name.as_str()),
            },
            targets: targets
                .map(|(target, (version, missing))| Target {
                    name: &target.name,
                    version,
                    missing: missing.as_deref(),
                })
                .collect(),
            modes: plan.modes.iter().map(|mode| Mode { name: &mode.name, options: &mode.options }).collect(),
            cells: cells.map(|place| JsonCell::new(report, place)).collect(),
        }
    }
}

impl<'a> JsonCell<'a> {
    fn new(report: &'a Report<'a>, place: usize) -> Self {
        let cells = &report.comparison.cells;
        let cell = &cells[place];
        let base = baseline(report.plan.baseline, cells, place);
        let figures = |measure: &Measure| Some((measure.name(), Figures::new(cells, place, base, *measure)?));
        Self {
            target: &report.plan.targets[cell.target].name,
            mode: &report.plan.modes[cell.mode].name,
            errors: cell.errors,
            failure: cell.failure.as_deref(),
            given_up: cell.given_up,
            measures: Measure::ALL.iter().filter_map(figures).collect(),
        }
    }
}

impl Figures {
    fn new(cells: &[Cell], place: usize, base: Option<usize>, measure: Measure) -> Option<Self> {
        let value = cells[place].value(measure)?.into();
        let ratio = base.and_then(|base| ratio(cells, place, base, measure)).map(Estimate::from);
        let rounds = cells[place].samples.iter().map(|sample| sample.as_ref()?.get(measure)).collect();
        Some(Self { value, ratio, rounds })
    }
}
