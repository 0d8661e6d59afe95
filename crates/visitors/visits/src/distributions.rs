//! Distributions of metrics over the visits of a sample.

use serde::Serialize;

use crate::lines::{SHARE, Values, percentile};
use crate::metric::Metric;
use crate::sample::Sample;

/// Upper bounds of classes: four parts up to the good threshold, two up to the poor one, and twice the poor one.
fn bounds([good, poor]: [f64; 2]) -> [f64; 7] {
    // Both thresholds are bounds, so that the shares of good and poor visits are sums of classes.
    [good / 4.0, good / 2.0, good * 0.75, good, f64::midpoint(good, poor), poor, 2.0 * poor]
}

/// Visits by classes of a metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Distribution {
    /// The [name](Metric::name) of the metric.
    pub metric: &'static str,
    /// [Thresholds](Metric::thresholds) of Web Vitals: good up to the first, poor above the second.
    pub thresholds: [f64; 2],
    /// Upper bounds of the classes; the last class has none.
    pub bounds: [f64; 7],
    /// Estimated number of visits of each class.
    pub visits: [u64; 8],
    /// The 75th percentile; `None` for fewer than six visits in the sample.
    pub p75: Option<f64>,
}

/// Distributions of all metrics with [`Metric::thresholds`].
pub(crate) fn distributions(sample: &Sample) -> Vec<Distribution> {
    let of = |metric: &Metric| {
        let thresholds = metric.thresholds()?;
        let (bounds, mut weights) = (bounds(thresholds), [0.0; 8]);
        let mut values = Values::new();
        for visit in &sample.rows {
            let Some(value) = visit.row.measures.get(*metric) else { continue };
            weights[bounds.iter().take_while(|bound| **bound < value).count()] += visit.weight;
            values.push((value, visit.weight));
        }
        let visits = weights.map(|weight: f64| weight.round() as u64);
        let p75 = percentile(&mut values, SHARE);
        Some(Distribution { metric: metric.name(), thresholds, bounds, visits, p75 })
    };
    Metric::ALL.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::of_paints;

    #[test]
    fn visits_have_the_class_of_their_value() {
        let found = distributions(&of_paints([100.0, 2_000.0, 2_600.0, 3_999.0, 4_100.0, 9_000.0]));
        let paint = found.iter().find(|one| one.metric == "lcp").expect("a distribution");
        assert_eq!(paint.visits, [3, 0, 0, 3, 3, 3, 3, 3]);
        assert_eq!(found.len(), 5);
        assert!(found.iter().filter(|one| one.metric != "lcp").all(|one| one.p75.is_none()));
    }
}
