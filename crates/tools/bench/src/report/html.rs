//! One run as an HTML page.

use brisk_report::figures::{count, duration, microseconds, number, percent};
use brisk_report::html::{facts, head, highlights, page};
use brisk_report::json::timestamp;
use brisk_report::{Machine, Table};

use super::{plots, tables};
use crate::result::RunResult;

/// The page of one [`RunResult`]: facts, charts, tables. `program` is the name and version of the measuring program.
pub fn run(result: &RunResult, machine: &Machine, program: &str) -> String {
    let settings =
        result.settings.iter().map(|(name, value)| format!("{name} {value}").trim_end().to_owned());
    let settings: Vec<_> = settings.collect();
    let mut body = head(&result.target, &format!("{} for {}", result.unit.name(), duration(result.elapsed)));
    body += &facts(&[
        ("measured", timestamp(result.started)),
        ("with", program.to_owned()),
        ("on", machine.line()),
        ("settings", if settings.is_empty() { "defaults".to_owned() } else { settings.join(", ") }),
    ]);
    body += &highlights(&main_figures(result));
    body += &plots::all(result);
    // Without the first table, the summary: facts and highlights contain it.
    body.extend(tables::all(result).iter().skip(1).map(Table::to_html));
    page(&result.target, &body)
}

fn main_figures(result: &RunResult) -> Vec<(String, String)> {
    let total = &result.phases.total;
    let quantile = |quantile| microseconds(total.value_at_quantile(quantile) as f64);
    let mut all = vec![(format!("{} per second", result.unit.name()), number(result.rate()))];
    if !total.is_empty() {
        all.extend(
            [("median latency", 0.5), ("99 % within", 0.99)].map(|(name, q)| (name.to_owned(), quantile(q))),
        );
    }
    all.push(("errors".to_owned(), count(result.error_count())));
    if let Some(usage) = &result.server {
        let of_handshake = usage.cpu_per_handshake.map(|time| ("server CPU per handshake", time));
        let of_request = usage.cpu_per_request.map(|time| ("server CPU per request", time));
        let times = of_request.or(of_handshake);
        all.extend(times.map(|(name, time)| (name.to_owned(), microseconds(time.as_secs_f64() * 1e6))));
        all.push(("server busy".to_owned(), percent(tables::busy(usage, result.elapsed))));
    }
    all
}
