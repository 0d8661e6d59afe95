//! Records of a gateway or a load generator, placed beside the packets of the same connections.
//!
//! The input is JSON lines with the fields of brisk's access log; `brisk bench --records` writes them too. A record belongs to a
//! connection with the same client address and port at the same time.

mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use brisk_report::text::printable;
use brisk_telemetry::Milestone;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::error::CaptureError;
use crate::report::{ConnectionReport, as_object};
use crate::time::Nanos;

/// Maximum number of [`Records`] kept; about 500 bytes each. Further ones count as [`JoinCounts::omitted`].
const KEPT: usize = 500_000;

/// Longest line of a record in bytes, with its line break. A longer one is skipped.
const LONGEST: u64 = 256 * 1024;

/// Letters of a request kept for reports.
const SHOWN: usize = 120;

/// Largest difference between the clocks of the recording and of the record.
const CLOCKS: Duration = Duration::from_secs(1);

/// Maximum number of [`RecordReport`]s of one connection.
const JOINED: usize = 1000;

/// Records of other connections that are passed over in each direction of time, which bounds the time of a search.
const PASSED: usize = 1000;

/// Place of a record in the order of the search: client, source, begin, line.
type Key = (SocketAddr, usize, Nanos, u64);

/// Records by client, until a connection takes them.
#[derive(Debug, Default)]
pub struct Records {
    sources: Vec<String>,
    /// One map for all clients, because a map for each would take more memory than its records.
    entries: BTreeMap<Key, Entry>,
    /// Clients and first packets of the connections that have not ended.
    open: BTreeSet<(SocketAddr, Nanos)>,
    counts: JoinCounts,
}

/// Numbers of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JoinCounts {
    /// Records read.
    pub records: u64,
    /// Records that were placed beside packets.
    pub joined: u64,
    /// Connections with records.
    pub connections: u64,
    /// Lines that are no records.
    pub unreadable: u64,
    /// Records beyond the limit of 500,000.
    pub omitted: u64,
}

/// A record with absolute times.
#[derive(Debug)]
struct Entry {
    /// Number of the connection in its source; `None` if the line has none.
    connection: Option<u64>,
    begin: Nanos,
    end: Nanos,
    connected: Option<Nanos>,
    record: RecordReport,
}

/// A record beside the packets of its connection.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecordReport {
    /// Name of the file.
    pub source: String,
    /// Line in the file, from 1.
    pub line: u64,
    /// Kind: `request`, `handshake`, `connection`.
    pub event: String,
    /// Method and path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// Status code; `0` if no response was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Error of the request, or outcome of a failed handshake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Time from the head of the request to the end of the response, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_us: Option<u64>,
    /// Time until the head of the upstream's response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_us: Option<u64>,
    /// Duration of the handshake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake_us: Option<u64>,
    /// Microseconds from the first packet to the begin of the record.
    pub begin_us: i64,
    /// Microseconds from the first packet to the end of the record.
    pub end_us: i64,
    /// Milestones, in microseconds since the first packet.
    #[serde(serialize_with = "as_object", skip_serializing_if = "Vec::is_empty")]
    pub milestones_us: Vec<(Milestone, i64)>,
    /// Microseconds from the packet of each common milestone to the milestone of the record.
    #[serde(serialize_with = "as_object", skip_serializing_if = "Vec::is_empty")]
    pub after_packets_us: Vec<(Milestone, i64)>,
}

/// A line as it is written.
#[derive(Deserialize)]
struct Line {
    time: Option<String>,
    event: String,
    client: IpAddr,
    client_port: u16,
    connected: Option<String>,
    #[serde(default)]
    milestones_us: BTreeMap<String, u64>,
    method: Option<String>,
    path: Option<String>,
    status: Option<u16>,
    error: Option<String>,
    outcome: Option<String>,
    duration_us: Option<u64>,
    upstream_us: Option<u64>,
    handshake_us: Option<u64>,
    connection: Option<u64>,
}

impl Records {
    /// Reads the records of a file; `name` is its name in reports. Lines that are no records are counted.
    ///
    /// # Errors
    ///
    /// [`CaptureError`] if the file cannot be read, or if its first line is no record.
    pub fn add(&mut self, name: &str, input: impl Read) -> Result<(), CaptureError> {
        let (source, mut input, mut number) = (self.sources.len(), BufReader::new(input), 0);
        self.sources.push(printable(name));
        let mut line = Vec::new();
        loop {
            line.clear();
            input.by_ref().take(LONGEST).read_until(b'\n', &mut line).map_err(CaptureError::Unreadable)?;
            if line.is_empty() {
                return Ok(());
            }
            number += 1;
            let entry = if line.len() as u64 == LONGEST && !line.ends_with(b"\n") {
                // The rest belongs to the same line, or the numbers of all later lines would be too large.
                input.skip_until(b'\n').map_err(CaptureError::Unreadable)?;
                Err("it has more than 256 KiB".to_owned())
            } else {
                Entry::read(&line, number)
            };
            match entry {
                Ok((client, entry)) => self.keep((client, source, entry.begin, number), entry),
                // The first line shows whether the file is a log at all; a damaged line later must not
                // discard the others.
                Err(fault) if number == 1 => {
                    return Err(CaptureError::NoRecord { name: printable(name), fault });
                }
                Err(_) => self.counts.unreadable += 1,
            }
        }
    }

    /// Whether there are any sources.
    pub(crate) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }

    /// Numbers of records until now.
    pub(crate) fn counts(&self) -> JoinCounts {
        self.counts
    }

    fn keep(&mut self, key: Key, entry: Entry) {
        if self.counts.records == KEPT as u64 {
            self.counts.omitted += 1;
            return;
        }
        self.counts.records += 1;
        self.entries.insert(key, entry);
    }

    /// Notes the first packet of a connection, so that an earlier one leaves its records.
    pub(crate) fn begin(&mut self, ends: [SocketAddr; 2], time: Nanos) {
        // Both ends, because the client is not known for certain yet. Ends without records are left out,
        // which bounds `open` by the records.
        for end in ends.map(canonical) {
            if self.entries.range((end, 0, Nanos(0), 0)..).next().is_some_and(|(key, _)| key.0 == end) {
                self.open.insert((end, time));
            }
        }
    }

    /// Takes the records of a connection: of each source, those of the connection that began at the nearest time.
    pub(crate) fn take(&mut self, report: &ConnectionReport) -> Vec<RecordReport> {
        let server = canonical(SocketAddr::new(report.server, report.server_port));
        let client = canonical(SocketAddr::new(report.client, report.client_port));
        self.open.remove(&(server, report.time));
        self.open.remove(&(client, report.time));
        let next = self.open.range((client, report.time)..).next();
        let next = next.filter(|(other, _)| *other == client).map(|(_, time)| *time);
        let last = report.time.plus(Duration::from_micros(report.duration_us));
        let span = Span { first: report.time, last, next };
        let mut taken = Vec::new();
        for source in 0..self.sources.len() {
            let mut keys = self.keys(client, source, &span);
            self.counts.joined += keys.len() as u64;
            // By line, because the earlier ones were found in descending order of time.
            keys.sort_unstable_by_key(|key| key.3);
            let entries = keys.iter().filter_map(|key| self.entries.remove(key)).collect::<Vec<_>>();
            let kept = entries.into_iter().take(JOINED);
            taken.extend(kept.map(|entry| entry.report(report, &self.sources[source])));
        }
        self.counts.connections += u64::from(!taken.is_empty());
        taken
    }

    /// Places of the records of a source that belong to a connection.
    fn keys(&self, client: SocketAddr, source: usize, span: &Span) -> Vec<Key> {
        let key = |time, line| (client, source, time, line);
        let earlier = || self.entries.range(key(Nanos(0), 0)..key(span.first, 0)).rev();
        let later = || self.entries.range(key(span.first, 0)..=key(span.last.plus(CLOCKS), u64::MAX));
        // A reused port may have many records; the limit keeps the cost of each connection constant.
        let before = earlier().take(PASSED).find(|(_, entry)| span.has(entry));
        let after = later().take(PASSED).find(|(_, entry)| span.has(entry));
        let both = before.into_iter().chain(after);
        let nearest = both.min_by_key(|(key, _)| key.2.0.abs_diff(span.first.0));
        let Some((key, Entry { connection, .. })) = nearest else { return Vec::new() };
        // Without a number, only the time distinguishes connections.
        if connection.is_none() {
            return vec![*key];
        }
        let is_taken = |entry: &Entry| entry.connection == *connection && span.has(entry);
        let mut keys = matching(earlier(), is_taken);
        keys.extend(matching(later(), is_taken));
        keys
    }
}

/// Places of matching entries, until [`PASSED`] others.
fn matching<'a>(
    entries: impl Iterator<Item = (&'a Key, &'a Entry)>,
    is_match: impl Fn(&Entry) -> bool,
) -> Vec<Key> {
    let (mut keys, mut passed) = (Vec::new(), 0);
    for (key, entry) in entries {
        if is_match(entry) {
            keys.push(*key);
        } else if passed == PASSED {
            break;
        } else {
            passed += 1;
        }
    }
    keys
}

/// Time of a connection in the capture.
struct Span {
    first: Nanos,
    last: Nanos,
    /// First packet of the next connection of the same client address and port.
    next: Option<Nanos>,
}

impl Span {
    /// Whether a record is near enough, and no nearer to the next connection.
    fn has(&self, entry: &Entry) -> bool {
        let is_near = entry.begin <= self.last.plus(CLOCKS) && entry.end.plus(CLOCKS) >= self.first;
        let between = |one: Nanos, two: Nanos| one.0.abs_diff(two.0);
        let is_next = |next: Nanos| match entry.connected {
            Some(connected) => between(connected, next) < between(connected, self.first),
            // A request may begin at any time of its connection.
            None => next.since(entry.begin) < entry.begin.since(self.last),
        };
        is_near && !self.next.is_some_and(is_next)
    }
}

/// The address in the form of records: IPv4 is not mapped to IPv6.
fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

impl Entry {
    /// The record in a line and its client; or the fault of the line.
    fn read(line: &[u8], number: u64) -> Result<(SocketAddr, Self), String> {
        let line: Line = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let at = |text: &Option<String>| text.as_deref().and_then(nanos);
        let (written, connected) = (at(&line.time), at(&line.connected));
        let duration = Duration::from_micros(line.duration_us.unwrap_or_default());
        let known = Milestone::ALL.into_iter().filter_map(|milestone| {
            let at = line.milestones_us.get(milestone.name())?;
            Some((milestone, i64::try_from(*at).ok()?))
        });
        let milestones: Vec<_> = known.collect();
        let latest = milestones.iter().map(|(_, at)| at.unsigned_abs()).max().unwrap_or_default();
        let reached = connected.map(|connected| connected.plus(Duration::from_micros(latest)));
        let end = written.or(reached).ok_or("the fields time and connected are missing")?;
        let begin = connected.unwrap_or(end.minus(duration));
        let end = end.max(begin);
        let request = line.method.zip(line.path).map(|(method, path)| shown(&format!("{method} {path}")));
        let record = RecordReport {
            line: number,
            event: shown(&line.event),
            request,
            status: line.status,
            error: line.error.or(line.outcome).as_deref().map(shown),
            duration_us: line.duration_us,
            upstream_us: line.upstream_us,
            handshake_us: line.handshake_us,
            milestones_us: milestones,
            ..RecordReport::default()
        };
        let client = canonical(SocketAddr::new(line.client, line.client_port));
        Ok((client, Self { connection: line.connection, begin, end, connected, record }))
    }

    /// The [`RecordReport`] with times since the first packet of the connection.
    fn report(self, connection: &ConnectionReport, source: &str) -> RecordReport {
        let Self { begin, end, connected, mut record, .. } = self;
        let since = |time: Nanos| micros_between(connection.time, time);
        source.clone_into(&mut record.source);
        record.end_us = since(end);
        record.begin_us = match record.duration_us {
            // A request begins later than its connection.
            Some(duration) => record.end_us.saturating_sub_unsigned(duration),
            None => since(begin),
        };
        let start = since(connected.unwrap_or(begin));
        for (_, at) in &mut record.milestones_us {
            *at = at.saturating_add(start);
        }
        let common = record.milestones_us.iter().filter_map(|(milestone, at)| {
            let (_, packet) = connection.milestones_us.iter().find(|(other, _)| other == milestone)?;
            Some((*milestone, at.saturating_sub_unsigned(*packet)))
        });
        record.after_packets_us = common.collect();
        record
    }
}

fn nanos(text: &str) -> Option<Nanos> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    u64::try_from(time.unix_timestamp_nanos()).ok().map(Nanos)
}

/// Microseconds from `first` to `time`; negative if `time` is earlier.
fn micros_between(first: Nanos, time: Nanos) -> i64 {
    let micros = (i128::from(time.0) - i128::from(first.0)) / 1000;
    i64::try_from(micros).unwrap_or(i64::MAX)
}

fn shown(text: &str) -> String {
    brisk_report::figures::shortened(&printable(text), SHOWN)
}

#[cfg(test)]
mod tests {
    use brisk_handshake_view::Party::{Client, Server};

    use super::*;
    use crate::analysis::Settings;
    use crate::testing::{Written, handshake, pcap, results};

    fn records(lines: &str) -> Records {
        let mut records = Records::default();
        records.add("access.log", lines.as_bytes()).expect("records");
        records
    }

    /// Two connections of one client port, ten seconds apart.
    fn capture() -> Vec<u8> {
        let mut packets = handshake();
        packets.push(Written::new(40, Client, 101, 501, b"GET /a HTTP/1.1\r\n\r\n"));
        packets.push(Written::new(60, Server, 501, 120, b"HTTP/1.1 200 OK\r\n"));
        let later = packets.clone().into_iter().map(|mut packet| {
            packet.micros += 10_000_000;
            packet.seq += 50_000;
            packet.ack += 50_000;
            packet
        });
        pcap(packets.clone().into_iter().chain(later))
    }

    #[test]
    fn a_line_that_is_too_long_is_one_line_and_no_record() {
        let line = |id: u32, path: &str| {
            format!(
                "{{\"time\":\"1970-01-01T00:00:00.061Z\",\"event\":\"request\",\"client\":\"192.0.2.1\",\"client_port\":{id},\
                 \"path\":\"{path}\"}}\n"
            )
        };
        let longest = usize::try_from(LONGEST).expect("a size");
        let full = line(2, &"x".repeat(longest - line(2, "").len()));
        let long = line(3, &"x".repeat(3 * longest));
        let end = line(5, &"x".repeat(2 * longest));
        let read = records(&[line(1, "/"), full, long, line(4, "/"), end.trim_end().to_owned()].concat());
        let lines: Vec<_> = read.entries.keys().map(|(client, .., line)| (client.port(), *line)).collect();
        assert_eq!(lines, [(1, 1), (2, 2), (4, 4)]);
        assert_eq!(read.counts, JoinCounts { records: 3, unreadable: 2, ..JoinCounts::default() });
        let long = line(1, &"x".repeat(longest));
        let error = Records::default().add("access.log", long.as_bytes()).expect_err("no record");
        assert!(
            error.to_string().contains("the first line is no record: it has more than 256 KiB"),
            "{error}"
        );
    }

    #[test]
    fn records_are_those_of_the_same_client_at_the_same_time() {
        let line = |second: u32, id: u32, port: u16| {
            format!(
                "{{\"time\":\"1970-01-01T00:00:{second:02}.061Z\",\"event\":\"request\",\"client\":\"192.0.2.1\",\"client_port\":{port},\
                 \"method\":\"GET\",\"path\":\"/a\\u001b\",\"status\":200,\"duration_us\":20000,\"connection\":{id},\
                 \"connected\":\"1970-01-01T00:00:{second:02}.030100Z\",\"milestones_us\":{{\"tcp-established\":0,\"other\":7}}}}\n"
            )
        };
        let lines = [
            line(10, 2, 5000),
            "damaged\n".to_owned(),
            line(0, 1, 5000),
            line(0, 3, 5001),
            line(30, 4, 5000),
        ];
        let settings = Settings { records: records(&lines.concat()), ..Settings::default() };
        let (results, summary) = results(&capture(), settings);
        let counts = JoinCounts { records: 4, joined: 2, connections: 2, unreadable: 1, omitted: 0 };
        assert_eq!(summary.records, Some(counts));
        for (report, line) in results.connections.iter().zip([3, 1]) {
            let [record] = &report.records[..] else { panic!("{:?}", report.records) };
            assert_eq!((record.line, record.begin_us, record.end_us), (line, 41_000, 61_000));
            assert_eq!(record.milestones_us, [(Milestone::TcpEstablished, 30_100)]);
            assert_eq!(record.after_packets_us, [(Milestone::TcpEstablished, 100)]);
            assert_eq!(
                record.text(),
                format!(
                    "access.log line {line}: GET /a\u{fffd} 200, 20.0 ms in all; after the packets: tcp-established +100 µs"
                )
            );
            let names: Vec<_> = record.events().into_iter().map(|(at, _)| at).collect();
            assert_eq!(names, [30_100, 61_000]);
        }
    }

    /// A record of port 5000, connected `micros` after 1970, as `brisk bench --records` writes it.
    fn connected(micros: u64, id: Option<u32>) -> String {
        let id = id.map(|id| format!(",\"connection\":{id}")).unwrap_or_default();
        format!(
            "{{\"event\":\"connection\",\"client\":\"192.0.2.1\",\"client_port\":5000,\
             \"connected\":\"1970-01-01T00:00:{:02}.{:06}Z\"{id}}}\n",
            micros / 1_000_000,
            micros % 1_000_000
        )
    }

    /// Lines of the records of each connection, of which each begins half a second after the one before, on one port.
    fn lines(connections: u32, text: &str) -> (Vec<Vec<u64>>, JoinCounts) {
        let packets = (0..connections).flat_map(|number| {
            handshake().into_iter().map(move |mut packet| {
                packet.micros += u64::from(number) * 500_000;
                packet.seq += number * 50_000;
                packet.ack += number * 50_000;
                packet
            })
        });
        let settings = Settings { records: records(text), ..Settings::default() };
        let (results, summary) = results(&pcap(packets), settings);
        let lines = results.connections.iter().map(|report| report.records.iter().map(|record| record.line));
        (lines.map(Iterator::collect).collect(), summary.records.expect("counts"))
    }

    #[test]
    fn connections_of_one_port_within_a_second_have_their_own_records() {
        for ids in [[None, None], [Some(7), Some(8)]] {
            let text = connected(530_000, ids[1]) + &connected(30_000, ids[0]);
            assert_eq!(lines(2, &text).0, [[2], [1]], "{ids:?}");
            // The record of the first connection is missing.
            let later = connected(530_000, ids[1]);
            assert_eq!(lines(2, &later).0, [vec![], vec![1]], "{ids:?}");
        }
    }

    #[test]
    fn records_beyond_those_kept_belong_to_their_connection_too() {
        let text = connected(0, Some(7)).repeat(JOINED + 500) + &connected(500_000, Some(8));
        let (lines, counts) = lines(2, &text);
        assert_eq!((lines[0].len(), lines[0][JOINED - 1]), (JOINED, JOINED as u64));
        assert_eq!(lines[1], [JOINED as u64 + 501]);
        assert_eq!((counts.joined, counts.connections), (JOINED as u64 + 501, 2));
    }

    #[test]
    fn a_file_without_records_is_refused_with_a_message() {
        let error = Records::default().add("access.log", &b"192.0.2.1 - - [..]\n"[..]).expect_err("text");
        let text = error.to_string();
        assert!(
            text.starts_with("access.log: the first line is no record: ")
                && text.contains("access_log.format = \"json\"")
        );
        let timeless = b"{\"event\":\"request\",\"client\":\"192.0.2.1\",\"client_port\":1}";
        let error = Records::default().add("a", &timeless[..]).expect_err("no time");
        assert!(error.to_string().contains("time and connected are missing"), "{error}");
        assert!(Records::default().add("empty", &b""[..]).is_ok());
    }
}
