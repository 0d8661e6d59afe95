//! Reports as HTML pages: one file, no script, no network.

use std::fmt::Write;

use brisk_handshake_view::Party;
use brisk_handshake_view::StepRow;
use brisk_report::{Table, escape, html};

use crate::browsing::{PageLoad, section};
use crate::chart::{LINE, NAMES, WIDTH, bar, line, svg};
use crate::compare::Compared;
use crate::findings::Finding;
use crate::report::Report;
use crate::terminal::{self, tables};
use crate::timing::Timing;

/// Maximum number of lines of the chart; the table contains all steps.
const LINES: usize = 120;

/// Page for one connection, and for the page load if there was one.
pub fn report(report: &Report, load: Option<&PageLoad>, program: &str) -> String {
    let lead = format!("One HTTPS connection, step by step, as {program} saw it.");
    let mut body = html::head(&report.url, &lead);
    let highlights: Vec<_> = report
        .phases
        .named()
        .into_iter()
        .chain(report.phases.total_ms.map(|time| ("total", time)))
        .map(|(name, time)| (name.to_owned(), terminal::ms(time)))
        .collect();
    body.push_str(&html::highlights(&highlights));
    if let Some(failure) = &report.failure {
        let _ = writeln!(body, "<p><strong>{}</strong></p>", escape(&failure.message));
        if let Some(phase) = report.phases.unfinished {
            let _ = writeln!(body, "<p>The phase {phase} was not completed.</p>");
        }
    }
    let pairs = terminal::pairs(report);
    body.push_str(&html::facts(&pairs.iter().map(|(name, text)| (*name, text.clone())).collect::<Vec<_>>()));
    body.push_str(&findings("Findings", &report.findings).to_html());
    body.push_str(&waterfall(report));
    if let Some(load) = load {
        body.push_str(&section(load));
        body.push_str(&findings("Findings about the page", &load.findings).to_html());
    }
    body.push_str(&terminal::table(&report.steps, true).to_html());
    html::page(&format!("Probe of {}", report.url), &body)
}

/// Page for a [`Timing`].
pub fn timing(timing: &Timing, program: &str) -> String {
    let lead = format!("The times of curl -w for four kinds of connections, as {program} measured them.");
    let body = html::head(&timing.url, &lead) + &tables::timing(timing).to_html();
    html::page(&format!("Timing of {}", timing.url), &body)
}

/// Page for a comparison ([`Compared`]).
pub fn compared(compared: &Compared, program: &str) -> String {
    let title = compared.names.join(" and ");
    let lead = format!("Connections in turns, step by step, as {program} measured them.");
    let body = html::head(&title, &lead) + &tables::compared(compared).to_html();
    html::page(&format!("Comparison of {title}"), &body)
}

/// Findings as a table.
fn findings(title: &str, findings: &[Finding]) -> Table {
    let mut table = Table::new(title).text("what").text("cost").text("brisk").text("nginx").text("else");
    for finding in findings {
        let cost = terminal::cost(finding);
        table.row([&finding.text, &cost, &finding.brisk, &finding.nginx, &finding.advice]);
    }
    if findings.is_empty() {
        table.note("Nothing to improve was found.");
    }
    table
}

/// Chart of phases as bars, with the steps below at their times.
fn waterfall(report: &Report) -> String {
    // Steps begin where TCP began to connect.
    let before = [report.phases.resolve_ms, report.phases.refused_ms];
    let resolve: f64 = before.into_iter().flatten().sum();
    let last = report.steps.last().map_or(0.0, |step| step.at_ms);
    let most = (resolve + last).max(report.phases.total_ms.unwrap_or_default()).max(0.001);
    let place = |time: f64| NAMES + (time / most).clamp(0.0, 1.0) * (WIDTH - NAMES - 90.0);
    let phases = report.phases.named();
    let steps = &report.steps[..report.steps.len().min(LINES)];
    let height = (phases.len() + steps.len()) as f64 * LINE + 10.0;
    let mut svg = svg("Time", height);
    let (mut top, mut begin) = (0.0, 0.0);
    for (index, (name, time)) in phases.iter().enumerate() {
        let (left, right) = (place(begin), place(begin + time).max(place(begin) + 1.0));
        line(&mut svg, top, name, right, &terminal::ms(*time));
        bar(&mut svg, top, left, right, index % 6 + 1);
        begin += time;
        top += LINE;
    }
    for step in steps {
        self::step(
            &mut svg,
            top,
            step,
            place(resolve + step.at_ms - step.since_ms),
            place(resolve + step.at_ms),
        );
        top += LINE;
    }
    format!("<section>\n<h2>Time</h2>\n<div class=\"wide\">{svg}</svg></div>\n</section>\n")
}

/// A line over the time before the step, and a dot at its end.
fn step(svg: &mut String, top: f64, step: &StepRow, from: f64, to: f64) {
    let (arrow, class) = if step.from == Party::Client { ("→", 5) } else { ("←", 2) };
    line(svg, top, &format!("{arrow} {}", step.name), to, &format!("{} B", step.bytes));
    let middle = top + 10.0;
    let _ = write!(svg, "<path class=\"l c{class}\" d=\"M{from:.1} {middle:.1}H{to:.1}\"/>");
    let _ = write!(svg, "<circle class=\"p c{class}\" cx=\"{to:.1}\" cy=\"{middle:.1}\" r=\"4\"/>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Resolved;
    use crate::resolve::HttpsAnswer;
    use crate::trace::Trace;
    use crate::{ProbeError, Settings};

    #[test]
    fn a_page_escapes_what_strangers_wrote_and_names_no_other_file() {
        let resolved = Resolved {
            addresses: vec!["<script>".to_owned()],
            took: std::time::Duration::from_millis(1),
            https: HttpsAnswer::NotAsked,
        };
        let settings = Settings::new("https://example.test/".parse().expect("a URL"));
        let error = ProbeError::Answer("<b>".to_owned());
        let found = Report::of(&settings, resolved, &Trace::default(), Some(&error));
        let page = report(&found, None, "test");
        assert!(
            page.contains("&lt;script&gt;") && page.contains("&lt;b&gt;") && !page.contains("<script"),
            "{page}"
        );
        assert!(!page.contains("src=") && !page.contains("@import") && !page.contains("NaN"), "{page}");
    }
}
