use std::path::Path;

use super::*;

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

/// Servers that do not exist, on a simulated clock: each run takes one second.
struct Simulated {
    noise: Vec<f64>,
    clock: Duration,
    runs: Vec<(usize, usize)>,
    stop_after: usize,
    /// Number of runs of the second server in the second mode that fail.
    failing: usize,
}

impl Simulated {
    fn new(noise: &[f64]) -> Self {
        let (clock, runs) = (Duration::ZERO, Vec::new());
        Self { noise: noise.to_vec(), clock, runs, stop_after: usize::MAX, failing: usize::MAX }
    }

    fn count(&self, cell: (usize, usize)) -> usize {
        self.runs.iter().filter(|run| **run == cell).count()
    }
}

impl Runner for Simulated {
    fn measure(&mut self, target: usize, mode: usize) -> Result<Run, String> {
        self.clock += Duration::from_secs(1);
        let noise = self.noise[self.runs.len() % self.noise.len()];
        self.runs.push((target, mode));
        let rate = if (target, mode) == (1, 0) { 80_000.0 * noise } else { 40_000.0 * noise };
        let fails = (target, mode) == (1, 1) && self.count((1, 1)) <= self.failing;
        Ok(if fails { finished(0, 12) } else { finished(rate as u64, 0) })
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

/// A run of one second.
fn finished(operations: u64, errors: u64) -> Run {
    let sample = Sample::new(|measure| (measure == Measure::Rate).then_some(operations as f64));
    let error = (errors > 0).then(|| "not-resumed: ticket was asked for".to_owned());
    Run { sample, operations, errors, error }
}

fn median(comparison: &Comparison, place: usize) -> f64 {
    ratio(&comparison.cells, place, 0, Measure::Rate).unwrap().median
}

#[test]
fn a_quiet_machine_needs_no_more_than_the_least_rounds() {
    let mut runner = Simulated::new(&[1.0]);
    let comparison = compare(&plan("", ""), &[true, true], &mut runner);
    assert_eq!((comparison.ended, comparison.rounds), (Ended::Settled, 6));
    assert!((median(&comparison, 1) - 2.0).abs() < 1e-9);
}

#[test]
fn a_noisy_machine_is_given_more_rounds_for_what_is_not_known_yet() {
    let mut runner = Simulated::new(&[1.0, 1.02, 0.7, 1.0, 1.01, 0.99, 1.0, 1.5, 1.0, 0.99, 1.01]);
    let comparison = compare(&plan("", ""), &[true, true], &mut runner);
    assert_eq!(comparison.ended, Ended::Settled);
    assert!(comparison.rounds > 6, "{}", comparison.rounds);
    assert!((median(&comparison, 1) - 2.0).abs() < 0.06);
    // The mode without a comparison is measured in the minimum number of rounds only.
    assert_eq!(runner.count((0, 1)), 6);
}

#[test]
fn rounds_and_time_are_limits() {
    let mut runner = Simulated::new(&[1.0, 2.0, 0.5, 0.7, 1.9]);
    let comparison = compare(&plan("", ""), &[true, true], &mut runner);
    assert_eq!((comparison.ended, comparison.rounds), (Ended::Rounds, 20));
    let comparison = compare(&plan("1000s", "10s"), &[true, true], &mut runner);
    assert_eq!(comparison.ended, Ended::Time);
    assert!(comparison.elapsed <= Duration::from_secs(11));
}

#[test]
fn an_interrupted_comparison_keeps_what_it_has() {
    let mut runner = Simulated::new(&[1.0]);
    runner.stop_after = 9;
    let comparison = compare(&plan("", ""), &[true, true], &mut runner);
    assert_eq!(comparison.ended, Ended::Interrupted);
    assert!((median(&comparison, 1) - 2.0).abs() < 1e-9);
}

#[test]
fn a_cell_that_does_not_work_is_given_up_and_says_why() {
    let mut runner = Simulated::new(&[1.0]);
    let comparison = compare(&plan("", ""), &[true, true], &mut runner);
    let cell = &comparison.cells[3];
    assert!(cell.given_up && cell.samples.iter().all(Option::is_none));
    let failure = cell.failure.as_deref().unwrap();
    assert!(failure.starts_with("12 of 12 failed: not-resumed: ticket was asked for"), "{failure}");
    assert_eq!(runner.count((1, 1)), 2, "once, and once more");
}

#[test]
fn a_cell_that_fails_only_at_first_is_measured() {
    let mut runner = Simulated::new(&[1.0]);
    runner.failing = 1;
    let comparison = compare(&plan("", ""), &[true, true], &mut runner);
    let cell = &comparison.cells[3];
    assert!(!cell.given_up && cell.samples.len() == 6 && cell.samples.iter().all(Option::is_some));
    assert_eq!((comparison.ended, runner.count((1, 1))), (Ended::Settled, 7));
}

#[test]
fn a_missing_server_is_never_measured() {
    let mut runner = Simulated::new(&[1.0]);
    let comparison = compare(&plan("", ""), &[true, false], &mut runner);
    assert_eq!(comparison.ended, Ended::Settled);
    assert!(runner.runs.iter().all(|(target, _)| *target == 0));
    let comparison = compare(&plan("", ""), &[false, false], &mut runner);
    assert_eq!((comparison.ended, comparison.rounds), (Ended::Nothing, 0));
}

#[test]
fn without_the_baseline_values_stand_for_themselves() {
    let mut runner = Simulated::new(&[1.0]);
    let comparison = compare(&plan("", ""), &[false, true], &mut runner);
    assert_eq!(comparison.ended, Ended::Settled);
    assert_eq!(ratio(&comparison.cells, 1, 0, Measure::Rate), None);
    assert_eq!(comparison.cells[1].value(Measure::Rate).unwrap().count, 6);
}

#[test]
fn cells_that_are_compared_stand_side_by_side_in_every_round_and_in_changing_order() {
    let mut runner = Simulated::new(&[1.0]);
    let plan = plan("measures = [\"rate\"]", "measures = [\"rate\"]\nmode = \"a\"").clone();
    let comparison = compare(&plan, &[true, true], &mut runner);
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
fn a_run_with_few_errors_counts_and_one_with_many_does_not() {
    assert_eq!(usable(finished(10_000, 12)).unwrap().errors, 12);
    let failure = usable(finished(1000, 12)).unwrap_err();
    assert_eq!(failure, "12 of 1012 failed: not-resumed: ticket was asked for");
    assert_eq!(usable(finished(0, 0)).unwrap_err(), "no operation was completed in the time given");
}
