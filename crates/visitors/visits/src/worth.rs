//! Estimated gain of changes: differences in waiting time between visits with two values of a dimension, adjusted for
//! confounders.
//!
//! Visits are compared with visits of the same host, route, device, browser, network, class of round-trip times,
//! navigation and time. A difference is an average over visits instead of rows of the sample: each stratum is
//! weighted by the visits that its rows represent. Robots are excluded.
//!
//! All intervals of one result hold simultaneously with 95 %: each is widened for the number of comparisons
//! (Bonferroni).

mod levers;
mod words;

use std::collections::HashMap;

use serde::Serialize;

use self::levers::{Lever, levers};
use crate::cuts::Dimension;
use crate::metric::Metric;
use crate::sample::{Sample, Sampled};
use crate::statistics::{Estimate, Stratum, resampled, shift, two_sided};

/// Probability that any interval of a result misses the true value.
const ALPHA: f64 = 0.05;
/// Minimum number of sampled visits per group, and of those with a counterpart.
const FEWEST: usize = 50;
/// Minimum share of visits with a counterpart.
const MATCHED: f64 = 0.2;
/// Maximum number of values per group for the unadjusted difference.
const UNADJUSTED: usize = 20_000;
/// Minimum difference of shares from which an imbalance is reported.
const UNBALANCED: f64 = 0.1;

/// [`Dimension`]s in which both groups could differ.
const CONFOUNDERS: [Dimension; 7] = [
    Dimension::Host,
    Dimension::Route,
    Dimension::Device,
    Dimension::Browser,
    Dimension::Network,
    Dimension::RoundTrip,
    Dimension::Navigation,
];

/// Estimated gains of changes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Worth {
    /// The [name](Metric::name) of the metric.
    pub metric: &'static str,
    /// Start of the time span, in Unix seconds.
    pub start: i64,
    /// Total number of visits.
    pub visits: u64,
    /// Number of visits analysed, a random sample.
    pub sampled: usize,
    /// All comparisons as text, including those without a finding.
    pub compared: Vec<String>,
    /// Significant differences, greatest gain first: [`Finding::share`] times [`Finding::difference`].
    pub findings: Vec<Finding>,
}

/// A difference between visits with one value and comparable visits with another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Name of the dimension, for example `session`.
    pub dimension: &'static str,
    /// Description of the faster visits: "resumed".
    pub better: String,
    /// Description of the slower visits: "made a full handshake".
    pub worse: String,
    /// Share of the slower visits among both groups, 0 to 1.
    pub share: f64,
    /// Reasons for which visits are in the slower group, where known, as shares of the same visits.
    pub reasons: Vec<Share>,
    /// Time saved by the faster visits compared with similar visits.
    pub difference: Estimate,
    /// The same difference without adjustment for confounders.
    pub unadjusted: f64,
    /// Share of the visits with a counterpart, 0 to 1.
    pub matched: f64,
    /// Other dimensions in which the groups differ.
    pub imbalances: Vec<Imbalance>,
    /// The finding as text.
    pub text: String,
}

/// A share of visits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Share {
    /// Name of the share.
    pub name: String,
    /// Share, 0 to 1.
    pub share: f64,
}

/// Another dimension in which two groups differ.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Imbalance {
    /// Name of the dimension, for example `browser`; `time` for the hour or day.
    pub dimension: &'static str,
    /// Value with the greatest excess among the faster visits.
    pub value: String,
    /// Share of `value` among the faster visits, 0 to 1.
    pub better: f64,
    /// Share of `value` among the slower visits, 0 to 1.
    pub worse: f64,
}

/// Visits of both sides of a comparison.
struct Groups<'s> {
    lever: Lever,
    /// Visits of the first and the second side, with their values.
    sides: [Vec<(&'s Sampled, f64)>; 2],
}

/// Searches `sample` for differences between the sides of each [`Lever`].
pub(crate) fn worth(sample: &Sample, metric: Metric) -> Worth {
    let groups = levers(sample).into_iter().map(|lever| Groups::new(lever, sample, metric));
    let groups: Vec<_> =
        groups.filter(|groups| groups.sides.iter().all(|side| side.len() >= FEWEST)).collect();
    // Comparisons with too few visits do not count for the correction. Their choice does not depend on the
    // values, so the intervals stay valid.
    let z = two_sided(ALPHA / groups.len().max(1) as f64);
    let mut findings: Vec<_> = groups.iter().filter_map(|groups| groups.finding(sample, metric, z)).collect();
    let benefit = |finding: &Finding| finding.share * finding.difference.value;
    findings.sort_by(|a, b| benefit(b).total_cmp(&benefit(a)));
    Worth {
        metric: metric.name(),
        start: sample.start,
        visits: sample.visits,
        sampled: sample.rows.len(),
        compared: groups.iter().map(|groups| groups.lever.question()).collect(),
        findings,
    }
}

impl<'s> Groups<'s> {
    fn new(lever: Lever, sample: &'s Sample, metric: Metric) -> Self {
        let mut sides = [Vec::new(), Vec::new()];
        for visit in &sample.rows {
            if let (Some(side), Some(value)) = (lever.side(visit), visit.row.measures.get(metric)) {
                sides[side].push((visit, value));
            }
        }
        Self { lever, sides }
    }

    /// The difference, if its interval [excludes zero](Estimate::excludes_zero) and enough visits have a counterpart.
    fn finding(&self, sample: &Sample, metric: Metric, z: f64) -> Option<Finding> {
        let (strata, matched) = self.strata();
        let rows: [usize; 2] = [
            strata.iter().map(|stratum| stratum.first.len()).sum(),
            strata.iter().map(|stratum| stratum.second.len()).sum(),
        ];
        if matched < MATCHED || rows.iter().any(|rows| *rows < FEWEST) {
            return None;
        }
        let found = shift(strata, z)?;
        if !found.excludes_zero() {
            return None;
        }
        let [first, second] = self.sides.each_ref().map(|side| {
            let mut values: Vec<_> = side.iter().map(|(visit, value)| (*value, visit.weight)).collect();
            resampled(&mut values, side.len().min(UNADJUSTED))
        });
        let unadjusted = shift(vec![Stratum { first, second, each: 1.0 }], z)?.value;
        // The value is first minus second: negative if the first side is faster.
        let better = usize::from(found.value > 0.0);
        let (difference, unadjusted) = if better == 0 {
            (Estimate { value: -found.value, low: -found.high, high: -found.low }, -unadjusted)
        } else {
            (found, unadjusted)
        };
        let sides = [&self.sides[better], &self.sides[1 - better]];
        let weights = sides.map(|side| side.iter().map(|(visit, _)| visit.weight).sum::<f64>());
        let mut finding = Finding {
            dimension: self.lever.dimension.name(),
            better: self.lever.names[better].clone(),
            worse: self.lever.names[1 - better].clone(),
            share: weights[1] / (weights[0] + weights[1]),
            reasons: self.lever.reasons(better, sides[1], weights[0] + weights[1]),
            difference,
            unadjusted,
            matched,
            imbalances: imbalances(sides, weights, sample),
            text: String::new(),
        };
        finding.text = words::text(&finding, &self.lever, metric);
        Some(finding)
    }

    /// Values of both sides by stratum, for strata with both, and their share of the visits.
    fn strata(&self) -> (Vec<Stratum>, f64) {
        let (mut strata, mut all) = (HashMap::<_, Stratum>::new(), 0.0);
        for (number, side) in self.sides.iter().enumerate() {
            for (visit, value) in side {
                let stratum = strata.entry(self.stratum(visit)).or_default();
                let values = if number == 0 { &mut stratum.first } else { &mut stratum.second };
                values.push(*value);
                stratum.each += visit.weight;
                all += visit.weight;
            }
        }
        let mut strata: Vec<_> = strata.into_values().collect();
        // Visits without a counterpart carry no information about the difference.
        strata.retain(|stratum| !stratum.first.is_empty() && !stratum.second.is_empty());
        // `each` has accumulated the weight of all values up to here.
        let matched: f64 = strata.iter().map(|stratum| stratum.each).sum();
        for stratum in &mut strata {
            stratum.each /= (stratum.first.len() + stratum.second.len()) as f64;
        }
        (strata, if all > 0.0 { matched / all } else { 0.0 })
    }

    /// Properties that compared visits share. One of them is the class of weights, in powers of two, since all values
    /// of a stratum count equally.
    fn stratum(&self, visit: &Sampled) -> ([u16; CONFOUNDERS.len()], [u16; 3], u16, i16) {
        let confounders = CONFOUNDERS.map(|dimension| dimension.of(visit));
        (confounders, self.lever.stratum(visit), visit.period, visit.weight.max(1.0).log2() as i16)
    }
}

/// Confounders with different distributions on the two sides, the greatest difference first.
fn imbalances(sides: [&Vec<(&Sampled, f64)>; 2], weights: [f64; 2], sample: &Sample) -> Vec<Imbalance> {
    let mut found: Vec<(f64, Imbalance)> = Vec::new();
    for dimension in CONFOUNDERS.into_iter().map(Some).chain([None]) {
        // `None` stands for the time.
        let of = |visit: &Sampled| dimension.map_or(visit.period, |dimension| dimension.of(visit));
        let mut shares = HashMap::<u16, [f64; 2]>::new();
        for (number, side) in sides.iter().enumerate() {
            for (visit, _) in *side {
                shares.entry(of(visit)).or_default()[number] += visit.weight / weights[number];
            }
        }
        let apart = |shares: &[f64; 2]| (shares[0] - shares[1]).abs();
        let distance = shares.values().map(apart).sum::<f64>() / 2.0;
        // The value with the greatest excess on the better side; the comparison of names breaks ties.
        let more = |shares: &[f64; 2]| shares[0] - shares[1];
        let worst = shares.iter().max_by(|a, b| more(a.1).total_cmp(&more(b.1)).then(b.0.cmp(a.0)));
        if let Some((value, [better, worse])) = worst.filter(|_| distance >= UNBALANCED) {
            let value = dimension
                .map_or_else(|| sample.period(*value), |dimension| dimension.name_of(*value, sample));
            let (dimension, better, worse) = (dimension.map_or("time", Dimension::name), *better, *worse);
            found.push((distance, Imbalance { dimension, value, better, worse }));
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.into_iter().map(|(_, imbalance)| imbalance).collect()
}

#[cfg(test)]
mod tests;
