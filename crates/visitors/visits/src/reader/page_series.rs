//! Quantiles over time from a sample of visits.

use std::collections::BTreeMap;

use super::{Point, Series};
use crate::clock::unix_seconds;
use crate::gather::SERIES;
use crate::lines::{SHARE, Values, percentile};
use crate::metric::Metric;
use crate::sample::Sample;

/// Quantiles over time of the metrics with series; points with fewer than six visits are missing.
pub(super) fn series(sample: &Sample, step: i64) -> Vec<Series> {
    let of = |metric: &Metric| {
        let mut bins = BTreeMap::<i64, Values>::new();
        for visit in &sample.rows {
            if let Some(value) = visit.row.measures.get(*metric) {
                let start = visit.at - visit.at.rem_euclid(step);
                bins.entry(start).or_default().push((value, visit.weight));
            }
        }
        let points = bins.into_iter().filter_map(|(start, mut values)| {
            let count = values.iter().map(|(_, weight)| weight).sum::<f64>().round() as u64;
            let mut at = |share| percentile(&mut values, share);
            Some(Point { start, count, p50: at(0.5)?, p75: at(SHARE)?, p95: at(0.95)?, p99: at(0.99)? })
        });
        Series {
            metric: metric.name(),
            step,
            start: sample.start,
            end: unix_seconds(),
            points: points.collect(),
        }
    };
    SERIES.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::of_paints;

    #[test]
    fn a_point_has_the_quantiles_of_its_interval() {
        let all = series(&of_paints((1..=100).map(|number| f64::from(number) * 10.0)), 600);
        let paint = all.iter().find(|one| one.metric == "lcp").expect("a series");
        let [point] = paint.points[..] else { panic!("{paint:?}") };
        assert_eq!((point.start, point.count), (600, 300));
        assert!((point.p50 - 500.0).abs() < 1.0 && (point.p99 - 990.0).abs() < 1.0, "{point:?}");
        assert!(series(&of_paints([1.0; 5]), 600).iter().all(|one| one.points.is_empty()));
    }
}
