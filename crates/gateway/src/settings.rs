//! The whole configuration of a gateway, resolved: every value is there and right, files are read, hosts have their keys.

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

/// What a gateway runs by. Replaced whole on reload; what a reload cannot change says so.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// Threads, each with its own listeners and connections. Fixed at the start.
    pub workers: NonZeroUsize,
    /// Where HTTPS is served. Fixed at the start.
    pub https: Vec<ListenerSettings>,
    /// Where plain HTTP is redirected to HTTPS. Fixed at the start.
    pub http: Vec<ListenerSettings>,
    /// The port of the `Location` that plain HTTP answers with; 443 is not written out.
    pub redirect_port: u16,
    /// Metrics and health of the gateway itself, over plain HTTP. Fixed at the start.
    pub admin: Option<SocketAddr>,
    /// Whose connections begin with a PROXY protocol header.
    pub proxy_protocol: ProxyProtocol,
    /// How many clients may be connected. Fixed at the start.
    pub connections: ConnectionLimits,
    /// How often a client may do what.
    pub rates: RateLimits,
    /// From the accepted connection to the finished handshake.
    pub handshake_timeout: Duration,
    /// How long running requests may take after the gateway was told to stop.
    pub drain_timeout: Duration,
    /// Limits of HTTP connections.
    pub protocol: HttpSettings,
    /// What TLS negotiates.
    pub tls: TlsSettings,
    /// What makes sessions resumable.
    pub sessions: SessionSettings,
    /// The private keys of all hosts.
    pub keystore: Arc<Keystore>,
    /// How hosts prove their names; at least one, exactly one of them the default, and no name twice.
    pub hosts: Vec<HostSettings>,
    /// What the same hosts answer, in the same order. One without routes shows the built-in page.
    pub service: ServiceSettings,
    /// Upstream groups; every route to an upstream names one of them.
    pub upstreams: Vec<GroupSettings>,
    /// The access log; `None` is off.
    pub access_log: Option<AccessLogSettings>,
    /// Files these settings were made from; a change of one calls for a reload.
    pub files: Vec<PathBuf>,
}

/// Whose connections begin with a PROXY protocol header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// Nobody's.
    #[default]
    Off,
    /// Everyone's; a connection without one is closed.
    Everyone,
    /// Those from these networks; others begin with TLS at once.
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

/// How many clients may be connected; one more is closed before it costs anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// In all.
    pub total: usize,
    /// From one address; `None` is no limit. Trusted proxies are not counted, nor peers that send PROXY headers, but
    /// the clients that these name.
    pub per_client: Option<ClientLimit>,
}

/// How many connections one client may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimit {
    /// From one IPv4 address or IPv6 /64.
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

/// What makes sessions resumable.
#[derive(Clone, Debug)]
pub struct SessionSettings {
    /// Where the keys of tickets come from. [`KeySource::Shared`] needs `fleet`.
    pub ticket_keys: KeySource,
    /// Bounds of the sessions in this process' memory. Fixed at the start.
    pub memory: MemorySettings,
    /// What this process shares with others; `None` is nothing but files. Fixed at the start.
    pub fleet: Option<FleetStore>,
}

/// A Redis that a fleet keeps its sessions in, and its ticket keys if it likes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetStore {
    /// How it is reached.
    pub redis: RedisSettings,
    /// What all that is put there is sealed with.
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
