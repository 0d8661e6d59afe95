//! Differences between two captures: shares of connections, and medians of durations, each with a confidence interval.
//!
//! A difference is reported only if the intervals of both captures do not overlap, so that chance rarely looks like one although
//! many quantities are compared.

use std::collections::HashSet;
use std::io;
use std::net::IpAddr;

use brisk_compare::{CONFIDENCE, estimate};
use brisk_report::Table;
use brisk_report::figures::{count, microseconds, percent};
use brisk_telemetry::Milestone;
use brisk_wire::registry::ProtocolVersion;
use serde::Serialize;

use crate::analysis::Output;
use crate::report::{ConnectionReport, SideReport};
use crate::terminal::lost;
use crate::time::micros;
use crate::waits::Cause;

/// Maximum number of values in [`Values`]: a random selection if there are more.
const KEPT: usize = 10_000;

/// Maximum number of clients that are counted.
const CLIENTS: usize = 10_000;

/// Minimum number of connections of a [`Share`], as for a median.
const FEW: u64 = 6;

/// Shortest time with a cause that counts, in microseconds.
const SHORTEST: u64 = 1000;

/// Quantile of the normal distribution for an interval of 95 %.
const NORMAL: f64 = 1.96;

/// Property of a connection; `None` if it is not known.
type Property = fn(&ConnectionReport) -> Option<bool>;

/// Duration of a connection in microseconds, if it is known.
type Length = fn(&ConnectionReport) -> Option<u64>;

const SHARES: [(&str, Property); 8] = [
    ("TLS 1.3", |report| {
        report.tls.as_ref()?.tls.as_deref().map(|version| Some(version) == ProtocolVersion::TLS1_3.name())
    }),
    ("resumed", |report| report.tls.as_ref()?.is_resumed),
    ("HelloRetryRequest", |report| report.tls.as_ref().map(|tls| tls.hello_retry > 0)),
    ("alert", |report| report.tls.as_ref().map(|tls| !tls.alerts.is_empty())),
    ("reset by client", |report| Some(report.end == "reset-by-client")),
    ("reset by server", |report| Some(report.end == "reset-by-server")),
    ("client repeats segments", |report| Some(repeats(&report.client_tcp))),
    ("server repeats segments", |report| Some(repeats(&report.server_tcp))),
];

const LENGTHS: [(&str, Length); 5] = [
    ("TCP handshake", |report| report.rtt_us),
    ("TLS handshake", |report| report.handshake_us),
    ("first request to response", |report| {
        let at = |wanted| report.milestones_us.iter().find(|(milestone, _)| *milestone == wanted);
        at(Milestone::FirstResponse)?.1.checked_sub(at(Milestone::FirstRequest)?.1)
    }),
    ("lost time", |report| u64::try_from(lost(report)).ok()),
    ("duration", |report| Some(report.duration_us)),
];

fn repeats(side: &SideReport) -> bool {
    side.retransmissions() > 0
}

/// [`Output`] that collects a capture for [`Comparison`]. Memory: below 3 MiB, and the addresses of the clients.
#[derive(Debug, Default)]
pub struct Sample {
    connections: u64,
    clients: HashSet<IpAddr>,
    shares: [Share; SHARES.len() + Cause::ALL.len()],
    lengths: [Values; LENGTHS.len() + Cause::ALL.len()],
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    part: u64,
    whole: u64,
}

/// A random selection of values, of which each has the same probability (reservoir sampling). The same input has the same one.
#[derive(Clone, Debug, Default)]
struct Values {
    seen: u64,
    kept: Vec<u64>,
    state: u64,
}

impl Output for Sample {
    fn connection(&mut self, report: &ConnectionReport) -> io::Result<()> {
        self.connections += 1;
        // The set is bounded, because a scan can have millions of addresses; only a small number matters
        // exactly.
        if self.clients.len() < CLIENTS {
            self.clients.insert(report.client);
        }
        for (share, (_, property)) in self.shares.iter_mut().zip(SHARES) {
            if let Some(is_part) = property(report) {
                share.add(is_part);
            }
        }
        for (values, (_, length)) in self.lengths.iter_mut().zip(LENGTHS) {
            if let Some(length) = length(report) {
                values.add(length);
            }
        }
        for (cause, time) in &report.totals {
            let time = micros(*time);
            // Shorter times are noise: without the limit, each connection would have nearly each cause.
            self.shares[SHARES.len() + *cause as usize].add(time >= SHORTEST);
            if time >= SHORTEST {
                self.lengths[LENGTHS.len() + *cause as usize].add(time);
            }
        }
        Ok(())
    }
}

impl Share {
    fn add(&mut self, is_part: bool) {
        self.whole += 1;
        self.part += u64::from(is_part);
    }

    /// The fraction with its interval by Wilson's score.
    fn interval(self) -> Option<Interval> {
        if self.whole == 0 {
            return None;
        }
        // The usual interval around the fraction has no width for shares of 0 and 1, which are frequent here.
        let (all, fraction) = (self.whole as f64, self.part as f64 / self.whole as f64);
        let square = NORMAL * NORMAL;
        let centre = (fraction + square / (2.0 * all)) / (1.0 + square / all);
        let half = NORMAL / (1.0 + square / all)
            * (fraction * (1.0 - fraction) / all + square / (4.0 * all * all)).sqrt();
        let is_sufficient = self.whole >= FEW;
        let (low, high) = ((centre - half).max(0.0), (centre + half).min(1.0));
        Some(Interval { value: fraction, low, high, connections: self.whole, is_sufficient })
    }
}

impl Values {
    fn add(&mut self, value: u64) {
        self.seen += 1;
        if self.kept.len() < KEPT {
            self.kept.push(value);
            return;
        }
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // The upper half of the product, because the lower bits of this generator repeat after few steps.
        let place = ((u128::from(self.state) * u128::from(self.seen)) >> 64) as usize;
        if let Some(kept) = self.kept.get_mut(place) {
            *kept = value;
        }
    }

    /// The median with its interval by the sign test.
    fn interval(&self) -> Option<Interval> {
        let found = estimate(self.kept.iter().map(|value| *value as f64))?;
        let is_sufficient = found.confidence >= CONFIDENCE;
        Some(Interval {
            value: found.median,
            low: found.low,
            high: found.high,
            connections: self.seen,
            is_sufficient,
        })
    }
}

/// A value with its confidence interval of 95 %.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Interval {
    /// Share between 0 and 1, or median in microseconds.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Connections that the value describes.
    pub connections: u64,
    /// Whether there are enough connections for the interval: six.
    pub is_sufficient: bool,
}

/// How the second capture differs from the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Its interval lies above.
    Higher,
    /// Its interval lies below.
    Lower,
    /// The intervals overlap.
    Unclear,
    /// One of the captures has too few connections.
    TooFew,
}

impl Verdict {
    fn of(one: &Interval, other: &Interval) -> Self {
        match () {
            () if !one.is_sufficient || !other.is_sufficient => Self::TooFew,
            () if other.low > one.high => Self::Higher,
            () if other.high < one.low => Self::Lower,
            () => Self::Unclear,
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
            Self::Unclear => "unclear",
            Self::TooFew => "too few",
        }
    }
}

/// A quantity in both captures.
#[derive(Clone, Debug, Serialize)]
pub struct ComparisonRow {
    /// Property, duration or cause.
    pub name: String,
    /// `share` of connections, or `median` in microseconds.
    pub kind: &'static str,
    /// The first capture; `None` if no connection has the quantity.
    pub first: Option<Interval>,
    /// The second one.
    pub second: Option<Interval>,
    /// How `second` differs from `first`.
    pub verdict: Verdict,
}

/// Differences between two captures.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    event: &'static str,
    /// Connections of both captures.
    pub connections: [u64; 2],
    /// Addresses of clients, at most 10,000.
    pub clients: [usize; 2],
    /// Quantities that occur in one of the captures.
    pub rows: Vec<ComparisonRow>,
}

impl Comparison {
    /// Compares `second` with `first`.
    pub fn new(first: &Sample, second: &Sample) -> Self {
        let causes = || Cause::ALL.iter().map(|cause| format!("cause {}", cause.name()));
        let shares = SHARES.iter().map(|(name, _)| (*name).to_owned()).chain(causes());
        let lengths = LENGTHS.iter().map(|(name, _)| (*name).to_owned()).chain(causes());
        let share = |sample: &Sample, index: usize| sample.shares[index].interval();
        let length = |sample: &Sample, index: usize| sample.lengths[index].interval();
        let shares = shares
            .enumerate()
            .map(|(index, name)| row(name, "share", share(first, index), share(second, index)));
        let lengths = lengths
            .enumerate()
            .map(|(index, name)| row(name, "median", length(first, index), length(second, index)));
        let is_empty = |side: &Option<Interval>| side.is_none_or(|side| side.value == 0.0);
        let rows = lengths.chain(shares).filter(|row| !is_empty(&row.first) || !is_empty(&row.second));
        Self {
            event: "comparison",
            connections: [first.connections, second.connections],
            clients: [first.clients.len(), second.clients.len()],
            rows: rows.collect(),
        }
    }

    /// One JSON object in a line; the field `event` is `comparison`.
    pub fn json(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers are JSON") + "\n"
    }

    /// A table of `width` columns. `files` are the names of the captures.
    pub fn text(&self, files: [&str; 2], width: usize) -> String {
        let [first, second] = files;
        let title = format!("Differences of {second} from {first}");
        let mut table = Table::new(title).text("quantity").figure("first").figure("second").text("second is");
        let number = |side: usize| count(self.connections[side]);
        table.row(["connections".to_owned(), number(0), number(1), String::new()]);
        for row in &self.rows {
            let name = match row.kind {
                "share" => format!("{}, share", row.name),
                _ => row.name.clone(),
            };
            let cell = |side: Option<Interval>| side.map_or("–".to_owned(), |side| cell(row.kind, &side));
            table.row([name, cell(row.first), cell(row.second), row.verdict.text().to_owned()]);
        }
        table.note(
            "durations are medians over the connections that have them; in brackets: intervals of 95 %",
        );
        table.note("higher, lower: the intervals do not overlap; unclear: they do; too few: fewer than six connections");
        table.note("causes count from a millisecond in a connection on");
        if self.clients.iter().any(|clients| (*clients as u64) < FEW) {
            let [one, other] = self.clients;
            table.note(format!(
                "{one} and {other} client addresses: connections of one client resemble each other, so the intervals are too narrow"
            ));
        }
        table.to_text(width)
    }
}

fn row(name: String, kind: &'static str, first: Option<Interval>, second: Option<Interval>) -> ComparisonRow {
    let verdict =
        first.as_ref().zip(second.as_ref()).map_or(Verdict::TooFew, |(one, other)| Verdict::of(one, other));
    ComparisonRow { name, kind, first, second, verdict }
}

fn cell(kind: &str, side: &Interval) -> String {
    let value = |value: f64| if kind == "share" { percent(value) } else { microseconds(value) };
    if side.is_sufficient {
        format!("{} ({}–{})", value(side.value), value(side.low), value(side.high))
    } else {
        value(side.value)
    }
}

#[cfg(test)]
mod tests {
    use brisk_handshake_view::Party::{Client, Server};

    use super::*;
    use crate::analysis::{Settings, analyse};
    use crate::testing::{Written, handshake, pcap};

    /// Connections with a request each, of which every `slow`-th one has a response after 300 ms instead of 25 ms.
    fn sample(connections: u16, slow: u16) -> Sample {
        let packets = (0..connections).flat_map(|number| {
            let mut packets = handshake();
            let wait = if number % slow == 0 { 300 } else { 25 } + u64::from(number % 7);
            packets.push(Written::new(40, Client, 101, 501, b"GET / HTTP/1.1\r\n\r\n"));
            packets.push(Written::new(40 + wait, Server, 501, 119, b"HTTP/1.1 200 OK\r\n"));
            packets.into_iter().map(move |mut packet| {
                packet.port = 1000 + number;
                packet
            })
        });
        let mut sample = Sample::default();
        analyse(&pcap(packets)[..], Settings::default(), &mut sample).expect("a capture");
        sample
    }

    fn verdict(comparison: &Comparison, name: &str, kind: &str) -> Option<Verdict> {
        let row = comparison.rows.iter().find(|row| row.name == name && row.kind == kind);
        row.map(|row| row.verdict)
    }

    #[test]
    fn only_clear_differences_are_reported() {
        let (quick, slow) = (sample(200, 50), sample(200, 1));
        let comparison = Comparison::new(&quick, &slow);
        assert_eq!(verdict(&comparison, "lost time", "median"), Some(Verdict::Higher));
        assert_eq!(verdict(&comparison, "cause server", "median"), Some(Verdict::Higher));
        assert_eq!(verdict(&comparison, "TCP handshake", "median"), Some(Verdict::Unclear));
        assert_eq!(verdict(&Comparison::new(&slow, &quick), "lost time", "median"), Some(Verdict::Lower));
        let same = Comparison::new(&sample(200, 50), &sample(203, 40));
        assert!(same.rows.iter().all(|row| row.verdict == Verdict::Unclear), "{same:#?}");
        let few = Comparison::new(&sample(5, 1), &slow);
        assert!(few.rows.iter().all(|row| row.verdict == Verdict::TooFew), "{few:#?}");
        let text = comparison.text(["a.pcap", "b.pcap"], 80);
        assert!(
            text.contains("Differences of b.pcap from a.pcap") && text.contains("1 and 1 client addresses"),
            "{text}"
        );
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        // A cause that does not occur is no row.
        assert_eq!(verdict(&comparison, "cause lost-syn", "share"), None);
    }

    #[test]
    fn shares_have_the_intervals_of_wilson() {
        let interval = Share { part: 10, whole: 100 }.interval().expect("connections");
        assert!(
            (interval.low - 0.0552).abs() < 1e-3 && (interval.high - 0.1744).abs() < 1e-3,
            "{interval:?}"
        );
        let none = Share { part: 0, whole: 20 }.interval().expect("connections");
        assert!(none.low == 0.0 && none.high > 0.15, "{none:?}");
    }

    #[test]
    fn selected_values_represent_all_of_them() {
        let mut values = Values::default();
        (0..1_000_000).for_each(|value| values.add(value));
        let interval = values.interval().expect("values");
        assert_eq!((values.kept.len(), interval.connections), (KEPT, 1_000_000));
        assert!((interval.value - 500_000.0).abs() < 20_000.0, "{interval:?}");
        assert!(interval.low < interval.value && interval.value < interval.high, "{interval:?}");
        assert!(interval.high - interval.low < 30_000.0, "{interval:?}");
    }
}
