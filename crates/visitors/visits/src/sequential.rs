//! Comparison of the arms of experiments with results that are valid at every look.
//!
//! The intervals are asymptotic confidence sequences (Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas: "Time-uniform
//! central limit theory and asymptotic confidence sequences", Annals of Statistics 52, 2024): the probability that
//! any of them, at any time, misses the true difference is at most [`ALPHA`]. So an experiment may stop at the first
//! interval that decides.

use crate::gather::ArmSums;

/// Probability of a wrong decision, over the whole experiment and all its arms.
const ALPHA: f64 = 0.05;
/// Probability that arms with equal visitors are ever reported as uneven.
const UNEVEN: f64 = 0.001;
/// Number of visits at which the intervals are narrowest relative to fixed-size ones.
const TUNED_TO: f64 = 10_000.0;
/// Minimum number of visits per arm for a decision, since the sequences are asymptotic.
pub(crate) const FEWEST: u64 = 250;

/// Relative difference with its interval: 0.03 is 3 % more.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub struct Interval {
    /// The estimate.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

/// Result of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
#[serde(rename_all = "kebab-case", tag = "decision")]
pub enum Decision {
    /// An arm is faster than the control; the relative difference `by` is negative.
    Better {
        /// Index of the arm.
        arm: u8,
        /// The relative difference.
        by: Interval,
    },
    /// Every other arm is slower than the control.
    ControlBetter {
        /// Index of the arm closest to the control.
        arm: u8,
        /// Relative difference of that arm, positive.
        by: Interval,
    },
    /// No arm differs from the control by more than a margin.
    NoDifference {
        /// The margin, as a relative difference.
        beyond: f64,
    },
}

impl Decision {
    /// Encodes the decision for the database; [`from_text`](Self::from_text) decodes it.
    pub(crate) fn to_text(self) -> String {
        let of_arm = |name, arm, by: Interval| format!("{name} {arm} {} {} {}", by.value, by.low, by.high);
        match self {
            Self::Better { arm, by } => of_arm("better", arm, by),
            Self::ControlBetter { arm, by } => of_arm("control-better", arm, by),
            Self::NoDifference { beyond } => format!("no-difference {beyond}"),
        }
    }

    /// Decodes a text of [`to_text`](Self::to_text); `None` for any other text.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let kind = words.next()?;
        if kind == "no-difference" {
            return Some(Self::NoDifference { beyond: words.next()?.parse().ok()? });
        }
        let arm = words.next()?.parse().ok()?;
        let mut number = || words.next()?.parse().ok();
        let by = Interval { value: number()?, low: number()?, high: number()? };
        match kind {
            "better" => Some(Self::Better { arm, by }),
            "control-better" => Some(Self::ControlBetter { arm, by }),
            _ => None,
        }
    }
}

/// Relative difference of an arm's geometric mean from the control's, if `comparisons` arms are compared with the
/// control; `None` with too few visits for an interval.
pub(crate) fn difference(control: &ArmSums, arm: &ArmSums, comparisons: usize) -> Option<Interval> {
    let [control, arm] = [control, arm].map(moments);
    let ((control, of_control), (arm, of_arm)) = (control?, arm?);
    let visits = of_control.visits + of_arm.visits;
    // Variance per visit of both arms together, chosen so that their mean has the variance of the difference.
    let variance = visits * (of_control.variance / of_control.visits + of_arm.variance / of_arm.visits);
    // Bonferroni: all comparisons with the control share the probability of an error.
    let reach = variance.sqrt() * boundary(visits, ALPHA / comparisons.max(1) as f64);
    let at = arm - control;
    Some(Interval { value: at.exp_m1(), low: (at - reach).exp_m1(), high: (at + reach).exp_m1() })
}

/// Half-width of the sequence after `visits`, for values with a variance of 1.
fn boundary(visits: f64, alpha: f64) -> f64 {
    let logarithm = -2.0 * alpha.ln();
    let rho2 = (logarithm + (logarithm + 1.0).ln()) / TUNED_TO;
    let spread = visits * rho2 + 1.0;
    (2.0 * spread / (visits * visits * rho2) * (spread.sqrt() / alpha).ln()).sqrt()
}

struct Moments {
    visits: f64,
    variance: f64,
}

fn moments(sums: &ArmSums) -> Option<(f64, Moments)> {
    if sums.visits < FEWEST {
        return None;
    }
    let visits = sums.visits as f64;
    let mean = sums.sum / visits;
    // Rounding can make the difference of two large sums negative.
    let variance = ((sums.squares - sums.sum * mean) / (visits - 1.0)).max(0.0);
    mean.is_finite().then_some((mean, Moments { visits, variance }))
}

/// Whether equally likely arms have uneven numbers of visits. Then some visits are not measured, and the measured
/// ones differ in more than the setting. The probability that equal arms ever appear uneven is at most [`UNEVEN`],
/// however often this is checked: a Bayes factor against equal shares is a martingale under them (Lindon, Malek:
/// "Anytime-valid inference for multinomial count data", `NeurIPS` 2022).
pub(crate) fn is_uneven(arms: &[ArmSums]) -> bool {
    if arms.len() < 2 {
        return false;
    }
    let (kinds, visits) = (arms.len() as f64, arms.iter().map(|arm| arm.visits as f64).sum::<f64>());
    // The alternative: all divisions of the visits are equally likely.
    let otherwise = ln_factorial(kinds - 1.0) - ln_factorial(visits + kinds - 1.0)
        + arms.iter().map(|arm| ln_factorial(arm.visits as f64)).sum::<f64>();
    otherwise + visits * kinds.ln() > -UNEVEN.ln()
}

/// Logarithm of `n!` with an absolute error of at most 1e-9 (Stirling).
fn ln_factorial(n: f64) -> f64 {
    let mut small = 0.0;
    let mut above = n + 1.0;
    // Stirling's series is exact enough from 10.
    while above < 10.0 {
        small += above.ln();
        above += 1.0;
    }
    let inverse = 1.0 / above;
    let series = inverse / 12.0 - inverse.powi(3) / 360.0 + inverse.powi(5) / 1_260.0;
    (above - 0.5) * above.ln() - above + 0.5 * std::f64::consts::TAU.ln() + series - small
}

/// The decision that `arms` allow; `None` to continue. The first arm is the control. Relative differences up to
/// `margin` are irrelevant.
pub(crate) fn decide(arms: &[ArmSums], margin: f64) -> Option<Decision> {
    if is_uneven(arms) {
        return None;
    }
    let (control, others) = arms.split_first()?;
    let compared: Option<Vec<_>> = others.iter().map(|arm| difference(control, arm, others.len())).collect();
    let compared = compared?;
    let places = 1_u8..;
    // The fastest arm, and the one closest to the control if the control is better.
    let (arm, by) = places.zip(&compared).min_by(|a, b| a.1.value.total_cmp(&b.1.value))?;
    if by.high < 0.0 {
        return Some(Decision::Better { arm, by: *by });
    }
    if compared.iter().all(|interval| interval.low > 0.0) {
        return Some(Decision::ControlBetter { arm, by: *by });
    }
    let beyond = compared.iter().flat_map(|interval| [-interval.low, interval.high]).fold(0.0, f64::max);
    (beyond <= margin).then_some(Decision::NoDifference { beyond })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn time(random: &mut Random) -> f64 {
        let normal = (-2.0 * random.unit().ln()).sqrt() * (std::f64::consts::TAU * random.unit()).cos();
        200.0 * (0.5 * normal).exp()
    }

    /// Runs an experiment whose arms take this part of the control's time, with a look after every `step` visits.
    fn run(seed: u64, factors: &[f64], margin: f64, step: u32, most: u32) -> (Option<Decision>, u32) {
        let mut random = Random::seeded(seed);
        let mut arms = vec![ArmSums::default(); factors.len()];
        for number in 1..=most {
            let arm = random.below(factors.len() as u64) as usize;
            arms[arm].add(factors[arm] * time(&mut random));
            if number % step == 0
                && let Some(decision) = decide(&arms, margin)
            {
                return (Some(decision), number);
            }
        }
        (None, most)
    }

    #[test]
    fn an_effect_is_decided_right_and_ends_the_experiment() {
        for seed in 0..20 {
            let (decision, visits) = run(seed, &[1.0, 0.9], 0.02, 100, 60_000);
            let Some(Decision::Better { arm: 1, by }) = decision else { panic!("{decision:?} at {visits}") };
            assert!(by.low < -0.1 && by.high < 0.0 && by.value < -0.03, "{by:?}");
            let (decision, _) = run(seed, &[1.0, 1.2], 0.02, 100, 60_000);
            assert!(matches!(decision, Some(Decision::ControlBetter { arm: 1, .. })), "{decision:?}");
        }
    }

    #[test]
    fn arms_that_are_equal_are_rarely_called_different_however_often_one_looks() {
        let runs = 100;
        let wrong = (0..runs).filter(|seed| {
            let (decision, _) = run(1_000 + seed, &[1.0, 1.0, 1.0], 0.0, 20, 10_000);
            decision.is_some()
        });
        let wrong = wrong.count();
        assert!(wrong <= 9, "{wrong} of {runs}");
    }

    #[test]
    fn arms_that_are_equal_end_with_that_finding() {
        for seed in 0..5 {
            let (decision, visits) = run(seed, &[1.0, 1.0], 0.05, 500, 60_000);
            let Some(Decision::NoDifference { beyond }) = decision else {
                panic!("{decision:?} at {visits}")
            };
            assert!(beyond <= 0.05);
        }
    }

    #[test]
    fn arms_that_lose_visits_are_not_compared() {
        let of = |visits| ArmSums { visits, sum: 5.0 * visits as f64, squares: 26.0 * visits as f64 };
        for (visits, expected) in [
            (&[0, 0][..], false),
            (&[3, 0], false),
            (&[30, 0], true),
            (&[1_000, 1_060], false),
            (&[1_000, 1_250], true),
            (&[1_000_000, 1_003_000], false),
            (&[1_000_000, 1_010_000], true),
            (&[1_000, 1_020, 990, 1_010], false),
            (&[1_000, 1_020, 990, 700], true),
            (&[700], false),
        ] {
            let arms: Vec<_> = visits.iter().map(|visits| of(*visits)).collect();
            assert_eq!(is_uneven(&arms), expected, "{visits:?}");
            assert!(!expected || decide(&arms, 1.0).is_none());
        }
        for (n, expected) in [(0.0, 1.0_f64), (1.0, 1.0), (5.0, 120.0), (12.0, 479_001_600.0)] {
            assert!((ln_factorial(n) - expected.ln()).abs() < 1e-8, "{n}");
        }
        let mut random = Random::seeded(8);
        let uneven = (0..300).filter(|_| {
            let mut arms = [ArmSums::default(); 3];
            (0..3_000).any(|_| {
                arms[random.below(3) as usize].visits += 1;
                is_uneven(&arms)
            })
        });
        let uneven = uneven.count();
        assert!(uneven <= 9, "{uneven} of 300");
    }

    #[test]
    fn decisions_are_read_as_they_were_written() {
        let by = Interval { value: -0.1, low: -0.123_456_789, high: -1e-7 };
        for decision in [
            Decision::Better { arm: 1, by },
            Decision::ControlBetter { arm: 7, by },
            Decision::NoDifference { beyond: 0.019 },
        ] {
            assert_eq!(Decision::from_text(&decision.to_text()), Some(decision));
        }
        for text in ["", "better", "better 1 2 3", "best 1 2 3 4", "no-difference x"] {
            assert_eq!(Decision::from_text(text), None, "{text}");
        }
    }

    #[test]
    fn few_visits_decide_nothing() {
        let mut arms = [ArmSums::default(); 2];
        assert_eq!(decide(&arms, 1.0), None);
        for _ in 0..FEWEST - 1 {
            arms[0].add(1.0);
            arms[1].add(1_000.0);
        }
        assert_eq!(decide(&arms, 1.0), None);
        assert_eq!(decide(&arms[..1], 1.0), None);
        for arm in &mut arms {
            arm.add(10.0);
        }
        assert!(matches!(decide(&arms, 1.0), Some(Decision::ControlBetter { .. })));
    }
}
