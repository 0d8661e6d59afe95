//! Results of experiments as figures and text.

use serde::Serialize;

use crate::experiment::Experiment;
use crate::gather::ArmSums;
use crate::metric::Metric;
use crate::sequential::{Decision, FEWEST, Interval, difference, is_uneven};

/// An [`Experiment`] with its current result.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExperimentReport {
    /// Name of the experiment.
    pub name: String,
    /// The [name](Metric::name) of the metric that decides.
    pub metric: &'static str,
    /// Relative difference that is irrelevant ([`Experiment::margin`]).
    pub margin: f64,
    /// Start, in Unix seconds.
    pub since: i64,
    /// Time of the decision, in Unix seconds.
    pub decided: Option<i64>,
    /// Time at which the experiment was removed from the configuration, in Unix seconds; `None` while it is configured.
    pub ended: Option<i64>,
    /// The arms; the first is the control.
    pub arms: Vec<ArmReport>,
    /// Decision; `None` while the experiment continues.
    pub decision: Option<Decision>,
    /// The decision as text.
    pub text: String,
    /// Recommended change, if the experiment is decided and still configured.
    pub advice: Option<String>,
}

/// An arm of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ArmReport {
    /// Name of the arm.
    pub name: String,
    /// Visits with a value of the metric, without visits on connections that were open already.
    pub visits: u64,
    /// Geometric mean in milliseconds; `None` without visits.
    pub mean: Option<f64>,
    /// Relative difference from the control with an interval that is valid at every look; `None` for the control, and
    /// with too few visits.
    pub difference: Option<Interval>,
}

/// Creates the [`ExperimentReport`] of an experiment with these arms and the decision, if any.
pub(crate) fn report(
    name: String,
    metric: Metric,
    margin: f64,
    names: Vec<String>,
    sums: &[ArmSums],
    decision: Option<Decision>,
    ended: Option<i64>,
) -> ExperimentReport {
    let text = match &decision {
        Some(decision) => decision.sentence(&names, metric),
        None if ended.is_some() => "Ended before it was decided.".to_owned(),
        None if is_uneven(sums) => format!(
            "Not to be decided: the arms have unequal numbers of visits with {metric}, so that they are not of the same visitors. \
             One of them keeps pages from being measured, or connections from taking part."
        ),
        None if sums.iter().any(|arm| arm.visits < FEWEST) => {
            format!("Go on: each arm needs at least {FEWEST} visits with {metric}.")
        }
        None => "Go on: nothing is decided yet.".to_owned(),
    };
    let control = sums.first().copied().unwrap_or_default();
    let others = sums.len().saturating_sub(1);
    let arms = names.into_iter().zip(sums).enumerate().map(|(place, (name, sums))| ArmReport {
        name,
        visits: sums.visits,
        mean: (sums.visits > 0).then(|| (sums.sum / sums.visits as f64).exp()),
        difference: if place == 0 { None } else { difference(&control, sums, others) },
    });
    let arms = arms.collect();
    ExperimentReport {
        name,
        metric: metric.name(),
        margin,
        since: 0,
        decided: None,
        ended,
        arms,
        decision,
        text,
        advice: None,
    }
}

impl Decision {
    /// The decision as a sentence; `arms` are the texts of the arms.
    pub(crate) fn sentence<T: AsRef<str>>(&self, arms: &[T], metric: Metric) -> String {
        let (control, other) = (text(arms, 0), self.arm().map_or("", |arm| text(arms, arm)));
        match self {
            Self::Better { by, .. } => {
                // The bounds change places with their signs.
                let less = range(-by.value, -by.high, -by.low);
                format!("\"{other}\" is better than \"{control}\": {less} less {metric}.")
            }
            Self::ControlBetter { by, .. } => {
                let more = range(by.value, by.low, by.high);
                format!("\"{control}\" is better: \"{other}\" has {more} more {metric}.")
            }
            Self::NoDifference { beyond } => {
                format!("No arm differs from \"{control}\" by more than {:.1} % of {metric}.", beyond * 100.0)
            }
        }
    }

    /// The recommended change.
    pub(crate) fn advice(&self, experiment: &Experiment) -> String {
        let arm = match self {
            Self::Better { arm, .. } => *arm,
            Self::ControlBetter { .. } | Self::NoDifference { .. } => 0,
        };
        let advice = experiment.advice.get(usize::from(arm)).map(ToString::to_string);
        advice.unwrap_or_else(|| {
            let arm = text(&experiment.arms, arm);
            format!("Write {arm} into the configuration and remove the experiment.")
        })
    }

    /// The arm that is compared with the control.
    fn arm(&self) -> Option<u8> {
        match self {
            Self::Better { arm, .. } | Self::ControlBetter { arm, .. } => Some(*arm),
            Self::NoDifference { .. } => None,
        }
    }
}

fn text<T: AsRef<str>>(arms: &[T], place: u8) -> &str {
    arms.get(usize::from(place)).map_or("", T::as_ref)
}

fn range(value: f64, low: f64, high: f64) -> String {
    format!("{:.1} % ({:.1} to {:.1})", value * 100.0, low * 100.0, high * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequential::decide;

    fn arm(mean: f64) -> ArmSums {
        let mut sums = ArmSums::default();
        for number in 0..5_000 {
            sums.add(mean * if number % 2 == 0 { 0.8 } else { 1.25 });
        }
        sums
    }

    fn words(sums: &[ArmSums], margin: f64) -> String {
        let names = ["16 KiB", "4 KiB"].map(str::to_owned).to_vec();
        let decision = decide(sums, margin);
        report("records".to_owned(), Metric::FirstByte, margin, names, sums, decision, None).text
    }

    #[test]
    fn what_an_experiment_has_shown_in_words() {
        let text = words(&[arm(100.0), arm(90.0)], 0.02);
        assert!(text.starts_with("\"4 KiB\" is better than \"16 KiB\": 10.0 % ("), "{text}");
        assert!(text.ends_with(") less ttfb."), "{text}");
        let text = words(&[arm(100.0), arm(120.0)], 0.02);
        assert!(text.starts_with("\"16 KiB\" is better: \"4 KiB\" has 20.0 % ("), "{text}");
        assert_eq!(words(&[arm(100.0), arm(100.0)], 0.001), "Go on: nothing is decided yet.");
        let text = words(&[arm(100.0), arm(100.0)], 0.05);
        assert!(text.starts_with("No arm differs from \"16 KiB\" by more than "), "{text}");
        let mut few = ArmSums::default();
        few.add(100.0);
        assert_eq!(words(&[few, few], 0.05), "Go on: each arm needs at least 250 visits with ttfb.");
        let text = words(&[arm(100.0), ArmSums::default()], 0.05);
        assert!(
            text.starts_with("Not to be decided: the arms have unequal numbers of visits with ttfb"),
            "{text}"
        );
    }

    #[test]
    fn a_report_has_an_interval_for_all_but_the_control() {
        let names = ["a", "b"].map(str::to_owned).to_vec();
        let report = report(
            "e".to_owned(),
            Metric::LargestPaint,
            0.02,
            names,
            &[arm(100.0), arm(50.0)],
            None,
            Some(1),
        );
        assert!(report.arms[0].difference.is_none());
        let by = report.arms[1].difference.unwrap();
        assert!(by.low < -0.5 && by.high > -0.5 && by.high < -0.4, "{by:?}");
        assert!((report.arms[1].mean.unwrap() - 50.0).abs() < 0.1);
        assert_eq!(
            (report.decision, &*report.text),
            (None, "Ended before it was decided."),
            "and is not later"
        );
    }
}
