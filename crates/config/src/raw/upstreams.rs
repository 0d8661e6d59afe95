//! `[upstream.NAME]`: groups of servers.

use std::path::PathBuf;

use brisk_config_file::{Period, PeriodLimit, Size};
use serde::Deserialize;

use super::Certificate;
use crate::values::{HashBy, TlsProtocol, UpstreamServer};

/// `[upstream.NAME]`: servers that are as good as one another.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upstream {
    pub(crate) servers: Vec<UpstreamServer>,
    pub(crate) balance: Option<Balance>,
    pub(crate) hash_by: Option<HashBy>,
    pub(crate) retry: Option<bool>,
    pub(crate) pipeline: Option<u8>,
    pub(crate) head_size: Option<Size>,
    pub(crate) headers: Option<u16>,
    #[serde(default)]
    pub(crate) timeouts: UpstreamTimeouts,
    #[serde(default)]
    pub(crate) pool: Pool,
    #[serde(default)]
    pub(crate) health: Health,
    #[serde(default)]
    pub(crate) tls: UpstreamTls,
}

/// Balancing method of a group.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Balance {
    RoundRobin,
    LeastConnections,
    ConsistentHash,
}

/// `[upstream.NAME.timeouts]`: how long an upstream may take.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UpstreamTimeouts {
    pub(crate) connect: Option<Period>,
    pub(crate) head: Option<Period>,
    pub(crate) body: Option<Period>,
    pub(crate) upgraded: Option<Period>,
    pub(crate) ping: Option<PeriodLimit>,
}

/// `[upstream.NAME.pool]`: connections kept for the next request.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Pool {
    pub(crate) idle_connections: Option<u32>,
    pub(crate) idle_timeout: Option<Period>,
    pub(crate) max_connections: Option<u32>,
}

/// `[upstream.NAME.health]`: conditions for excluding a server. With `path`, active checks are made; failures of
/// requests count in any case.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Health {
    pub(crate) path: Option<String>,
    pub(crate) host: Option<String>,
    pub(crate) status: Option<u16>,
    pub(crate) interval: Option<Period>,
    pub(crate) timeout: Option<Period>,
    pub(crate) healthy_after: Option<u16>,
    pub(crate) unhealthy_after: Option<u16>,
    pub(crate) max_failures: Option<u16>,
    pub(crate) failure_pause: Option<Period>,
}

/// `[upstream.NAME.tls]`: how an `https` upstream is verified.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UpstreamTls {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) certificate: Option<Certificate>,
    pub(crate) server_name: Option<String>,
    pub(crate) protocol: Option<TlsProtocol>,
    #[serde(default)]
    pub(crate) allow_missing_close_notify: bool,
}
