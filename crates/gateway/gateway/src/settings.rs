//! Resolved configuration of a gateway: values are valid, files are read, certificates have their keys.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use brisk_answer::settings::ServiceSettings;
use brisk_certs::store::Folder;
use brisk_certs::{Certificate, HostMap, MaintenanceSettings, Store, UnknownName};
use brisk_dashboard::DashboardSettings;
use brisk_fetch::PrivateHost;
use brisk_http_server::HttpSettings;
use brisk_keys::Keystore;
use brisk_logs::AccessLogSettings;
use brisk_net::{ListenerSettings, RateLimits};
use brisk_server::ServerSettings;
use brisk_session::{FleetSecret, KeySource, MemorySettings, RedisSettings};
use brisk_tls::settings::TlsSettings;
use brisk_upstream_group::settings::GroupSettings;
use ipnet::IpNet;

pub use crate::tcp::settings::{TcpSettings, TcpTls};
pub use crate::variation::VariationSettings;

/// Settings of a gateway. A reload replaces them as a whole, except those that are fixed at the start.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// Threads, limits and files, which do not depend on the hosts.
    pub server: ServerSettings,
    /// Listeners for HTTPS (`server.https`). Fixed at the start.
    pub https: Vec<ListenerSettings>,
    /// Whether the listeners for HTTPS serve HTTP/3 too, on datagram sockets with the same addresses. The sockets are fixed
    /// at the start.
    pub http3: bool,
    /// Listeners for plain HTTP. Fixed at the start.
    pub http: Vec<ListenerSettings>,
    /// TCP connections whose bytes are forwarded; each names one of `upstreams`. Listeners are fixed at the start.
    pub tcp: Vec<TcpSettings>,
    /// The peers whose connections begin with a PROXY protocol header.
    pub proxy_protocol: ProxyProtocol,
    /// Limit of the number of connections of one client; `None` is no limit. Trusted proxies are not counted. Of peers
    /// that send PROXY headers the clients in the headers are counted. Fixed at the start.
    pub per_client: Option<ClientLimit>,
    /// Rate limits of each client.
    pub rates: RateLimits,
    /// Maximum time from the accepted connection to the client's `Finished`, including a PROXY header.
    pub handshake_timeout: Duration,
    /// Limits of HTTP connections.
    pub protocol: HttpSettings,
    /// TLS settings of all hosts.
    pub tls: TlsSettings,
    /// Ticket keys and session stores.
    pub sessions: SessionSettings,
    /// The private keys of all hosts.
    pub keystore: Arc<Keystore>,
    /// Maintenance of certificates beyond their publication.
    pub certificates: CertificateSettings,
    /// Hosts and settings common to their requests. Exactly one host is the default, and names are unique. A host
    /// without routes serves the built-in page.
    pub service: ServiceSettings,
    /// Settings that vary between the connections of a host.
    pub variation: VariationSettings,
    /// Upstream groups; every route to an upstream names one of them.
    pub upstreams: Vec<GroupSettings>,
    /// The outputs of the access log.
    pub access_log: Vec<AccessLogSettings>,
    /// The dashboard; `None` shows none.
    pub dashboard: Option<DashboardSettings>,
}

impl GatewaySettings {
    /// The certificates from files: those of hosts, then those of [`TcpTls::Terminate`].
    pub fn file_certificates(&self) -> impl Iterator<Item = &Arc<Certificate>> {
        let hosts = self.service.hosts.iter().map(|host| &host.tls);
        hosts.chain(self.tcp.iter().filter_map(TcpSettings::terminated)).flat_map(|host| &host.certificates)
    }

    /// Index in `tcp` of the service that gets connections of the HTTPS listeners with this server name, in lower case, with
    /// any ALPN.
    pub fn tcp_of_name(&self, name: &str) -> Option<usize> {
        // The same map as in the acceptor, so that exact names, wildcards and the
        // default have the same order.
        let mut map = HostMap::new(UnknownName::Default);
        for host in &self.service.hosts {
            map.add(host.tls.names.iter().map(String::as_str), None).ok()?;
        }
        let shared = |tcp: &TcpSettings| {
            let reads_alpn = matches!(tcp.tls, TcpTls::Passthrough) && !tcp.alpn.is_empty();
            tcp.listen.is_empty() && !reads_alpn
        };
        for (index, tcp) in self.tcp.iter().enumerate().filter(|(_, tcp)| shared(tcp)) {
            let number = map.add(tcp.names.iter().map(String::as_str), Some(index)).ok()?;
            if tcp.is_default {
                map.set_default(number);
            }
        }
        map.get(Some(name)).host().copied().flatten()
    }
}

/// Maintenance of certificates beyond their publication.
#[derive(Clone, Debug, Default)]
pub struct CertificateSettings {
    /// Enabled kinds of maintenance.
    pub maintenance: MaintenanceSettings,
    /// Folder for fetched data; fixed at the start. `None` keeps nothing across a restart.
    pub store: Option<Arc<Folder>>,
    /// Store shared by the gateways of a fleet, so that only one of them requests each staple; fixed at the start.
    pub fleet: Option<Arc<dyn Store>>,
    /// Hosts outside of the public internet from which staples, revocation lists and issuers may be fetched.
    pub allow_private: Arc<[PrivateHost]>,
}

/// The peers whose connections begin with a PROXY protocol header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ProxyProtocol {
    /// No peer.
    #[default]
    Off,
    /// All peers; a connection without a PROXY header is closed.
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

/// Limit on the number of connections of one client. Further connections are closed before any work is done for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimit {
    /// Maximum number of connections from one IPv4 address or IPv6 /64.
    pub most: usize,
    /// Whether clients on this machine are exempt: behind a local proxy, all clients share one address.
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
    /// Store shared with other processes; `None` shares files only. Fixed at the start.
    pub fleet: Option<FleetStore>,
}

/// A Redis with the sessions of a fleet, and optionally its ticket keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetStore {
    /// Connection settings of Redis.
    pub redis: RedisSettings,
    /// The secret with which everything in `redis` is sealed.
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
