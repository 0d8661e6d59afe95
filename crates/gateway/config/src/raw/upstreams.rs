//! `[upstream.NAME]`: groups of servers.

use std::path::PathBuf;

use brisk_answer::features::sticky::Sticky;
use brisk_config_file::{Period, PeriodLimit, Size};
use serde::Deserialize;

use super::Certificate;
use super::values::{Address, HashBy, TlsProtocol, UpstreamServer};

/// `[upstream.NAME]`: servers that are as good as one another.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upstream {
    pub servers: Vec<UpstreamServer>,
    #[serde(default)]
    pub dns: UpstreamDns,
    pub balance: Option<Balance>,
    pub hash_by: Option<HashBy>,
    pub sticky: Option<Sticky>,
    pub retry: Option<bool>,
    pub hedge: Option<Hedge>,
    pub proxy_protocol: Option<ProxyVersion>,
    pub pipeline: Option<u8>,
    pub head_size: Option<Size>,
    pub headers: Option<u16>,
    #[serde(default)]
    pub timeouts: UpstreamTimeouts,
    #[serde(default)]
    pub pool: Pool,
    #[serde(default)]
    pub health: Health,
    #[serde(default)]
    pub tls: UpstreamTls,
}

/// `[upstream.NAME.dns]`: resolution of servers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UpstreamDns {
    pub servers: Vec<Address>,
    pub min_ttl: Option<Period>,
    pub max_ttl: Option<Period>,
    pub max_addresses: Option<u16>,
    pub ipv6: Option<bool>,
}

/// `hedge`: second attempts of slow requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Hedge {
    pub after: Period,
    pub percent: Option<u8>,
}

/// Balancing method of a group.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Balance {
    RoundRobin,
    LeastConnections,
    ConsistentHash,
}

/// Version of the PROXY protocol towards servers.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ProxyVersion {
    V1,
    V2,
}

/// `[upstream.NAME.timeouts]`: how long an upstream may take.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UpstreamTimeouts {
    pub connect: Option<Period>,
    pub head: Option<Period>,
    pub body: Option<Period>,
    pub upgraded: Option<Period>,
    pub ping: Option<PeriodLimit>,
}

/// `[upstream.NAME.pool]`: connections kept for the next request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Pool {
    pub idle_connections: Option<u32>,
    pub idle_timeout: Option<Period>,
    pub max_connections: Option<u32>,
    #[serde(default)]
    pub queue: Queue,
}

/// `queue` of `[upstream.NAME.pool]`: requests that wait for a connection.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Queue {
    pub size: Option<u32>,
    pub timeout: Option<Period>,
}

/// `[upstream.NAME.health]`: conditions for excluding a server. With `path`, active checks are made; failures of
/// requests count in any case.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Health {
    pub path: Option<String>,
    pub grpc: Option<String>,
    pub host: Option<String>,
    pub status: Option<u16>,
    pub interval: Option<Period>,
    pub timeout: Option<Period>,
    pub healthy_after: Option<u16>,
    pub unhealthy_after: Option<u16>,
    pub max_failures: Option<u16>,
    pub failure_pause: Option<Period>,
    pub server_errors: Option<bool>,
    pub error_share: Option<u8>,
    pub max_excluded: Option<u8>,
    pub slow_start: Option<Period>,
}

/// `[upstream.NAME.tls]`: how an `https` upstream is verified.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UpstreamTls {
    pub ca: Option<PathBuf>,
    pub certificate: Option<Certificate>,
    pub server_name: Option<String>,
    pub protocol: Option<TlsProtocol>,
    #[serde(default)]
    pub allow_missing_close_notify: bool,
}
