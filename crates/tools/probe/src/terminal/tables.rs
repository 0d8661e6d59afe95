//! Timing, comparison and frames as tables.

use brisk_handshake_view::Party;
use brisk_report::figures::count;
use brisk_report::{Table, wrapped};

use super::ms;
use crate::compare::Compared;
use crate::report::{FrameRow, Report};
use crate::timing::{Median, Timing};

/// Maximum number of fields of a head in the table.
const FIELDS: usize = 100;

/// Times of `curl -w`, one column per kind of connection.
pub(crate) fn timing(timing: &Timing) -> Table {
    let mut table =
        Table::new(format!("Times since the beginning, in milliseconds: medians of {}", timing.url));
    table = table
        .text("")
        .figures(timing.columns.iter().map(|column| format!("{} ({})", column.kind, column.count)));
    for (index, name) in timing.names.iter().enumerate() {
        let cell = |column: &crate::Column| column.times.get(index).map_or("–".to_owned(), Median::text);
        table.row([(*name).to_owned()].into_iter().chain(timing.columns.iter().map(cell)));
    }
    for column in &timing.columns {
        if let Some(reason) = &column.missing {
            let rest = timing.rounds.saturating_sub(column.count);
            table.note(format!("{}: {reason}, in {rest} of {} rounds", column.kind, timing.rounds));
        }
    }
    if let Some(reason) = &timing.distrust {
        table.note(format!("NOT TRUSTED: {reason}"));
    }
    let column = timing.columns.first().filter(|column| column.count >= 6);
    if let Some(time) = column.and_then(|column| column.times.get(4)) {
        let (low, high) = (time.low, time.high);
        table.note(format!(
            "starttransfer of first connections: between {low:.2} and {high:.2} (interval of 95 %)"
        ));
    }
    table
}

impl Median {
    fn text(&self) -> String {
        format!("{:.2}", self.median)
    }
}

/// Phases and messages of both sides with their differences.
pub(crate) fn compared(compared: &Compared) -> Table {
    let [first, second] = &compared.names;
    let title = format!("A: {first}, B: {second}. Medians of {} rounds, in milliseconds", compared.rounds);
    let mut table =
        Table::new(title).text("step").figures(["A", "B", "B less A", "interval", "A bytes", "B bytes"]);
    for step in &compared.steps {
        let time =
            |side: usize| step.times[side].map_or("–".to_owned(), |time| format!("{:.2}", time.median));
        let bytes = |side: usize| step.bytes[side].map_or(String::new(), count);
        let difference = step.difference.map_or("–".to_owned(), |change| format!("{:+.2}", change.median));
        let interval = step
            .difference
            .map_or(String::new(), |change| format!("{:+.2} to {:+.2}", change.low, change.high));
        let name = if step.is_phase { step.name.clone() } else { format!("  {}", step.name) };
        table.row([name, time(0), time(1), difference, interval, bytes(0), bytes(1)]);
    }
    for (side, name) in ["A", "B"].into_iter().enumerate() {
        if let Some(reason) = &compared.missed[side] {
            let (right, all) = (compared.as_meant[side], compared.rounds);
            table.note(format!("{name}: only {right} of {all} connections are what was asked for: {reason}"));
        }
        if let Some(reason) = &compared.distrust[side] {
            table.note(format!("{name}: NOT TRUSTED: {reason}"));
        }
    }
    table.note("Phases are durations. Messages are since TCP began to connect.");
    if compared.rounds < 6 {
        table.note("With fewer than 6 rounds the interval is that of all values, and has less than 95 %.");
    }
    table
}

/// HTTP/2 frames.
pub(crate) fn frames(report: &Report, width: usize) -> String {
    if report.frames.is_empty() {
        return "Frames\n  none: HTTP/2 was not spoken\n".to_owned();
    }
    let mut text = "Frames\n".to_owned();
    for row in &report.frames {
        text.push_str(&frame(row, width));
    }
    text
}

fn frame(FrameRow { at_ms, frame }: &FrameRow, width: usize) -> String {
    let arrow = if frame.from == Party::Client { "→" } else { "←" };
    let begin = format!("  {:>9}  {arrow}  {:<14}", ms(*at_ms), frame.kind);
    let mut parts = vec![format!("stream {}", frame.stream), format!("{} B", count(frame.length.into()))];
    parts.extend(frame.flags.iter().map(|flag| (*flag).to_owned()));
    if !frame.detail.is_empty() {
        parts.push(frame.detail.clone());
    }
    if let Some((connection, stream)) = frame.windows {
        parts.push(format!("window {connection} of the connection, {stream} of the stream"));
    }
    let mut text = hanging(&begin, &parts.join(", "), width);
    let indent = " ".repeat(if width < super::WIDE { 14 } else { 33 });
    for (name, value) in frame.headers.iter().take(FIELDS) {
        text.push_str(&hanging(&indent, &format!("{name}: {value}"), width));
    }
    text
}

/// `text` after `begin`, in lines of at most `width` characters; later lines are indented as far as `begin`.
fn hanging(begin: &str, text: &str, width: usize) -> String {
    let indent = begin.chars().count();
    let mut lines = String::new();
    for line in wrapped(text, (width + 2).saturating_sub(indent).max(20)).lines() {
        let lead = if lines.is_empty() { begin.to_owned() } else { " ".repeat(indent) };
        // `wrapped` indents by two spaces.
        lines.push_str(&lead);
        lines.push_str(line.trim_start());
        lines.push('\n');
    }
    lines
}
