//! Results as JSON lines.

use std::io::{self, Write};

use serde::Serialize;

use crate::analysis::{Output, PacketReport};
use crate::quic::QuicReport;
use crate::report::ConnectionReport;
use crate::summary::{CauseRow, Summary};

/// Writer of one JSON object per connection, optionally one per TCP packet, and one for the summary. The field `event` is
/// `connection`, `quic`, `packet` or `summary`. Each line is one write; after each connection, the output is flushed, so that the
/// connections of a recording are seen as they end.
#[derive(Debug)]
pub struct JsonLines<W> {
    output: W,
    has_packets: bool,
    line: Vec<u8>,
}

#[derive(Serialize)]
struct Line<'a, T> {
    event: &'static str,
    #[serde(flatten)]
    content: &'a T,
}

#[derive(Serialize)]
struct SummaryLine<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    causes: Vec<CauseRow>,
}

impl<W: Write> JsonLines<W> {
    /// Writes [`ConnectionReport`]s and [`QuicReport`]s to `output`.
    pub fn new(output: W) -> Self {
        Self { output, has_packets: false, line: Vec::new() }
    }

    /// Writes a line for each [`PacketReport`] too.
    #[must_use]
    pub fn with_packets(mut self) -> Self {
        self.has_packets = true;
        self
    }

    /// Writes the line of the [`Summary`].
    pub fn summary(&mut self, summary: &Summary) -> io::Result<()> {
        self.line("summary", &SummaryLine { summary, causes: summary.ranking() })?;
        self.output.flush()
    }

    fn line(&mut self, event: &'static str, content: &impl Serialize) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, &Line { event, content })?;
        self.line.push(b'\n');
        self.output.write_all(&self.line)
    }
}

impl<W: Write> Output for JsonLines<W> {
    fn connection(&mut self, report: &ConnectionReport) -> io::Result<()> {
        self.line("connection", report)?;
        self.output.flush()
    }

    fn quic(&mut self, report: &QuicReport) -> io::Result<()> {
        self.line("quic", report)?;
        self.output.flush()
    }

    fn packet(&mut self, report: &PacketReport) -> io::Result<()> {
        if self.has_packets { self.line("packet", report) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::BufWriter;

    use brisk_handshake_view::Party::Client;

    use super::*;
    use crate::analysis::{Settings, analyse};
    use crate::decode::Control;
    use crate::testing::{Written, handshake, pcap};

    /// Output that keeps the bytes of each write.
    struct Writes<'a>(&'a mut Vec<Vec<u8>>);

    impl Write for Writes<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_written_whole_and_connections_as_they_end() {
        let reset = Written::new(40, Client, 101, 501, b"").control(Control::RST);
        let again = (0..30).flat_map(|number| {
            let packets = handshake().into_iter().chain([reset.clone()]);
            packets.map(move |mut packet| {
                packet.micros += number * 1_000_000;
                packet.seq += number as u32 * 50_000;
                packet.ack += number as u32 * 50_000;
                packet
            })
        });
        let mut writes = Vec::new();
        let mut lines = JsonLines::new(BufWriter::new(Writes(&mut writes))).with_packets();
        let summary = analyse(&pcap(again)[..], Settings::default(), &mut lines).expect("a capture");
        lines.summary(&summary).expect("written");
        drop(lines);
        assert!(writes.len() > 30, "{} writes", writes.len());
        for write in &writes {
            let text = std::str::from_utf8(write).expect("UTF-8");
            assert!(text.ends_with("}\n") && text.matches("\"event\":\"connection\"").count() <= 1, "{text}");
            for line in text.lines() {
                serde_json::from_str::<serde_json::Value>(line).expect("a whole line");
            }
        }
    }
}
