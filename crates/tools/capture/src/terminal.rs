//! Reports for terminals with 80 columns.

use std::io;

use brisk_report::figures::{bytes, count};
use brisk_report::{Table, wrapped};

use crate::analysis::Output;
use crate::join::RecordReport;
use crate::ladder;
use crate::quic::QuicReport;
use crate::report::ConnectionReport;
use crate::summary::Summary;
use crate::time::{Nanos, text};
use crate::waits::Cause;
use crate::waterfall::waterfall;

/// Columns of a line.
const WIDTH: usize = 80;

/// Maximum number of records listed below a connection.
const RECORDS: usize = 10;

/// Collects the connections with the most lost time, for [`Slowest::text`]. Memory: a report of each.
#[derive(Debug, Default)]
pub struct Slowest {
    most: usize,
    /// Sorted by lost time, the highest first.
    reports: Vec<ConnectionReport>,
    /// Number of the connection that is drawn.
    drawn: Option<u64>,
    ladder: Option<String>,
    picture: Option<String>,
    /// The first QUIC connections.
    quic: Vec<QuicReport>,
}

impl Slowest {
    /// Keeps `most` connections.
    pub fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Draws the ladder diagram of a connection, whose packets [`crate::Settings::rows`] must keep.
    #[must_use]
    pub fn with_ladder(mut self, number: Option<u64>) -> Self {
        self.drawn = number;
        self
    }

    /// The ladder diagram of the selected connection; `None` if the capture does not contain it.
    pub fn ladder(&self) -> Option<&str> {
        self.ladder.as_deref()
    }

    /// The ladder diagram of the selected connection as SVG.
    pub fn picture(&self) -> Option<&str> {
        self.picture.as_deref()
    }

    /// Summary, ranked causes and connections.
    pub fn text(&self, summary: &Summary) -> String {
        let mut all = overview(summary);
        let causes = ranking(summary);
        if !causes.is_empty() {
            all.push('\n');
            all.push_str(&causes.to_text(WIDTH));
        }
        if !self.quic.is_empty() {
            let shown = counted(self.quic.len() as u64, "QUIC connection");
            all.extend(["\n", &shown, ", the first ones; QUIC is encrypted after the first packets\n"]);
            all.extend(self.quic.iter().map(quic));
        }
        if self.reports.is_empty() {
            return all;
        }
        all.push('\n');
        let shown = self.reports.len() as u64;
        let title = if shown < summary.connections {
            format!("Connections ({} of {}, by lost time)", count(shown), count(summary.connections))
        } else {
            "Connections, by lost time".to_owned()
        };
        all.push_str(&title);
        all.push('\n');
        for report in &self.reports {
            all.push_str(&connection(report));
        }
        all
    }
}

impl Output for Slowest {
    fn quic(&mut self, report: &QuicReport) -> io::Result<()> {
        if self.quic.len() < self.most {
            self.quic.push(report.clone());
        }
        Ok(())
    }

    fn connection(&mut self, report: &ConnectionReport) -> io::Result<()> {
        if let Some(ladder) = ladder::text(report).filter(|_| self.drawn == Some(report.connection)) {
            let requests = waterfall(report);
            self.picture = ladder::svg(report);
            self.ladder = Some(if requests.is_empty() { ladder } else { format!("{ladder}\n{requests}") });
        }
        let place = self.reports.partition_point(|other| lost(other) >= lost(report));
        if place < self.most {
            let mut report = report.clone();
            // The diagram is drawn already, and the packets would be most of the memory.
            report.rows = None;
            self.reports.insert(place, report);
            self.reports.truncate(self.most);
        }
        Ok(())
    }
}

/// Microseconds with any [`Cause`] other than [`Cause::Waiting`].
pub(crate) fn lost(report: &ConnectionReport) -> u128 {
    let busy = report.totals.iter().filter(|(cause, _)| *cause != Cause::Waiting);
    busy.map(|(_, time)| time.as_micros()).sum()
}

/// A number with its noun: `1 packet`, `2,000 packets`.
fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// Size of the capture, and packets that were not analysed.
pub(crate) fn overview(summary: &Summary) -> String {
    let duration = text(summary.last.since(summary.first));
    let line = format!(
        "{} in {duration}, {} of TCP payload, {}, {} with TLS",
        counted(summary.packets, "packet"),
        bytes(summary.bytes as f64),
        counted(summary.connections, "connection"),
        count(summary.tls_connections)
    );
    let mut all = wrapped(&line, WIDTH);
    let mut note = |number: u64, text: &str| {
        if number > 0 {
            all.push_str(&wrapped(&format!("{} {text}", count(number)), WIDTH));
        }
    };
    note(summary.evicted, "connections reported early because of a limit (--max-connections)");
    note(summary.quic_datagrams, "datagrams of QUIC");
    note(summary.other_protocols, "packets of other protocols");
    note(summary.fragments, &format!("IP fragments, of {}", counted(summary.reassembled, "complete packet")));
    note(summary.malformed, "packets with malformed or truncated headers");
    for (link, number) in &summary.unsupported_links {
        note(*number, &format!("packets with unsupported link type {link}"));
    }
    note(summary.untimed, "packets without a time, which count at the time of the packet before");
    let types: Vec<_> = summary.unknown_block_types.iter().map(|kind| format!("{kind:#x}")).collect();
    note(summary.unknown_blocks, &format!("blocks of types that are not analysed: {}", types.join(", ")));
    if let Some(counts) = summary.records {
        note(
            counts.joined,
            &format!("records beside the packets of {}", counted(counts.connections, "connection")),
        );
        note(counts.records - counts.joined, "records that belong to no connection of the capture");
        note(counts.unreadable, "lines that are no records");
        note(counts.omitted, "records beyond the limit of 500,000");
    }
    if let Some(damage) = &summary.damage {
        all.push_str(&wrapped(&format!("analysed until: {damage}"), WIDTH));
    }
    if let Some(offset) = summary.cut_at {
        let line =
            format!("the capture ends within the packet at offset {offset}, as after a killed recording");
        all.push_str(&wrapped(&line, WIDTH));
    }
    if summary.packets > 0 && summary.first == Nanos::default() {
        all.push_str(&wrapped("packets have no times", WIDTH));
    }
    all
}

/// Table of the causes.
pub(crate) fn ranking(summary: &Summary) -> Table {
    let mut table = Table::new("Causes of time")
        .text("cause")
        .figure("ms")
        .figure("connections")
        .text("longest, at packets");
    for row in summary.ranking() {
        let packets: Vec<_> = row.packets.iter().map(ToString::to_string).collect();
        let ms = if row.ms < 100.0 { format!("{:.1}", row.ms) } else { count(row.ms.round() as u64) };
        table.row([row.cause.to_owned(), ms, count(row.connections), packets.join(" ")]);
        if !row.advice.is_empty() {
            table.note(format!("{}: {}", row.cause, row.advice));
        }
    }
    table
}

fn quic(report: &QuicReport) -> String {
    let QuicReport { client, client_port, server, server_port, version, .. } = report;
    let mut facts = vec![format!("{client}:{client_port} → {server}:{server_port}")];
    facts.extend(report.server_name.clone());
    facts.push(version.clone());
    facts.extend(report.has_version_negotiation.then(|| "after version negotiation".to_owned()));
    facts.extend(report.has_retry.then(|| "Retry: one round trip more".to_owned()));
    facts.extend(report.has_early_data.then(|| "early data".to_owned()));
    let first = report.response_us.map(|us| text(std::time::Duration::from_micros(us)));
    facts.push(first.map_or("no response".to_owned(), |first| format!("first response after {first}")));
    let sides = [report.client_udp, report.server_udp].map(|side| bytes(side.bytes as f64));
    facts.push(format!("{} sent, {} received", sides[0], sides[1]));
    wrapped(&facts.join(", "), WIDTH)
}

fn connection(report: &ConnectionReport) -> String {
    let mut facts = vec![format!(
        "#{} {}:{} → {}:{}",
        report.connection, report.client, report.client_port, report.server, report.server_port
    )];
    if let Some(tls) = &report.tls {
        facts.extend(tls.server_name.clone());
        facts.extend(tls.tls.clone());
        facts.extend(tls.is_resumed.filter(|is_resumed| *is_resumed).map(|_| "resumed".to_owned()));
        facts.extend((tls.hello_retry > 0).then(|| "HelloRetryRequest".to_owned()));
        facts.extend(tls.alerts.iter().map(|(from, alert)| {
            let from = format!("{from:?}").to_lowercase();
            format!("alert of the {from}: {alert}")
        }));
    }
    facts.extend(report.rtt_us.map(|rtt| format!("rtt {}", text(std::time::Duration::from_micros(rtt)))));
    for (side, name) in [(&report.client_tcp, "client"), (&report.server_tcp, "server")] {
        let repeated = side.retransmissions();
        let repeated = (repeated > 0).then(|| counted(repeated.into(), "retransmission"));
        facts.extend(repeated.map(|repeated| format!("{repeated} of the {name}")));
    }
    facts.extend(report.request_count.map(|number| counted(number, "request")));
    facts.push(report.end.replace('-', " "));
    let mut lines = wrapped(&facts.join(", "), WIDTH);
    let records = report.records.iter().take(RECORDS).map(RecordReport::text);
    let omitted = report.records.len().saturating_sub(RECORDS) as u64;
    let omitted = (omitted > 0).then(|| format!("{} more", counted(omitted, "record")));
    for text in [report.finding.clone()].into_iter().chain(records).chain(omitted) {
        for line in wrapped(&text, WIDTH - 2).lines() {
            lines.extend(["  ", line, "\n"]);
        }
    }
    lines
}
