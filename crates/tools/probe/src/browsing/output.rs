//! A page load as text with a waterfall of 80 columns, and as a section of a page.

use std::fmt::Write;

use brisk_report::figures::{bytes, shortened};
use brisk_report::{Table, escape};

use super::{PageLoad, PageRequest, origin};
use crate::chart;
use crate::terminal::{Paint, Style, findings_text, ms};

/// Maximum number of [`PageRequest`]s in [`text`].
const ROWS: usize = 60;

/// Columns of a request before its bar.
const COLUMNS: usize = 55;

/// The [`PageLoad`] as text.
pub fn text(load: &PageLoad, paint: &Paint) -> String {
    let title = format!("Page load in {}", load.browser);
    let mut text = format!("{}\n  {}\n", paint.style(Style::Title, &title), summary(load));
    let bar = paint.width().saturating_sub(COLUMNS).max(10);
    let heading = format!("  {:<26} {:>6} {:<8} {:>9}", "request", "status", "priority", "bytes");
    let _ = writeln!(text, "{}", paint.style(Style::Soft, &heading));
    let span = span(load);
    for request in load.requests.iter().take(ROWS) {
        let name = shortened(&name(load, request), 26);
        let size = bytes(request.bytes);
        let line = format!("  {name:<26} {:>6} {:<8} {size:>9} ", status(request), request.priority);
        let style =
            if request.status >= 400 || request.failure.is_some() { Style::Bad } else { Style::Server };
        let _ = writeln!(text, "{line}{}", paint.style(style, &self::bar(request, span, bar)));
    }
    if let Some(more @ 1..) = load.requests.len().checked_sub(ROWS) {
        let _ = writeln!(text, "  {more} more requests: see --json or --har");
    }
    text.push_str("  bar: ▒ connecting or queued, ░ until the head of the response, █ until its end\n\n");
    text + &findings_text(&load.findings, paint)
}

/// Times and sums in one line.
fn summary(load: &PageLoad) -> String {
    let time = |name: &str, time: Option<f64>| time.map(|time| format!("{name} {}", ms(time)));
    let sum = load.requests.iter().map(|request| request.bytes).sum();
    let mut parts = vec![format!("{} requests", load.requests.len()), bytes(sum)];
    parts.extend(
        [time("FCP", load.fcp_ms), time("LCP", load.lcp_ms), time("load", load.load_ms)]
            .into_iter()
            .flatten(),
    );
    parts.push(format!("CLS {:.3}", load.cls));
    parts.join(", ")
}

/// End of the last request in milliseconds.
fn span(load: &PageLoad) -> f64 {
    let end = |request: &PageRequest| request.start_ms + request.time_ms.unwrap_or_default();
    // At least a millisecond: bars are divided by the span.
    load.requests.iter().map(end).chain(load.load_ms).fold(1.0, f64::max)
}

/// Path of a request; with the origin if it is another one.
fn name(load: &PageLoad, request: &PageRequest) -> String {
    if origin(&load.url) == request.origin() { request.path().to_owned() } else { request.url.clone() }
}

fn status(request: &PageRequest) -> String {
    match request.status {
        0 => "none".to_owned(),
        _ if request.is_cached => "cache".to_owned(),
        status => status.to_string(),
    }
}

/// Bar of a request on `width` columns for `span` milliseconds.
fn bar(request: &PageRequest, span: f64, width: usize) -> String {
    let column = |at: f64| (at / span * (width - 1) as f64).round().clamp(0.0, (width - 1) as f64) as usize;
    let (start, time) = (request.start_ms, request.time_ms.unwrap_or(span - request.start_ms));
    let begin = column(start);
    let end = column(start + time).max(begin);
    let sent = column(start + request.blocked_ms).clamp(begin, end);
    let head = column(start + request.blocked_ms + request.wait_ms).clamp(sent, end);
    [(" ", begin), ("▒", sent - begin), ("░", head - sent), ("█", end - head + 1)]
        .map(|(part, count)| part.repeat(count))
        .concat()
}

/// The page load as sections of a page: waterfall and requests.
pub(crate) fn section(load: &PageLoad) -> String {
    let height = load.requests.len() as f64 * chart::LINE + 10.0;
    let span = span(load);
    let place =
        |time: f64| chart::NAMES + (time / span).clamp(0.0, 1.0) * (chart::WIDTH - chart::NAMES - 90.0);
    let mut svg = chart::svg("Waterfall of the page load", height);
    for (row, request) in load.requests.iter().enumerate() {
        let top = row as f64 * chart::LINE;
        let (start, time) = (request.start_ms, request.time_ms.unwrap_or_default());
        let sent = start + request.blocked_ms.min(time);
        let head = (sent + request.wait_ms).min(start + time);
        chart::line(&mut svg, top, &shortened(&name(load, request), 32), place(start + time), &ms(time));
        for (from, to, class) in [(start, sent, 3), (sent, head, 2), (head, start + time, 5)] {
            chart::bar(&mut svg, top, place(from), place(to), class);
        }
    }
    let title = format!("Page load in {}", load.browser);
    let legend = "violet: connecting or queued; orange: until the head of the response; blue: until its end";
    let mut html = format!(
        "<section>\n<h2>{}</h2>\n<p class=\"legend\">{}. {legend}</p>\n<div class=\"wide\">{svg}</svg></div>\n</section>\n",
        escape(&title),
        escape(&summary(load))
    );
    html.push_str(&table(load).to_html());
    html
}

fn table(load: &PageLoad) -> Table {
    let mut table =
        Table::new("Requests of the page").text("URL").text("status").text("protocol").text("priority");
    table = table.figures(["start ms", "time ms", "bytes"]);
    for request in &load.requests {
        let time = request.time_ms.map_or_else(|| "–".to_owned(), |time| format!("{time:.1}"));
        let start = format!("{:.1}", request.start_ms);
        let size = format!("{:.0}", request.bytes);
        table.row([
            request.url.clone(),
            status(request),
            request.protocol.clone(),
            request.priority.clone(),
            start,
            time,
            size,
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load() -> PageLoad {
        let request = |url: &str, start_ms: f64| PageRequest {
            url: url.to_owned(),
            status: 200,
            priority: "High".to_owned(),
            start_ms,
            blocked_ms: 10.0,
            wait_ms: 20.0,
            time_ms: Some(50.0),
            bytes: 1000.0,
            ..PageRequest::default()
        };
        PageLoad {
            url: "https://a.test/".to_owned(),
            browser: "Chrome/150".to_owned(),
            load_ms: Some(100.0),
            fcp_ms: Some(60.0),
            lcp_ms: None,
            cls: 0.0,
            requests: vec![request("https://a.test/", 0.0), request("https://b.test/<script>", 50.0)],
            findings: Vec::new(),
            began: 0.0,
        }
    }

    #[test]
    fn bars_have_three_parts_and_lines_fit() {
        let text = text(&load(), &Paint::plain());
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let bars: Vec<_> =
            text.lines().skip(3).take(2).map(|line| line.chars().skip(55).collect::<String>()).collect();
        assert_eq!(bars[0], format!("{}{}{}", "▒".repeat(4), "░".repeat(9), "█".repeat(10)));
        assert!(bars[1].starts_with(&" ".repeat(22)), "{text}");
    }

    #[test]
    fn an_origin_that_continues_that_of_the_page_is_another_one() {
        let load = load();
        for url in ["https://a.test:8443/x", "https://a.test.example/x", "https://a.tes/x"] {
            assert_eq!(name(&load, &PageRequest { url: url.to_owned(), ..PageRequest::default() }), url);
        }
        assert_eq!(name(&load, &load.requests[0]), "/");
    }

    #[test]
    fn a_section_escapes_urls() {
        let html = section(&load());
        assert!(html.contains("b.test/&lt;script&gt;") && !html.contains("<script"), "{html}");
        assert!(!html.contains("NaN"), "{html}");
    }
}
