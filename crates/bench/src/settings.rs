//! What a run needs to know, right by construction: [`Options::settings`](crate::Options::settings) makes it.

use std::time::Duration;

use brisk_net::{FastOpenConnect, Target};
use brisk_telemetry::Resumption;
use brisk_tls_client::{ClientSettings, SessionUse, Tls12Sessions};
use brisk_wire::registry::ProtocolVersion;

use crate::choice::Weighted;
use crate::result::Unit;
use crate::schedule::Schedule;
use crate::workload::{PerConnection, Workload};

/// A run, as it is meant.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The URL as typed, for reports.
    pub url: String,
    /// Where connections go.
    pub target: Target,
    /// What handshakes are like; `None` without TLS.
    pub handshakes: Option<Handshakes>,
    /// What connections do.
    pub workload: Workload,
    /// When they do it.
    pub schedule: Schedule,
    /// Threads, each with connections of its own.
    pub threads: usize,
    /// How long an operation may take, from when it could start.
    pub timeout: Duration,
    /// Operations that may wait for a connection at a fixed rate; further ones are counted as not started.
    pub backlog: usize,
    /// Whether the `ClientHello` may travel with the SYN.
    pub fast_open: FastOpenConnect,
    /// The server's process, to measure what it uses.
    pub server: Option<u32>,
    /// Option and value, for reports.
    pub listing: Vec<(&'static str, String)>,
}

impl Settings {
    /// What operations are.
    pub fn unit(&self) -> Unit {
        match self.workload.requests {
            PerConnection::HandshakeOnly => Unit::Handshake,
            PerConnection::Requests(_) | PerConnection::Unlimited => Unit::Request,
        }
    }
}

/// What handshakes are like.
#[derive(Clone, Debug)]
pub struct Handshakes {
    /// Kinds and their shares.
    pub mix: Weighted<Resumption>,
    /// What clients offer, whatever the kind.
    pub client: ClientSettings,
    /// How often a TLS 1.3 session is resumed; `None` finds out what the server allows.
    pub session_use: Option<SessionUse>,
}

impl Handshakes {
    /// What clients offer that make handshakes of this kind; `None` if the versions that are offered do not have it.
    pub fn client(&self, kind: Resumption, session_use: SessionUse) -> Option<ClientSettings> {
        let mut client = self.client.clone();
        client.session_use = session_use;
        let only = match kind {
            Resumption::Full | Resumption::Ticket => None,
            Resumption::SessionId => Some(ProtocolVersion::TLS1_2),
            Resumption::Psk | Resumption::EarlyData => Some(ProtocolVersion::TLS1_3),
        };
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

/// Whether a handshake is what was asked for.
pub(crate) fn is_as_asked(asked: Resumption, got: Resumption) -> bool {
    asked == got || (asked == Resumption::Ticket && got == Resumption::Psk)
}
