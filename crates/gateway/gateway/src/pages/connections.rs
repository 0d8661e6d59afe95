//! Facts of connections as JSON, for the admin listener and the built-in page.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brisk_telemetry::{
    ConnectionEnd, EarlyData, Milestone, RecentConnection, ResumptionFailure, Timeline, TlsFacts,
};
use brisk_wire::HttpVersion;
use serde_json::{Map, Value, json};

/// The connections that ended last, as the admin listener shows them.
pub(crate) fn shown(recent: &[impl AsRef<RecentConnection>]) -> String {
    let all: Vec<_> = recent.iter().map(|one| connection(one.as_ref())).collect();
    format!("{:#}\n", json!({ "connections": all }))
}

fn connection(connection: &RecentConnection) -> Value {
    json!({
        "connection": connection.id,
        "listener": connection.listener.name(),
        "client": connection.client.to_string(),
        "started_us": since_1970(connection.timeline.time_of_day()),
        "steps_us": steps(&connection.timeline),
        "duration_us": micros(connection.duration),
        "handshake": !matches!(connection.end, ConnectionEnd::HandshakeFailed(_)),
        "end": connection.end.reason(),
        "tls": connection.tls.as_ref().map(tls),
        "resumption_failure": connection.resumption_failure.map(ResumptionFailure::name),
        "rtt_us": connection.rtt.map(micros),
        "requests": connection.requests,
        "bytes_received": connection.bytes_received,
        "bytes_sent": connection.bytes_sent,
        "early_bytes": connection.early_bytes,
        "packets_sent": connection.path.map(|path| path.packets_sent),
        "packets_lost": connection.path.map(|path| path.packets_lost),
        "migrations": connection.path.map(|path| path.migrations),
    })
}

/// Parameters negotiated in a handshake.
pub(crate) fn tls(tls: &TlsFacts) -> Value {
    json!({
        "version": tls.version.to_string(),
        "suite": tls.suite.to_string(),
        "group": tls.group.map(|group| group.to_string()),
        "scheme": tls.scheme.map(|scheme| scheme.to_string()),
        "resumption": tls.resumption.name(),
        "resumption_failure": tls.resumption_failure.map(ResumptionFailure::name),
        "early_data": tls.early_data.map(EarlyData::name),
        "handshake_us": micros(tls.handshake_time),
        "hello_retry": tls.hello_retry,
        "server_name": tls.server_name,
        "alpn": tls.alpn.map(HttpVersion::alpn),
        "client_subject": tls.client_subject,
    })
}

/// The [`Milestone`]s after the first, each with its time from the start in microseconds.
pub(crate) fn steps(timeline: &Timeline) -> Map<String, Value> {
    let reached = timeline.reached().filter(|(milestone, _)| *milestone != Milestone::TcpEstablished);
    reached.map(|(milestone, at)| (milestone.name().to_owned(), micros(at).into())).collect()
}

/// Whole microseconds.
pub(crate) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

fn since_1970(time: SystemTime) -> u64 {
    micros(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}
