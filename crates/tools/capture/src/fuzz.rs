//! Properties that hold for any capture, for tests and for libFuzzer.

use std::io;

use brisk_handshake_view::Party;

use crate::analysis::{Limits, Output, PacketReport, Rows, Settings, analyse};
use crate::http::{Http, Place};
use crate::join::Records;
use crate::report::ConnectionReport;
use crate::terminal::Slowest;
use crate::time::Nanos;

/// Counts results, and checks that connections of packets are reported once.
#[derive(Default)]
struct Checked {
    slowest: Slowest,
    packets: u64,
    latest: u64,
    connections: Vec<u64>,
    reported: Vec<u64>,
}

impl Output for Checked {
    fn connection(&mut self, report: &ConnectionReport) -> io::Result<()> {
        self.reported.push(report.connection);
        assert!(serde_json::to_string(report).is_ok());
        let split = report.split_ms;
        let sum = split.network + split.server + split.client + split.waiting;
        assert!(sum <= report.duration_us as f64 / 1e3 + 1.0, "{sum} of {} us", report.duration_us);
        self.slowest.connection(report)
    }

    fn packet(&mut self, report: &PacketReport) -> io::Result<()> {
        assert!(report.packet > self.latest, "packets are in order");
        (self.latest, self.packets) = (report.packet, self.packets + 1);
        self.connections.push(report.connection);
        Ok(())
    }
}

/// A capture: no input makes the analysis panic, packets are in order, every connection of a packet is reported once, its causes
/// explain no more than its duration, and the terminal's text has no control characters.
pub fn capture(bytes: &[u8]) {
    let mut output = Checked { slowest: Slowest::new(3).with_ladder(Some(0)), ..Checked::default() };
    let limits = Limits { connections: 4, memory: 1 << 20 };
    let result = analyse(bytes, Settings { limits, rows: Rows::All, ..Settings::default() }, &mut output);
    output.connections.sort_unstable();
    output.connections.dedup();
    output.reported.sort_unstable();
    if let Ok(summary) = &result {
        assert_eq!(output.connections, output.reported);
        assert!(output.packets <= summary.packets);
        let text = output.slowest.text(summary) + output.slowest.ladder().unwrap_or_default();
        assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text}");
        assert!(!summary.ranking().iter().any(|row| row.ms.is_nan()));
    }
}

/// Bytes of both directions in pieces, each after a byte with its direction and length: requests and memory are bounded, texts
/// contain no control characters, and no response begins before its request.
pub fn capture_http(mut bytes: &[u8]) {
    let (mut http, mut number, mut total) = (Http::default(), 0, 0);
    while let Some((first, rest)) = bytes.split_first() {
        let from = if first & 1 == 0 { Party::Client } else { Party::Server };
        let (piece, rest) = rest.split_at(usize::from(first >> 1).min(rest.len()));
        (bytes, number, total) = (rest, number + 1, total + piece.len());
        http.add(from, Place { packet: number, time: Nanos(number * 1000), offset: number }, piece);
        assert!(http.memory() <= 20_000 + 200 * total, "{} after {total}", http.memory());
    }
    for request in http.reports(Nanos(0)) {
        let text = [request.method, request.host, request.path].concat();
        assert!(!text.chars().any(char::is_control), "{text:?}");
        assert!(request.response_us.is_none_or(|at| at >= request.begin_us));
        assert!(request.end_us.is_none_or(|at| at >= request.begin_us));
    }
}

/// A file of records: none makes the analysis panic, records are counted once, and their text has no control characters.
pub fn capture_join(bytes: &[u8]) {
    const CAPTURE: &[u8] = include_bytes!("../../../../fuzz/seeds/capture/alert.pcap");
    let mut records = Records::default();
    if records.add("log", bytes).is_err() {
        return;
    }
    let mut output = Slowest::new(3).with_ladder(Some(0));
    let settings = Settings { records, rows: Rows::All, ..Settings::default() };
    let Ok(summary) = analyse(CAPTURE, settings, &mut output) else { return };
    let counts = summary.records.unwrap_or_default();
    assert!(counts.joined <= counts.records && counts.connections <= summary.connections);
    let text = output.text(&summary) + output.ladder().unwrap_or_default();
    assert!(text.chars().all(|letter| letter == '\n' || !letter.is_control()), "{text}");
}

#[cfg(test)]
mod tests {
    use brisk_testkit::fuzz::drive;

    #[test]
    fn fuzz_capture() {
        let words: &[&[u8]] = &[
            b"\x06\0\0\0\x60\0\0\0\0\0\0\0",
            b"\0\0\0\0\0\0\0\0\x40\0\0\0\x40\0\0\0",
            b"\x50\x02\x20\0",
            b"\x50\x12\x20\0",
            b"\x50\x18\x20\0",
            b"\x16\x03\x01\x01\x40\x01\0\x01\x3c\x03\x03",
        ];
        drive("capture", words, super::capture);
    }

    #[test]
    fn fuzz_capture_join() {
        let words: &[&[u8]] = &[
            b"{\"event\":\"request\",\"client\":\"10.77.0.1\",\"client_port\":40977,",
            b"\"connected\":\"2026-11-26T10:28:22.340000Z\",",
            b"\"milestones_us\":{\"client-hello\":18446744073709551615},",
            b"\"method\":\"GET\",\"path\":\"\\u001b[2J\",",
            b"\"duration_us\":18446744073709551615}\n",
        ];
        drive("capture_join", words, super::capture_join);
    }

    #[test]
    fn fuzz_capture_http() {
        let words: &[&[u8]] = &[
            b"\x30GET / HTTP/1.1\r\n\r\n",
            b"\x7f",
            b"Content-Length: 3\r\n",
            b"Transfer-Encoding: chunked\r\n\r\n",
            b"\x31HTTP/1.1 200 OK\r\n\r\n",
            b"\x30PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\0\0\x03\x01\x05\0\0\0\x01\x82\x84\x86",
            b"\0\0\x01\x01\x04\0\0\0\x01\x88",
            b"\0\0\x02\x09\x04\0\0\0\x01",
        ];
        drive("capture_http", words, super::capture_http);
    }
}
