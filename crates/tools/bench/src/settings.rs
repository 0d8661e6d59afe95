//! The validated settings of a run, made by [`Options::settings`](crate::Options::settings).

use std::time::Duration;

use brisk_net::{FastOpenConnect, Target};
use brisk_telemetry::Resumption;
use brisk_tls_client::{ClientSettings, SessionUse, Tls12Sessions};
use brisk_wire::registry::ProtocolVersion;

use crate::choice::Weighted;
use crate::result::Unit;
use crate::schedule::Schedule;
use crate::workload::{PerConnection, Workload};

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The URL as typed, for reports.
    pub url: String,
    /// The target of connections.
    pub target: Target,
    /// The [`Handshakes`]; `None` without TLS.
    pub handshakes: Option<Handshakes>,
    /// The requests of connections.
    pub workload: Workload,
    /// When operations start.
    pub schedule: Schedule,
    /// Number of threads, each with connections of its own.
    pub threads: usize,
    /// Timeout of an operation, from its actual start.
    pub timeout: Duration,
    /// Maximum number of operations that wait for a connection at a fixed rate. Further ones count in
    /// [`RunResult::unstarted`](crate::RunResult::unstarted).
    pub backlog: usize,
    /// Whether the `ClientHello` may be sent with the `SYN`.
    pub fast_open: FastOpenConnect,
    /// Process ID of the server, to measure its resource usage.
    pub server: Option<u32>,
    /// Whether the result contains the single connections. Default: `false`.
    pub keeps_records: bool,
    /// Options that differ from the defaults, with their values, for reports.
    pub listing: Vec<(&'static str, String)>,
}

impl Settings {
    /// Unit of operations.
    pub fn unit(&self) -> Unit {
        match self.workload.requests {
            PerConnection::HandshakeOnly => Unit::Handshake,
            PerConnection::Requests(_) | PerConnection::Unlimited => Unit::Request,
        }
    }
}

/// The settings of handshakes.
#[derive(Clone, Debug)]
pub struct Handshakes {
    /// Kinds of handshake with their shares.
    pub mix: Weighted<Resumption>,
    /// Client settings of all kinds of handshake.
    pub client: ClientSettings,
    /// How often a TLS 1.3 session is resumed; `None`: as often as the server permits, which the run tests.
    pub session_use: Option<SessionUse>,
}

impl Handshakes {
    /// The client settings for handshakes of `kind`; `None` if the offered versions do not support that kind.
    pub fn client(&self, kind: Resumption, session_use: SessionUse) -> Option<ClientSettings> {
        let mut client = self.client.clone();
        client.session_use = session_use;
        let only = match kind {
            Resumption::Full | Resumption::Ticket => None,
            Resumption::SessionId => Some(ProtocolVersion::TLS1_2),
            Resumption::Psk | Resumption::EarlyData => Some(ProtocolVersion::TLS1_3),
        };
        // A hello with both versions would let the server select one in which this kind does not exist.
        if let Some(version) = only {
            if !client.versions.is_empty() && !client.versions.contains(&version) {
                return None;
            }
            client.versions = vec![version];
        }
        client.tls12_sessions =
            if kind == Resumption::SessionId { Tls12Sessions::Ids } else { Tls12Sessions::Tickets };
        Some(client)
    }
}

/// Whether a handshake of kind `got` is of the requested kind `asked`.
pub(crate) fn is_as_requested(asked: Resumption, got: Resumption) -> bool {
    // RFC 8446 section 2.2: a ticket of TLS 1.3 is resumed as a pre-shared key.
    asked == got || (asked == Resumption::Ticket && got == Resumption::Psk)
}
