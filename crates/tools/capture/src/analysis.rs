//! Connections of a capture, within limits of number and memory.

use std::collections::{HashMap, VecDeque};
use std::error::Error as _;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::time::Duration;

use brisk_handshake_view::Party;
use serde::Serialize;

use crate::connection::Connection;
use crate::decode::{self, Ignored, Packet, Segment};
use crate::error::CaptureError;
use crate::flags::Flags;
use crate::fragments::Fragments;
use crate::half::Verdict;
use crate::join::Records;
use crate::quic::{QuicReport, QuicTable};
use crate::reader::PacketReader;
use crate::report::ConnectionReport;
use crate::secrets::Secrets;
use crate::summary::Summary;
use crate::time::{Nanos, millis};

/// Time after which a closed connection gets no further packets: `TIME_WAIT` of Linux.
const LINGER: Duration = Duration::from_mins(1);

/// Number of connections that are examined for their end with each packet, so that the cost of a packet is constant.
const EXAMINED: usize = 4;

/// Bounds of memory. At a bound, the connection without packets for the longest time is reported as incomplete.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Open connections. Default: 65,536.
    pub connections: usize,
    /// Memory of all open connections in bytes. Default: 512 MiB.
    pub memory: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 65_536, memory: 512 << 20 }
    }
}

/// Settings of [`analyse`].
#[derive(Debug, Default)]
pub struct Settings {
    /// Bounds of memory.
    pub limits: Limits,
    /// Key log with the secrets of connections.
    pub secrets: Secrets,
    /// [`Records`] that are placed beside the packets.
    pub records: Records,
    /// Connections whose packets are kept until the report.
    pub rows: Rows,
}

/// Selection of connections whose packets, at most 2,000 of each, are kept until the [`ConnectionReport`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rows {
    /// None.
    #[default]
    None,
    /// The connection with this number.
    Of(u64),
    /// All, while less than half of [`Limits::memory`] is used.
    All,
}

/// Receiver of results. An `Err` ends the analysis with [`CaptureError::Unwritable`].
pub trait Output {
    /// A connection that has ended, or was evicted.
    fn connection(&mut self, report: &ConnectionReport) -> io::Result<()>;

    /// A QUIC connection that was evicted, or one at the end of the input. The default ignores it.
    fn quic(&mut self, report: &QuicReport) -> io::Result<()> {
        let _ = report;
        Ok(())
    }

    /// A TCP packet, in the order of the capture. The default ignores it.
    fn packet(&mut self, report: &PacketReport) -> io::Result<()> {
        let _ = report;
        Ok(())
    }
}

/// Result for one packet.
#[derive(Clone, Debug, Serialize)]
pub struct PacketReport {
    /// Number of the packet in the capture, from 1.
    pub packet: u64,
    /// Number of the connection, from 0, as [`ConnectionReport::connection`].
    pub connection: u64,
    /// Time at which the packet was recorded.
    pub time: Nanos,
    /// Sender.
    pub from: Party,
    /// Payload bytes.
    pub len: u32,
    /// Results of the analysis.
    #[serde(skip_serializing_if = "Flags::is_empty")]
    pub flags: Flags,
    /// Packet that carried the retransmitted bytes first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original: Option<u64>,
    /// Milliseconds since the packet `original`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub original_ms: Option<f64>,
    /// Packet that this one acknowledges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acked: Option<u64>,
    /// Milliseconds since the packet `acked`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acked_ms: Option<f64>,
    /// Bytes in flight after this packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u32>,
}

impl PacketReport {
    fn new(connection: u64, from: Party, len: u32, (packet, time): (u64, Nanos), verdict: &Verdict) -> Self {
        Self {
            packet,
            connection,
            time,
            from,
            len,
            flags: verdict.flags,
            original: verdict.original.map(|(packet, _)| packet),
            original_ms: verdict.original.map(|(_, since)| millis(since)),
            acked: verdict.acked.map(|(packet, _)| packet),
            acked_ms: verdict.acked.map(|(_, since)| millis(since)),
            in_flight: verdict.in_flight,
        }
    }
}

/// Analyses a capture: pcap or pcapng, uncompressed, gzip or zstd. Reports connections as they end, and the open ones at the end
/// of the input. After a damaged packet, [`Summary::damage`] names the fault, and the results are those of the packets before.
///
/// # Errors
///
/// [`CaptureError`] if the input is no capture, or if `output` fails.
pub fn analyse(
    input: impl Read,
    settings: Settings,
    output: &mut dyn Output,
) -> Result<Summary, CaptureError> {
    let mut reader = PacketReader::new(input)?;
    let (mut table, mut quic, mut fragments) =
        (Table::new(settings), QuicTable::default(), Fragments::default());
    loop {
        let packet = match reader.next() {
            Ok(Some(packet)) => packet,
            Ok(None) => break,
            Err(error) => {
                table.summary.damage = Some(with_source(&error));
                break;
            }
        };
        table.add_secrets(&mut reader);
        table.summary.times(packet.time);
        // The secrets are added before: HTTP is decrypted as its records arrive, not at the end of the
        // connection.
        let mut decoded = decode::packet(packet.link, reader.bytes(&packet));
        let whole;
        if let Ok(Packet::Fragment(fragment)) = &decoded {
            table.summary.fragments += 1;
            let Some(complete) = fragments.add(fragment, packet.time) else { continue };
            (whole, table.summary.reassembled) = (complete, table.summary.reassembled + 1);
            decoded = decode::transport(fragment.key, &whole, whole.len(), 0);
        }
        match decoded {
            Ok(Packet::Tcp(segment)) => table.add(&segment, (packet.number, packet.time), output)?,
            Ok(Packet::Udp(datagram)) => {
                let (is_quic, evicted) = quic.add(&datagram, packet.time);
                table.summary.datagram(is_quic);
                evicted.iter().try_for_each(|report| table.quic(report, output))?;
            }
            // Fragments of a packet within a fragmented one.
            Ok(Packet::Fragment(_)) => table.summary.ignored(Ignored::OtherProtocol),
            Err(reason) => table.summary.ignored(reason),
        }
    }
    table.add_secrets(&mut reader);
    // Secrets behind the last packet still give names to encrypted messages in the reports of open
    // connections.
    table.finish(output)?;
    quic.finish().iter().try_for_each(|report| table.quic(report, output))?;
    table.summary.packets = reader.packets();
    table.summary.gaps(reader.gaps());
    let records = &table.settings.records;
    table.summary.records = (!records.is_empty()).then(|| records.counts());
    Ok(table.summary)
}

/// Addresses of both sides, the lower one first.
type Key = (SocketAddr, SocketAddr);

/// Open connections.
struct Table {
    settings: Settings,
    // Boxed, so that a growing map moves pointers in place of whole connections.
    connections: HashMap<Key, Box<Connection>>,
    /// Each connection once, with its number and the time at which [`expire`](Self::expire) examined it. Approximately by age.
    order: VecDeque<(Key, u64, Nanos)>,
    memory: usize,
    next: u64,
    summary: Summary,
}

impl Table {
    fn new(settings: Settings) -> Self {
        let (connections, order) = (HashMap::new(), VecDeque::new());
        Self { settings, connections, order, memory: 0, next: 0, summary: Summary::default() }
    }

    fn add_secrets(&mut self, reader: &mut PacketReader<impl Read>) {
        if let Some(lines) = reader.take_secrets() {
            self.settings.secrets.add(&lines);
        }
    }

    fn add(
        &mut self,
        segment: &Segment<'_>,
        at: (u64, Nanos),
        output: &mut dyn Output,
    ) -> Result<(), CaptureError> {
        let (one, two) = (segment.source, segment.destination);
        let key = if one <= two { (one, two) } else { (two, one) };
        let is_reused = self.connections.get(&key).is_some_and(|connection| connection.is_reused_by(segment));
        // Before `end`: the earlier connection must not take the records that are nearer to this one.
        if is_reused || !self.connections.contains_key(&key) {
            self.settings.records.begin([one, two], at.1);
        }
        if is_reused {
            self.end(&key, false, output)?;
        }
        let connection = self.connections.entry(key).or_insert_with(|| {
            let mut connection = Box::new(Connection::new(self.next, segment, at.1));
            connection.rows = match self.settings.rows {
                Rows::All => Some(Vec::new()),
                Rows::Of(number) => (number == self.next).then(Vec::new),
                Rows::None => None,
            };
            self.memory += connection.memory();
            self.order.push_back((key, self.next, at.1));
            self.next += 1;
            connection
        });
        // The sum is corrected by the difference, because a sum over all connections for each packet would be
        // quadratic.
        let before = connection.memory();
        connection.has_room = self.memory < self.settings.limits.memory / 2;
        let verdict = connection.add(segment, at, is_reused, &self.settings.secrets);
        self.memory = (self.memory + connection.memory()).saturating_sub(before);
        self.summary.bytes += u64::from(segment.len);
        let from = connection.party(segment);
        let report = PacketReport::new(connection.number, from, segment.len, at, &verdict);
        output.packet(&report).map_err(CaptureError::Unwritable)?;
        // Connections that ended leave their entries in `order`. Removed once they are the majority, so that a packet costs
        // constant time on average.
        if self.order.len() > 2 * self.connections.len() + 1024 {
            let connections = &self.connections;
            self.order
                .retain(|(key, number, _)| connections.get(key).is_some_and(|found| found.number == *number));
        }
        self.expire(at.1, output)
    }

    /// Ends closed connections, and the oldest ones beyond [`Limits`].
    fn expire(&mut self, now: Nanos, output: &mut dyn Output) -> Result<(), CaptureError> {
        for _ in 0..EXAMINED {
            let Some(&(key, number, examined)) = self.order.front() else { return Ok(()) };
            let Limits { connections, memory } = self.settings.limits;
            let is_full = self.connections.len() > connections || self.memory > memory;
            if !is_full && now.since(examined) < LINGER {
                return Ok(());
            }
            self.order.pop_front();
            let found = self.connections.get(&key).filter(|connection| connection.number == number);
            let Some(connection) = found else { continue };
            let is_over = connection.is_closed && now.since(connection.latest) >= LINGER;
            // A packet since the last examination moves the connection to the end of the queue: the idle ones
            // are evicted first.
            let is_idle = connection.latest <= examined || self.connections.len() == 1;
            if is_over || is_full && (is_idle || connection.is_closed) {
                self.end(&key, !connection.is_closed, output)?;
            } else {
                // With `now`, a connection whose next packet has the same time, or an earlier one, would
                // count as idle.
                let latest = if is_full { connection.latest } else { now };
                self.order.push_back((key, number, latest));
            }
        }
        // If all examined connections had packets meanwhile, the oldest one has to go all the same.
        let Limits { connections, memory } = self.settings.limits;
        if self.connections.len() > connections || self.memory > memory {
            while let Some((key, number, _)) = self.order.pop_front() {
                if self.connections.get(&key).is_some_and(|connection| connection.number == number) {
                    return self.end(&key, true, output);
                }
            }
        }
        Ok(())
    }

    fn end(&mut self, key: &Key, is_evicted: bool, output: &mut dyn Output) -> Result<(), CaptureError> {
        let Some(connection) = self.connections.remove(key) else { return Ok(()) };
        self.memory = self.memory.saturating_sub(connection.memory());
        let mut report = ConnectionReport::new(*connection, is_evicted, &self.settings.secrets);
        report.records = self.settings.records.take(&report);
        self.summary.connection(&report);
        output.connection(&report).map_err(CaptureError::Unwritable)
    }

    fn quic(&mut self, report: &QuicReport, output: &mut dyn Output) -> Result<(), CaptureError> {
        self.summary.quic_connections += 1;
        output.quic(report).map_err(CaptureError::Unwritable)
    }

    /// Reports the remaining connections by number.
    fn finish(&mut self, output: &mut dyn Output) -> Result<(), CaptureError> {
        let mut keys: Vec<_> =
            self.connections.iter().map(|(key, connection)| (connection.number, *key)).collect();
        // A hash map has no order; sorted, one capture always has the same output.
        keys.sort_unstable();
        keys.iter().try_for_each(|(_, key)| self.end(key, false, output))
    }
}

fn with_source(error: &CaptureError) -> String {
    error.source().map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}

#[cfg(test)]
mod tests {
    use brisk_handshake_view::Party::{Client, Server};

    use super::*;
    use crate::decode::Control;
    use crate::testing::{Results, Written, handshake, pcap, results};
    use crate::waits::Cause;

    fn syn(number: u32) -> Written {
        // Ports and sequence numbers of their own.
        let mut packet = Written::new(u64::from(number) / 1000, Client, number, 0, b"").control(Control::SYN);
        packet.port = (number % 50_000) as u16 + 1000;
        packet
    }

    #[test]
    fn half_open_connections_are_evicted_at_the_limit() {
        let capture = pcap((0..40_000).map(syn));
        let limits = Limits { connections: 100, ..Limits::default() };
        let (results, summary) = results(&capture, Settings { limits, ..Settings::default() });
        assert_eq!((summary.connections, summary.evicted), (40_000, 39_900));
        // The oldest ones are first.
        let numbers: Vec<_> = results.connections.iter().map(|report| report.connection).collect();
        assert!(numbers.is_sorted() && results.connections[0].end == "evicted");
    }

    #[test]
    fn memory_keeps_to_its_limit_whatever_the_packets_contain() {
        // Open connections whose segments all lie behind a gap, and hellos without end.
        let packets = (0..20_000_u32).map(|number| {
            let (begin, round) = (number % 40, number / 40);
            let seq = if begin < 20 { 1000 + round * 1448 } else { 1 + round * 1000 };
            let mut packet = Written::new(number.into(), Client, seq, 1, &[22; 1000]);
            packet.payload[..5].copy_from_slice(&[22, 3, 1, 0x40, 0]);
            packet.port = 1000 + begin as u16;
            packet
        });
        let mut table = Table::new(Settings {
            limits: Limits { connections: 1000, memory: 1 << 20 },
            ..Settings::default()
        });
        let (capture, mut output, mut most) = (pcap(packets), Results::default(), 0);
        let mut reader = PacketReader::new(&capture[..]).expect("a capture");
        while let Some(packet) = reader.next().expect("packets") {
            let segment = decode::segment(packet.link, reader.bytes(&packet)).expect("a segment");
            table.add(&segment, (packet.number, packet.time), &mut output).expect("no error");
            let exact: usize = table.connections.values().map(|connection| connection.memory()).sum();
            assert_eq!(exact, table.memory);
            most = most.max(exact);
        }
        assert!(most <= (1 << 20) + 400_000, "{most}");
        assert!(!output.connections.is_empty());
    }

    /// They were reassembled until the end of the connection, in the memory for HTTP.
    #[test]
    fn bytes_of_other_protocols_are_not_kept_after_a_word_in_upper_case_or_an_upgrade() {
        let mail = ["EHLO host\r\n", "250 host\r\n"];
        let upgrade = ["GET /a HTTP/1.1\r\nHost: h\r\n\r\n", "HTTP/1.1 101 Switching Protocols\r\n\r\n"];
        for (texts, requests) in [(mail, None), (upgrade, Some(1))] {
            let [client, server] = texts.map(|text| text.len() as u32);
            let mut packets = handshake();
            packets.push(Written::new(40, Client, 101, 501, texts[0].as_bytes()));
            packets.push(Written::new(50, Server, 501, 101 + client, texts[1].as_bytes()));
            // Behind a gap.
            packets.push(Written::new(60, Client, 200 + client, 501 + server, &[7; 100]));
            packets.push(Written::new(70, Server, 600 + server, 101 + client, &[7; 100]));
            let (capture, mut output) = (pcap(packets), Results::default());
            let mut table = Table::new(Settings::default());
            let mut reader = PacketReader::new(&capture[..]).expect("a capture");
            while let Some(packet) = reader.next().expect("packets") {
                let segment = decode::segment(packet.link, reader.bytes(&packet)).expect("a segment");
                table.add(&segment, (packet.number, packet.time), &mut output).expect("no error");
            }
            let connection = table.connections.values().next().expect("a connection");
            assert_eq!(connection.http.as_ref().map(|http| http.count()), requests);
            let kept: usize = connection.sides.iter().map(|side| side.stream.memory()).sum();
            assert_eq!(kept, 0, "{texts:?}");
        }
    }

    #[test]
    fn reused_ports_are_another_connection_and_late_packets_are_not() {
        let close = |millis, from, seq, ack| {
            Written::new(millis, from, seq, ack, b"").control(Control::FIN | Control::ACK)
        };
        let mut packets = handshake();
        packets.extend([close(40, Client, 101, 501), close(60, Server, 501, 102)]);
        packets.push(Written::new(70, Client, 102, 502, b""));
        packets.push(Written::new(5000, Client, 9100, 0, b"").control(Control::SYN));
        let (results, summary) = results(&pcap(packets), Settings::default());
        assert_eq!(summary.connections, 2);
        assert_eq!(results.connections[0].end, "closed");
        let numbers: Vec<_> = results.packets.iter().map(|packet| packet.connection).collect();
        assert_eq!(numbers, [0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(results.packets[6].flags, Flags::REUSED_PORTS);
    }

    #[test]
    fn a_reset_after_the_end_of_both_directions_is_no_reset() {
        let fin = Control::FIN | Control::ACK;
        let mut packets = handshake();
        packets.push(Written::new(40, Client, 101, 501, b"").control(fin));
        packets.push(Written::new(60, Server, 501, 102, b"").control(fin));
        let reset = Written::new(70, Client, 102, 0, b"").control(Control::RST);
        let end = |packets: Vec<Written>| results(&pcap(packets), Settings::default()).0.connections[0].end;
        assert_eq!(end([packets.clone(), vec![reset.clone()]].concat()), "closed");
        // Before the end of the other direction, it is one.
        packets.truncate(4);
        packets.push(reset.clone());
        let late = Written::new(80, Server, 501, 102, b"").control(Control::RST);
        assert_eq!(end([packets, vec![late]].concat()), "reset-by-client");
    }

    #[test]
    fn a_window_that_is_too_small_for_a_segment_is_that_of_its_receiver() {
        let mut packets = handshake();
        packets.extend([
            Written::new(40, Client, 101, 501, b"GET / HTTP/1.1\r\n\r\n"),
            Written::new(60, Server, 501, 119, &[1; 700]),
            Written::new(70, Client, 119, 1201, b"").window(300),
            Written::new(470, Client, 119, 1201, b"").window(1000),
            Written::new(490, Server, 1201, 119, &[1; 800]),
            // The server sees the room a round trip of 20 ms later. The rest is its own time.
            Written::new(500, Client, 119, 2001, b"").window(1000),
            Written::new(800, Server, 2001, 119, &[1; 800]),
        ]);
        let (results, _) = results(&pcap(packets), Settings::default());
        let total = |cause| {
            results.connections[0].totals.iter().find(|(other, _)| *other == cause).map(|(_, time)| *time)
        };
        assert_eq!(total(Cause::ClientWindow), Some(Duration::from_millis(430 + 30)));
        assert_eq!(total(Cause::Server), Some(Duration::from_millis(280)));
    }

    #[test]
    fn segments_in_fragments_are_analysed() {
        let mut whole = handshake();
        whole.push(Written::new(40, Client, 101, 501, b"GET /fragment HTTP/1.1\r\n\r\n"));
        let capture = pcap(whole);
        let last = capture.len() - 20 - 20 - 26;
        let (head, packet) = (&capture[..last - 16], &capture[last..]);
        // Two fragments, of 24 bytes and of the rest.
        let piece = |flags: [u8; 2], bytes: &[u8]| {
            let mut header = packet[..20].to_vec();
            header[2..4].copy_from_slice(&(20 + bytes.len() as u16).to_be_bytes());
            header[6..8].copy_from_slice(&flags);
            let len = (20 + bytes.len() as u32).to_le_bytes();
            [&[0, 0, 0, 0, 0x40, 0x9c, 0, 0], &len[..], &len, &header, bytes].concat()
        };
        let (first, second) = (piece([0x20, 0], &packet[20..44]), piece([0, 3], &packet[44..]));
        let capture = [head, &second, &first].concat();
        let (results, summary) = results(&capture, Settings::default());
        assert_eq!((summary.fragments, summary.reassembled, summary.malformed), (2, 1, 0));
        assert_eq!(results.connections[0].requests[0].path, "/fragment");
        assert_eq!(results.packets.last().map(|packet| (packet.packet, packet.len)), Some((5, 26)));
    }

    #[test]
    fn closed_connections_are_reported_after_a_minute() {
        let mut packets = handshake();
        packets.push(Written::new(40, Server, 501, 101, b"").control(Control::RST));
        packets.extend((1..200).map(|second| {
            let mut packet = Written::new(second * 1000, Client, second as u32, 1, b"x");
            packet.port = 6000;
            packet
        }));
        let capture = pcap(packets.clone());
        let mut order = Vec::new();
        let (results, _) = results(&capture, Settings::default());
        order.extend(results.connections.iter().map(|report| (report.connection, report.end)));
        assert_eq!(order, [(0, "reset-by-server"), (1, "open")]);
    }

    #[test]
    fn time_is_split_and_messages_are_named() {
        let hello = [&[22, 3, 1, 0, 4, 1, 0, 0, 0][..]].concat();
        let mut packets = handshake();
        packets.extend([
            Written::new(35, Client, 101, 501, &hello),
            // 20 ms of network, 400 ms of the server.
            Written::new(455, Server, 501, 110, &[22, 3, 3, 0, 4, 14, 0, 0, 0]),
        ]);
        let (results, _) = results(&pcap(packets), Settings::default());
        let report = &results.connections[0];
        assert_eq!(
            report.finding,
            "455 ms = 400 ms server before ServerHelloDone + 1.7 round trips of 30.0 ms + 5.00 ms client before ClientHello"
        );
        assert_eq!((report.rtt_us, report.milestones_us[0].1), (Some(30_000), 30_000));
        assert_eq!(report.causes[0].packet, 5);
    }

    #[test]
    fn results_before_damage_are_reported() {
        let mut capture = pcap(handshake());
        capture.extend([0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        let (results, summary) = results(&capture, Settings::default());
        assert_eq!((results.connections.len(), summary.packets), (1, 3));
        let damage = summary.damage.expect("a fault");
        assert!(damage.starts_with("damaged capture: a block of 4294967311 bytes at offset"), "{damage}");
        let (_, cut) = self::results(&capture[..capture.len() - 20], Settings::default());
        assert!(cut.is_cut && cut.damage.is_none() && cut.packets == 2);
        let mut output = Results::default();
        for bytes in [&b""[..], b"abc", b"GET / HTTP/1.1\r\n\r\nabcdefgh"] {
            let error = analyse(bytes, Settings::default(), &mut output).expect_err("no capture");
            assert!(error.to_string().starts_with("no capture:"), "{error}");
        }
    }

    #[test]
    fn probes_of_a_full_window_are_no_loss() {
        let server = |millis, seq, payload: &[u8]| Written::new(millis, Server, seq, 101, payload);
        let ack = |millis, ack, window| Written::new(millis, Client, 101, ack, b"").window(window);
        let packets = [
            server(40, 501, &[7; 600]),
            server(41, 1101, &[7; 400]),
            // Sent again before the timeout, because the next segment does not fit.
            server(80, 1101, &[7; 400]),
            ack(90, 1501, 0),
            ack(91, 1501, 1000),
            server(92, 1501, &[7; 1000]),
            ack(93, 1501, 0),
            // A closed window is probed with the last segment.
            server(1000, 1501, &[7; 1000]),
        ];
        let (results, _) = results(&pcap(handshake().into_iter().chain(packets)), Settings::default());
        let repeated: Vec<_> =
            results.packets.iter().filter(|packet| packet.flags.has(Flags::RETRANSMISSION)).collect();
        assert_eq!(repeated.len(), 2, "the flags are those of Wireshark");
        let causes: Vec<_> = results.connections[0].causes.iter().map(|cause| cause.cause).collect();
        let losses = [Cause::Timeout, Cause::TailLossProbe, Cause::FastRetransmission];
        assert!(causes.contains(&Cause::ClientWindow), "{causes:?}");
        assert!(!causes.iter().any(|cause| losses.contains(cause)), "{causes:?}");
    }
}
