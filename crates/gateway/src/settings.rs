//! The whole configuration of a gateway, resolved: values are valid, files are read, certificates have their keys.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brisk_keys::Keystore;
use brisk_net::{ListenerSettings, RateLimits};
use brisk_proxy::client::HttpSettings;
use brisk_proxy::settings::ServiceSettings;
use brisk_proxy::upstream_settings::GroupSettings;
use brisk_session::{FleetSecret, KeySource, MemorySettings, RedisSettings};
use brisk_telemetry::access_log::AccessLogSettings;
use brisk_tls::settings::{HostSettings, TlsSettings};
use ipnet::IpNet;

/// The settings of a gateway. Replaced whole on reload, but for those that are fixed at the start.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// Threads, each with its own listeners and connections. Fixed at the start.
    pub workers: NonZeroUsize,
    /// Listeners for HTTPS. Fixed at the start.
    pub https: Vec<ListenerSettings>,
    /// Listeners for plain HTTP, redirected to HTTPS. Fixed at the start.
    pub http: Vec<ListenerSettings>,
    /// The port of the `Location` that plain HTTP answers with; 443 is not written out.
    pub redirect_port: u16,
    /// Metrics and health of the gateway itself, over plain HTTP. Fixed at the start.
    pub admin: Option<SocketAddr>,
    /// The peers whose connections begin with a PROXY protocol header.
    pub proxy_protocol: ProxyProtocol,
    /// Limits of the number of connections. Fixed at the start.
    pub connections: ConnectionLimits,
    /// Rate limits of each client.
    pub rates: RateLimits,
    /// Maximum time from the accepted connection to the finished handshake.
    pub handshake_timeout: Duration,
    /// Maximum time for running requests after the signal to stop.
    pub drain_timeout: Duration,
    /// Limits of HTTP connections.
    pub protocol: HttpSettings,
    /// TLS settings of all hosts.
    pub tls: TlsSettings,
    /// Ticket keys and session stores.
    pub sessions: SessionSettings,
    /// The private keys of all hosts.
    pub keystore: Arc<Keystore>,
    /// TLS settings of each host; at least one, exactly one of them the default, and no name twice.
    pub hosts: Vec<HostSettings>,
    /// HTTP settings of the same hosts, in the same order. A host without routes shows the built-in page.
    pub service: ServiceSettings,
    /// Upstream groups; every route to an upstream names one of them.
    pub upstreams: Vec<GroupSettings>,
    /// The access log; `None` writes none.
    pub access_log: Option<AccessLogSettings>,
    /// The files that these settings were read from; a change of one starts a reload.
    pub files: Vec<PathBuf>,
}

/// The peers whose connections begin with a PROXY protocol header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// No peer.
    #[default]
    Off,
    /// All peers; a connection without a header is closed.
    Everyone,
    /// Peers in these networks; connections of others begin with TLS at once.
    Trusted(Vec<IpNet>),
}

impl ProxyProtocol {
    /// Whether a connection from `peer` begins with a header.
    pub fn expected_from(&self, peer: IpAddr) -> bool {
        match self {
            Self::Off => false,
            Self::Everyone => true,
            Self::Trusted(networks) => networks.iter().any(|network| network.contains(&peer.to_canonical())),
        }
    }
}

/// Limits of the number of connections. Those beyond are closed before any work is done for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Maximum number of connections.
    pub total: usize,
    /// Maximum for one client; `None` is no limit. Trusted proxies are not counted. Of peers that send PROXY headers
    /// the clients in the headers are counted.
    pub per_client: Option<ClientLimit>,
}

/// Limit of the number of connections of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimit {
    /// Maximum number of connections from one IPv4 address or IPv6 /64.
    pub most: usize,
    /// Clients on this machine are not counted: behind a proxy of its own, all of them are one address.
    pub spares_loopback: bool,
}

impl Default for ClientLimit {
    /// 1024 connections, and any number from this machine.
    fn default() -> Self {
        Self { most: 1024, spares_loopback: true }
    }
}

/// Settings of session resumption: ticket keys and stores.
#[derive(Clone, Debug)]
pub struct SessionSettings {
    /// Source of the ticket keys. [`KeySource::Shared`] needs `fleet`.
    pub ticket_keys: KeySource,
    /// Limits of the session store in memory. Fixed at the start.
    pub memory: MemorySettings,
    /// Store shared with other processes; `None` shares nothing but files. Fixed at the start.
    pub fleet: Option<FleetStore>,
}

/// A Redis with the sessions of a fleet, and optionally its ticket keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetStore {
    /// Connection settings of Redis.
    pub redis: RedisSettings,
    /// The secret that everything in it is sealed with.
    pub secret: FleetSecret,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_header_is_expected_from_trusted_networks_only() {
        let peer = |text: &str| text.parse().expect("an address");
        let trusted = ProxyProtocol::Trusted(vec!["10.0.0.0/8".parse().expect("a network")]);
        assert!(trusted.expected_from(peer("10.1.2.3")));
        assert!(trusted.expected_from(peer("::ffff:10.1.2.3")));
        assert!(!trusted.expected_from(peer("192.0.2.1")));
        assert!(ProxyProtocol::Everyone.expected_from(peer("192.0.2.1")));
        assert!(!ProxyProtocol::Off.expected_from(peer("10.1.2.3")));
    }
}
