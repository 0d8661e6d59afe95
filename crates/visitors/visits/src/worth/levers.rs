//! Comparisons: pairs of values that a change of settings can convert into each other.

use std::collections::HashMap;

use brisk_telemetry::EarlyData;
use brisk_wire::HttpVersion;
use brisk_wire::registry::ProtocolVersion;

use super::Share;
use crate::cuts::{Dimension, is_new, is_person};
use crate::kinds::{CertificateType, Connection, Session};
use crate::row;
use crate::sample::{Sample, Sampled};

/// Number of values of a [`Dimension`] compared with the most frequent one.
const VALUES: usize = 4;

/// One comparison.
#[derive(Debug, Clone)]
pub(super) struct Lever {
    pub(super) dimension: Dimension,
    /// Descriptions of the visits of each side, to follow "visits": "resumed", "made a full handshake".
    pub(super) names: [String; 2],
    /// Restriction of the visits, to follow "visits"; may be empty.
    pub(super) scope: &'static str,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Resumption,
    EarlyData,
    Version,
    Http,
    Connection,
    Certificate,
    /// Two values of the [`Dimension`], among full handshakes or all visits.
    Pair {
        values: [u16; 2],
        full: bool,
    },
}

/// Comparisons that `sample` permits.
pub(super) fn levers(sample: &Sample) -> Vec<Lever> {
    let opened = "that opened a connection";
    let fixed = |dimension, kind, first: &str, second: &str, scope| Lever {
        dimension,
        names: [first.to_owned(), second.to_owned()],
        scope,
        kind,
    };
    let mut levers = vec![
        fixed(Dimension::Session, Kind::Resumption, "resumed", "made a full handshake", opened),
        fixed(
            Dimension::EarlyData,
            Kind::EarlyData,
            "sent early data that was accepted",
            "resumed TLS 1.3 without early data",
            "that resumed TLS 1.3",
        ),
        fixed(Dimension::Version, Kind::Version, "used TLS 1.3", "used TLS 1.2", opened),
        fixed(Dimension::Http, Kind::Http, "used HTTP/2", "used HTTP/1.1", opened),
        fixed(Dimension::Connection, Kind::Connection, "found a connection open", "opened a connection", ""),
        fixed(
            Dimension::Certificate,
            Kind::Certificate,
            "were shown an ECDSA certificate",
            "were shown an RSA certificate",
            "with a full handshake",
        ),
    ];
    for (dimension, full) in [(Dimension::Group, true), (Dimension::Suite, false), (Dimension::Window, false)]
    {
        levers.extend(pairs(dimension, full, sample));
    }
    levers
}

/// Pairs of the most frequent value of a dimension with each of the next.
fn pairs(dimension: Dimension, full: bool, sample: &Sample) -> Vec<Lever> {
    let mut counts = HashMap::<u16, f64>::new();
    for visit in
        sample.rows.iter().filter(|visit| is_new(visit) && is_person(visit) && (!full || is_full(visit)))
    {
        *counts.entry(dimension.of(visit)).or_default() += visit.weight;
    }
    // 0 is unknown, which no change of settings can produce.
    counts.remove(&0);
    let mut values: Vec<_> = counts.into_iter().collect();
    values.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let Some(((first, _), others)) = values.split_first() else { return Vec::new() };
    let name = |value| format!("had {} {}", dimension.name(), dimension.name_of(value, sample));
    let levers = others.iter().take(VALUES - 1).map(|(other, _)| Lever {
        dimension,
        names: [name(*first), name(*other)],
        scope: if full { "with a full handshake" } else { "that opened a connection" },
        kind: Kind::Pair { values: [*first, *other], full },
    });
    levers.collect()
}

fn session(visit: &Sampled) -> Session {
    Session::ALL.get(usize::from(visit.row.session)).copied().unwrap_or(Session::Unknown)
}

fn is_full(visit: &Sampled) -> bool {
    session(visit).is_resumed() == Some(false)
}

impl Lever {
    /// The side of a visit, 0 or 1; `None` if it does not take part.
    pub(super) fn side(&self, visit: &Sampled) -> Option<usize> {
        let row = &visit.row;
        let either = |first: bool, second: bool| if first { Some(0) } else { second.then_some(1) };
        if !is_person(visit) || (!is_new(visit) && !matches!(self.kind, Kind::Connection)) {
            return None;
        }
        match self.kind {
            Kind::Resumption => session(visit).is_resumed().map(|resumed| usize::from(!resumed)),
            Kind::EarlyData => {
                let accepted = row::early_data(row.early_data) == Some(EarlyData::Accepted);
                let session = session(visit);
                either(accepted || session == Session::EarlyData, session == Session::Psk)
            }
            Kind::Version => either(
                row.version == u16::from(ProtocolVersion::TLS1_3),
                row.version == u16::from(ProtocolVersion::TLS1_2),
            ),
            Kind::Http => {
                let version = row::http(row.http);
                either(version == Some(HttpVersion::Http2), version == Some(HttpVersion::Http11))
            }
            Kind::Connection => {
                either(row.connection == Connection::Reused as u8, row.connection == Connection::New as u8)
            }
            Kind::Certificate if is_full(visit) => either(
                row.certificate == CertificateType::Ecdsa as u8,
                row.certificate == CertificateType::Rsa as u8,
            ),
            Kind::Certificate => None,
            Kind::Pair { full, .. } if full && !is_full(visit) => None,
            Kind::Pair { values, .. } => {
                let value = self.dimension.of(visit);
                values.iter().position(|side| *side == value)
            }
        }
    }

    /// Further properties that compared visits share, so that only the sides differ.
    pub(super) fn stratum(&self, visit: &Sampled) -> [u16; 3] {
        let row = &visit.row;
        let resumed = u16::from(session(visit).is_resumed() == Some(true));
        let http = row.http.into();
        match self.kind {
            Kind::Resumption | Kind::EarlyData | Kind::Certificate => [row.version, http, 0],
            Kind::Version => [resumed, http, row.certificate.into()],
            Kind::Http => [resumed, row.version, 0],
            // Visits on an open connection did not wait for its handshake, so its properties need not
            // agree.
            Kind::Connection => [http, 0, 0],
            Kind::Pair { .. } => [resumed, row.version, http],
        }
    }

    /// Reasons for which visits are on the worse side, as shares of `all`; empty if unknown.
    pub(super) fn reasons(&self, better: usize, worse: &[(&Sampled, f64)], all: f64) -> Vec<Share> {
        // The reasons explain full handshakes, which are the worse side if resumption is better.
        if !matches!(self.kind, Kind::Resumption) || better != 0 {
            return Vec::new();
        }
        let mut weights = HashMap::<Session, f64>::new();
        for (visit, _) in worse {
            *weights.entry(session(visit)).or_default() += visit.weight;
        }
        let mut shares: Vec<_> = weights.into_iter().collect();
        shares.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        shares
            .into_iter()
            .map(|(session, weight)| Share { name: reason(session).to_owned(), share: weight / all })
            .collect()
    }

    /// The comparison as text.
    pub(super) fn question(&self) -> String {
        let scope = if self.scope.is_empty() { String::new() } else { format!(" {}", self.scope) };
        format!("visits{scope}: those that {} beside those that {}", self.names[0], self.names[1])
    }
}

/// The reason for a full handshake as text, by [`Session`].
const fn reason(session: Session) -> &'static str {
    match session {
        Session::NewVisitor => "new visitors",
        Session::NoSession => "the session was no longer there",
        Session::UnknownKey => "the ticket's key was no longer on the keyring",
        Session::Expired => "the ticket had expired",
        Session::Forged => "the ticket was forged or damaged",
        Session::StoreLate => "the session store answered too late",
        Session::StoreDown => "the session store was out of order",
        Session::Used => "the session was taken before",
        Session::Unsuitable => "the session was made for another name, suite or version",
        _ => "unknown",
    }
}
