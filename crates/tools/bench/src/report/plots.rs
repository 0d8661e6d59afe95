//! The charts of one run.

use std::time::Duration;

use brisk_report::figures::{count, microseconds, number, percent};
use brisk_report::plot::{Axis, Mark, Scale, Series, chart};
use hdrhistogram::Histogram;

use super::tables::{Step, ramp};
use crate::result::{Interval, RunResult};

/// Least [`Interval::length`] that is drawn.
const LEAST: Duration = Duration::from_millis(250);

/// Maximum number of bars in a histogram.
const BINS: f64 = 60.0;

/// All non-empty charts in order, as sections of a page.
pub(super) fn all(result: &RunResult) -> String {
    let steps = ramp(&result.series);
    let mut html = String::new();
    if seconds(result).count() > 1 {
        html += &latency_over_time(result);
        html += &rate_over_time(result);
    }
    if steps.len() > 1 {
        html += &rate_by_step(&steps, result);
        html += &latency_by_step(&steps);
    }
    html += &distribution(result);
    html += &percentiles(result);
    html
}

fn milliseconds(value: u64) -> f64 {
    value as f64 / 1e3
}

/// The last interval may have a few milliseconds only, and then no meaningful rate or quantiles.
fn seconds(result: &RunResult) -> impl Iterator<Item = &Interval> {
    result.series.iter().filter(|interval| interval.length >= LEAST)
}

fn end(interval: &Interval) -> f64 {
    (interval.at + interval.length).as_secs_f64()
}

/// A series of quantiles, with hints that name them.
fn quantiles<'a, T: 'a>(
    name: &str,
    quantile: f64,
    all: impl Iterator<Item = &'a T>,
    place: impl Fn(&T) -> (f64, String),
    histogram: impl Fn(&T) -> &Histogram<u64>,
) -> Series {
    let mut series =
        Series { name: name.to_owned(), mark: Mark::Line, points: Vec::new(), hints: Vec::new() };
    for item in all.filter(|item| !histogram(item).is_empty()) {
        let value = histogram(item).value_at_quantile(quantile);
        let (at, text) = place(item);
        series.points.push((at, milliseconds(value)));
        series.hints.push(format!("{text}: {name} {}", microseconds(value as f64)));
    }
    series
}

const SHOWN: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0)];

/// A linear axis if all values have the same magnitude, so that heights can be compared; a logarithmic one if a tail
/// would hide the rest.
fn latency_axis(series: &[Series]) -> Axis {
    let values = || series.iter().flat_map(|series| series.points.iter().map(|(_, value)| *value));
    let (least, most) =
        values().fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
    let scale = if most > 15.0 * least && least > 0.0 { Scale::Logarithmic } else { Scale::Linear };
    Axis::new("latency, ms", scale, values())
}

fn latency_over_time(result: &RunResult) -> String {
    let place = |interval: &Interval| (end(interval), format!("{:.0} s", end(interval)));
    let series = SHOWN.map(|(name, quantile)| {
        quantiles(name, quantile, seconds(result), place, |interval: &Interval| &interval.latency)
    });
    let x = Axis::time(result.series.last().map_or(1.0, end));
    chart("Latency over time, each second by itself", &x, &latency_axis(&series), &series)
}

fn rate_over_time(result: &RunResult) -> String {
    let per_second = |interval: &Interval, count: u64| count as f64 / interval.length.as_secs_f64().max(1e-3);
    let unit = result.unit.name();
    let series = |name: &str, mark, value: &dyn Fn(&Interval) -> Option<f64>| {
        let found = seconds(result).filter_map(|interval| Some((interval, value(interval)?)));
        let (points, hints): (Vec<_>, Vec<_>) = found
            .map(|(interval, value)| {
                let hint = format!("{:.0} s: {} {name} per second", end(interval), number(value));
                ((end(interval), value), hint)
            })
            .unzip();
        Series { name: name.to_owned(), mark, points, hints }
    };
    let mut all = vec![series(unit, Mark::Line, &|interval| Some(per_second(interval, interval.operations)))];
    if result.series.iter().any(|interval| interval.errors > 0) {
        all.push(series("errors", Mark::Line, &|interval| Some(per_second(interval, interval.errors))));
    }
    if result.series.iter().any(|interval| interval.offered.is_some()) {
        all.push(offered(result));
    }
    let x = Axis::time(result.series.last().map_or(1.0, end));
    let values = all.iter().flat_map(|series| series.points.iter().map(|(_, value)| *value));
    let y = Axis::new(&format!("{unit} per second"), Scale::Linear, values);
    chart("Rate over time", &x, &y, &all)
}

/// The scheduled rate from the start of each second on.
fn offered(result: &RunResult) -> Series {
    let asked =
        result.series.iter().filter_map(|interval| Some((interval.at.as_secs_f64(), interval.offered?)));
    let mut points: Vec<_> = asked.collect();
    let last = points.last().map(|(_, rate)| *rate);
    points.extend(last.zip(result.series.last()).map(|(rate, interval)| (end(interval), rate)));
    Series { name: "asked for".to_owned(), mark: Mark::Steps, points, hints: Vec::new() }
}

/// The label of a ramp's axis.
fn level(steps: &[Step], unit: &str) -> String {
    let rate = steps.iter().all(|step| step.offered.is_some());
    if rate { format!("{unit} per second asked for") } else { "operations at once".to_owned() }
}

fn rate_by_step(steps: &[Step], result: &RunResult) -> String {
    let unit = result.unit.name();
    let label = level(steps, unit);
    let done = Series {
        name: "done".to_owned(),
        mark: Mark::Line,
        points: steps.iter().map(|step| (step.level(), step.rate())).collect(),
        hints: steps
            .iter()
            .map(|step| format!("{}: {} per second", number(step.level()), number(step.rate())))
            .collect(),
    };
    let mut all = vec![done];
    if steps.iter().all(|step| step.offered.is_some()) {
        let points = steps.iter().map(|step| (step.level(), step.level())).collect();
        all.push(Series { name: "asked for".to_owned(), mark: Mark::Line, points, hints: Vec::new() });
    }
    let x = Axis::new(&label, Scale::Linear, steps.iter().map(Step::level));
    let values = all.iter().flat_map(|series| series.points.iter().map(|(_, value)| *value));
    let y = Axis::new(&format!("{unit} per second"), Scale::Linear, values);
    chart("Ramp: rate", &x, &y, &all)
}

fn latency_by_step(steps: &[Step]) -> String {
    let place = |step: &Step| (step.level(), number(step.level()));
    let series = SHOWN
        .map(|(name, quantile)| quantiles(name, quantile, steps.iter(), place, |step: &Step| &step.latency));
    let x = Axis::new(&level(steps, "operations"), Scale::Linear, steps.iter().map(Step::level));
    chart("Ramp: latency", &x, &latency_axis(&series), &series)
}

/// The phases with a [`Histogram`] to show; `request` is omitted, because it repeats another one.
fn phases(result: &RunResult) -> Vec<(&'static str, &Histogram<u64>)> {
    let all = result.phases.all();
    all.into_iter().filter(|(name, histogram)| *name != "request" && !histogram.is_empty()).collect()
}

fn distribution(result: &RunResult) -> String {
    let mut html = String::new();
    for (name, histogram) in phases(result) {
        let bins = bins(histogram);
        let hint =
            |(at, share): &(f64, f64)| format!("from {}: {}", microseconds(at * 1e3), percent(share / 100.0));
        let hints = bins.iter().map(hint).collect();
        let (least, most) = (bins[0].0, bins[bins.len() - 1].0);
        let x = Axis::between(&format!("{name}, ms"), least, most);
        let y = Axis::new("share, %", Scale::Linear, bins.iter().map(|(_, share)| *share));
        let series = Series { name: name.to_owned(), mark: Mark::Bars, points: bins, hints };
        let title = format!("Distribution: {name}, {} values", count(histogram.len()));
        html += &chart(&title, &x, &y, &[series]);
    }
    html
}

/// Starts of bins in milliseconds and their shares in percent. The widths of bins grow by a constant factor, and none
/// is narrower than those of the histogram. The last bin is empty and ends the one before.
fn bins(histogram: &Histogram<u64>) -> Vec<(f64, f64)> {
    let (least, most) = (histogram.min().max(1) as f64, histogram.max().max(1) as f64 + 1.0);
    let factor = (most / least).powf(1.0 / BINS).max(1.02);
    let mut edges = vec![least];
    while edges.last().is_some_and(|edge| *edge < most) {
        // Values are whole microseconds: narrower bins would stay empty.
        let last = edges[edges.len() - 1];
        edges.push((last * factor).max(last + 1.0));
    }
    let mut counts = vec![0; edges.len()];
    for value in histogram.iter_recorded() {
        let at = value.value_iterated_to().max(1) as f64;
        let bin = edges.partition_point(|edge| *edge <= at).saturating_sub(1);
        counts[bin.min(edges.len() - 2)] += value.count_since_last_iteration();
    }
    let share = |count: u64| count as f64 * 100.0 / histogram.len() as f64;
    edges.iter().zip(counts).map(|(edge, count)| (edge / 1e3, share(count))).collect()
}

/// Latency over rarity: 90 %, 99 %, 99.9 % have equal distances.
fn percentiles(result: &RunResult) -> String {
    let rarest = phases(result).iter().map(|(_, histogram)| histogram.len()).max().unwrap_or(1);
    // More nines than the number of values has would only repeat the maximum.
    let nines = (rarest as f64).log10().clamp(1.0, 6.0);
    let series: Vec<_> = phases(result)
        .into_iter()
        .map(|(name, histogram)| {
            let most = (histogram.len() as f64).log10().min(nines);
            let places =
                (0..=120).map(|index| f64::from(index) / 120.0 * nines).filter(|place| *place <= most);
            let value =
                |place: f64| (place, milliseconds(histogram.value_at_quantile(1.0 - 10_f64.powf(-place))));
            Series {
                name: name.to_owned(),
                mark: Mark::Line,
                points: places.map(value).collect(),
                hints: Vec::new(),
            }
        })
        .collect();
    let names = ["0 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %"];
    let ticks = names.into_iter().enumerate().map(|(index, name)| (index as f64, name.to_owned()));
    let x =
        Axis::exact("part of all that took no longer", nines, ticks.filter(|(at, _)| *at <= nines).collect());
    chart("Percentiles", &x, &latency_axis(&series), &series)
}
