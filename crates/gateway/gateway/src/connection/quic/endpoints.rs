//! The part of QUIC that all workers share.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brisk_http_server::HttpSettings;
use brisk_quic::{Endpoints, Group, QuicSettings, Timeouts};
use brisk_session::Purpose;
use brisk_tls::Acceptor;
use brisk_tls::quic::QuicSessions;

use crate::GatewayError;
use crate::configuration::Live;
use crate::settings::GatewaySettings;

/// Time by which the transport outlives the idle timeout of HTTP, which ends a connection with a message to the client.
const IDLE_MARGIN: Duration = Duration::from_secs(30);

/// State that the QUIC drivers of all workers share.
pub(crate) struct Quic {
    endpoints: Endpoints,
    /// The groups of sockets, by address.
    groups: Mutex<HashMap<SocketAddr, Group>>,
    /// The sockets that receive nothing, by address and worker, with the errors.
    deaf: Mutex<BTreeMap<(SocketAddr, usize), String>>,
}

impl Quic {
    /// Prepares QUIC. `acceptor` returns the [`Acceptor`] for the next handshake.
    pub(crate) fn new(
        settings: &GatewaySettings,
        acceptor: impl Fn() -> Arc<Acceptor> + Send + Sync + 'static,
    ) -> Result<Self, GatewayError> {
        let sessions = QuicSessions::new(acceptor)?;
        let Timeouts { handshake, idle } = timeouts(settings.handshake_timeout, &settings.protocol);
        let quic =
            QuicSettings { handshake_timeout: handshake, idle_timeout: idle, ..QuicSettings::default() };
        let fleet = settings.sessions.fleet.as_ref();
        // A key of the fleet: a client may return with its token to another gateway, or to
        // this one after its restart.
        let secret = fleet.map(|fleet| fleet.secret.derive(Purpose::QuicTokens));
        let endpoints = Endpoints::new(quic, sessions, secret.as_ref().map(|secret| &secret[..]));
        Ok(Self { endpoints, groups: Mutex::default(), deaf: Mutex::default() })
    }

    /// Applies the timeouts of another configuration to new connections.
    pub(crate) fn follow(&self, live: &Live) {
        self.endpoints.set_timeouts(timeouts(live.handshake_timeout, &live.http));
    }

    pub(crate) fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    /// The [`Group`] of `count` sockets with this `address`, which are one half of an inherited group unless `half` is
    /// `None`.
    pub(crate) fn group(&self, address: SocketAddr, count: usize, half: Option<bool>) -> Group {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        // Shared by the workers: a datagram that reaches the socket of another worker is
        // passed on within the group.
        groups.entry(address).or_insert_with(|| Group::new(count, half)).clone()
    }

    /// Notes that the socket of a worker with this address cannot receive, or can again. Returns whether this is a change.
    pub(crate) fn note_reception(&self, socket: (SocketAddr, usize), error: Option<&io::Error>) -> bool {
        let mut deaf = self.deaf.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            Some(error) => deaf.insert(socket, error.to_string()).is_none(),
            None => deaf.remove(&socket).is_some(),
        }
    }

    /// The sockets that receive nothing, as a reason for which the process is not ready.
    pub(crate) fn trouble(&self) -> Option<String> {
        let deaf = self.deaf.lock().unwrap_or_else(PoisonError::into_inner);
        let ((address, worker), error) = deaf.first_key_value()?;
        Some(match deaf.len() - 1 {
            0 => format!("HTTP/3 on {address} receives no datagrams on worker {worker}: {error}"),
            more => {
                format!(
                    "HTTP/3 on {address} receives no datagrams on worker {worker}, nor do {more} more sockets: {error}"
                )
            }
        })
    }
}

fn timeouts(handshake: Duration, http: &HttpSettings) -> Timeouts {
    Timeouts { handshake, idle: http.timeouts.idle + IDLE_MARGIN }
}
