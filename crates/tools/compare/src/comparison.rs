//! Measures servers and modes in rounds until their ratios have the wanted precision.
//!
//! The load of a machine changes over time. If one cell ran for a minute and then another, the comparison would be
//! between two different minutes. So a round measures every cell briefly, and ratios are calculated within a round.

use std::time::{Duration, SystemTime};

use crate::{Baseline, Estimate, Measure, Plan, Sample, estimate};

/// The share of failed operations above which a run is discarded.
const TOLERATED_ERRORS: f64 = 0.01;

/// Number of failed runs above which [`Cell::given_up`] is set: for a cell that has worked, and for one that never has.
const TOLERATED_FAILURES: usize = 2;
const TOLERATED_FIRST_FAILURES: usize = 1;

/// The result of [`compare`].
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Start time.
    pub started: SystemTime,
    /// Duration.
    pub elapsed: Duration,
    /// Completed rounds.
    pub rounds: usize,
    /// Why it ended.
    pub ended: Ended,
    /// The cells in the order of [`Plan::cells`].
    pub cells: Vec<Cell>,
}

impl Comparison {
    /// Whether at least one run succeeded.
    pub fn has_figures(&self) -> bool {
        self.cells.iter().any(Cell::has_figures)
    }
}

/// Why [`compare`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Every ratio has [`Limits::precision`](crate::Limits::precision).
    Settled,
    /// The maximum of [`Limits::rounds`](crate::Limits::rounds) was reached.
    Rounds,
    /// [`Limits::time`](crate::Limits::time) was reached.
    Time,
    /// [`Runner::interrupted`] returned `true`.
    Interrupted,
    /// Every cell was [given up](Cell::given_up).
    Nothing,
}

impl Ended {
    /// Name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Rounds => "rounds",
            Self::Time => "time",
            Self::Interrupted => "interrupted",
            Self::Nothing => "nothing",
        }
    }
}

/// One target in one mode.
#[derive(Debug, Clone)]
pub struct Cell {
    /// Index in [`Plan::targets`].
    pub target: usize,
    /// Index in [`Plan::modes`].
    pub mode: usize,
    /// One [`Sample`] for each round; `None` if the cell was not measured in it or failed.
    pub samples: Vec<Option<Sample>>,
    /// Failed operations in `samples`, at most 1 % of each run.
    pub errors: u64,
    /// Failed runs.
    pub failures: usize,
    /// Why the last failed run failed.
    pub failure: Option<String>,
    /// Whether the cell is no longer measured, because it does not work or its server is missing.
    pub given_up: bool,
}

/// One run of a cell.
#[derive(Debug, Clone)]
pub struct Run {
    /// The measures.
    pub sample: Sample,
    /// Operations that succeeded.
    pub operations: u64,
    /// Operations that failed.
    pub errors: u64,
    /// The cause of the most frequent error with an example.
    pub error: Option<String>,
}

/// Measures cells for a comparison.
pub trait Runner {
    /// Measures `target` in `mode` once. An `Err` is a message in one line.
    fn measure(&mut self, target: usize, mode: usize) -> Result<Run, String>;
    /// Monotonic time since any fixed instant.
    fn now(&self) -> Duration;
    /// Whether the comparison has to end now.
    fn interrupted(&self) -> bool;
    /// Called before each [`measure`](Self::measure).
    fn progress(&mut self, progress: &Progress);
}

/// The progress of [`compare`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// Number of the current round, from 1.
    pub round: usize,
    /// Index of the target that is measured next.
    pub target: usize,
    /// Index of the mode in which `target` is measured.
    pub mode: usize,
    /// Number of cells with [`Limits::precision`](crate::Limits::precision).
    pub settled: usize,
    /// All working cells.
    pub cells: usize,
}

/// Measures the cells of `plan` in rounds until a limit of the plan is reached. `is_present` has one entry for each
/// target; missing targets are not measured.
pub fn compare(plan: &Plan, is_present: &[bool], runner: &mut impl Runner) -> Comparison {
    let (started, begin) = (SystemTime::now(), runner.now());
    let mut cells: Vec<_> =
        plan.cells().map(|(target, mode)| Cell::new(target, mode, !is_present[target])).collect();
    let mut rounds = 0;
    let ended = loop {
        if cells.iter().all(|cell| cell.given_up) {
            break Ended::Nothing;
        }
        // Before the maximum of rounds: a comparison that settles in the last round has settled.
        if rounds >= plan.limits.rounds.0 && unsettled(plan, &cells).is_empty() {
            break Ended::Settled;
        }
        if rounds >= plan.limits.rounds.1 {
            break Ended::Rounds;
        }
        if let Some(ended) = round(plan, &mut cells, rounds, begin, runner) {
            break ended;
        }
        rounds += 1;
    };
    Comparison { started, elapsed: runner.now().saturating_sub(begin), rounds, ended, cells }
}

/// Measures each cell that needs it once. A cell whose first run fails is measured again at the end of the round,
/// because the failure may have been transient.
fn round(
    plan: &Plan,
    cells: &mut [Cell],
    index: usize,
    begin: Duration,
    runner: &mut impl Runner,
) -> Option<Ended> {
    let needed = needed(plan, cells, index);
    let order = order(plan, cells, index);
    for place in &order {
        let is_measured = needed[*place] && !cells[*place].given_up;
        // `None` in each round without a run: `ratio` pairs the samples of two cells by their index.
        let sample = if is_measured { attempt(plan, cells, *place, index, begin, runner) } else { Ok(None) };
        match sample {
            Ok(sample) => cells[*place].samples.push(sample),
            Err(ended) => return Some(ended),
        }
    }
    for place in order {
        if !cells[place].is_to_be_repeated() {
            continue;
        }
        match attempt(plan, cells, place, index, begin, runner) {
            // In place of the failed run: a further element would shift all later rounds of this cell.
            Ok(sample) => *cells[place].samples.last_mut().expect("this round's") = sample,
            Err(ended) => return Some(ended),
        }
    }
    None
}

/// Measures one cell; `None` if the run failed. An `Err` ends the comparison.
fn attempt(
    plan: &Plan,
    cells: &mut [Cell],
    place: usize,
    round: usize,
    begin: Duration,
    runner: &mut impl Runner,
) -> Result<Option<Sample>, Ended> {
    if runner.interrupted() {
        return Err(Ended::Interrupted);
    }
    if runner.now().saturating_sub(begin) >= plan.limits.time {
        return Err(Ended::Time);
    }
    // In the first round, only baselines, which have no ratio, would count as settled.
    let working = cells.iter().filter(|cell| !cell.given_up).count();
    let settled = if round == 0 { 0 } else { working.saturating_sub(unsettled(plan, cells).len()) };
    let Cell { target, mode, .. } = cells[place];
    runner.progress(&Progress { round: round + 1, target, mode, settled, cells: working });
    let result = runner.measure(target, mode);
    // A signal also ends the run that is in progress, so its result is no sample.
    if runner.interrupted() {
        return Err(Ended::Interrupted);
    }
    Ok(cells[place].take(result))
}

/// The cells to measure in a round: all in the first rounds, then those without the wanted precision and their
/// baselines.
fn needed(plan: &Plan, cells: &[Cell], round: usize) -> Vec<bool> {
    if round < plan.limits.rounds.0 {
        return vec![true; cells.len()];
    }
    let mut needed = vec![false; cells.len()];
    for place in unsettled(plan, cells) {
        needed[place] = true;
        if let Some(base) = baseline(plan.baseline, cells, place) {
            needed[base] = true;
        }
    }
    needed
}

/// The order of a round. Cells that are compared with each other are adjacent. The order changes from round to round,
/// so that no cell always follows the same one.
fn order(plan: &Plan, cells: &[Cell], round: usize) -> Vec<usize> {
    let group =
        |place: usize| if plan.baseline.target.is_some() { cells[place].mode } else { cells[place].target };
    let mut places: Vec<_> = (0..cells.len()).collect();
    places.sort_by_key(|place| group(*place));
    let mut groups: Vec<_> =
        places.chunk_by(|one, other| group(*one) == group(*other)).map(<[_]>::to_vec).collect();
    for group in &mut groups {
        let length = group.len();
        // The rotation changes the place of each cell in the round, and the reversal exchanges its
        // predecessor and successor.
        group.rotate_left(round / 2 % length);
        if round % 2 == 1 {
            group.reverse();
        }
    }
    let length = groups.len();
    groups.rotate_left(round % length);
    groups.concat()
}

/// Cells whose first measure does not have [`Limits::precision`](crate::Limits::precision).
fn unsettled(plan: &Plan, cells: &[Cell]) -> Vec<usize> {
    let measure = plan.measures[0];
    let open = |place: &usize| {
        if cells[*place].given_up {
            return false;
        }
        let known = match baseline(plan.baseline, cells, *place) {
            // The baseline has no ratio; `needed` adds it while another cell needs it.
            Some(base) if base == *place => return false,
            // Without a baseline that works, the value of the cell has to be precise.
            Some(base) if !cells[base].given_up => ratio(cells, *place, base, measure),
            _ => cells[*place].value(measure),
        };
        !known.is_some_and(|known| known.is_confident() && known.precision() <= plan.limits.precision)
    };
    (0..cells.len()).filter(open).collect()
}

/// The index of the cell that the cell at `place` is compared with, which is `place` for the baseline itself.
pub fn baseline(baseline: Baseline, cells: &[Cell], place: usize) -> Option<usize> {
    if baseline == Baseline::default() {
        return None;
    }
    let target = baseline.target.unwrap_or(cells[place].target);
    let mode = baseline.mode.unwrap_or(cells[place].mode);
    cells.iter().position(|cell| cell.target == target && cell.mode == mode)
}

/// The ratio of the cell at `place` to that at `base`, over the rounds in which both were measured.
pub fn ratio(cells: &[Cell], place: usize, base: usize, measure: Measure) -> Option<Estimate> {
    let rounds = cells[place].samples.iter().zip(&cells[base].samples);
    let ratios = rounds.filter_map(|(own, base)| {
        let (own, base) = (own.as_ref()?.get(measure)?, base.as_ref()?.get(measure)?);
        // A share of the processor or a count of bytes can be zero: then there is no ratio.
        (base > 0.0).then(|| own / base)
    });
    estimate(ratios)
}

impl Cell {
    fn new(target: usize, mode: usize, given_up: bool) -> Self {
        Self { target, mode, samples: Vec::new(), errors: 0, failures: 0, failure: None, given_up }
    }

    /// The median of `measure` over all rounds.
    pub fn value(&self, measure: Measure) -> Option<Estimate> {
        estimate(self.samples.iter().flatten().filter_map(|sample| sample.get(measure)))
    }

    /// Whether at least one of its runs succeeded.
    pub fn has_figures(&self) -> bool {
        self.samples.iter().any(Option::is_some)
    }

    /// Whether the cell's first run failed, so that it is repeated at the end of the round.
    fn is_to_be_repeated(&self) -> bool {
        !self.has_figures() && self.failures == TOLERATED_FIRST_FAILURES && !self.given_up
    }

    fn take(&mut self, result: Result<Run, String>) -> Option<Sample> {
        match result.and_then(usable) {
            Ok(run) => {
                self.errors += run.errors;
                Some(run.sample)
            }
            Err(failure) => {
                self.failures += 1;
                self.failure = Some(failure);
                // A cell that has worked once may fail by a disturbance; a cell that never has probably lacks
                // a feature, such as resumption.
                let tolerated =
                    if self.has_figures() { TOLERATED_FAILURES } else { TOLERATED_FIRST_FAILURES };
                self.given_up = self.failures > tolerated;
                None
            }
        }
    }
}

/// The run if its figures are meaningful; otherwise the reason why they are not.
fn usable(run: Run) -> Result<Run, String> {
    let (errors, operations) = (run.errors, run.operations);
    if operations > 0 && errors as f64 <= TOLERATED_ERRORS * (operations + errors) as f64 {
        return Ok(run);
    }
    let Some(error) = run.error else {
        return Err("no operation was completed in the time given".to_owned());
    };
    Err(format!("{errors} of {} failed: {error}", operations + errors))
}

#[cfg(test)]
mod tests;
