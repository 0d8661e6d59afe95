//! Causes of time over all connections of a capture.

use std::time::Duration;

use brisk_wire::registry::ProtocolVersion;
use serde::Serialize;

use crate::decode::Ignored;
use crate::join::JoinCounts;
use crate::report::ConnectionReport;
use crate::time::{Nanos, millis};
use crate::waits::Cause;

/// Packets named for each cause: those with the longest times.
const PACKETS: usize = 3;

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
    /// Datagrams of these.
    pub quic_datagrams: u64,
    /// Packets of other protocols than TCP and QUIC.
    pub other_protocols: u64,
    /// Fragments of IP packets.
    pub fragments: u64,
    /// Packets that were reassembled from these.
    pub reassembled: u64,
    /// Packets with malformed or incomplete headers.
    pub malformed: u64,
    /// Number of an unsupported link layer, and of packets with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsupported_links: Option<(i32, u64)>,
    /// The capture ends within a packet.
    pub is_cut: bool,
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
const HELLO_RETRY: usize = Cause::ALL.len();
const OLD_VERSION: usize = HELLO_RETRY + 1;

#[derive(Clone, Debug, Default)]
struct Row {
    time: Duration,
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
    /// Recommended change; empty for the time without requests.
    pub advice: &'static str,
}

impl Summary {
    pub(crate) fn times(&mut self, time: Nanos) {
        if self.first == Nanos::default() {
            self.first = time;
        }
        self.last = self.last.max(time);
    }

    pub(crate) fn ignored(&mut self, reason: Ignored) {
        match reason {
            Ignored::OtherProtocol => self.other_protocols += 1,
            Ignored::Malformed => self.malformed += 1,
            Ignored::Link(link) => self.unsupported_links.get_or_insert((link, 0)).1 += 1,
        }
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
            self.rows[*cause as usize].add(*time);
        }
        for cause in &report.causes {
            let time = Duration::from_secs_f64(cause.ms / 1e3);
            self.rows[cause.cause as usize].packet(time, cause.packet);
        }
        let Some(tls) = &report.tls else { return };
        self.tls_connections += 1;
        let round_trip = report.round_trip.unwrap_or_default();
        if tls.hello_retry > 0 {
            self.rows[HELLO_RETRY].add(round_trip);
        }
        let is_old = tls.tls.is_some() && tls.tls.as_deref() != ProtocolVersion::TLS1_3.name();
        if is_old && tls.is_resumed == Some(false) {
            self.rows[OLD_VERSION].add(round_trip);
        }
    }

    /// Causes by lost time, the highest first; the time without requests, which is not lost, is last. Causes below a millisecond
    /// are omitted.
    pub fn ranking(&self) -> Vec<CauseRow> {
        let mut rows: Vec<_> = self.rows.iter().enumerate().collect();
        rows.retain(|(_, row)| row.time >= Duration::from_millis(1));
        rows.sort_by_key(|(index, row)| (*index == Cause::Waiting as usize, std::cmp::Reverse(row.time)));
        rows.into_iter().map(|(index, row)| row.report(index)).collect()
    }
}

impl Row {
    fn add(&mut self, time: Duration) {
        self.time += time;
        self.connections += u64::from(!time.is_zero());
    }

    fn packet(&mut self, time: Duration, packet: u64) {
        let place = self.packets.partition_point(|(longer, _)| *longer >= time);
        if place < PACKETS {
            self.packets.insert(place, (time, packet));
            self.packets.truncate(PACKETS);
        }
    }

    fn report(&self, index: usize) -> CauseRow {
        let (cause, advice) = advice(index);
        let packets = self.packets.iter().map(|(_, packet)| *packet).collect();
        CauseRow { cause, ms: millis(self.time), connections: self.connections, packets, advice }
    }
}

/// Name and recommended change.
fn advice(index: usize) -> (&'static str, &'static str) {
    let cause = match index {
        HELLO_RETRY => {
            return (
                "HelloRetryRequest (part of round trips)",
                "accept a group for which clients send key shares: X25519MLKEM768, X25519, P-256",
            );
        }
        OLD_VERSION => return ("TLS 1.2 (part of round trips)", "enable TLS 1.3, and tickets for TLS 1.2"),
        _ => Cause::ALL[index],
    };
    match cause {
        Cause::RoundTrip => ("round trips", "reuse connections, resume sessions, serve closer to clients"),
        Cause::Server => ("server", "profile the server; for handshakes: ECDSA keys, more workers"),
        Cause::Client => ("client", "examine the client: certificate checks, slow devices"),
        Cause::Waiting => ("waiting for requests", ""),
        Cause::LostSyn => {
            ("lost SYN", "check drops and accept queue of the server (ListenOverflows), firewalls")
        }
        Cause::Timeout => {
            ("retransmission timeout", "find the loss on the path; enable SACK and RACK-TLP on senders")
        }
        Cause::FastRetransmission => ("fast retransmission", "find the loss on the path; use BBR or pacing"),
        Cause::TailLossProbe => ("tail loss probe", "find the loss on the path"),
        Cause::Reordering => {
            ("reordering or earlier loss", "record nearer to the sender to distinguish both")
        }
        Cause::CongestionWindow => {
            ("congestion window", "initial window of 10 or more; shorter chains; no slow start after idle")
        }
        Cause::DelayedAck => ("delayed acknowledgement", "set TCP_NODELAY, or write a message at once"),
        Cause::ClientWindow => {
            ("client's receive window", "the client reads slowly; check its receive buffer")
        }
        Cause::ServerWindow => ("server's receive window", "raise tcp_rmem of the server, or read faster"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_with_the_longest_times_are_named() {
        let mut row = Row::default();
        for number in 0..100 {
            row.add(Duration::from_millis(number));
            row.packet(Duration::from_millis(number), number);
        }
        let report = row.report(Cause::Timeout as usize);
        assert_eq!((report.packets, report.connections), (vec![99, 98, 97], 99));
    }
}
