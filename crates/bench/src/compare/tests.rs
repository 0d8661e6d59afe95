use std::path::Path;

use super::*;
use crate::report::tests::sample;
use crate::result::Cause;

/// Two servers and two modes; the second server is twice as fast in the first mode and fails in the second.
const PLAN: &str = r#"
title = "t"
[compare]
target = "one"
measures = ["rate"]
rounds = [6, 20]
time = "1000s"
[[target]]
name = "one"
[[target]]
name = "two"
[[mode]]
name = "a"
[[mode]]
name = "b"
"#;

fn plan(from: &str, to: &str) -> Plan {
    Plan::parse(&PLAN.replace(from, to), Path::new("p.toml")).unwrap()
}

/// Servers that do not exist, on a clock of their own: each run takes one second of it.
struct Made {
    noise: Vec<f64>,
    clock: Duration,
    runs: Vec<(usize, usize)>,
    stop_after: usize,
    /// Runs of the second server in the second mode that fail.
    failing: usize,
}

impl Made {
    fn new(noise: &[f64]) -> Self {
        let (clock, runs) = (Duration::ZERO, Vec::new());
        Self { noise: noise.to_vec(), clock, runs, stop_after: usize::MAX, failing: usize::MAX }
    }

    fn count(&self, cell: (usize, usize)) -> usize {
        self.runs.iter().filter(|run| **run == cell).count()
    }
}

impl Bench for Made {
    fn measure(&mut self, target: usize, mode: usize) -> Result<RunResult, String> {
        self.clock += Duration::from_secs(1);
        let noise = self.noise[self.runs.len() % self.noise.len()];
        self.runs.push((target, mode));
        let mut result = sample();
        result.errors.clear();
        result.operations = match (target, mode) {
            (1, 0) => (80_000.0 * noise) as u64,
            _ => (40_000.0 * noise) as u64,
        };
        if (target, mode) == (1, 1) && self.count((1, 1)) <= self.failing {
            result.operations = 0;
            result.errors = sample().errors;
        }
        Ok(result)
    }

    fn now(&self) -> Duration {
        self.clock
    }

    fn interrupted(&self) -> bool {
        self.runs.len() >= self.stop_after
    }

    fn progress(&mut self, progress: &Progress) {
        assert!(progress.settled <= progress.cells);
    }
}

fn median(comparison: &Comparison, place: usize) -> f64 {
    ratio(&comparison.cells, place, 0, Measure::Rate).unwrap().median
}

#[test]
fn a_quiet_machine_needs_no_more_than_the_least_rounds() {
    let mut bench = Made::new(&[1.0]);
    let comparison = run(&plan("", ""), &[true, true], &mut bench);
    assert_eq!((comparison.ended, comparison.rounds), (Ended::Settled, 6));
    assert!((median(&comparison, 1) - 2.0).abs() < 1e-9);
}

#[test]
fn a_noisy_machine_is_given_more_rounds_for_what_is_not_known_yet() {
    let mut bench = Made::new(&[1.0, 1.02, 0.7, 1.0, 1.01, 0.99, 1.0, 1.5, 1.0, 0.99, 1.01]);
    let comparison = run(&plan("", ""), &[true, true], &mut bench);
    assert_eq!(comparison.ended, Ended::Settled);
    assert!(comparison.rounds > 6, "{}", comparison.rounds);
    assert!((median(&comparison, 1) - 2.0).abs() < 0.06);
    // The mode in which there is nothing to compare is measured in the least rounds only.
    assert_eq!(bench.count((0, 1)), 6);
}

#[test]
fn rounds_and_time_are_limits() {
    let mut bench = Made::new(&[1.0, 2.0, 0.5, 0.7, 1.9]);
    let comparison = run(&plan("", ""), &[true, true], &mut bench);
    assert_eq!((comparison.ended, comparison.rounds), (Ended::Rounds, 20));
    let comparison = run(&plan("1000s", "10s"), &[true, true], &mut bench);
    assert_eq!(comparison.ended, Ended::Time);
    assert!(comparison.elapsed <= Duration::from_secs(11));
}

#[test]
fn an_interrupted_comparison_keeps_what_it_has() {
    let mut bench = Made::new(&[1.0]);
    bench.stop_after = 9;
    let comparison = run(&plan("", ""), &[true, true], &mut bench);
    assert_eq!(comparison.ended, Ended::Interrupted);
    assert!((median(&comparison, 1) - 2.0).abs() < 1e-9);
}

#[test]
fn a_cell_that_does_not_work_is_given_up_and_says_why() {
    let mut bench = Made::new(&[1.0]);
    let comparison = run(&plan("", ""), &[true, true], &mut bench);
    let cell = &comparison.cells[3];
    assert!(cell.given_up && cell.samples.iter().all(Option::is_none));
    let failure = cell.failure.as_deref().unwrap();
    assert!(failure.starts_with("12 of 12 failed: not-resumed: ticket was asked for"), "{failure}");
    assert_eq!(bench.count((1, 1)), 2, "once, and once more");
}

#[test]
fn a_cell_that_fails_only_at_first_is_measured() {
    let mut bench = Made::new(&[1.0]);
    bench.failing = 1;
    let comparison = run(&plan("", ""), &[true, true], &mut bench);
    let cell = &comparison.cells[3];
    assert!(!cell.given_up && cell.samples.len() == 6 && cell.samples.iter().all(Option::is_some));
    assert_eq!((comparison.ended, bench.count((1, 1))), (Ended::Settled, 7));
}

#[test]
fn a_missing_server_is_never_measured() {
    let mut bench = Made::new(&[1.0]);
    let comparison = run(&plan("", ""), &[true, false], &mut bench);
    assert_eq!(comparison.ended, Ended::Settled);
    assert!(bench.runs.iter().all(|(target, _)| *target == 0));
    let comparison = run(&plan("", ""), &[false, false], &mut bench);
    assert_eq!((comparison.ended, comparison.rounds), (Ended::Nothing, 0));
}

#[test]
fn without_the_baseline_values_stand_for_themselves() {
    let mut bench = Made::new(&[1.0]);
    let comparison = run(&plan("", ""), &[false, true], &mut bench);
    assert_eq!(comparison.ended, Ended::Settled);
    assert_eq!(ratio(&comparison.cells, 1, 0, Measure::Rate), None);
    assert_eq!(comparison.cells[1].value(Measure::Rate).unwrap().count, 6);
}

#[test]
fn cells_that_are_compared_stand_side_by_side_in_every_round_and_in_changing_order() {
    let mut bench = Made::new(&[1.0]);
    let plan = plan("measures = [\"rate\"]", "measures = [\"rate\"]\nmode = \"a\"").clone();
    let comparison = run(&plan, &[true, true], &mut bench);
    assert_eq!(comparison.cells.len(), 4);
    let first: Vec<_> = (0..6).map(|round| order(&plan, &comparison.cells, round)[0]).collect();
    assert!((0..4).all(|place| first.contains(&place)), "{first:?}");
    for round in 0..8 {
        let mut order = order(&plan, &comparison.cells, round);
        order.sort_unstable();
        assert_eq!(order, [0, 1, 2, 3]);
    }
}

#[test]
fn a_few_failures_are_told_and_many_spoil_a_run() {
    let mut result = sample();
    result.operations = 10_000;
    assert_eq!(usable(&result).unwrap().1, 12);
    result.operations = 1000;
    assert!(usable(&result).is_err());
    assert_eq!(result.errors[0].cause, Cause::NotResumed);
    result.errors.clear();
    result.operations = 0;
    assert_eq!(usable(&result).unwrap_err(), "nothing came of it in the time given");
}
