//! The configuration in the operator's form: one struct per table, one field per key, without defaults.
//!
//! [`resolve`](crate::resolve) adds defaults and cross-checks. The keys of features are in [`brisk_answer::features`] and
//! [`brisk_upstream_group::features`], those of experiments on visitors in [`brisk_trials`]. `docs/configuration.md` describes every
//! key; a field has the name and the meaning of its key.

mod access_log;
mod acme;
mod certificate;
mod dashboard;
mod keys;
mod keyserver;
mod otlp;
mod redis;
mod tcp;
mod upstreams;
pub(crate) mod values;
mod visit_store;

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::path::PathBuf;

use brisk_answer::features::headers::{Map, WrittenRules};
use brisk_answer::features::limits::Limit;
use brisk_answer::features::{HostKeys, RouteKeys};
use brisk_answer::settings::Plain;
use brisk_config_file::{Period, Rate, Size, SizeLimit, table_of_parts};
use brisk_trials::ExperimentKeys;
use brisk_upstream_group::features::servers::UpstreamServer;
use serde::Deserialize;
use serde::de::IgnoredAny;

pub use access_log::AccessLogFormat;
pub(crate) use access_log::{AccessLog, Journal, LogFormat, LogOutput, Syslog};
pub(crate) use acme::{
    Acme, AcmeKey, AcmeStore, Challenge, Dns, ExternalAccount, HostAcme, KeyAlgorithm, OnDemand, Trial,
};
pub(crate) use certificate::Certificate;
pub(crate) use dashboard::Dashboard;
pub(crate) use keyserver::{Client, KeyServers, Operation, ServerConfig, ServerSection};
pub(crate) use redis::{Redis, RedisTopology};
use values::{Address, ClientConnections, FastOpen, Network, PrivateHost, ProxyProtocol, TicketKeys};

pub(crate) use keys::{KeyFamily, Keys};
pub(crate) use otlp::Otlp;
pub(crate) use tcp::{TcpKeys, TcpTls};
pub(crate) use upstreams::Upstream;
pub(crate) use visit_store::Visits;

/// A whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Read before the rest, by `Sources`; its name is offered for unknown keys.
    pub include: Option<IgnoredAny>,
    pub server: Server,
    pub tls: Tls,
    pub sessions: Sessions,
    pub keys: Keys,
    pub access_log: AccessLog,
    pub otlp: Option<Otlp>,
    pub admin: Admin,
    pub visits: Visits,
    pub experiment: BTreeMap<String, ExperimentKeys>,
    pub dashboard: Option<Dashboard>,
    pub acme: Acme,
    pub certificates: Certificates,
    pub host: Vec<Host>,
    pub tcp: Vec<TcpKeys>,
    pub upstream: BTreeMap<String, Upstream>,
    pub map: BTreeMap<String, Map>,
    pub limit: BTreeMap<String, Limit>,
    pub keyserver: BTreeMap<String, KeyServers>,
}

/// `[server]`: listeners and capacities.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Server {
    pub https: Vec<Address>,
    pub http: Vec<Address>,
    pub http3: Option<bool>,
    pub alt_svc: AltSvc,
    pub workers: Option<u16>,
    pub backlog: Option<u32>,
    pub fast_open: Option<FastOpen>,
    pub proxy_protocol: Option<ProxyProtocol>,
    pub trusted_proxies: Vec<Network>,
    pub client_header: Option<String>,
    pub underscores_in_headers: Option<Underscores>,
    pub max_connections: Option<u32>,
    pub max_connections_per_client: Option<ClientConnections>,
    pub drain_timeout: Option<Period>,
    pub drain_delay: Option<Period>,
    pub abort_on_close: Option<bool>,
    pub unknown_host: Option<UnknownHost>,
    pub state_dir: Option<PathBuf>,
    pub user: Option<String>,
    pub sandbox: Option<Sandbox>,
    pub overload: Option<Overload>,
    pub timeouts: ServerTimeouts,
    pub limits: ServerLimits,
    pub rates: ServerRates,
    pub request_headers: Option<WrittenRules>,
    pub response_headers: Option<WrittenRules>,
}

/// `alt_svc`: the announcement of HTTP/3.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AltSvc {
    pub port: Option<NonZeroU16>,
    pub max_age: Option<Period>,
}

/// The answer to a client that names a host that is not configured.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UnknownHost {
    Default,
    Refuse,
}

/// Whether the process gives up the rights that it does not need.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sandbox {
    On,
    Off,
}

/// Whether work is refused in an overload.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Overload {
    On,
    Off,
}

/// The treatment of request headers with `_` in their names.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Underscores {
    Drop,
    Pass,
}

/// `[server.timeouts]`: how long a client may take.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServerTimeouts {
    pub hello: Option<Period>,
    pub head: Option<Period>,
    pub body: Option<Period>,
    pub idle: Option<Period>,
    pub write: Option<Period>,
    pub request: Option<Period>,
    pub connection: Option<Period>,
}

/// `[server.limits]`: how much a client may send.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServerLimits {
    pub hello_size: Option<Size>,
    pub head_size: Option<Size>,
    pub headers: Option<u16>,
    pub body_size: Option<SizeLimit>,
    pub h2_streams: Option<u32>,
    pub h2_resets: Option<u32>,
    pub buffered: Option<Size>,
    pub buffered_total: Option<Size>,
    pub buffered_requests: Option<Size>,
    pub compression_memory: Option<Size>,
    pub compressed_files: Option<Size>,
    pub dictionaries: Option<Size>,
    pub body_rate: Option<SizeLimit>,
    pub read_rate: Option<SizeLimit>,
    pub requests: Option<u32>,
}

/// `[server.rates]`: rate limits per client.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServerRates {
    pub connections: Option<Rate>,
    pub handshakes: Option<Rate>,
    pub requests: Option<Rate>,
    pub errors: Option<Rate>,
}

/// `[tls]`: parameters negotiated by all hosts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Tls {
    pub min_version: Option<TlsVersion>,
    pub protocols: Option<Vec<values::Protocol>>,
    pub certificate_compression: Option<bool>,
    pub growing_records: Option<bool>,
    pub session_lifetime: Option<Period>,
    pub tickets: Option<bool>,
    pub tickets_per_handshake: Option<u8>,
    pub ticket_rotation: Option<Period>,
    pub stateful: Option<bool>,
    pub early_data_size: Option<Size>,
    pub session_cache: SessionCache,
}

/// A TLS version that may be the lowest.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(crate) enum TlsVersion {
    #[serde(rename = "1.2")]
    Tls12,
    #[serde(rename = "1.3")]
    Tls13,
}

/// `[tls.session_cache]`: sessions kept in memory.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SessionCache {
    pub entries: Option<u32>,
    pub size: Option<Size>,
}

/// `[sessions]`: resumption of sessions across machines.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Sessions {
    pub secret: Option<PathBuf>,
    pub ticket_keys: Option<TicketKeys>,
    pub redis: Option<Redis>,
}

/// `[admin]`: metrics and health of the gateway itself.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Admin {
    pub listen: Option<Address>,
}

/// `[certificates]`: maintenance of the certificates of all hosts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Certificates {
    pub staple: Option<bool>,
    pub staple_wait: Option<Period>,
    pub watch_revocation: Option<bool>,
    pub complete_chains: Option<bool>,
    pub allow_private: Vec<PrivateHost>,
}

table_of_parts! {
    /// `[[host]]`.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Host {
        /// Certificates and listeners.
        pub own: HostOwn,
        /// Names, routes and features.
        pub features: HostKeys,
    }
}

/// Keys of `[[host]]` about certificates and listeners.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HostOwn {
    pub certificates: Vec<Certificate>,
    pub certificate_folder: Option<PathBuf>,
    pub acme: HostAcme,
    pub on_demand: Option<OnDemand>,
    pub upstream: Option<UpstreamServer>,
    pub default: bool,
    pub http3: Option<bool>,
}

impl Host {
    /// The names.
    pub(crate) fn names(&self) -> &[String] {
        &self.features.site.names
    }

    /// The routes.
    pub(crate) fn routes(&self) -> &[RouteKeys] {
        &self.features.site.route
    }

    /// Whether requests over plain HTTP are served instead of redirected.
    pub(crate) fn serves_plain(&self) -> bool {
        // `None` is the redirect to HTTPS: plain HTTP has to be chosen.
        self.features.plain.plain == Some(Plain::Serve)
    }
}

impl Config {
    /// The features of all hosts.
    pub(crate) fn features(&self) -> impl Iterator<Item = &HostKeys> {
        self.host.iter().map(|host| &host.features)
    }
}
