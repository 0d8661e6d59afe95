//! Several servers and modes measured in turns, until their ratios are known well enough.
//!
//! Machines are never quiet: one cell measured for a minute and then another are compared across two different minutes.
//! Here a round measures every cell for a moment, and a ratio is taken within a round, between neighbours in time.

mod cores;
mod measure;
mod processes;
pub mod report;
mod statistics;

use std::time::{Duration, SystemTime};

pub use cores::run_on;
pub use measure::{Measure, Sample};
pub use processes::{Server, ServerError, Stage};
pub use statistics::{CONFIDENCE, Estimate, estimate};

use crate::plan::{Baseline, Plan};
use crate::result::RunResult;

/// The part of failed operations beyond which a run says nothing.
const TOLERATED_ERRORS: f64 = 0.01;

/// Runs of a cell that may fail before it is given up: of one that worked before, and of one that never did.
const TOLERATED_FAILURES: usize = 2;
const TOLERATED_FIRST_FAILURES: usize = 1;

/// What was measured.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// When it began.
    pub started: SystemTime,
    /// How long it took.
    pub elapsed: Duration,
    /// Rounds that were finished.
    pub rounds: usize,
    /// Why it ended.
    pub ended: Ended,
    /// In the order of [`Plan::cells`].
    pub cells: Vec<Cell>,
}

impl Comparison {
    /// Whether anything was measured.
    pub fn has_figures(&self) -> bool {
        self.cells.iter().any(Cell::has_figures)
    }
}

/// Why a comparison ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Everything is known as well as the plan asks for.
    Settled,
    /// As many rounds as the plan allows.
    Rounds,
    /// As much time as the plan allows.
    Time,
    /// Somebody asked for it.
    Interrupted,
    /// No cell works.
    Nothing,
}

impl Ended {
    /// Its name in JSON.
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
    /// Index of the target.
    pub target: usize,
    /// Index of the mode.
    pub mode: usize,
    /// What each round came to; `None` where it was not measured, or failed.
    pub samples: Vec<Option<Sample>>,
    /// Operations that failed in the samples, which are few.
    pub errors: u64,
    /// Runs that came to nothing.
    pub failures: usize,
    /// Why the last of them did.
    pub failure: Option<String>,
    /// No longer measured: it does not work, or the server is missing.
    pub given_up: bool,
}

/// What a comparison needs from outside.
pub trait Bench {
    /// Measures target and mode for a moment. An error is one line.
    fn measure(&mut self, target: usize, mode: usize) -> Result<RunResult, String>;
    /// Time since some moment.
    fn now(&self) -> Duration;
    /// Whether to end now.
    fn interrupted(&self) -> bool;
    /// Told before each run.
    fn progress(&mut self, progress: &Progress);
}

/// How far a comparison has come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Progress {
    /// This round, from 1.
    pub round: usize,
    /// Index of the target that is measured next.
    pub target: usize,
    /// Index of its mode.
    pub mode: usize,
    /// Cells known well enough.
    pub settled: usize,
    /// All cells that work.
    pub cells: usize,
}

/// Measures the cells of a plan whose target `is_there` in rounds until the plan says that it is enough.
pub fn run(plan: &Plan, is_there: &[bool], bench: &mut impl Bench) -> Comparison {
    let (started, begin) = (SystemTime::now(), bench.now());
    let mut cells: Vec<_> =
        plan.cells().map(|(target, mode)| Cell::new(target, mode, !is_there[target])).collect();
    let mut rounds = 0;
    let ended = loop {
        if cells.iter().all(|cell| cell.given_up) {
            break Ended::Nothing;
        }
        if rounds >= plan.limits.rounds.0 && unsettled(plan, &cells).is_empty() {
            break Ended::Settled;
        }
        if rounds >= plan.limits.rounds.1 {
            break Ended::Rounds;
        }
        if let Some(ended) = round(plan, &mut cells, rounds, begin, bench) {
            break ended;
        }
        rounds += 1;
    };
    Comparison { started, elapsed: bench.now().saturating_sub(begin), rounds, ended, cells }
}

/// Measures each cell that is needed once; those that fail the first time, once more at the end of the round, since that
/// may have been a matter of the moment.
fn round(
    plan: &Plan,
    cells: &mut [Cell],
    index: usize,
    begin: Duration,
    bench: &mut impl Bench,
) -> Option<Ended> {
    let needed = needed(plan, cells, index);
    let order = order(plan, cells, index);
    for place in &order {
        let is_measured = needed[*place] && !cells[*place].given_up;
        let sample = if is_measured { attempt(plan, cells, *place, index, begin, bench) } else { Ok(None) };
        match sample {
            Ok(sample) => cells[*place].samples.push(sample),
            Err(ended) => return Some(ended),
        }
    }
    for place in order {
        if !cells[place].is_to_be_repeated() {
            continue;
        }
        match attempt(plan, cells, place, index, begin, bench) {
            Ok(sample) => *cells[place].samples.last_mut().expect("this round's") = sample,
            Err(ended) => return Some(ended),
        }
    }
    None
}

/// Measures one cell; `None` if it failed. The error is a reason to end the comparison.
fn attempt(
    plan: &Plan,
    cells: &mut [Cell],
    place: usize,
    round: usize,
    begin: Duration,
    bench: &mut impl Bench,
) -> Result<Option<Sample>, Ended> {
    if bench.interrupted() {
        return Err(Ended::Interrupted);
    }
    if bench.now().saturating_sub(begin) >= plan.limits.time {
        return Err(Ended::Time);
    }
    let working = cells.iter().filter(|cell| !cell.given_up).count();
    let settled = if round == 0 { 0 } else { working.saturating_sub(unsettled(plan, cells).len()) };
    let Cell { target, mode, .. } = cells[place];
    bench.progress(&Progress { round: round + 1, target, mode, settled, cells: working });
    let result = bench.measure(target, mode);
    if bench.interrupted() {
        return Err(Ended::Interrupted);
    }
    Ok(cells[place].take(result))
}

/// Which cells a round measures: in the first rounds all, then those that are not known well enough, and what they are
/// compared with.
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

/// The order of a round: cells that are compared with each other side by side, each group in another order than in the
/// round before, so that none always comes after the same one.
fn order(plan: &Plan, cells: &[Cell], round: usize) -> Vec<usize> {
    let group =
        |place: usize| if plan.baseline.target.is_some() { cells[place].mode } else { cells[place].target };
    let mut places: Vec<_> = (0..cells.len()).collect();
    places.sort_by_key(|place| group(*place));
    let mut groups: Vec<_> =
        places.chunk_by(|one, other| group(*one) == group(*other)).map(<[_]>::to_vec).collect();
    for group in &mut groups {
        let length = group.len();
        group.rotate_left(round / 2 % length);
        if round % 2 == 1 {
            group.reverse();
        }
    }
    let length = groups.len();
    groups.rotate_left(round % length);
    groups.concat()
}

/// Cells that are not known well enough in the first measure.
fn unsettled(plan: &Plan, cells: &[Cell]) -> Vec<usize> {
    let measure = plan.measures[0];
    let open = |place: &usize| {
        if cells[*place].given_up {
            return false;
        }
        let known = match baseline(plan.baseline, cells, *place) {
            Some(base) if base == *place => return false,
            Some(base) if !cells[base].given_up => ratio(cells, *place, base, measure),
            _ => cells[*place].value(measure),
        };
        !known.is_some_and(|known| known.is_confident() && known.precision() <= plan.limits.precision)
    };
    (0..cells.len()).filter(open).collect()
}

/// The cell that this one is compared with; itself if it is the baseline.
pub fn baseline(baseline: Baseline, cells: &[Cell], place: usize) -> Option<usize> {
    if baseline == Baseline::default() {
        return None;
    }
    let target = baseline.target.unwrap_or(cells[place].target);
    let mode = baseline.mode.unwrap_or(cells[place].mode);
    cells.iter().position(|cell| cell.target == target && cell.mode == mode)
}

/// The ratio of one cell to another, of the rounds in which both were measured.
pub fn ratio(cells: &[Cell], place: usize, base: usize, measure: Measure) -> Option<Estimate> {
    let rounds = cells[place].samples.iter().zip(&cells[base].samples);
    let ratios = rounds.filter_map(|(own, base)| {
        let (own, base) = (own.as_ref()?.get(measure)?, base.as_ref()?.get(measure)?);
        (base > 0.0).then(|| own / base)
    });
    estimate(ratios)
}

impl Cell {
    fn new(target: usize, mode: usize, given_up: bool) -> Self {
        Self { target, mode, samples: Vec::new(), errors: 0, failures: 0, failure: None, given_up }
    }

    /// The measure over all rounds.
    pub fn value(&self, measure: Measure) -> Option<Estimate> {
        estimate(self.samples.iter().flatten().filter_map(|sample| sample.get(measure)))
    }

    /// Whether any of its runs came to something.
    pub fn has_figures(&self) -> bool {
        self.samples.iter().any(Option::is_some)
    }

    /// It failed the very first time.
    fn is_to_be_repeated(&self) -> bool {
        !self.has_figures() && self.failures == TOLERATED_FIRST_FAILURES && !self.given_up
    }

    fn take(&mut self, result: Result<RunResult, String>) -> Option<Sample> {
        match result.and_then(|result| usable(&result)) {
            Ok((sample, errors)) => {
                self.errors += errors;
                Some(sample)
            }
            Err(failure) => {
                self.failures += 1;
                self.failure = Some(failure);
                let tolerated =
                    if self.has_figures() { TOLERATED_FAILURES } else { TOLERATED_FIRST_FAILURES };
                self.given_up = self.failures > tolerated;
                None
            }
        }
    }
}

/// What a run came to, or why it says nothing.
fn usable(result: &RunResult) -> Result<(Sample, u64), String> {
    let (errors, operations) = (result.error_count(), result.operations);
    if operations > 0 && errors as f64 <= TOLERATED_ERRORS * (operations + errors) as f64 {
        return Ok((Sample::of(result), errors));
    }
    let Some(first) = result.errors.first() else {
        return Err("nothing came of it in the time given".to_owned());
    };
    Err(format!("{errors} of {} failed: {}: {}", operations + errors, first.cause, first.example))
}

#[cfg(test)]
mod tests;
