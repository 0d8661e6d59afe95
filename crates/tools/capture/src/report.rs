//! Report of one connection.

use std::net::IpAddr;
use std::time::Duration;

use brisk_handshake_view::Party;
use brisk_telemetry::Milestone;
use serde::{Serialize, Serializer};

use crate::connection::{Connection, Row};
use crate::flags::{FlagCounts, Flags};
use crate::http::RequestReport;
use crate::join::RecordReport;
use crate::names::Names;
use crate::options::SynOptions;
use crate::secrets::Secrets;
use crate::side::Side;
use crate::time::{Nanos, micros, millis, text};
use crate::tls::TlsFacts;
use crate::waits::{Cause, Kind, Span};

/// Maximum number of [`Cause`]s named in [`ConnectionReport::finding`].
const PARTS: usize = 6;

/// Report of a connection, one line of the JSON output. Fields with names of the access log have its meaning and unit.
#[derive(Clone, Debug, Serialize)]
pub struct ConnectionReport {
    /// Number in the capture, from 0.
    pub connection: u64,
    /// Address of the client.
    pub client: IpAddr,
    /// Port of the client.
    pub client_port: u16,
    /// Address of the server.
    pub server: IpAddr,
    /// Port of the server.
    pub server_port: u16,
    /// Time of the first packet.
    pub time: Nanos,
    /// Microseconds from the first packet to the last.
    pub duration_us: u64,
    /// Whole round trip in microseconds, from the client's `SYN` to the end of the TCP handshake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_us: Option<u64>,
    /// Microseconds from the first packet to each visible milestone of the access log.
    #[serde(serialize_with = "as_object")]
    pub milestones_us: Vec<(Milestone, u64)>,
    /// Duration of the TLS handshake, from the `ClientHello` to the client's `Finished`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake_us: Option<u64>,
    /// Sentence that splits the time into `causes`.
    pub finding: String,
    /// Milliseconds by kind.
    pub split_ms: SplitMs,
    /// The longest times with their causes, by duration.
    pub causes: Vec<CauseReport>,
    /// How the connection ended: `open`, `closed`, `reset-by-client`, `reset-by-server`, `evicted`.
    pub end: &'static str,
    /// TCP of the client.
    pub client_tcp: SideReport,
    /// TCP of the server.
    pub server_tcp: SideReport,
    /// Bytes in the `SYN` (Fast Open).
    pub syn_bytes: u32,
    /// TLS, if the client's first bytes are those of TLS.
    #[serde(flatten)]
    pub tls: Option<TlsFacts>,
    /// Number of requests, if they are not encrypted or were decrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_count: Option<u64>,
    /// The first 1,000 requests.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<RequestReport>,
    /// Records of the gateway and of the load generator about this connection.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub records: Vec<RecordReport>,
    /// Sum of the times with each cause.
    #[serde(skip)]
    pub(crate) totals: Vec<(Cause, Duration)>,
    #[serde(skip)]
    pub(crate) round_trip: Option<Duration>,
    /// Packets of the ladder diagram, with names of messages.
    #[serde(skip)]
    pub(crate) rows: Option<Vec<(Row, Vec<String>)>>,
}

/// Milliseconds by kind. The sum is the time from the first step to the last.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct SplitMs {
    /// Round trips, losses and congestion windows.
    pub network: f64,
    /// Work of the server.
    pub server: f64,
    /// Work of the client.
    pub client: f64,
    /// Time without a request.
    pub waiting: f64,
}

/// A time with one cause.
#[derive(Clone, Debug, Serialize)]
pub struct CauseReport {
    /// Cause.
    pub cause: Cause,
    /// Duration in milliseconds.
    pub ms: f64,
    /// Number of the packet that ended the time.
    pub packet: u64,
    /// Sender of `packet`.
    pub from: Party,
    /// Message that `packet` contains or begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// TCP of one side.
#[derive(Clone, Debug, Serialize)]
pub struct SideReport {
    /// Packets from this side.
    pub packets: u64,
    /// Payload bytes, repeated ones included.
    pub bytes: u64,
    /// Options of the side's `SYN`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub syn: Option<SynOptions>,
    /// Shortest round trip in milliseconds between the place of the recording and this side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_min_ms: Option<f64>,
    /// Mean of these round trips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_mean_ms: Option<f64>,
    /// Longest of these round trips.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_max_ms: Option<f64>,
    /// Number of these round trips.
    pub rtt_samples: u64,
    /// Largest number of bytes in flight.
    pub in_flight_max: u32,
    /// Bytes sent before the first acknowledgement of data: at least the initial congestion window if more followed.
    pub first_burst: u32,
    /// Packets by result of the analysis.
    pub analysis: FlagCounts,
}

impl SideReport {
    fn new(side: &Side) -> Self {
        let trips = &side.round_trips;
        Self {
            packets: side.packets,
            bytes: side.bytes,
            syn: side.syn,
            rtt_min_ms: trips.least.map(millis),
            rtt_mean_ms: trips.mean().map(millis),
            rtt_max_ms: (trips.count > 0).then(|| millis(trips.most)),
            rtt_samples: trips.count,
            in_flight_max: side.in_flight,
            first_burst: side.first_burst.0,
            analysis: side.counts,
        }
    }

    /// Number of retransmitted segments, by all [`Flags`] of retransmissions.
    pub(crate) fn retransmissions(&self) -> u32 {
        let kinds = Flags::RETRANSMISSION | Flags::FAST_RETRANSMISSION | Flags::SPURIOUS_RETRANSMISSION;
        self.analysis.of(kinds)
    }
}

pub(crate) fn as_object<S: Serializer>(
    milestones: &[(Milestone, impl Serialize)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(milestones.iter().map(|(milestone, at)| (milestone.name(), at)))
}

impl ConnectionReport {
    pub(crate) fn new(mut connection: Connection, is_evicted: bool, secrets: &Secrets) -> Self {
        let connected = connection.connected.unwrap_or(connection.first);
        let round_trip = connection.round_trip;
        let tls = connection.tls.take();
        let tls = tls.map(|tls| tls.analyse(connected, round_trip.unwrap_or_default(), secrets));
        let mut spans = connection.waits.spans().to_vec();
        spans.sort_by_key(|span| (std::cmp::Reverse(span.time), span.packet));
        let http = connection.http.take();
        let names = Names { tls: tls.as_ref(), http: http.as_deref() };
        let causes: Vec<_> = spans.iter().map(|span| CauseReport::new(span, names)).collect();
        let waits = &connection.waits;
        let totals: Vec<_> = Cause::ALL.iter().map(|cause| (*cause, waits.total(*cause))).collect();
        let split = |kind| millis(waits.sum(kind));
        let established =
            connection.connected.map(|at| (Milestone::TcpEstablished, at.since(connection.first)));
        let visible = tls.iter().flat_map(|tls| tls.milestones.iter().copied());
        let milestones: Vec<_> = established.into_iter().chain(visible).collect();
        let at = |wanted| milestones.iter().find(|(milestone, _)| *milestone == wanted).map(|(_, at)| *at);
        let handshake = at(Milestone::HandshakeFinished).zip(at(Milestone::ClientHello));
        let rows = connection.rows.take().map(|rows| named(rows, names));
        let report = Self {
            connection: connection.number,
            client: connection.client.ip(),
            client_port: connection.client.port(),
            server: connection.server.ip(),
            server_port: connection.server.port(),
            time: connection.first,
            duration_us: micros(connection.latest.since(connection.first)),
            rtt_us: round_trip.map(micros),
            handshake_us: handshake.map(|(end, begin)| micros(end.saturating_sub(begin))),
            finding: finding(&totals, &causes, round_trip),
            split_ms: SplitMs {
                network: split(Kind::Network),
                server: split(Kind::Server),
                client: split(Kind::Client),
                waiting: split(Kind::Waiting),
            },
            causes,
            end: end(&connection, is_evicted),
            client_tcp: SideReport::new(&connection.sides[0]),
            server_tcp: SideReport::new(&connection.sides[1]),
            syn_bytes: connection.syn_data,
            milestones_us: milestones.into_iter().map(|(milestone, at)| (milestone, micros(at))).collect(),
            tls: tls.map(|tls| tls.facts),
            request_count: http.as_ref().map(|http| http.count()).filter(|count| *count > 0),
            requests: http.map(|http| http.reports(connection.first)).unwrap_or_default(),
            records: Vec::new(),
            totals,
            round_trip,
            rows,
        };
        report.with_exact_requests()
    }

    /// Replaces the milestones of encrypted requests by those of the first visible request.
    fn with_exact_requests(mut self) -> Self {
        if let Some(request) = self.requests.first() {
            let is_other =
                |milestone| !matches!(milestone, Milestone::FirstRequest | Milestone::FirstResponse);
            self.milestones_us.retain(|(milestone, _)| is_other(*milestone));
            self.milestones_us.push((Milestone::FirstRequest, request.begin_us));
            self.milestones_us.extend(request.response_us.map(|at| (Milestone::FirstResponse, at)));
        }
        self
    }
}

impl CauseReport {
    fn new(span: &Span, names: Names<'_>) -> Self {
        let Span { cause, packet, from, .. } = *span;
        let message = match span.len {
            // SYN, FIN or RST, without the ACK.
            0 => span.control.names().split(',').next().map(str::to_owned),
            len => names.first(from, span.offset.into(), len.into()),
        };
        Self { cause, ms: millis(span.time), packet, from, message }
    }
}

fn end(connection: &Connection, is_evicted: bool) -> &'static str {
    let [client, server] = &connection.sides;
    match (client.has_reset, server.has_reset) {
        (true, _) => "reset-by-client",
        (_, true) => "reset-by-server",
        _ if client.has_fin && server.has_fin => "closed",
        _ if is_evicted => "evicted",
        _ => "open",
    }
}

fn named(rows: Vec<Row>, names: Names<'_>) -> Vec<(Row, Vec<String>)> {
    let of = |row: &Row| names.of(row.from, row.offset.into(), row.len.into());
    rows.into_iter().map(|row| (row, of(&row))).collect()
}

/// The sentence: `1.20 s = 3 round trips of 180 ms + 400 ms server before Certificate + ...`.
fn finding(totals: &[(Cause, Duration)], causes: &[CauseReport], round_trip: Option<Duration>) -> String {
    let sum: Duration = totals.iter().map(|(_, time)| *time).sum();
    let mut parts: Vec<(Duration, String)> = Vec::new();
    for (cause, total) in totals {
        if total.is_zero() {
            continue;
        }
        let part = match cause {
            Cause::RoundTrip => trips(*total, round_trip),
            Cause::Waiting => format!("{} waiting for a request", text(*total)),
            _ => described(*cause, *total, causes),
        };
        parts.push((*total, part));
    }
    parts.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    let is_visible = |(time, _): &&(Duration, String)| *time * 100 >= sum;
    let mut words: Vec<_> =
        parts.iter().take(PARTS).filter(is_visible).map(|(_, part)| part.clone()).collect();
    let shown = parts.iter().take(PARTS).filter(is_visible).map(|(time, _)| *time).sum();
    let rest = sum.saturating_sub(shown);
    // Below half a percent, the rest is an error of rounding to readers.
    if rest * 200 > sum {
        words.push(format!("{} other", text(rest)));
    }
    if words.is_empty() { text(sum) } else { format!("{} = {}", text(sum), words.join(" + ")) }
}

/// Round trips, by number if they are whole ones.
fn trips(total: Duration, round_trip: Option<Duration>) -> String {
    // Over shorter links, the number would be one of delays of the machines.
    let one = round_trip.filter(|one| *one >= Duration::from_millis(1));
    let number = one.map(|one| total.as_secs_f64() / one.as_secs_f64());
    match (one, number) {
        (Some(one), Some(number)) if number >= 0.95 => {
            let whole = number.round();
            let is_whole = (number - whole).abs() < 0.05 * whole.max(1.0);
            let number = if is_whole { format!("{whole}") } else { format!("{number:.1}") };
            let noun = if number == "1" { "round trip" } else { "round trips" };
            format!("{number} {noun} of {}", text(one))
        }
        _ => format!("{} network", text(total)),
    }
}

/// A cause with the message of its longest time, or the number of its times.
fn described(cause: Cause, total: Duration, causes: &[CauseReport]) -> String {
    let mut of_cause = causes.iter().filter(|found| found.cause == cause);
    let longest = of_cause.next();
    let others = of_cause.count();
    let name = longest.and_then(|longest| longest.message.as_deref()).unwrap_or("data");
    let total = text(total);
    match (cause, others) {
        (Cause::LostSyn, 0) => format!("{total} lost SYN"),
        (Cause::LostSyn, _) => format!("{total} lost SYNs"),
        (_, 0) => format!("{total} {} {name}", cause.text()),
        (_, 1) => format!("{total} {} {name} and another", cause.text()),
        _ => format!("{total} {} {name} and {others} others", cause.text()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_sentence_names_round_trips_and_messages() {
        let totals = [
            (Cause::RoundTrip, MS(540)),
            (Cause::Server, MS(400)),
            (Cause::Client, Duration::ZERO),
            (Cause::Timeout, MS(260)),
        ];
        let report = |cause, message: &str| CauseReport {
            cause,
            ms: 1.0,
            packet: 1,
            from: Party::Server,
            message: Some(message.to_owned()),
        };
        let causes = [report(Cause::Server, "Certificate"), report(Cause::Timeout, "ServerHello")];
        assert_eq!(
            finding(&totals, &causes, Some(MS(180))),
            "1.20 s = 3 round trips of 180 ms + 400 ms server before Certificate + 260 ms retransmission timeout \
             of ServerHello"
        );
        assert_eq!(trips(MS(100), None), "100 ms network");
        assert_eq!(trips(MS(180), Some(MS(180))), "1 round trip of 180 ms");
        assert_eq!(trips(MS(270), Some(MS(180))), "1.5 round trips of 180 ms");
        assert_eq!(finding(&[], &[], None), "0 µs");
    }
}
