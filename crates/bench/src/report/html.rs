//! A page that needs nothing but itself: style and charts are in it, and no script. Light and dark, and made to be
//! printed too.

use super::figures::{count, duration, microseconds, number, percent};
use super::table::escape;
use super::{Machine, json, plots, tables};
use crate::result::RunResult;

const STYLE: &str = include_str!("page.css");

/// The page of one run. `program` is name and version of who measured.
pub fn run(result: &RunResult, machine: &Machine, program: &str) -> String {
    let settings =
        result.settings.iter().map(|(name, value)| format!("{name} {value}").trim_end().to_owned());
    let settings: Vec<_> = settings.collect();
    let mut body = head(&result.target, &format!("{} for {}", result.unit.name(), duration(result.elapsed)));
    body += &facts(&[
        ("measured", json::timestamp(result.started)),
        ("with", program.to_owned()),
        ("on", machine.line()),
        ("settings", if settings.is_empty() { "defaults".to_owned() } else { settings.join(", ") }),
    ]);
    body += &cards(&highlights(result));
    body += &plots::all(result);
    body.extend(tables::all(result).iter().skip(1).map(super::table::Table::to_html));
    page(&result.target, &body)
}

fn highlights(result: &RunResult) -> Vec<(String, String)> {
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

/// Title and what the page is about, in one sentence.
pub fn head(title: &str, lead: &str) -> String {
    format!("<h1>{}</h1>\n<p class=\"lead\">{}</p>\n", escape(title), escape(lead))
}

/// Names and what they say.
pub(crate) fn facts(all: &[(&str, String)]) -> String {
    let row = |(name, text): &(&str, String)| format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(text));
    format!("<dl>\n{}</dl>\n", all.iter().map(row).collect::<String>())
}

/// The figures that matter most, large.
pub(crate) fn cards(all: &[(String, String)]) -> String {
    let card =
        |(name, value): &(String, String)| format!("<div><b>{}</b>{}</div>\n", escape(value), escape(name));
    format!("<div class=\"cards\">\n{}</div>\n", all.iter().map(card).collect::<String>())
}

/// A whole page around `body`, which is HTML.
pub fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n<main>\n{body}</main>\n</html>\n"
    )
}
