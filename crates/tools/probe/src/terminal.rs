//! Reports as text for terminals.

mod folded;
mod paint;
pub(crate) mod tables;
mod waterfall;

use std::fmt::Write;

use brisk_handshake_view::Party;
use brisk_handshake_view::{StepRow, Waited};
use brisk_report::figures::{bytes, count};
use brisk_report::{Table, wrapped};

use crate::browser::Browser;
use crate::compare::Compared;
use crate::findings::Finding;
use crate::http3::Http3Report;
use crate::report::{Report, TlsFacts};
use crate::resolve::HttpsAnswer;
use crate::timing::Timing;
pub use paint::{Paint, Style};
use waterfall::waterfall;

/// Minimum width for the columns of offsets and records.
const WIDE: usize = 92;

/// The whole report without the reason of a failure.
pub fn text(report: &Report, paint: &Paint) -> String {
    let mut text = format!("{}\n\n", paint.style(Style::Title, &report.url));
    text.push_str(&facts(report, paint));
    if !report.steps.is_empty() {
        text.push('\n');
        text.push_str(&steps(report, paint));
    }
    if report.phases.connect_ms.is_some() || report.phases.unfinished.is_some() {
        text.push('\n');
        text.push_str(&waterfall(report, paint));
    }
    if report.failure.is_none() || !report.findings.is_empty() {
        text.push('\n');
        text.push_str(&findings_text(&report.findings, paint));
    }
    text
}

/// The report and all HTTP/2 frames.
pub fn with_frames(report: &Report, paint: &Paint) -> String {
    format!("{}\n{}", text(report, paint), tables::frames(report, paint.width()))
}

/// Times of `curl -w`, from a [`Timing`].
pub fn timing(timing: &Timing, paint: &Paint) -> String {
    titled(&tables::timing(timing), paint)
}

/// Comparison of both sides.
pub fn compared(compared: &Compared, paint: &Paint) -> String {
    titled(&tables::compared(compared), paint)
}

/// The [`checks`](Browser::checks) for a client like Chrome.
pub fn browser(browser: &Browser, paint: &Paint) -> String {
    let mut text = format!("{}\n", paint.style(Style::Title, "A client like Chrome"));
    for check in &browser.checks {
        let (style, mark) = if check.is_right { (Style::Good, "✓") } else { (Style::Warn, "✗") };
        let should = if check.is_right { String::new() } else { format!("; should be {}", check.should) };
        let lines = wrapped(&format!("{mark} {:<17} {}{should}", check.name, check.gets), paint.width());
        let _ = writeln!(text, "{}", paint.style(style, lines.trim_end()));
    }
    text.push_str(&paint.style(Style::Soft, "  Chrome differs:\n"));
    for difference in browser.differences {
        text.push_str(&paint.style(Style::Soft, &wrapped(&format!("- {difference}"), paint.width())));
    }
    text
}

/// The results for HTTP/3, as text.
pub fn http3(report: &Http3Report, paint: &Paint) -> String {
    let title = format!("HTTP/3 at {} (UDP)", report.address);
    let mut text = format!("{}\n", paint.style(Style::Title, &title));
    for (name, value, is_right) in report.lines() {
        let (style, mark) = if is_right { (Style::Good, "✓") } else { (Style::Warn, "✗") };
        let lines = wrapped(&format!("{mark} {name:<17} {value}"), paint.width());
        let _ = writeln!(text, "{}", paint.style(style, lines.trim_end()));
    }
    text
}

fn titled(table: &Table, paint: &Paint) -> String {
    paint.titled(&table.to_text(paint.width()))
}

/// A time in milliseconds.
pub(crate) fn ms(value: f64) -> String {
    match value {
        // The limits are where rounding adds a digit: 99.96 with one decimal would be `100.0`.
        _ if value >= 1000.0 => format!("{:.2} s", value / 1000.0),
        _ if value >= 99.95 => format!("{value:.0} ms"),
        _ if value >= 0.995 => format!("{value:.1} ms"),
        _ => format!("{value:.2} ms"),
    }
}

/// Facts as names and values, one line each.
pub(crate) fn pairs(report: &Report) -> Vec<(&'static str, String)> {
    let mut all = vec![("resolve", resolved(report))];
    match &report.https_record {
        HttpsAnswer::NotAsked => {}
        HttpsAnswer::None => all.push(("HTTPS record", "none".to_owned())),
        HttpsAnswer::Failed(reason) => all.push(("HTTPS record", format!("unknown: {reason}"))),
        HttpsAnswer::Found(records) => {
            for record in records.iter().take(4) {
                let alpn = if record.alpn.is_empty() { "no ALPN".to_owned() } else { record.alpn.join(", ") };
                let ech = if record.has_ech { "with ECH" } else { "without ECH" };
                all.push(("HTTPS record", format!("{} {}, {alpn}, {ech}", record.priority, record.target)));
            }
        }
    }
    tcp(report, &mut all);
    if let Some(tls) = &report.tls {
        self::tls(tls, &mut all);
    }
    if let Some(answer) = &report.answer {
        let body = bytes(answer.body_bytes as f64);
        let head = count(answer.head_bytes as u64);
        all.push((
            "answer",
            format!("{} over {}, head {head} B, body {body}", answer.status, answer.protocol),
        ));
    }
    all
}

fn resolved(report: &Report) -> String {
    let time = report.phases.resolve_ms.map_or_else(String::new, |time| format!(" in {}", ms(time)));
    match report.addresses.len() {
        0 => "no address".to_owned(),
        1..=8 => format!("{}{time}", report.addresses.join(", ")),
        many => format!("{} and {} more{time}", report.addresses[..8].join(", "), many - 8),
    }
}

fn tcp(report: &Report, all: &mut Vec<(&'static str, String)>) {
    for (address, why) in report.refused.iter().take(4) {
        all.push(("refused", format!("{address}: {why}")));
    }
    let (Some(tcp), Some(address)) = (&report.tcp, &report.address) else { return };
    let segment = count(tcp.segment.into());
    all.push(("TCP", format!("{address}, RTT {}, segments of {segment} B", ms(tcp.rtt_ms))));
    if let Some(window) = tcp.window {
        let (segments, bytes) = (window.segments, count(window.bytes));
        let text = if window.is_limit {
            format!("{segments} segments ({bytes} B): the rest of the flight waited for an acknowledgement")
        } else {
            format!("at least {segments} segments ({bytes} B came at once)")
        };
        all.push(("window", text));
    }
    if tcp.retransmissions > 0 {
        all.push(("lost", format!("{} segments were sent again", tcp.retransmissions)));
    }
    if tcp.fast_open != crate::FastOpen::NotAsked {
        all.push(("Fast Open", tcp.fast_open.text().to_owned()));
    }
}

fn tls(tls: &TlsFacts, all: &mut Vec<(&'static str, String)>) {
    let group = tls.group.as_deref().unwrap_or("no exchange");
    let scheme = tls.scheme.as_deref().unwrap_or("no signature");
    all.push(("TLS", format!("{}, {}, {group}, {scheme}", tls.version, tls.suite)));
    let protocol = tls.protocol.as_deref().unwrap_or("none");
    let early =
        if tls.early_data == "none" { String::new() } else { format!(", early data {}", tls.early_data) };
    if tls.is_complete {
        all.push(("", format!("ALPN {protocol}, {}{early}", session(tls.resumption))));
    } else {
        all.push(("", "the handshake was not completed".to_owned()));
    }
    if let Some(group) = &tls.hello_retry {
        all.push(("", format!("HelloRetryRequest for {group}: a lost round trip")));
    }
    if let Some(flight) = tls.flight_bytes {
        let (flight, window) = (count(flight), count(tls.window_bytes));
        let text =
            format!("{flight} B of {window} B in ten segments ({} B over QUIC)", count(tls.quic_bytes));
        all.push(("first flight", text));
    }
    match &tls.chain {
        Some(chain) => chain_pairs(chain, &tls.trust(), all),
        None if tls.is_trusted.is_some() => {
            all.push(("chain", format!("of the session's first connection: {}", tls.trust())));
        }
        None => {}
    }
    for ticket in tls.tickets.iter().take(4) {
        let early = if ticket.early_data > 0 {
            format!(", 0-RTT up to {} B", count(ticket.early_data.into()))
        } else {
            String::new()
        };
        all.push(("ticket", format!("{} B, for {} s{early}", ticket.bytes, count(ticket.lifetime_s.into()))));
    }
    match tls.false_start {
        Some(true) => all.push((
            "False Start",
            "possible (ECDHE, AEAD, ALPN): saves clients that do it a round trip".to_owned(),
        )),
        Some(false) => all.push(("False Start", "not possible: it takes ECDHE, an AEAD and ALPN".to_owned())),
        None => {}
    }
}

fn session(resumption: &str) -> String {
    if resumption == "full" { "full handshake".to_owned() } else { format!("resumed ({resumption})") }
}

fn chain_pairs(chain: &crate::Chain, trust: &str, all: &mut Vec<(&'static str, String)>) {
    let compressed = chain.compressed.as_ref().map_or_else(String::new, |(bytes, algorithm)| {
        format!(", {} B compressed with {algorithm}", count(*bytes as u64))
    });
    let staple = if chain.staple_bytes == 0 {
        "no staple".to_owned()
    } else {
        format!("staple of {} B", count(chain.staple_bytes as u64))
    };
    all.push(("chain", format!("{} B{compressed}, {staple}, {trust}", count(chain.bytes as u64))));
    for certificate in chain.certificates.iter().take(6) {
        let subject = &certificate.subject;
        all.push((
            "",
            format!("{subject} ({}, {} B) by {}", certificate.key, certificate.bytes, certificate.issuer),
        ));
    }
}

fn facts(report: &Report, paint: &Paint) -> String {
    let all = pairs(report);
    let width = all.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    let room = paint.width().saturating_sub(width + 4).max(20);
    let mut text = String::new();
    for (name, value) in all {
        let name = paint.style(Style::Soft, &format!("{name:<width$}"));
        for (index, line) in wrapped(&value, room).lines().enumerate() {
            let lead = if index == 0 { name.clone() } else { " ".repeat(width) };
            let _ = writeln!(text, "  {lead}{line}");
        }
    }
    text
}

/// Table of steps. Without offsets and records it fits into 80 columns.
pub(crate) fn table(rows: &[StepRow], is_wide: bool) -> Table {
    let mut table =
        Table::new("Steps").figure("at ms").figure("+ms").figure("trip").text("what").figure("bytes");
    if is_wide {
        table = table.figure("offset").text("record");
    }
    table = table.text("waited for");
    for row in rows {
        let arrow = if row.from == Party::Client { "→" } else { "←" };
        let mut cells = vec![
            step_ms(row.at_ms),
            step_ms(row.since_ms),
            row.round.to_string(),
            format!("{arrow} {}", row.name),
            count(row.bytes),
        ];
        if is_wide {
            cells.extend([count(row.offset), record(row)]);
        }
        cells.push(waited(row.waited));
        table.row(cells);
    }
    table
}

/// A time of the table: with two decimals below 1,000 ms.
fn step_ms(time: f64) -> String {
    if time < 999.995 { format!("{time:.2}") } else { count(time.round() as u64) }
}

fn record(row: &StepRow) -> String {
    let lock = if row.is_encrypted { " enc" } else { "" };
    match row.records {
        1 => format!("{}{lock}", row.record),
        more => format!("{}-{}{lock}", row.record, row.record + more - 1),
    }
}

fn waited(waited: Waited) -> String {
    match waited {
        Waited::Nothing => String::new(),
        Waited::Client => "client".to_owned(),
        Waited::Server { network_ms, server_ms } if server_ms < 0.05 => format!("net {}", part(network_ms)),
        Waited::Server { network_ms, server_ms } => {
            format!("net {}, server {}", part(network_ms), part(server_ms))
        }
    }
}

/// A part of a wait: with one decimal below 100 ms.
fn part(time: f64) -> String {
    if time < 99.95 { format!("{time:.1}") } else { count(time.round() as u64) }
}

fn steps(report: &Report, paint: &Paint) -> String {
    // Colours are added to finished lines: a table would count escape sequences as columns.
    let text = table(&folded::folded(&report.steps), paint.width() >= WIDE).to_text(paint.width());
    let mut lines = text.lines();
    let title = lines.next().unwrap_or_default();
    let heading = lines.next().unwrap_or_default();
    let mut painted =
        format!("{}\n{}\n", paint.style(Style::Title, title), paint.style(Style::Soft, heading));
    for line in lines {
        let style = if line.contains(" → ") { Style::Client } else { Style::Server };
        let _ = writeln!(painted, "{}", paint.style(style, line));
    }
    painted
}

/// Numbered findings.
pub(crate) fn findings_text(findings: &[Finding], paint: &Paint) -> String {
    if findings.is_empty() {
        return format!("{}\n", paint.style(Style::Good, "Nothing to improve was found."));
    }
    let mut text = format!("{}\n", paint.style(Style::Title, "Findings"));
    for (index, finding) in findings.iter().enumerate() {
        let number = format!("{}.", index + 1);
        // Further lines begin below the text, not below the number.
        let lines = wrapped(&format!("{} ({})", finding.text, cost(finding)), paint.width() - 3);
        let lines: Vec<_> = lines.lines().map(str::trim_start).collect();
        text.push_str(&paint.style(Style::Warn, &format!("  {number:<3}{}", lines.join("\n     "))));
        text.push('\n');
        for (name, change) in
            [("brisk", &finding.brisk), ("nginx", &finding.nginx), ("else", &finding.advice)]
        {
            if !change.is_empty() {
                let lines = wrapped(change, paint.width().saturating_sub(11));
                for (line, text_line) in lines.lines().enumerate() {
                    let lead = if line == 0 { format!("{name:<6}") } else { " ".repeat(6) };
                    let _ = writeln!(text, "     {}{text_line}", paint.style(Style::Soft, &lead));
                }
            }
        }
    }
    text
}

/// Cost of a finding as text.
pub(crate) fn cost(finding: &Finding) -> String {
    let mut parts = Vec::new();
    match finding.round_trips {
        0 if finding.ms > 0.0 => parts.push(ms(finding.ms)),
        0 => {}
        1 => parts.push(format!("1 round trip, {}", ms(finding.ms))),
        more => parts.push(format!("{more} round trips, {}", ms(finding.ms))),
    }
    if finding.bytes > 0 {
        parts.push(format!("{} B", count(finding.bytes)));
    }
    if parts.is_empty() { "no round trip".to_owned() } else { parts.join(", ") }
}
