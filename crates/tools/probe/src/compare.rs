//! Comparison of two servers or settings in alternation: steps side by side with their differences.

use brisk_handshake_view::Party;
use serde::Serialize;

use crate::error::ProbeError;
use crate::prober::{Mode, Prober};
use crate::report::{Report, Resolved};
use crate::resolve::HttpsAnswer;
use crate::timing::Median;
use crate::{Settings, block_on};

/// One of the two compared sides.
#[derive(Clone, Debug)]
pub struct Side {
    /// Name in tables.
    pub name: String,
    /// Target and options.
    pub settings: Settings,
    /// Kind of the side's connections.
    pub mode: Mode,
}

/// A step or phase of both sides.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedStep {
    /// Name; messages have an arrow before it and, from the second of the same name on, a number after it.
    pub name: String,
    /// Whether this is a phase, with a duration. Messages have the time since the begin of the connection.
    pub is_phase: bool,
    /// Milliseconds of each side; `None` for a side without the step.
    pub times: [Option<Median>; 2],
    /// Size of the message in bytes in the last round.
    pub bytes: [Option<u64>; 2],
    /// Differences of the rounds, second side minus first, in milliseconds.
    pub difference: Option<Median>,
}

/// Result of a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// Names of the sides.
    pub names: [String; 2],
    /// Rounds.
    pub rounds: usize,
    /// Phases, then messages.
    pub steps: Vec<ComparedStep>,
    /// Number of connections of each side that were of the intended [`Mode`]: all, resumed, or with early data.
    pub as_meant: [usize; 2],
    /// Reason of the last connection of another kind; `None` if `as_meant` counts all.
    pub missed: [Option<String>; 2],
    /// Reason why the certificate of each side is not trusted.
    pub distrust: [Option<String>; 2],
}

/// Steps of one connection: name, whether it is a phase, time, bytes.
type MeasuredStep = (String, bool, f64, Option<u64>);

/// Measures `rounds` connections of each side in alternation; every second round begins with the second side. Calls
/// `progress` before each round.
pub fn compare(
    sides: &[Side; 2],
    rounds: usize,
    progress: &mut dyn FnMut(&str),
) -> Result<Compared, ProbeError> {
    let probers = [Prober::new(&sides[0].settings)?, Prober::new(&sides[1].settings)?];
    let mut all: Vec<[Vec<MeasuredStep>; 2]> = Vec::new();
    let (mut as_meant, mut missed, mut distrust) = ([0; 2], [None, None], [None, None]);
    block_on(async {
        for round in 0..rounds {
            progress(&format!("round {} of {rounds}", round + 1));
            let mut both = [Vec::new(), Vec::new()];
            for turn in 0..2 {
                // A fixed order would favour one side: effects of the order, such as warm caches, fall on
                // both sides alike.
                let side = (turn + round) % 2;
                let found = rows(&probers[side], sides[side].mode).await;
                let found = found.map_err(|error| named(&sides[side], error))?;
                both[side] = found.rows;
                match found.missed {
                    None => as_meant[side] += 1,
                    reason => missed[side] = reason,
                }
                if distrust[side].is_none() {
                    distrust[side] = found.distrust;
                }
            }
            all.push(both);
        }
        Ok::<(), ProbeError>(())
    })??;
    let names = sides.clone().map(|side| side.name);
    Ok(Compared { names, rounds, steps: aligned(&all), as_meant, missed, distrust })
}

fn named(side: &Side, error: ProbeError) -> ProbeError {
    let text = |reason: String| format!("{}: {reason}", side.name);
    match error {
        ProbeError::Unconnected(reason) => ProbeError::Unconnected(text(reason)),
        ProbeError::Handshake(reason) => ProbeError::Handshake(text(reason)),
        ProbeError::Answer(reason) => ProbeError::Answer(text(reason)),
        ProbeError::Timeout { limit, step, detail } => {
            ProbeError::Timeout { limit, step, detail: format!("{detail}, of {}", side.name) }
        }
        other => other,
    }
}

/// Steps of one connection.
struct MeasuredSteps {
    rows: Vec<MeasuredStep>,
    missed: Option<String>,
    distrust: Option<String>,
}

async fn rows(prober: &Prober<'_>, mode: Mode) -> Result<MeasuredSteps, ProbeError> {
    let mut trip = prober.trip_as(mode).await?;
    if let Some(error) = trip.close().await {
        return Err(error);
    }
    let resolved = Resolved { addresses: Vec::new(), took: trip.resolved, https: HttpsAnswer::NotAsked };
    let report = Report::of(prober.settings, resolved, &trip.trace, None);
    let phases = report.phases.named().into_iter().map(|(name, time)| (name.to_owned(), true, time, None));
    let total = report.phases.total_ms.map(|time| ("total".to_owned(), true, time, None));
    let mut rows: Vec<MeasuredStep> = phases.chain(total).collect();
    for step in &report.steps {
        let arrow = if step.from == Party::Client { "→" } else { "←" };
        let plain = format!("{arrow} {}", step.name);
        // Rounds are aligned by name, so the second message of a name needs a name of its own.
        let before = rows.iter().filter(|(name, ..)| name.split(" #").next() == Some(&plain)).count();
        let name = if before == 0 { plain } else { format!("{plain} #{}", before + 1) };
        rows.push((name, false, step.at_ms, Some(step.bytes)));
    }
    let distrust = trip.trace.verdict().distrust().map(str::to_owned);
    Ok(MeasuredSteps { rows, missed: trip.missed(mode), distrust })
}

/// Names in the order of the first round that contains them; steps of only the second side follow their predecessors
/// there.
fn names(all: &[[Vec<MeasuredStep>; 2]]) -> Vec<(String, bool)> {
    let mut names: Vec<(String, bool)> = Vec::new();
    for rows in all.iter().flatten() {
        let mut at = 0;
        for (name, is_phase, ..) in rows {
            let place = names.iter().position(|(found, _)| found == name).unwrap_or_else(|| {
                names.insert(at, (name.clone(), *is_phase));
                at
            });
            at = place + 1;
        }
    }
    names
}

fn aligned(all: &[[Vec<MeasuredStep>; 2]]) -> Vec<ComparedStep> {
    let find = |rows: &[MeasuredStep], name: &str| rows.iter().find(|(found, ..)| found == name).cloned();
    let step = |(name, is_phase): (String, bool)| {
        let times = [0, 1].map(|side| {
            Median::of(all.iter().filter_map(|both| find(&both[side], &name).map(|(_, _, time, _)| time)))
        });
        let bytes = [0, 1]
            .map(|side| all.iter().rev().find_map(|both| find(&both[side], &name)).and_then(|row| row.3));
        // Differences within a round: drift of the machine or the network moves both sides of a round, and
        // cancels.
        let difference = Median::of(
            all.iter().filter_map(|[first, second]| Some(find(second, &name)?.2 - find(first, &name)?.2)),
        );
        ComparedStep { name, is_phase, times, bytes, difference }
    };
    names(all).into_iter().map(step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, time: f64) -> MeasuredStep {
        (name.to_owned(), false, time, Some(1))
    }

    #[test]
    fn steps_are_aligned_and_differences_are_those_of_rounds() {
        let first = |shift: f64| vec![row("a", 1.0 + shift), row("c", 3.0 + shift)];
        let second = |shift: f64| vec![row("a", 1.5 + shift), row("b", 2.0), row("c", 5.0 + shift)];
        let all: Vec<_> = (0..7).map(|round| [first(f64::from(round)), second(f64::from(round))]).collect();
        let steps = aligned(&all);
        let names: Vec<_> = steps.iter().map(|step| step.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        let difference = steps[2].difference.expect("both have it");
        assert!((difference.median - 2.0).abs() < 1e-9 && (difference.high - 2.0).abs() < 1e-9);
        assert!(steps[1].times[0].is_none() && steps[1].difference.is_none());
    }
}
