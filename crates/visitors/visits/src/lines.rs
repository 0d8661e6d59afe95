//! The 75th percentile of a metric over time by the values of one dimension, and by the values of two dimensions.

use std::collections::HashMap;

use serde::Serialize;

use crate::cuts::{Dimension, is_new};
use crate::metric::Metric;
use crate::sample::{Sample, Sampled};

/// Number of values of a [`Dimension`] with a [`Line`]: those with the most visits.
const LINES: usize = 6;

/// Number of values of each [`Dimension`] of a [`Table`].
const CELLS: usize = 8;

/// Fewest values of a sample from which a percentile is computed.
const FEWEST: usize = 6;

/// The share of visits below the percentile of Web Vitals.
pub(crate) const SHARE: f64 = 0.75;

/// Lines of one [`Dimension`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lines {
    /// Name of the dimension.
    pub dimension: &'static str,
    /// Seconds per point.
    pub step: i64,
    /// Values with the most visits, in descending order.
    pub values: Vec<Line>,
}

/// The visits with one value over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// The value.
    pub name: String,
    /// Estimated number of visits.
    pub visits: u64,
    /// Start of each interval in Unix seconds, and the percentile; intervals with too few visits are missing.
    pub points: Vec<(i64, f64)>,
}

/// The 75th percentile by the values of two dimensions.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// Names of both dimensions.
    pub dimensions: [&'static str; 2],
    /// Values of the first dimension.
    pub rows: Vec<String>,
    /// Values of the second dimension.
    pub columns: Vec<String>,
    /// Estimated number of visits and percentile of each pair, by row; `None` without visits.
    pub cells: Vec<Vec<Option<Cell>>>,
}

/// The visits with a pair of values.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Cell {
    /// Estimated number of visits.
    pub visits: u64,
    /// The percentile; `None` with too few values.
    pub p75: Option<f64>,
}

/// Values of the metric, each with its weight.
pub(crate) type Values = Vec<(f64, f64)>;

/// Lines of `dimension` with points of `step` seconds.
pub(crate) fn lines(sample: &Sample, metric: Metric, dimension: Dimension, step: i64) -> Lines {
    let mut groups = HashMap::<u16, HashMap<i64, Values>>::new();
    for visit in visits(sample, &[dimension]) {
        if let Some(value) = visit.row.measures.get(metric) {
            let start = visit.at - visit.at.rem_euclid(step);
            let points = groups.entry(dimension.of(visit)).or_default();
            points.entry(start).or_default().push((value, visit.weight));
        }
    }
    let numbers = most_visited(sample, dimension, LINES);
    let values = numbers.into_iter().filter_map(|(number, visits)| {
        let mut points: Vec<_> = groups
            .remove(&number)?
            .into_iter()
            .filter_map(|(start, mut values)| Some((start, percentile(&mut values, SHARE)?)))
            .collect();
        points.sort_unstable_by_key(|(start, _)| *start);
        Some(Line { name: dimension.name_of(number, sample), visits, points })
    });
    Lines { dimension: dimension.name(), step, values: values.collect() }
}

/// Visits by the values of both `dimensions`.
pub(crate) fn table(sample: &Sample, metric: Metric, dimensions: [Dimension; 2]) -> Table {
    let [first, second] = dimensions;
    let mut groups = HashMap::<(u16, u16), (f64, Values)>::new();
    for visit in visits(sample, &dimensions) {
        let group = groups.entry((first.of(visit), second.of(visit))).or_default();
        group.0 += visit.weight;
        group.1.extend(visit.row.measures.get(metric).map(|value| (value, visit.weight)));
    }
    let [rows, columns] = dimensions.map(|dimension| most_visited(sample, dimension, CELLS));
    let mut cell = |row: u16, column: u16| {
        let (weight, mut values) = groups.remove(&(row, column))?;
        Some(Cell { visits: weight.round() as u64, p75: percentile(&mut values, SHARE) })
    };
    let cells =
        rows.iter().map(|(row, _)| columns.iter().map(|(column, _)| cell(*row, *column)).collect()).collect();
    let names = |numbers: &[(u16, u64)], dimension: Dimension| {
        numbers.iter().map(|(number, _)| dimension.name_of(*number, sample)).collect()
    };
    Table {
        dimensions: dimensions.map(Dimension::name),
        rows: names(&rows, first),
        columns: names(&columns, second),
        cells,
    }
}

/// Visits that count for all `dimensions`.
fn visits<'s>(sample: &'s Sample, dimensions: &[Dimension]) -> impl Iterator<Item = &'s Sampled> {
    let only_new = dimensions.iter().any(|dimension| dimension.is_of_handshake());
    sample.rows.iter().filter(move |visit| !only_new || is_new(visit))
}

/// The values with the most visits and the number of these.
fn most_visited(sample: &Sample, dimension: Dimension, most: usize) -> Vec<(u16, u64)> {
    let mut weights = HashMap::<u16, f64>::new();
    for visit in visits(sample, &[dimension]) {
        *weights.entry(dimension.of(visit)).or_default() += visit.weight;
    }
    let mut all: Vec<_> =
        weights.into_iter().map(|(number, weight)| (number, weight.round() as u64)).collect();
    // Equal numbers of visits are ordered by number, so that the order is the same in each query.
    all.sort_unstable_by_key(|(number, visits)| (std::cmp::Reverse(*visits), *number));
    all.truncate(most);
    all
}

/// The value that a `share` of the weight does not exceed; `None` for fewer than [`FEWEST`] values.
pub(crate) fn percentile(values: &mut Values, share: f64) -> Option<f64> {
    if values.len() < FEWEST {
        return None;
    }
    values.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
    let limit = share * values.iter().map(|(_, weight)| weight).sum::<f64>();
    let mut below = 0.0;
    values.iter().find_map(|(value, weight)| {
        below += weight;
        (below >= limit).then_some(*value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::{Browser, Device};
    use crate::row::{Numbers, Row};
    use crate::visit::Visit;

    fn sampled(browser: Browser, device: Device, at: i64, ms: f64) -> Sampled {
        let mut visit = Visit::new("a.test".into(), "/".into());
        (visit.browser, visit.device) = (browser, device);
        assert!(visit.measures.set(Metric::LargestPaint, ms));
        Sampled { weight: 2.0, host: 1, period: 0, at, row: Row::new(&visit, Numbers::default()) }
    }

    fn sample() -> Sample {
        let rows = (0..20).flat_map(|number| {
            let ms = 1000.0 + 100.0 * f64::from(number);
            [
                sampled(Browser::Chrome, Device::Desktop, 600 + i64::from(number), ms),
                sampled(Browser::Firefox, Device::Phone, 1200, 2.0 * ms),
            ]
        });
        let mut rows: Vec<_> = rows.collect();
        rows.push(sampled(Browser::Chrome, Device::Phone, 1200, 5000.0));
        Sample { rows, ..Sample::default() }
    }

    #[test]
    fn a_line_has_the_percentile_of_each_interval() {
        let lines = lines(&sample(), Metric::LargestPaint, Dimension::Browser, 600);
        let of: Vec<_> =
            lines.values.iter().map(|line| (line.name.as_str(), line.visits, line.points.len())).collect();
        // One visit in an interval is too few for a point.
        assert_eq!(of, [("chrome", 42, 1), ("firefox", 40, 1)]);
        let (start, p75) = lines.values[0].points[0];
        assert!(start == 600 && (p75 - 2400.0).abs() < 1.0, "{p75}");
    }

    #[test]
    fn a_table_has_a_cell_for_each_pair() {
        let table = table(&sample(), Metric::LargestPaint, [Dimension::Browser, Dimension::Device]);
        assert_eq!(table.rows, ["chrome", "firefox"]);
        assert_eq!(table.columns.len(), 2);
        let at = |row: usize, column: &str| {
            let column = table.columns.iter().position(|name| name == column).expect("a column");
            table.cells[row][column]
        };
        assert_eq!(at(0, "phone"), Some(Cell { visits: 2, p75: None }));
        assert_eq!(at(1, "desktop"), None);
        assert!(at(1, "phone").and_then(|cell| cell.p75).is_some_and(|p75| (p75 - 4800.0).abs() < 2.0));
    }
}
