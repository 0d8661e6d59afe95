//! Records of single connections: address, and milestones with the names of the access log.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use brisk_report::json::timestamp_micros;
use brisk_telemetry::Timeline;
use brisk_tls_client::Observer;
use serde::{Serialize, Serializer};

/// Maximum number of [`ConnectionTimes`] that a thread keeps; about 150 bytes each.
const KEPT: usize = 1_000_000;

/// A connection that has ended.
#[derive(Clone, Debug)]
pub struct ConnectionTimes {
    /// Address of this side.
    pub client: SocketAddr,
    /// Duration of the TCP connect.
    pub connect: Duration,
    /// Milestones since the end of `connect`, as this side knows them: `ClientHello` is sent then.
    pub timeline: Timeline,
}

/// Connections of a run, if they are wanted.
#[derive(Debug, Default)]
pub(crate) struct Records {
    pub(crate) is_wanted: bool,
    pub(crate) connections: Vec<ConnectionTimes>,
}

impl Records {
    pub(crate) fn add(&mut self, connection: ConnectionTimes) {
        if self.is_wanted && self.connections.len() < KEPT {
            self.connections.push(connection);
        }
    }
}

/// Notes when the first bytes of a connection were sent.
#[derive(Debug, Default)]
pub(crate) struct FirstFlight(OnceLock<Instant>);

impl FirstFlight {
    pub(crate) fn sent_at(&self) -> Option<Instant> {
        self.0.get().copied()
    }
}

impl Observer for FirstFlight {
    fn sent(&self, at: Instant, _: &[u8]) {
        // Only the first write sets the time; the error of a later one is expected.
        let _ = self.0.set(at);
    }

    fn received(&self, _: Instant, _: &[u8]) {}

    fn chain(&self, _: &[&[u8]], _: &[u8]) {}

    fn secret(&self, _: &str, _: &[u8], _: &[u8]) {}
}

#[derive(Serialize)]
struct Line {
    event: &'static str,
    client: String,
    client_port: u16,
    connected: String,
    connect_us: u64,
    milestones_us: Offsets,
}

struct Offsets(Timeline);

impl Serialize for Offsets {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        serializer.collect_map(self.0.reached().map(|(milestone, at)| (milestone.name(), micros(at))))
    }
}

/// Writes one JSON object per connection, each in a line. Fields have the names and units of the access log.
pub fn write(connections: &[ConnectionTimes], output: &mut impl Write) -> io::Result<()> {
    for ConnectionTimes { client, connect, timeline } in connections {
        let line = Line {
            event: "connection",
            client: client.ip().to_string(),
            client_port: client.port(),
            connected: timestamp_micros(timeline.time_of_day()),
            connect_us: u64::try_from(connect.as_micros()).unwrap_or(u64::MAX),
            milestones_us: Offsets(timeline.clone()),
        };
        serde_json::to_writer(&mut *output, &line)?;
        output.write_all(b"\n")?;
    }
    output.flush()
}
