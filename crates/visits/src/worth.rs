//! What a change would be worth: how much less visits wait that have what others lack, beside comparable ones.
//!
//! Visits are compared with visits of the same host, route, device, browser, network, class of round-trip times, way of
//! navigation and time. A difference is an average over visits, not over the rows of the sample: each stratum counts by the
//! visits that its rows stand for. Robots are left out.
//!
//! All intervals of one answer hold together with 95 %: each is wider for as many as there are (Bonferroni).

mod levers;
mod words;

use std::collections::HashMap;

use serde::Serialize;

use self::levers::{Lever, levers};
use crate::cuts::Dimension;
use crate::metric::Metric;
use crate::sample::{Sample, Sampled};
use crate::statistics::{Estimate, Stratum, resampled, shift, two_sided};

/// The probability that any interval of an answer misses what it should hold.
const ALPHA: f64 = 0.05;
/// Visits of the sample that each group needs, and as many that have a counterpart.
const FEWEST: usize = 50;
/// The part of the visits that must have a counterpart.
const MATCHED: f64 = 0.2;
/// Values of each group from which the difference without strata is computed.
const UNADJUSTED: usize = 20_000;
/// The difference of shares from which on a confounder is named.
const UNBALANCED: f64 = 0.1;

/// What both groups could differ in besides.
const CONFOUNDERS: [Dimension; 7] = [
    Dimension::Host,
    Dimension::Route,
    Dimension::Device,
    Dimension::Browser,
    Dimension::Network,
    Dimension::RoundTrip,
    Dimension::Navigation,
];

/// What changes would be worth.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Worth {
    /// The name of the metric.
    pub metric: &'static str,
    /// From when on, in Unix seconds.
    pub start: i64,
    /// Visits in all.
    pub visits: u64,
    /// Visits that were looked at: a random sample.
    pub sampled: usize,
    /// What was compared, in words: findings are among these.
    pub compared: Vec<String>,
    /// The differences that are there, those that are worth most first.
    pub findings: Vec<Finding>,
}

/// A difference between visits with one value and comparable visits with another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// What it is about: `session`.
    pub dimension: &'static str,
    /// The visits that wait less: "resumed".
    pub better: String,
    /// The visits that wait more: "made a full handshake".
    pub worse: String,
    /// The part of visits that wait more, of those where either is the case, from 0 to 1.
    pub share: f64,
    /// Why, where that is known, as parts of the same visits.
    pub reasons: Vec<Share>,
    /// By how much less those wait that wait less, beside comparable visits.
    pub difference: Estimate,
    /// The same without regard to whether visits are comparable.
    pub unadjusted: f64,
    /// The part of visits that have a counterpart, from 0 to 1.
    pub matched: f64,
    /// What else both groups differ in.
    pub imbalances: Vec<Imbalance>,
    /// All of it in words.
    pub text: String,
}

/// A part of visits.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Share {
    /// Which.
    pub name: String,
    /// From 0 to 1.
    pub share: f64,
}

/// What two groups differ in besides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Imbalance {
    /// The dimension: `browser`; `time` for the hour or the day.
    pub dimension: &'static str,
    /// The value that those that wait less have most more of.
    pub value: String,
    /// Its share among the visits that wait less.
    pub better: f64,
    /// Its share among the visits that wait more.
    pub worse: f64,
}

/// The visits of both sides of one comparison.
struct Groups<'s> {
    lever: Lever,
    /// Of the first side and of the second, with their values.
    sides: [Vec<(&'s Sampled, f64)>; 2],
}

/// Looks for differences in `sample`.
pub(crate) fn worth(sample: &Sample, metric: Metric) -> Worth {
    let groups = levers(sample).into_iter().map(|lever| Groups::new(lever, sample, metric));
    let groups: Vec<_> =
        groups.filter(|groups| groups.sides.iter().all(|side| side.len() >= FEWEST)).collect();
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

    /// The difference, if its interval excludes zero and enough visits have a counterpart.
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
        // Values of the first less those of the second: negative where the first wait less.
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

    /// The values of both sides by what visits have in common, of those that have a counterpart, and their part of the visits.
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
        strata.retain(|stratum| !stratum.first.is_empty() && !stratum.second.is_empty());
        // Until here it is the weight of all values together.
        let matched: f64 = strata.iter().map(|stratum| stratum.each).sum();
        for stratum in &mut strata {
            stratum.each /= (stratum.first.len() + stratum.second.len()) as f64;
        }
        (strata, if all > 0.0 { matched / all } else { 0.0 })
    }

    /// What visits must have in common to be compared. One of them is the class of weights, in powers of two, as all values of a
    /// stratum count alike.
    fn stratum(&self, visit: &Sampled) -> ([u16; CONFOUNDERS.len()], [u16; 3], u16, i16) {
        let confounders = CONFOUNDERS.map(|dimension| dimension.of(visit));
        (confounders, self.lever.stratum(visit), visit.period, visit.weight.max(1.0).log2() as i16)
    }
}

/// The confounders whose values are distributed unlike on both sides, the worst first.
fn imbalances(sides: [&Vec<(&Sampled, f64)>; 2], weights: [f64; 2], sample: &Sample) -> Vec<Imbalance> {
    let mut found: Vec<(f64, Imbalance)> = Vec::new();
    for dimension in CONFOUNDERS.into_iter().map(Some).chain([None]) {
        // None is the time.
        let of = |visit: &Sampled| dimension.map_or(visit.period, |dimension| dimension.of(visit));
        let mut shares = HashMap::<u16, [f64; 2]>::new();
        for (number, side) in sides.iter().enumerate() {
            for (visit, _) in *side {
                shares.entry(of(visit)).or_default()[number] += visit.weight / weights[number];
            }
        }
        let apart = |shares: &[f64; 2]| (shares[0] - shares[1]).abs();
        let distance = shares.values().map(apart).sum::<f64>() / 2.0;
        // The value that the better side has more of: of two values both are as far apart.
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
