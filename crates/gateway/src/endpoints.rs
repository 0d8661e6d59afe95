//! The part of QUIC that all workers share.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brisk_quic::{Endpoints, Group, QuicSettings};
use brisk_session::Purpose;
use brisk_tls::Acceptor;
use brisk_tls::quic::QuicSessions;

use crate::GatewayError;
use crate::settings::GatewaySettings;

/// Time by which the transport outlives the idle timeout of HTTP, which ends a connection with a message to the client.
const IDLE_MARGIN: Duration = Duration::from_secs(30);

/// State that the QUIC drivers of all workers share.
pub(crate) struct Quic {
    endpoints: Endpoints,
    /// The groups of sockets, by address.
    groups: Mutex<HashMap<SocketAddr, Group>>,
}

impl Quic {
    /// Prepares QUIC. `acceptor` returns the acceptor for the next handshake.
    pub(crate) fn new(
        settings: &GatewaySettings,
        acceptor: impl Fn() -> Arc<Acceptor> + Send + Sync + 'static,
    ) -> Result<Self, GatewayError> {
        let sessions = QuicSessions::new(acceptor)?;
        let quic = QuicSettings {
            handshake_timeout: settings.handshake_timeout,
            idle_timeout: settings.protocol.timeouts.idle + IDLE_MARGIN,
            ..QuicSettings::default()
        };
        let fleet = settings.sessions.fleet.as_ref();
        let secret = fleet.map(|fleet| fleet.secret.derive(Purpose::QuicTokens));
        let endpoints = Endpoints::new(quic, sessions, secret.as_ref().map(|secret| &secret[..]));
        Ok(Self { endpoints, groups: Mutex::default() })
    }

    pub(crate) fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// The group of `count` sockets with this address.
    pub(crate) fn group(&self, address: SocketAddr, count: usize) -> Group {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.entry(address).or_insert_with(|| Group::new(count)).clone()
    }
}
