//! Causes of time over all connections of a capture.

use std::time::Duration;

use brisk_wire::registry::ProtocolVersion;
use serde::Serialize;

use crate::advice::advice;
use crate::decode::Ignored;
use crate::join::JoinCounts;
use crate::reader::Gaps;
use crate::report::ConnectionReport;
use crate::time::{Nanos, millis};
use crate::waits::Cause;

/// Packets named for each cause: those with the longest times.
const PACKETS: usize = 3;

/// Types of link layers that are named.
const LINKS: usize = 16;

/// Share of the time from which a cause deserves a change: one in this number.
const RELEVANT: u32 = 50;

/// Summary of a capture.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Packets in the capture.
    pub packets: u64,
    /// Payload bytes of TCP.
    pub bytes: u64,
    /// Connections.
    pub connections: u64,
    /// Connections with TLS.
    pub tls_connections: u64,
    /// Connections that were reported before their end because of a limit.
    pub evicted: u64,
    /// QUIC connections.
    pub quic_connections: u64,
    /// Datagrams of the `quic_connections`.
    pub quic_datagrams: u64,
    /// Packets of other protocols than TCP and QUIC.
    pub other_protocols: u64,
    /// Fragments of IP packets.
    pub fragments: u64,
    /// Packets that were reassembled from `fragments`.
    pub reassembled: u64,
    /// Packets with malformed or incomplete headers.
    pub malformed: u64,
    /// Numbers of the unsupported link layers, each with its number of packets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unsupported_links: Vec<(i32, u64)>,
    /// Packets without a time, which count at the time of the packet before.
    pub untimed: u64,
    /// Blocks of types that are not analysed.
    pub unknown_blocks: u64,
    /// The first types that `unknown_blocks` counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown_block_types: Vec<u32>,
    /// The capture ends within a packet.
    pub is_cut: bool,
    /// Offset of the packet that [`is_cut`](Self::is_cut) means, in the uncompressed capture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_at: Option<u64>,
    /// Time of the first packet.
    pub first: Nanos,
    /// Time of the last packet.
    pub last: Nanos,
    /// Numbers of records that were placed beside packets, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<JoinCounts>,
    /// Fault that ended the analysis before the end of the capture.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
    #[serde(skip)]
    rows: [Row; Cause::ALL.len() + EXTRA],
}

/// Causes that are a part of the round trips.
const EXTRA: usize = 2;
pub(crate) const HELLO_RETRY: usize = Cause::ALL.len();
pub(crate) const OLD_VERSION: usize = HELLO_RETRY + 1;

#[derive(Clone, Debug, Default)]
struct Row {
    time: Duration,
    /// The part of `time` in connections with TLS.
    tls: Duration,
    connections: u64,
    packets: Vec<(Duration, u64)>,
}

/// A cause over all connections.
#[derive(Clone, Debug, Serialize)]
pub struct CauseRow {
    /// Name.
    pub cause: &'static str,
    /// Lost time in milliseconds.
    pub ms: f64,
    /// Connections with this cause.
    pub connections: u64,
    /// Packets that ended the longest of these times.
    pub packets: Vec<u64>,
    /// Recommended change; empty for the time without requests, and for causes of less than 2 % of the other time.
    pub advice: &'static str,
}

impl Summary {
    pub(crate) fn times(&mut self, time: Nanos) {
        if self.first == Nanos::default() {
            self.first = time;
        }
        // Packets of several interfaces are not always in the order of their times.
        self.last = self.last.max(time);
    }

    pub(crate) fn ignored(&mut self, reason: Ignored) {
        match reason {
            Ignored::OtherProtocol => self.other_protocols += 1,
            Ignored::Malformed => self.malformed += 1,
            Ignored::Link(link) => self.unsupported_link(link),
        }
    }

    /// Packets of types beyond the limit count for the last one.
    fn unsupported_link(&mut self, link: i32) {
        let links = &mut self.unsupported_links;
        if !links.iter().any(|(number, _)| *number == link) && links.len() < LINKS {
            links.push((link, 0));
        }
        let place = links.iter().position(|(number, _)| *number == link).unwrap_or(links.len() - 1);
        links[place].1 += 1;
    }

    pub(crate) fn gaps(&mut self, gaps: &Gaps) {
        (self.is_cut, self.cut_at) = (gaps.cut_at.is_some(), gaps.cut_at);
        self.untimed = gaps.untimed;
        (self.unknown_blocks, self.unknown_block_types) = (gaps.blocks, gaps.block_types.clone());
    }

    pub(crate) fn datagram(&mut self, is_quic: bool) {
        if is_quic {
            self.quic_datagrams += 1;
        } else {
            self.other_protocols += 1;
        }
    }

    pub(crate) fn connection(&mut self, report: &ConnectionReport) {
        self.connections += 1;
        self.evicted += u64::from(report.end == "evicted");
        for (cause, time) in &report.totals {
            self.rows[*cause as usize].add(*time, report.tls.is_some());
        }
        for cause in &report.causes {
            let time = Duration::from_secs_f64(cause.ms / 1e3);
            self.rows[cause.cause as usize].packet(time, cause.packet);
        }
        let Some(tls) = &report.tls else { return };
        self.tls_connections += 1;
        let round_trip = report.round_trip.unwrap_or_default();
        // A part of the round trips, so the time is listed in addition, and not in the sum.
        if tls.hello_retry > 0 {
            self.rows[HELLO_RETRY].add(round_trip, true);
        }
        let is_old = tls.tls.is_some() && tls.tls.as_deref() != ProtocolVersion::TLS1_3.name();
        if is_old && tls.is_resumed == Some(false) {
            self.rows[OLD_VERSION].add(round_trip, true);
        }
    }

    /// Causes by lost time, the highest first; the time without requests, which is not lost, is last. Causes below a millisecond
    /// are omitted.
    pub fn ranking(&self) -> Vec<CauseRow> {
        let mut rows: Vec<_> = self.rows.iter().enumerate().collect();
        rows.retain(|(_, row)| row.time >= Duration::from_millis(1));
        rows.sort_by_key(|(index, row)| (*index == Cause::Waiting as usize, std::cmp::Reverse(row.time)));
        let busy = self.rows[..Cause::ALL.len()].iter().enumerate();
        let busy = busy.filter(|(index, _)| *index != Cause::Waiting as usize);
        let least = busy.map(|(_, row)| row.time).sum::<Duration>() / RELEVANT;
        rows.into_iter().map(|(index, row)| row.report(index, least)).collect()
    }
}

impl Row {
    fn add(&mut self, time: Duration, is_tls: bool) {
        self.time += time;
        self.tls += if is_tls { time } else { Duration::ZERO };
        self.connections += u64::from(!time.is_zero());
    }

    fn packet(&mut self, time: Duration, packet: u64) {
        let place = self.packets.partition_point(|(longer, _)| *longer >= time);
        if place < PACKETS {
            self.packets.insert(place, (time, packet));
            self.packets.truncate(PACKETS);
        }
    }

    /// The [`CauseRow`]; `least` is the shortest time that deserves an advice.
    fn report(&self, index: usize, least: Duration) -> CauseRow {
        let has_tls = !self.tls.is_zero() && self.tls >= least;
        let (cause, advice) = advice(index, has_tls);
        let advice = if self.time < least { "" } else { advice };
        let packets = self.packets.iter().map(|(_, packet)| *packet).collect();
        CauseRow { cause, ms: millis(self.time), connections: self.connections, packets, advice }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_with_the_longest_times_are_named() {
        let mut row = Row::default();
        for number in 0..100 {
            row.add(Duration::from_millis(number), false);
            row.packet(Duration::from_millis(number), number);
        }
        let report = row.report(Cause::Timeout as usize, Duration::ZERO);
        assert_eq!((report.packets, report.connections), (vec![99, 98, 97], 99));
    }

    #[test]
    fn advice_is_given_for_relevant_causes_and_about_tls_for_connections_with_tls() {
        let mut summary = Summary::default();
        let advice = |summary: &Summary, name| {
            let row = summary.ranking().into_iter().find(|row| row.cause == name).expect("a row");
            row.advice
        };
        summary.rows[Cause::ServerWindow as usize].add(Duration::from_secs(10), false);
        summary.rows[Cause::Client as usize].add(Duration::from_millis(190), false);
        summary.rows[Cause::Server as usize].add(Duration::from_millis(300), false);
        assert!(advice(&summary, "client").is_empty() && !advice(&summary, "server").contains("ECDSA"));
        assert!(advice(&summary, "server's receive window").contains("tcp_rmem"));
        // Idle time is no reason to keep silent about the rest.
        summary.rows[Cause::Waiting as usize].add(Duration::from_secs(1000), false);
        summary.rows[Cause::Client as usize].add(Duration::from_secs(1), true);
        summary.rows[Cause::Server as usize].add(Duration::from_millis(10), true);
        assert!(advice(&summary, "client").contains("certificate checks"));
        assert!(!advice(&summary, "server").contains("ECDSA"));
    }

    #[test]
    fn every_unsupported_link_layer_is_named() {
        let mut summary = Summary::default();
        for link in [147, 9, 147].into_iter().chain(1000..1100) {
            summary.ignored(Ignored::Link(link));
        }
        assert_eq!(summary.unsupported_links[..3], [(147, 2), (9, 1), (1000, 1)]);
        assert_eq!(summary.unsupported_links.iter().map(|(_, number)| number).sum::<u64>(), 103);
    }
}
