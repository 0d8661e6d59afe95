//! Ladder diagram of one connection as text, and as SVG.

mod svg;

use std::fmt::Write;

use brisk_handshake_view::Party;
use brisk_report::figures::shortened;

use crate::connection::Row;
use crate::join::RecordReport;
use crate::report::ConnectionReport;
use crate::time::{micros, millis};
pub(crate) use svg::svg;

/// Width of a line.
const WIDTH: usize = 80;

/// Width of the columns in front of the diagram.
const MARGIN: usize = 29;

/// Diagram of the packets of a connection, at most 2,000, in lines of 80 columns. `None` if its packets were not kept.
pub(crate) fn text(report: &ConnectionReport) -> Option<String> {
    let rows = report.rows.as_ref()?;
    let mut text = format!("{:>7} {:>10} {:>8}  {}\n", "packet", "at ms", "+ms", heading(report));
    let mut before = report.time;
    let mut events = events(report).into_iter().peekable();
    // Writing to a string cannot fail.
    let mut add_events = |text: &mut String, until: i64| {
        while let Some((at, label)) = events.next_if(|(at, _)| *at <= until) {
            let _ = writeln!(text, "{:>7} {:>10.3} {:>8}  {}", "", at as f64 / 1e3, "", note(&label));
        }
    };
    for (row, messages) in rows {
        let since_first = row.time.since(report.time);
        add_events(&mut text, i64::try_from(micros(since_first)).unwrap_or(i64::MAX));
        let (at, since) = (millis(since_first), millis(row.time.since(before)));
        let arrow = arrow(row.from, &shortened(&label(row, messages), WIDTH - MARGIN - 6));
        let _ = writeln!(text, "{:>7} {at:>10.3} {since:>8.3}  {arrow}", row.packet);
        before = row.time;
    }
    add_events(&mut text, i64::MAX);
    Some(text)
}

/// Events of [`ConnectionReport::records`] in their order: microseconds since the first packet, and a text.
pub(crate) fn events(report: &ConnectionReport) -> Vec<(i64, String)> {
    let mut events: Vec<_> = report.records.iter().flat_map(RecordReport::events).collect();
    events.sort_by_key(|(at, _)| *at);
    events
}

/// An event between two packets.
fn note(label: &str) -> String {
    let label = shortened(label, WIDTH - MARGIN - 6);
    format!("{:·^1$}", format!(" {label} "), WIDTH - MARGIN)
}

/// Content of a packet, and results of its analysis.
pub(crate) fn label(row: &Row, messages: &[String]) -> String {
    let mut label = Vec::new();
    if row.control.names() != "ACK" {
        label.push(row.control.names());
    }
    label.extend(messages.iter().cloned());
    if row.len > 0 {
        label.push(format!("{} B", row.len));
    }
    label.extend(row.flags.names().map(|name| format!("[{}]", name.replace('_', " "))));
    if label.is_empty() {
        label.push("ACK".to_owned());
    }
    label.join(", ")
}

fn heading(report: &ConnectionReport) -> String {
    let (client, server) =
        (format!("client :{}", report.client_port), format!("server :{}", report.server_port));
    let space = WIDTH - MARGIN - client.len();
    format!("{client}{server:>space$}")
}

/// A label within an arrow from the sender to the receiver.
fn arrow(from: Party, label: &str) -> String {
    // The caller has shortened the label, so the difference is not negative.
    let dashes = WIDTH - MARGIN - 4 - label.chars().count();
    let (left, right) = ("─".repeat(dashes / 2), "─".repeat(dashes - dashes / 2));
    match from {
        Party::Client => format!("├{left} {label} {right}▶"),
        Party::Server => format!("◀{left} {label} {right}┤"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_have_one_width() {
        for label in ["", "SYN", &"x".repeat(WIDTH - MARGIN - 6)] {
            for from in [Party::Client, Party::Server] {
                assert_eq!(arrow(from, label).chars().count(), WIDTH - MARGIN);
                assert_eq!(note(label).chars().count(), WIDTH - MARGIN);
            }
        }
    }
}
