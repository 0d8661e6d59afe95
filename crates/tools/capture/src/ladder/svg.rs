//! Ladder diagram of one connection as an SVG file that needs no other file.

use std::fmt::Write;

use brisk_handshake_view::Party;
use brisk_report::escape;

use super::{events, label};
use crate::connection::Row;
use crate::decode::Control;
use crate::report::ConnectionReport;
use crate::time::millis;

/// Height of a row.
const ROW: usize = 20;

/// Height of the heading.
const HEAD: usize = 44;

/// Colours, which follow the light or dark setting of the reader.
const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#222}path{stroke:#456;fill:none}.soft{fill:#667}\
    .bad{fill:#b00}path.bad{stroke:#b00;fill:none}rect{fill:#fff}rect.zero{fill:#b00;opacity:.12}\
    @media(prefers-color-scheme:dark){text{fill:#ddd}path{stroke:#9ab}.soft{fill:#99a}.bad{fill:#f77}path.bad{stroke:#f77}rect{fill:#181a1f}}";

/// Line of the diagram.
enum Line<'a> {
    Packet(&'a Row, &'a [String]),
    /// Event of a record: microseconds since the first packet, and a text.
    Event(i64, String),
}

/// Diagram of the packets of a connection, at most 2,000, and of its records. `None` if its packets were not kept.
pub(crate) fn svg(report: &ConnectionReport) -> Option<String> {
    let lines = lines(report)?;
    let height = HEAD + lines.len() * ROW + ROW;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1000 {height}\" width=\"1000\" height=\"{height}\" role=\"img\">\n\
         <title>Packets of connection {}</title>\n<style>{STYLE}</style>\n<rect width=\"1000\" height=\"{height}\"/>\n",
        report.connection
    );
    let client = format!("client {}:{}", report.client, report.client_port);
    let server = format!("server {}:{}", report.server, report.server_port);
    text(&mut svg, (190, 16), "start", "soft", &client);
    text(&mut svg, (990, 16), "end", "soft", &server);
    // Writing to a string cannot fail.
    let _ = writeln!(svg, "<path d=\"M190 24V{height}M990 24V{height}\"/>");
    // Before the arrows: SVG paints in the order of the file, and the areas would cover texts.
    for index in zero_windows(&lines) {
        let y = HEAD + index * ROW - ROW / 2;
        let _ = writeln!(svg, "<rect class=\"zero\" x=\"190\" y=\"{y}\" width=\"800\" height=\"{ROW}\"/>");
    }
    for (index, line) in lines.iter().enumerate() {
        draw(&mut svg, report, line, HEAD + index * ROW);
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

/// Packets and events in the order of their times.
fn lines(report: &ConnectionReport) -> Option<Vec<Line<'_>>> {
    let mut events = events(report).into_iter().peekable();
    let mut lines = Vec::new();
    for (row, messages) in report.rows.as_ref()? {
        let at = i64::try_from(row.time.since(report.time).as_micros()).unwrap_or(i64::MAX);
        while let Some((at, text)) = events.next_if(|(event, _)| *event <= at) {
            lines.push(Line::Event(at, text));
        }
        lines.push(Line::Packet(row, messages));
    }
    lines.extend(events.map(|(at, text)| Line::Event(at, text)));
    Some(lines)
}

/// Indices of the lines at which the receive window of a side is zero.
fn zero_windows(lines: &[Line<'_>]) -> Vec<usize> {
    let mut is_zero = [false; 2];
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if let Line::Packet(row, _) = line
            && !row.control.has(Control::RST)
        {
            is_zero[row.from as usize] = row.window == Some(0) && row.ack.is_some();
        }
        if is_zero.contains(&true) {
            found.push(index);
        }
    }
    found
}

fn draw(svg: &mut String, report: &ConnectionReport, line: &Line<'_>, y: usize) {
    let (at, row, content) = match line {
        Line::Packet(row, messages) => (millis(row.time.since(report.time)), Some(row), label(row, messages)),
        Line::Event(at, text) => (*at as f64 / 1e3, None, text.clone()),
    };
    text(svg, (170, y), "end", "soft", &format!("{at:.3} ms"));
    let Some(row) = row else {
        text(svg, (590, y), "middle", "soft", &content);
        return;
    };
    let class = if row.flags.is_empty() { "" } else { "bad" };
    text(svg, (60, y), "end", "soft", &row.packet.to_string());
    let arrow = match row.from {
        Party::Client => format!("M190 {y}H984m-8 -4l8 4l-8 4"),
        Party::Server => format!("M990 {y}H196m8 -4l-8 4l8 4"),
    };
    let _ = writeln!(svg, "<path class=\"{class}\" d=\"{arrow}\"/>");
    text(svg, (590, y - 3), "middle", class, &content);
}

fn text(svg: &mut String, (x, y): (usize, usize), anchor: &str, class: &str, content: &str) {
    let content = escape(content);
    let _ = writeln!(
        svg,
        "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" class=\"{class}\">{content}</text>"
    );
}

#[cfg(test)]
mod tests {
    use brisk_handshake_view::Party::Client;

    use super::*;
    use crate::analysis::{Rows, Settings};
    use crate::testing::{Written, handshake, pcap, results};

    #[test]
    fn names_in_packets_cannot_end_the_text() {
        let mut packets = handshake();
        packets.push(Written::new(40, Client, 101, 501, b"GET /</text><script> HTTP/1.1\r\n\r\n"));
        let settings = Settings { rows: Rows::All, ..Settings::default() };
        let (results, _) = results(&pcap(packets), settings);
        let svg = svg(&results.connections[0]).expect("packets");
        assert!(svg.contains("GET /&lt;/text&gt;&lt;script&gt;") && !svg.contains("<script>"), "{svg}");
        assert_eq!(svg.matches("<path").count(), 1 + 4);
        assert!(svg.contains("client 192.0.2.1:5000") && svg.contains("30.000 ms"), "{svg}");
    }

    #[test]
    fn zero_windows_are_shaded() {
        let mut packets = handshake();
        let ack = |millis, window| Written::new(millis, Client, 101, 501, b"").window(window);
        packets.extend([ack(40, 0), ack(41, 0), ack(42, 500)]);
        let settings = Settings { rows: Rows::All, ..Settings::default() };
        let (results, _) = results(&pcap(packets), settings);
        let svg = svg(&results.connections[0]).expect("packets");
        assert_eq!(svg.matches("<rect class=\"zero\"").count(), 2, "{svg}");
    }
}
