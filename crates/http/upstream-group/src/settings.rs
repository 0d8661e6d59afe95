//! Settings of upstream groups.

use std::path::PathBuf;
use std::time::Duration;

use brisk_dns::Question;
pub use brisk_dns::ResolverSettings;
use brisk_http::http1::HeadLimits;
pub use brisk_http_connection::proxy_header::ProxyVersion;
pub use brisk_rules::StickySettings;
pub use brisk_tls::connector::Identity;
use http::uri::PathAndQuery;
use http::{HeaderName, StatusCode};

pub use brisk_http::server_url::{ServerAddress, ServerScheme, ServerUrl, ServerUrlError};

pub use crate::waits::{HedgeSettings, QueueSettings, RequestTimeouts};

/// Default maximum number of headers of a response.
pub const HEADERS: u16 = 100;

/// Default maximum size of a response's head in bytes.
pub const HEAD_SIZE: usize = 64 * 1024;

/// Servers with the same content, and the settings for requests to them.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSettings {
    /// Name for the log and the metrics.
    pub name: String,
    /// The servers. At least one.
    pub servers: Vec<ServerSettings>,
    /// DNS servers and limits for the servers that DNS names. Ignored without any.
    pub dns: DnsSettings,
    /// Choice of a server. Default: round robin.
    pub balance: Balance,
    /// Cookie by which a client returns to its server, if it is available. Precedes `balance`. Default: none.
    pub sticky: Option<StickySettings>,
    /// Timeouts of servers.
    pub timeouts: UpstreamTimeouts,
    /// Maximum size of a response's head in bytes: status line and headers together. Default: 64 KiB.
    pub head_size: usize,
    /// Maximum number of headers of a response. Default: 100.
    pub headers: usize,
    /// Number and lifetime of connections.
    pub pool: PoolSettings,
    /// TLS to `https` servers. Ignored for others.
    pub tls: UpstreamTlsSettings,
    /// Detection of unavailable servers.
    pub health: HealthSettings,
    /// Repetition of requests that are safe to repeat. Default: once.
    pub retry: Retry,
    /// Second attempts of slow requests at another server. Default: none.
    pub hedge: Option<HedgeSettings>,
    /// PROXY header at the start of every connection, which names the client. Such a connection carries requests of one
    /// client connection only. Default: none. Excludes pipelines.
    pub proxy_protocol: Option<ProxyVersion>,
    /// Maximum number of GET and HEAD requests of one multiplexed client connection that share an HTTP/1.1 connection before
    /// their responses. Default: 1. Requires that requests are repeated.
    pub pipeline: usize,
}

impl GroupSettings {
    /// A group of `servers` with weight 1 and default settings.
    pub fn new(name: impl Into<String>, servers: impl IntoIterator<Item = ServerUrl>) -> Self {
        let servers = servers.into_iter().map(ServerSettings::new).collect();
        Self {
            name: name.into(),
            servers,
            dns: DnsSettings::default(),
            balance: Balance::default(),
            sticky: None,
            timeouts: UpstreamTimeouts::default(),
            head_size: HEAD_SIZE,
            headers: HEADERS.into(),
            pool: PoolSettings::default(),
            tls: UpstreamTlsSettings::default(),
            health: HealthSettings::default(),
            retry: Retry::default(),
            hedge: None,
            proxy_protocol: None,
            pipeline: 1,
        }
    }

    /// Limits for the head of a response.
    pub fn head_limits(&self) -> HeadLimits {
        HeadLimits { size: self.head_size, lines: self.headers }
    }

    /// Path that precedes the path of every request to the group, the same for all servers; see [`ServerUrl::path`].
    pub fn base_path(&self) -> &str {
        self.servers.first().map_or("", |server| server.url.path())
    }
}

/// Resolution of the servers that DNS names.
#[derive(Clone, Debug, PartialEq)]
pub struct DnsSettings {
    /// DNS servers, and limits of their answers. Default: the servers of the system, 64 addresses of both families.
    pub resolver: ResolverSettings,
    /// Time after which a name is resolved again at the earliest, even if its records have a smaller TTL, and after a
    /// failure. Default: 1 s.
    pub min_ttl: Duration,
    /// Time after which a name is resolved again at the latest. Default: 5 min.
    pub max_ttl: Duration,
}

impl Default for DnsSettings {
    fn default() -> Self {
        Self {
            resolver: ResolverSettings { servers: Vec::new(), uses_ipv6: true, max_addresses: 64 },
            min_ttl: Duration::from_secs(1),
            max_ttl: Duration::from_mins(5),
        }
    }
}

/// One server of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerSettings {
    /// The address of the server.
    pub url: ServerUrl,
    /// Share of the requests, in proportion to the other weights. At least 1; 0 counts as 1.
    pub weight: u32,
    /// Whether the server gets requests only while no other server of the group is available. Default: no.
    pub is_backup: bool,
    /// Whether each address of the host is a server of its own, and DNS is asked for them again when they expire. Otherwise
    /// every connection asks the system. Default: no. Only for TCP; a service ([`ServerAddress::Service`]) is always resolved.
    pub resolves: bool,
}

impl ServerSettings {
    /// A server with weight 1 that is no backup.
    pub fn new(url: ServerUrl) -> Self {
        Self { url, weight: 1, is_backup: false, resolves: false }
    }

    /// The question to DNS about the servers of this entry; `None` if DNS names none.
    pub(crate) fn question(&self) -> Option<Question<'_>> {
        match self.url.address() {
            ServerAddress::Service(name) => Some(Question::Service(name)),
            ServerAddress::Tcp(target) if self.resolves => {
                Some(Question::Host(self.url.authority().host(), target.port()))
            }
            ServerAddress::Tcp(_) | ServerAddress::Unix(_) => None,
        }
    }
}

/// Choice among the healthy servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// In turn, by weight.
    #[default]
    RoundRobin,
    /// The server with the fewest requests of this worker in proportion to its weight.
    LeastConnections,
    /// The same server for equal keys, as long as it is healthy.
    ConsistentHash {
        /// The part of the request used as key.
        by: HashKey,
    },
}

/// The part of a request that determines its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// The client's address.
    ClientAddress,
    /// The path without the query.
    Path,
    /// The value of a header; without the header, the client's address.
    Header(HeaderName),
    /// The value of a cookie; without the cookie, the client's address.
    Cookie(String),
}

/// Timeouts of servers.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamTimeouts {
    /// Timeout for connecting, including TLS. Default: 5 s.
    pub connect: Duration,
    /// Timeout from the end of the request to the head of the response. Default: 60 s.
    pub head: Duration,
    /// Maximum pause within a response body. Default: 60 s.
    pub body: Duration,
    /// Maximum pause after a switch of protocols. Default: 60 s.
    pub upgraded: Duration,
    /// HTTP/2: time without a frame, while requests are open, after which PING is sent. Without a reply within
    /// `connect`, the connection is closed. `None` sends no PING. Default: 30 s.
    pub ping: Option<Duration>,
}

impl Default for UpstreamTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            head: Duration::from_mins(1),
            body: Duration::from_mins(1),
            upgraded: Duration::from_mins(1),
            ping: Some(Duration::from_secs(30)),
        }
    }
}

/// Number and lifetime of connections.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSettings {
    /// Maximum number of idle connections per server and worker. Default: 512. A pool smaller than the number of
    /// concurrent requests doubles the cost of a request.
    pub idle_connections: usize,
    /// Lifetime of an idle connection, in whole seconds. Default: 60 s. Should be shorter than the server's own limit,
    /// so that the server does not close a connection while a request is sent on it.
    pub idle_timeout: Duration,
    /// Maximum number of connections to one server, of all workers, including idle ones. Default: no limit. A request
    /// that would exceed it uses another server, or waits in a queue and fails when the time runs out.
    pub max_connections: Option<usize>,
    /// Requests that wait for one of these connections.
    pub queue: QueueSettings,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self {
            idle_connections: 512,
            idle_timeout: Duration::from_mins(1),
            max_connections: None,
            queue: QueueSettings::default(),
        }
    }
}

/// TLS to `https` servers: verification, and client authentication.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamTlsSettings {
    /// PEM file of trusted authorities. Default: the system's.
    pub ca: Option<PathBuf>,
    /// Certificate and key for servers that request client authentication. Default: none.
    pub identity: Option<Identity>,
    /// Server name that is sent and verified. Default: the host of the server's URL.
    pub server_name: Option<String>,
    /// HTTP version. Default: HTTP/1.1.
    pub protocol: TlsProtocol,
    /// Whether a server may close a connection without `close_notify`. Default: no.
    pub allows_missing_close_notify: bool,
}

/// HTTP version over TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsProtocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2.
    Http2,
}

/// Detection of unavailable servers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HealthSettings {
    /// Active checks by requests of the gateway. Default: none.
    pub active: Option<ActiveChecks>,
    /// Passive checks by the outcomes of clients' requests.
    pub passive: PassiveChecks,
    /// Time in which the share of a server grows to its weight after an exclusion. Default: none, at once.
    pub slow_start: Option<Duration>,
}

/// Active checks: requests of the gateway to each server, once per process, not per worker.
#[derive(Clone, Debug, PartialEq)]
pub struct ActiveChecks {
    /// Path and query of the GET request.
    pub path: PathAndQuery,
    /// Service whose health is requested by gRPC (`grpc.health.v1`) instead of `path` and `status`; empty for the whole
    /// server. Requires HTTP/2. Default: none.
    pub grpc: Option<String>,
    /// `Host` of the request. Default: the authority of the server's URL.
    pub host: Option<String>,
    /// Status of a healthy server. Default: any from 200 to 399.
    pub status: Option<StatusCode>,
    /// Interval between two checks of a server. Default: 5 s.
    pub interval: Duration,
    /// Timeout of the whole check, including connecting. Default: 2 s.
    pub timeout: Duration,
    /// Number of consecutive successful checks that make a server available. Default: 2.
    pub healthy_after: u32,
    /// Number of consecutive failed checks that make a server unavailable. Default: 3.
    pub unhealthy_after: u32,
}

impl ActiveChecks {
    /// Checks of `path` with default settings.
    pub fn new(path: PathAndQuery) -> Self {
        Self {
            path,
            grpc: None,
            host: None,
            status: None,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            healthy_after: 2,
            unhealthy_after: 3,
        }
    }
}

/// Pauses of servers after failed requests.
#[derive(Clone, Debug, PartialEq)]
pub struct PassiveChecks {
    /// Number of consecutive failures (no connection, no response, timeout) that start a pause; 0 disables pauses.
    /// Default: 5.
    pub max_failures: u32,
    /// Whether a response with a status from 500 to 599 is a failure. Default: no.
    pub counts_server_errors: bool,
    /// Percentage of failures among the requests of ten seconds, at least 20, that starts a pause. Default: none.
    pub error_share: Option<u32>,
    /// Percentage of the servers of the group that may be paused together; one server may always be. Default: 100.
    pub max_excluded: u32,
    /// Length of the pause. Doubles with each failure soon after a pause, up to 32 times this value. Default: 10 s.
    pub pause: Duration,
}

impl Default for PassiveChecks {
    fn default() -> Self {
        Self {
            max_failures: 5,
            counts_server_errors: false,
            error_share: None,
            max_excluded: 100,
            pause: Duration::from_secs(10),
        }
    }
}

/// Repetition of requests that are safe to repeat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retry {
    /// Once: if no part of the request was sent, or if its method is idempotent, it has no body, and the connection
    /// failed before the response began (RFC 9110 section 9.2.2).
    #[default]
    Once,
    /// Never. A pooled connection that turns out to be closed before anything was sent is still replaced.
    Never,
}
