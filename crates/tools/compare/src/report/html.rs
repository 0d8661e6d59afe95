//! A comparison as a page: a chart of ratios with their intervals, then the tables.

use brisk_report::figures::number;
use brisk_report::plot::{Axis, Estimate, Scale, estimates};
use brisk_report::{Table, escape, html};

use super::{Report, tables};
use crate::{Baseline, Estimate as Interval, Measure, baseline, ratio};

pub(super) fn page(report: &Report<'_>) -> String {
    let lead = if report.plan.about.is_empty() { "A comparison." } else { &report.plan.about };
    let mut body = html::head(&report.plan.title, lead);
    if !report.plan.published.is_empty() {
        body.extend(["<p class=\"lead\">Published: ", &escape(&report.plan.published), "</p>\n"]);
    }
    let mut facts = vec![
        ("measured", report.started()),
        ("with", report.program.to_owned()),
        ("on", report.machine.line()),
        ("result", report.outcome()),
    ];
    let named = report.plan.targets.iter().zip(&report.versions);
    let versions: Vec<_> =
        named.filter(|(_, version)| !version.is_empty()).map(|(_, version)| version.clone()).collect();
    if !versions.is_empty() {
        facts.push(("servers", versions.join("; ")));
    }
    body += &html::facts(&facts);
    let notes = report.notes();
    if !notes.is_empty() {
        body.push_str("<section>\n<h2>Notes</h2>\n<ul>\n");
        body.extend(notes.iter().map(|note| format!("<li>{}</li>\n", escape(note))));
        body.push_str("</ul>\n</section>\n");
    }
    body.extend(report.plan.measures.iter().map(|measure| chart(report, *measure)));
    body.extend(tables::all(report, usize::MAX).iter().map(Table::to_html));
    html::page(&report.plan.title, &body)
}

/// A chart of one measure of all cells by group: ratios if there is a baseline, values otherwise.
fn chart(report: &Report<'_>, measure: Measure) -> String {
    let compared = report.plan.baseline != Baseline::default();
    let groups = tables::groups(report);
    let mut rows = Vec::new();
    for group in &groups {
        let found = group.cells.iter().filter_map(|place| row(report, *place, measure));
        let found: Vec<_> = found.collect();
        if groups.len() > 1 && !found.is_empty() {
            rows.push(heading(&group.name));
        }
        rows.extend(found);
    }
    if rows.is_empty() {
        return String::new();
    }
    let values = rows.iter().filter_map(|row| row.range).flat_map(|(value, low, high)| [value, low, high]);
    let axis = if compared {
        // With 1, so that the line of equality is visible even if all ratios are on one side of it.
        Axis::new(&format!("{}, ratio", measure.title()), Scale::Logarithmic, values.chain([1.0]))
    } else {
        Axis::new(measure.title(), Scale::Linear, values)
    };
    estimates(&capitalised(measure.title()), &axis, compared.then_some(1.0), &rows)
}

fn heading(name: &str) -> Estimate {
    Estimate { name: name.to_owned(), is_heading: true, series: 0, range: None, text: String::new() }
}

/// `None` for a cell without this measure.
fn row(report: &Report<'_>, place: usize, measure: Measure) -> Option<Estimate> {
    let cells = &report.comparison.cells;
    let own = cells[place].value(measure)?;
    let value = measure.show(own.median);
    let (shown, text) = match baseline(report.plan.baseline, cells, place) {
        _ if report.plan.baseline == Baseline::default() => (Some(own), value),
        Some(base) if base == place => (Some(Interval { median: 1.0, low: 1.0, high: 1.0, ..own }), value),
        base => {
            let ratio = base.and_then(|base| ratio(cells, place, base, measure));
            let text =
                ratio.map_or_else(|| value.clone(), |ratio| format!("{value}, × {}", number(ratio.median)));
            (ratio, text)
        }
    };
    Some(Estimate {
        name: tables::name(report, &cells[place]),
        is_heading: false,
        // One colour for each target.
        series: cells[place].target,
        range: shown.map(|found| (found.median, found.low, found.high)),
        text,
    })
}

/// Capitalises a title: `Server CPU µs`, but `p99 µs`.
fn capitalised(title: &str) -> String {
    let is_word = title.chars().nth(1).is_some_and(char::is_alphabetic);
    let mut letters = title.chars();
    let first = letters.next().filter(|_| is_word).map(|first| first.to_uppercase().to_string());
    first.map_or_else(|| title.to_owned(), |first| first + letters.as_str())
}
