//! `brisk speed --engine cuda`: RSA on a GPU, beside the processor.

use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use brisk_bench::report::plot::{Axis, Mark, Scale, Series, chart};
use brisk_bench::report::{Machine, html};
use brisk_speed::cuda::{self, CudaResult, CudaRow, Point, json, markdown};

use crate::args::Speed;
use crate::bench::PROGRAM;
use crate::speed::Live;

/// 2 if what was asked for makes no sense, 1 if nothing could be measured, or a result was wrong.
pub(crate) fn run(arguments: Speed) -> ExitCode {
    let (as_json, options) = (arguments.json, &arguments.cuda);
    let (file, page) = (options.markdown.clone(), options.html.clone());
    let plan = match arguments.cuda_plan() {
        Ok(plan) => plan,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    let machine = Machine::this();
    let tables = |result: &CudaResult| markdown::text(result, &machine.line());
    let mut live = Live::new();
    let result = cuda::run(&plan, &mut live, |so_far| {
        // What cannot be written now is complained of at the end.
        if let Some(file) = &file {
            drop(fs::write(file, tables(so_far)));
        }
    });
    live.finish();
    let told = result.map_err(anyhow::Error::from).and_then(|result| {
        let text = if as_json { json::text(&result, &machine, PROGRAM) } else { tables(&result) };
        io::stdout().write_all(text.as_bytes()).context("cannot write to standard output")?;
        let files = [(&file, tables(&result)), (&page, charts(&result, &machine.line()))];
        for (file, text) in files.iter().filter_map(|(file, text)| Some((file.as_ref()?, text))) {
            fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(result.verified.iter().map(|verified| verified.wrong).sum::<u64>())
    });
    match told {
        Ok(0) => ExitCode::SUCCESS,
        Ok(wrong) => {
            eprintln!("{wrong} results of the GPU are not those of AWS-LC");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A page with a chart for each size: the time of an operation against the load, processor and GPU.
fn charts(result: &CudaResult, machine: &str) -> String {
    let title = format!("RSA on {}", result.card);
    let lead = format!(
        "The time of an operation against operations per second, from one under way to as many as can be; beside {} threads \
         of {machine}.",
        result.processor_threads
    );
    let charts: String = result.rows.iter().map(of_size).collect();
    html::page(&title, &format!("{}{charts}", html::head(&title, &lead)))
}

fn of_size(row: &CudaRow) -> String {
    let all = || row.processor.iter().chain(&row.card);
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
    let series = [of_engine("processor", &row.processor), of_engine("GPU", &row.card)].concat();
    chart(row.algorithm.title(), &x, &y, &series)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use brisk_keys::{CudaLayout, CudaSettings, CudaTimes};
    use brisk_speed::Algorithm;

    use super::*;

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
            algorithm: Algorithm::Rsa2048,
            times,
            threshold: None,
            processor: vec![point(1, 5000.0), point(64, 250_000.0)],
            card: vec![point(1, 300.0), point(4096, 1e6), point(65536, 0.0)],
            paced: point(0, 8e5),
        };
        let result = CudaResult {
            card: "a <card>".into(),
            processor_threads: 16,
            settings: CudaSettings::default(),
            time: Duration::from_secs(1),
            rows: vec![row],
            variants: Vec::new(),
            verified: Vec::new(),
        };
        let page = charts(&result, "a machine");
        for part in [
            "RSA on a &lt;card&gt;",
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
