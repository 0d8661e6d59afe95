//! The sums of a run, of one thread or of all.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use brisk_tls_client::ClientFacts;
use brisk_wire::registry::{CipherSuite, NamedGroup, ProtocolVersion, SignatureScheme};
use hdrhistogram::Histogram;

use crate::error::Failure;
use crate::measure::{Exchange, Handshake};
use crate::records::ConnectionTimes;
use crate::result::{Cause, HandshakeCount, LONGEST, Phases, Responses, Traffic};

/// Sums of measurements.
#[derive(Debug)]
pub(crate) struct Totals {
    pub(crate) operations: u64,
    pub(crate) primed: u64,
    pub(crate) unstarted: u64,
    pub(crate) phases: Phases,
    pub(crate) handshakes: Vec<HandshakeCount>,
    pub(crate) negotiated: Vec<(Agreement, u64)>,
    pub(crate) responses: Responses,
    pub(crate) errors: BTreeMap<Cause, (u64, String)>,
    pub(crate) alerts: BTreeMap<String, u64>,
    pub(crate) traffic: Traffic,
    /// Single connections, if they are wanted.
    pub(crate) connections: Vec<ConnectionTimes>,
    /// Time at which the last operation ended, successfully or not.
    pub(crate) finished: Option<Instant>,
}

/// The parameters negotiated in a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Agreement {
    version: ProtocolVersion,
    suite: CipherSuite,
    group: Option<NamedGroup>,
    scheme: Option<SignatureScheme>,
    protocol: Option<Box<str>>,
    hello_retry: bool,
}

impl Totals {
    pub(crate) fn new() -> Self {
        Self {
            operations: 0,
            primed: 0,
            unstarted: 0,
            phases: Phases::new(),
            handshakes: Vec::new(),
            negotiated: Vec::new(),
            responses: Responses::default(),
            errors: BTreeMap::new(),
            alerts: BTreeMap::new(),
            traffic: Traffic::default(),
            connections: Vec::new(),
            finished: None,
        }
    }

    pub(crate) fn connection(&mut self, connect: Duration) {
        record(&mut self.phases.connect, connect);
    }

    pub(crate) fn handshake(&mut self, handshake: &Handshake<'_>) {
        let facts = handshake.facts;
        handshake.connect.into_iter().for_each(|connect| self.connection(connect));
        record(&mut self.phases.tls, handshake.tls);
        self.count_handshake(HandshakeCount { asked: handshake.asked, got: facts.resumption, count: 1 });
        // A search among few entries: a hash map would need an owned key for each handshake.
        match self.negotiated.iter_mut().find(|(agreement, _)| agreement.is_of(facts)) {
            Some((_, count)) => *count += 1,
            None => self.negotiated.push((Agreement::new(facts), 1)),
        }
        self.traffic.handshakes += 1;
        self.traffic.handshake_sent += facts.bytes_sent;
        self.traffic.handshake_received += facts.bytes_received;
        self.traffic.handshake_segments_sent += u64::from(handshake.segments.0);
        self.traffic.handshake_segments_received += u64::from(handshake.segments.1);
        if handshake.syn_data {
            self.traffic.syn_data += 1;
            self.traffic.syn_whole += u64::from(facts.first_write == facts.first_flight);
            self.traffic.syn_flights += facts.first_flight;
            self.traffic.syn_bytes += facts.first_write;
        }
    }

    pub(crate) fn response(&mut self, start: Instant, exchange: &Exchange) {
        // `httparse` accepts every status of three digits.
        let class = usize::from(exchange.status / 100).clamp(1, 5) - 1;
        self.responses.classes[class] += 1;
        self.responses.body_bytes += exchange.body;
        record(&mut self.phases.first_byte, exchange.first_byte.saturating_duration_since(start));
        record(&mut self.phases.request, exchange.ended.saturating_duration_since(exchange.sent));
    }

    pub(crate) fn operation(&mut self, now: Instant, taken: Duration) {
        self.operations += 1;
        self.finished = Some(now);
        record(&mut self.phases.total, taken);
    }

    pub(crate) fn failure(&mut self, now: Instant, failure: &Failure) {
        self.finished = Some(now);
        self.errors.entry(failure.cause).or_insert_with(|| (0, failure.message.clone())).0 += 1;
        if let Some(alert) = &failure.alert {
            *self.alerts.entry(alert.clone()).or_default() += 1;
        }
    }

    /// Adds the measurements of another thread.
    pub(crate) fn add(&mut self, other: Self) {
        self.operations += other.operations;
        self.primed += other.primed;
        self.unstarted += other.unstarted;
        self.add_phases(&other.phases);
        other.handshakes.into_iter().for_each(|kind| self.count_handshake(kind));
        for (agreement, count) in other.negotiated {
            match self.negotiated.iter_mut().find(|(own, _)| *own == agreement) {
                Some((_, own)) => *own += count,
                None => self.negotiated.push((agreement, count)),
            }
        }
        for (own, other) in self.responses.classes.iter_mut().zip(other.responses.classes) {
            *own += other;
        }
        self.responses.body_bytes += other.responses.body_bytes;
        for (cause, (count, example)) in other.errors {
            self.errors.entry(cause).or_insert((0, example)).0 += count;
        }
        for (alert, count) in other.alerts {
            *self.alerts.entry(alert).or_default() += count;
        }
        self.add_traffic(&other.traffic);
        self.connections.extend(other.connections);
        self.finished = self.finished.max(other.finished);
    }

    fn add_phases(&mut self, other: &Phases) {
        add(&mut self.phases.connect, &other.connect);
        add(&mut self.phases.tls, &other.tls);
        add(&mut self.phases.first_byte, &other.first_byte);
        add(&mut self.phases.total, &other.total);
        add(&mut self.phases.request, &other.request);
    }

    fn add_traffic(&mut self, other: &Traffic) {
        let own = &mut self.traffic;
        own.sent += other.sent;
        own.received += other.received;
        own.segments_sent += other.segments_sent;
        own.segments_received += other.segments_received;
        own.reconnects += other.reconnects;
        own.handshakes += other.handshakes;
        own.handshake_sent += other.handshake_sent;
        own.handshake_received += other.handshake_received;
        own.handshake_segments_sent += other.handshake_segments_sent;
        own.handshake_segments_received += other.handshake_segments_received;
        own.syn_data += other.syn_data;
        own.syn_whole += other.syn_whole;
        own.syn_flights += other.syn_flights;
        own.syn_bytes += other.syn_bytes;
    }

    fn count_handshake(&mut self, counted: HandshakeCount) {
        let same = |kind: &&mut HandshakeCount| (kind.asked, kind.got) == (counted.asked, counted.got);
        match self.handshakes.iter_mut().find(same) {
            Some(kind) => kind.count += counted.count,
            None => self.handshakes.push(counted),
        }
    }
}

/// Adds a time to a histogram of microseconds; a time above [`LONGEST`] counts as [`LONGEST`].
pub(crate) fn record(histogram: &mut Histogram<u64>, time: Duration) {
    let micros = time.min(LONGEST).as_micros() as u64;
    histogram.record(micros).expect("histograms grow as they need to");
}

/// Adds a histogram to another.
pub(crate) fn add(histogram: &mut Histogram<u64>, other: &Histogram<u64>) {
    histogram.add(other).expect("histograms grow as they need to");
}

impl Agreement {
    fn new(facts: &ClientFacts) -> Self {
        Self {
            version: facts.version,
            suite: facts.suite,
            group: facts.group,
            scheme: facts.scheme,
            protocol: facts.protocol.clone(),
            hello_retry: facts.hello_retry,
        }
    }

    fn is_of(&self, facts: &ClientFacts) -> bool {
        self.version == facts.version
            && self.suite == facts.suite
            && self.group == facts.group
            && self.scheme == facts.scheme
            && self.protocol == facts.protocol
            && self.hello_retry == facts.hello_retry
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.version, self.suite)?;
        if let Some(group) = self.group {
            write!(f, " {group}")?;
        }
        if let Some(scheme) = self.scheme {
            write!(f, " {scheme}")?;
        }
        if let Some(protocol) = &self.protocol {
            write!(f, " {protocol}")?;
        }
        f.write_str(if self.hello_retry { " after a HelloRetryRequest" } else { "" })
    }
}
