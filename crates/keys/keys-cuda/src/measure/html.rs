//! Report of a run as an HTML page.

use brisk_report::html::head;
use brisk_report::plot::{Axis, Mark, Scale, Series, chart};

use super::{CudaResult, CudaRow, Point};

/// A page with one chart for each size: latency against throughput of processor and GPU.
pub fn page(result: &CudaResult, machine: &str) -> String {
    let title = format!("RSA on {}", result.gpu);
    let lead = format!(
        "The time of an operation against operations per second, from one under way to as many as can be; beside {} threads \
         of {machine}.",
        result.processor_threads
    );
    let charts: String = result.rows.iter().map(of_size).collect();
    brisk_report::html::page(&title, &format!("{}{charts}", head(&title, &lead)))
}

fn of_size(row: &CudaRow) -> String {
    let all = || row.processor.iter().chain(&row.gpu);
    let x = Axis::new("operations per second", Scale::Logarithmic, all().map(|point| point.rate));
    let times = all().flat_map(|point| [point.median, point.p99]).map(|micros| micros / 1e3);
    let y = Axis::new("milliseconds", Scale::Logarithmic, times);
    let of_engine = |name: &str, points: &[Point]| {
        let series = |what: &str, time: fn(&Point) -> f64| {
            let measured = || points.iter().filter(|point| point.rate > 0.0);
            let hint = |point: &Point| format!("{} under way", point.under_way.unwrap_or_default());
            Series {
                name: format!("{name}, {what}"),
                mark: Mark::Line,
                points: measured().map(|point| (point.rate, time(point) / 1e3)).collect(),
                hints: measured().map(hint).collect(),
            }
        };
        [series("median", |point| point.median), series("99th percentile", |point| point.p99)]
    };
    let series = [of_engine("processor", &row.processor), of_engine("GPU", &row.gpu)].concat();
    chart(&row.width.to_string(), &x, &y, &series)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use brisk_keys::device::Width;

    use super::*;
    use crate::{CudaLayout, CudaSettings, CudaTimes};

    #[test]
    fn the_page_shows_both_engines_at_each_load() {
        let point = |under_way, rate| Point {
            under_way: Some(under_way),
            offered: None,
            rate,
            median: 900.0,
            p99: 1100.0,
        };
        let times = CudaTimes {
            one: Duration::from_millis(1),
            wave: Duration::from_millis(2),
            wave_operations: 4000,
            processor: Duration::from_micros(60),
            layout: CudaLayout::default(),
        };
        let row = CudaRow {
            width: Width::Rsa2048,
            times,
            threshold: None,
            processor: vec![point(1, 5000.0), point(64, 250_000.0)],
            gpu: vec![point(1, 300.0), point(4096, 1e6), point(65536, 0.0)],
            paced: point(0, 8e5),
        };
        let result = CudaResult {
            gpu: "a <GPU>".into(),
            processor_threads: 16,
            settings: CudaSettings::default(),
            time: Duration::from_secs(1),
            rows: vec![row],
            variants: Vec::new(),
            verified: Vec::new(),
        };
        let page = page(&result, "a machine");
        for part in [
            "RSA on a &lt;GPU&gt;",
            "16 threads of a machine",
            "RSA-2048",
            "GPU, 99th percentile",
            "4096 under way",
        ] {
            assert!(page.contains(part), "{part} is missing");
        }
        assert!(!page.contains("65536 under way"), "nothing was answered there");
    }
}
