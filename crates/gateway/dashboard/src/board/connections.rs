//! Connections with the duration of each step of their handshakes.

use std::sync::Arc;
use std::time::Duration;

use brisk_telemetry::{ConnectionEnd, Milestone, RecentConnection, ResumptionFailure, Timeline};
use serde_json::{Value, json};

use super::{micros, unix_millis};

/// Maximum number of listed connections.
const SHOWN: usize = 50;

/// The milestone that ends each step, and the name of the step. The idle time of a client before its first request is
/// not a step.
const STEPS: [(Milestone, &str); 5] = [
    (Milestone::ClientHello, "hello"),
    (Milestone::CertificateChosen, "certificate"),
    (Milestone::KeyOperationStarted, "key exchange"),
    (Milestone::KeyOperationFinished, "signature"),
    (Milestone::HandshakeFinished, "finished"),
];

pub(super) fn shown(all: &[Arc<RecentConnection>]) -> Value {
    json!({ "connections": all.iter().take(SHOWN).map(|one| connection(one)).collect::<Vec<_>>() })
}

fn connection(connection: &RecentConnection) -> Value {
    let tls = connection.tls.as_ref();
    let failure = tls.and_then(|tls| tls.resumption_failure).or(connection.resumption_failure);
    json!({
        "id": connection.id,
        "listener": connection.listener.name(),
        "client": connection.client.to_string(),
        "name": tls.and_then(|tls| tls.server_name.as_deref()),
        "subject": tls.and_then(|tls| tls.client_subject.as_deref()),
        "started": unix_millis(connection.timeline.time_of_day()),
        "waited": connection.waited().map(micros),
        "rtt": connection.rtt.map(micros),
        "requests": connection.requests,
        "version": tls.map(|tls| tls.version.to_string()),
        "group": tls.and_then(|tls| tls.group).map(|group| group.to_string()),
        "alpn": tls.and_then(|tls| tls.alpn).map(brisk_wire::HttpVersion::alpn),
        "kind": tls.map(|tls| tls.resumption.name()),
        "missed": failure.map(ResumptionFailure::name),
        "failed": matches!(connection.end, ConnectionEnd::HandshakeFailed(_)),
        "end": connection.end.reason(),
        "steps": steps(&connection.timeline),
    })
}

/// Names and durations of the steps that were reached, in order.
fn steps(timeline: &Timeline) -> Vec<(&'static str, u64)> {
    let mut begun = Duration::ZERO;
    let mut steps = Vec::with_capacity(STEPS.len() + 1);
    for (milestone, name) in STEPS {
        let Some(ended) = timeline.offset(milestone) else { continue };
        steps.push((name, micros(ended.saturating_sub(begun))));
        begun = begun.max(ended);
    }
    steps.extend(timeline.first_byte().map(|taken| ("first byte", micros(taken))));
    steps
}

#[cfg(test)]
mod tests {
    use std::time::{Instant, UNIX_EPOCH};

    use super::*;

    #[test]
    fn a_step_begins_where_the_one_before_it_ends_and_rest_is_no_step() {
        let mut timeline = Timeline::start_at(Instant::now(), UNIX_EPOCH);
        for (milestone, millis) in [
            (Milestone::ClientHello, 1),
            (Milestone::CertificateChosen, 2),
            (Milestone::HandshakeFinished, 7),
            (Milestone::FirstRequest, 5000),
            (Milestone::FirstResponse, 5003),
        ] {
            timeline.mark_after(milestone, Duration::from_millis(millis));
        }
        let expected = [("hello", 1000), ("certificate", 1000), ("finished", 5000), ("first byte", 3000)];
        assert_eq!(steps(&timeline), expected);
        let mut early = Timeline::start_at(Instant::now(), UNIX_EPOCH);
        for (milestone, millis) in [
            (Milestone::ClientHello, 1),
            (Milestone::FirstRequest, 1),
            (Milestone::FirstResponse, 9),
            (Milestone::HandshakeFinished, 7),
        ] {
            early.mark_after(milestone, Duration::from_millis(millis));
        }
        assert_eq!(steps(&early), [("hello", 1000), ("finished", 6000), ("first byte", 2000)]);
    }
}
