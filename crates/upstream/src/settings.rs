//! The settings of an upstream group.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use brisk_net::Target;
pub use brisk_tls::connector::Identity;
use http::uri::{Authority, PathAndQuery, Uri};
use http::{HeaderName, StatusCode};
use thiserror::Error;

/// The most bytes of a response's head, unless another limit is set.
pub const HEAD_SIZE: usize = 64 * 1024;

/// Servers that answer the same requests, and how they are treated.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupSettings {
    /// The name, for the log and the metrics.
    pub name: String,
    /// The servers. At least one.
    pub servers: Vec<ServerSettings>,
    /// How a server is chosen. Default: round robin.
    pub balance: Balance,
    /// How long a server may take.
    pub timeouts: UpstreamTimeouts,
    /// Bytes of a response's head: status line and headers together. Default: 64 KiB.
    pub head_size: usize,
    /// Connections kept and allowed.
    pub pool: PoolSettings,
    /// TLS to `https` servers. Not used by others.
    pub tls: UpstreamTlsSettings,
    /// How a server that is down is detected.
    pub health: HealthSettings,
    /// Whether what is safe to repeat is tried once more. Default: yes.
    pub retry: Retry,
}

impl GroupSettings {
    /// A group with these servers, each of weight 1, and defaults for the rest.
    pub fn new(name: impl Into<String>, servers: impl IntoIterator<Item = ServerUrl>) -> Self {
        let servers = servers.into_iter().map(|url| ServerSettings { url, weight: 1 }).collect();
        Self {
            name: name.into(),
            servers,
            balance: Balance::default(),
            timeouts: UpstreamTimeouts::default(),
            head_size: HEAD_SIZE,
            pool: PoolSettings::default(),
            tls: UpstreamTlsSettings::default(),
            health: HealthSettings::default(),
            retry: Retry::default(),
        }
    }
}

/// One server of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerSettings {
    /// The address of the server.
    pub url: ServerUrl,
    /// The server's share of the requests, in proportion to the weights of the others. At least 1; 0 is taken as 1.
    pub weight: u32,
}

/// How a request travels to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ServerScheme {
    /// HTTP/1.1 over TCP.
    Http,
    /// HTTP/1.1 over TLS, or HTTP/2 where [`UpstreamTlsSettings::protocol`] says so.
    Https,
    /// HTTP/2 over TCP, without an upgrade (prior knowledge).
    H2c,
}

/// The address of a server: `http://`, `https://` or `h2c://`, host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUrl {
    scheme: ServerScheme,
    authority: Authority,
    target: Target,
}

/// Why a text is not a [`ServerUrl`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{url:?} is not a server: {reason}, such as \"http://127.0.0.1:8080\", \"https://app.internal\" or \"h2c://[::1]:50051\""
)]
pub struct ServerUrlError {
    url: String,
    reason: &'static str,
}

impl ServerUrl {
    /// How a request travels.
    pub fn scheme(&self) -> ServerScheme {
        self.scheme
    }

    /// Host and port as written.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The address to connect to.
    pub fn target(&self) -> &Target {
        &self.target
    }
}

impl FromStr for ServerUrl {
    type Err = ServerUrlError;

    fn from_str(text: &str) -> Result<Self, ServerUrlError> {
        let wrong = |reason| ServerUrlError { url: text.to_owned(), reason };
        let uri: Uri = text.parse().map_err(|_| wrong("it has to be a URL"))?;
        let scheme = match uri.scheme_str() {
            Some("http") => ServerScheme::Http,
            Some("https") => ServerScheme::Https,
            Some("h2c") => ServerScheme::H2c,
            _ => return Err(wrong("it has to start with http://, https:// or h2c://")),
        };
        if !matches!(uri.path_and_query().map(PathAndQuery::as_str), None | Some("" | "/")) {
            return Err(wrong("it has to end after host and port, without a path"));
        }
        let authority = uri.authority().ok_or_else(|| wrong("it has to name a host"))?.clone();
        if authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(wrong("it has to name a host and no user"));
        }
        let port = authority.port_u16().unwrap_or(if scheme == ServerScheme::Https { 443 } else { 80 });
        let target = Target::new(authority.host(), port);
        Ok(Self { scheme, authority, target })
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.scheme {
            ServerScheme::Http => "http",
            ServerScheme::Https => "https",
            ServerScheme::H2c => "h2c",
        };
        write!(formatter, "{scheme}://{}", self.authority)
    }
}

/// How a server is chosen among those that are healthy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// One after the other, by weight.
    #[default]
    RoundRobin,
    /// The one with the fewest requests of this worker in proportion to its weight.
    LeastConnections,
    /// Always the same for the same key, as long as it is healthy.
    ConsistentHash {
        /// The part of the request that is the key.
        by: HashKey,
    },
}

/// The part of a request that is the same in all that should reach one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// The address of the client.
    ClientAddress,
    /// The path, without the query.
    Path,
    /// The value of a header; requests without it go by the client's address.
    Header(HeaderName),
    /// The value of a cookie; requests without it go by the client's address.
    Cookie(String),
}

/// How long a server may take.
#[derive(Clone, Debug, PartialEq)]
pub struct UpstreamTimeouts {
    /// To connect, TLS included. Default: 5 s.
    pub connect: Duration,
    /// From the whole request to the head of the response. Default: 60 s.
    pub head: Duration,
    /// The longest pause within a response body, and on an upgraded connection. Default: 60 s.
    pub body: Duration,
    /// HTTP/2: nothing was received for this time although requests are open, so that a PING is sent; without an answer
    /// within `connect` the connection is closed. `None`: no PING. Default: 30 s.
    pub ping: Option<Duration>,
}

impl Default for UpstreamTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            head: Duration::from_mins(1),
            body: Duration::from_mins(1),
            ping: Some(Duration::from_secs(30)),
        }
    }
}

/// Connections kept and allowed.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSettings {
    /// Idle connections kept per server and worker. Default: 512. A pool smaller than the number of requests at one time
    /// doubles what a request costs.
    pub idle_connections: usize,
    /// How long an idle connection is kept, in whole seconds. Default: 60 s. Should be less than the server's own limit.
    pub idle_timeout: Duration,
    /// Connections to one server at one time, of all workers, idle ones included. Default: no limit. A request that
    /// would need one more goes to another server, or fails.
    pub max_connections: Option<usize>,
}

impl Default for PoolSettings {
    fn default() -> Self {
        Self { idle_connections: 512, idle_timeout: Duration::from_mins(1), max_connections: None }
    }
}

/// TLS to `https` servers: how they are verified, and what is shown to them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UpstreamTlsSettings {
    /// PEM file with the authorities that are believed. Default: those of the system.
    pub ca: Option<PathBuf>,
    /// The certificate and key for servers that ask for a certificate. Default: none.
    pub identity: Option<Identity>,
    /// The name that is sent and verified. Default: the host of the server's URL.
    pub server_name: Option<String>,
    /// The version of HTTP. Default: HTTP/1.1.
    pub protocol: TlsProtocol,
}

/// The version of HTTP spoken over TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsProtocol {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2.
    Http2,
}

/// How a server that is down is detected.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HealthSettings {
    /// Requests made to check the servers. Default: none.
    pub active: Option<ActiveChecks>,
    /// Detection by the outcomes of clients' requests.
    pub passive: PassiveChecks,
}

/// Requests made to find out whether a server is up, by the process and not by each worker.
#[derive(Clone, Debug, PartialEq)]
pub struct ActiveChecks {
    /// The path and query of the GET request.
    pub path: PathAndQuery,
    /// `Host` of the request. Default: the authority of the server's URL.
    pub host: Option<String>,
    /// The status that means healthy. Default: any from 200 to 399.
    pub status: Option<StatusCode>,
    /// The time between two checks of a server. Default: 5 s.
    pub interval: Duration,
    /// The time limit for the whole check, connecting included. Default: 2 s.
    pub timeout: Duration,
    /// Good checks in a row that bring a server back. Default: 2.
    pub healthy_after: u32,
    /// Bad checks in a row that take a server out. Default: 3.
    pub unhealthy_after: u32,
}

impl ActiveChecks {
    /// Checks of this path, with defaults for the rest.
    pub fn new(path: PathAndQuery) -> Self {
        Self {
            path,
            host: None,
            status: None,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            healthy_after: 2,
            unhealthy_after: 3,
        }
    }
}

/// When failed requests take a server out.
#[derive(Clone, Debug, PartialEq)]
pub struct PassiveChecks {
    /// Failures in a row (no connection, no answer, no answer in time) that take a server out; 0: never. Default: 5.
    pub max_failures: u32,
    /// How long the server is then left out. Doubles each time when it fails again soon after, up to 32 times this.
    /// Default: 10 s.
    pub pause: Duration,
}

impl Default for PassiveChecks {
    fn default() -> Self {
        Self { max_failures: 5, pause: Duration::from_secs(10) }
    }
}

/// Whether what is safe to repeat is tried once more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retry {
    /// Once: when nothing of a request was sent, or when its method is idempotent, it has no body and the connection
    /// failed before the response began.
    #[default]
    Once,
    /// Never, except that a kept connection which turns out to be closed before anything was sent is replaced.
    Never,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_written_alike() {
        for text in ["http://127.0.0.1:8080", "https://app.internal", "h2c://[::1]:50051"] {
            assert_eq!(text.parse::<ServerUrl>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn the_port_follows_from_the_scheme() {
        let port = |text: &str| text.parse::<ServerUrl>().expect(text).target().port();
        assert_eq!((port("http://app"), port("https://app"), port("h2c://app:1")), (80, 443, 1));
    }

    #[test]
    fn what_is_not_a_server_is_refused() {
        for text in ["", "app:80", "ftp://app", "http://app/path", "http://app?x", "http://u@app", "http://"]
        {
            assert!(text.parse::<ServerUrl>().is_err(), "{text:?}");
        }
    }
}
