//! The configuration in the operator's form: one struct per table, one field per key, without defaults.
//!
//! `brisk-config` adds defaults and cross-checks. `docs/configuration.md` describes every key; a field has the name and
//! the meaning of its key.

#![expect(
    missing_docs,
    reason = "docs/configuration.md describes every key, and the tests compare it with the structs"
)]

mod access;
mod access_log;
mod acme;
mod clients;
mod compression;
mod consolidate;
mod dashboard;
mod diversions;
mod early_hints;
mod error_pages;
mod experiments;
mod headers;
mod jwt;
mod keep_alive;
mod keys;
mod keyserver;
mod limit;
mod maintenance;
mod map;
mod otlp;
mod redis;
mod trace;
mod upstream_path;
mod upstreams;
pub mod values;
mod visit_store;
mod visits;
mod when;

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::path::PathBuf;

use brisk_config_file::{Period, Rate, Size, SizeLimit};
use serde::Deserialize;

pub use access::{BasicAuth, ClientCertificate, ForwardAuth, Satisfy};
pub use access_log::AccessLogFormat;
pub use access_log::{AccessLog, Journal, LogFormat, LogOutput, Syslog};
pub use acme::{
    Acme, AcmeKey, AcmeStore, Challenge, Dns, ExternalAccount, HostAcme, KeyAlgorithm, OnDemand, Trial,
};
pub use clients::{ClientCertificateMode, ClientCertificates, CrlMode, ForwardCertificate};
pub use compression::{BreachGuard, CodingName, Compression, CompressionTable};
pub use consolidate::{Consolidate, ConsolidateTable, Cookies};
pub use dashboard::Dashboard;
pub use diversions::{Mirror, Split};
pub use early_hints::EarlyHints;
pub use error_pages::ErrorPages;
pub use experiments::{Experiment, ExperimentValue};
pub use headers::{HeaderRules, Hsts, SecurityHeaders, TextOrOff};
pub use jwt::{Jwt, Texts};
pub use keep_alive::{KeepAlive, Preconnect, Profile};
pub use keyserver::{Client, KeyServers, Operation, ServerConfig, ServerSection};
pub use limit::{Bandwidth, Limit, OnFailure, RouteTimeouts};
pub use map::Map;
pub use redis::{Redis, RedisTopology};
use values::{
    Address, ClientConnections, EarlyData, FastOpen, KeyPlace, Network, PrivateHost, ProxyProtocol, Redirect,
    TicketKeys, UpstreamServer,
};

pub use keys::{KeyFamily, Keys};
pub use maintenance::Maintenance;
pub use otlp::Otlp;
pub use trace::Trace;
pub use upstream_path::{RewriteDocuments, RewritePath, StripPrefix};
pub use upstreams::{
    Balance, Health, Hedge, Pool, ProxyVersion, SameSite, Sticky, Upstream, UpstreamTimeouts,
};
pub use visit_store::Visits;
pub use visits::{HostVisits, ServerTiming};
pub use when::{Test, When};

/// A whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub server: Server,
    pub tls: Tls,
    pub sessions: Sessions,
    pub keys: Keys,
    pub access_log: AccessLog,
    pub otlp: Option<Otlp>,
    pub admin: Admin,
    pub visits: Visits,
    pub experiment: BTreeMap<String, Experiment>,
    pub dashboard: Option<Dashboard>,
    pub acme: Acme,
    pub certificates: Certificates,
    pub host: Vec<Host>,
    pub upstream: BTreeMap<String, Upstream>,
    pub map: BTreeMap<String, Map>,
    pub limit: BTreeMap<String, Limit>,
    pub keyserver: BTreeMap<String, KeyServers>,
}

/// `[server]`: listeners and capacities.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Server {
    pub https: Vec<Address>,
    pub http: Vec<Address>,
    pub http3: Option<bool>,
    pub alt_svc: AltSvc,
    pub workers: Option<u16>,
    pub backlog: Option<u32>,
    pub fast_open: Option<FastOpen>,
    pub proxy_protocol: Option<ProxyProtocol>,
    pub trusted_proxies: Vec<Network>,
    pub underscores_in_headers: Option<Underscores>,
    pub max_connections: Option<u32>,
    pub max_connections_per_client: Option<ClientConnections>,
    pub drain_timeout: Option<Period>,
    pub abort_on_close: Option<bool>,
    pub unknown_host: Option<UnknownHost>,
    pub state_dir: Option<PathBuf>,
    pub timeouts: ServerTimeouts,
    pub limits: ServerLimits,
    pub rates: ServerRates,
}

/// `alt_svc`: the announcement of HTTP/3.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AltSvc {
    pub port: Option<NonZeroU16>,
    pub max_age: Option<Period>,
}

/// The answer to a client that names a host that is not configured.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum UnknownHost {
    Default,
    Refuse,
}

/// The treatment of request headers with `_` in their names.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Underscores {
    Drop,
    Pass,
}

/// `[server.timeouts]`: how long a client may take.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerTimeouts {
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
pub struct ServerLimits {
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
pub struct ServerRates {
    pub connections: Option<Rate>,
    pub handshakes: Option<Rate>,
    pub requests: Option<Rate>,
    pub errors: Option<Rate>,
}

/// `[tls]`: parameters negotiated by all hosts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tls {
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
pub enum TlsVersion {
    #[serde(rename = "1.2")]
    Tls12,
    #[serde(rename = "1.3")]
    Tls13,
}

/// `[tls.session_cache]`: sessions kept in memory.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SessionCache {
    pub entries: Option<u32>,
    pub size: Option<Size>,
}

/// `[sessions]`: resumption of sessions across machines.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sessions {
    pub secret: Option<PathBuf>,
    pub ticket_keys: Option<TicketKeys>,
    pub redis: Option<Redis>,
}

/// `[admin]`: metrics and health of the gateway itself.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Admin {
    pub listen: Option<Address>,
}

/// `[certificates]`: maintenance of the certificates of all hosts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Certificates {
    pub staple: Option<bool>,
    pub staple_wait: Option<Period>,
    pub watch_revocation: Option<bool>,
    pub complete_chains: Option<bool>,
    pub allow_private: Vec<PrivateHost>,
}

/// `[[host]]`: names, their certificates and their routes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    pub names: Vec<String>,
    #[serde(default)]
    pub certificates: Vec<Certificate>,
    pub certificate_folder: Option<PathBuf>,
    #[serde(default)]
    pub acme: HostAcme,
    pub on_demand: Option<OnDemand>,
    pub upstream: Option<UpstreamServer>,
    #[serde(default)]
    pub default: bool,
    pub http3: Option<bool>,
    pub hsts: Option<Hsts>,
    pub client_certificates: Option<ClientCertificates>,
    pub early_data: Option<EarlyData>,
    pub compression: Option<Compression>,
    pub security_headers: Option<SecurityHeaders>,
    pub maintenance: Option<Maintenance>,
    pub error_pages: Option<ErrorPages>,
    pub keep_alive: Option<KeepAlive>,
    pub preconnect: Option<Preconnect>,
    pub server_timing: Option<ServerTiming>,
    pub visits: Option<HostVisits>,
    pub trace: Option<Trace>,
    #[serde(default)]
    pub consolidate: BTreeMap<String, Consolidate>,
    pub allow: Option<Vec<Network>>,
    pub deny: Option<Vec<Network>>,
    pub limits: Option<Vec<String>>,
    #[serde(default)]
    pub route: Vec<Route>,
}

/// A certificate of a host, or that of an upstream's client.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Certificate {
    pub chain: PathBuf,
    pub key: KeyPlace,
    pub fallback_key: Option<PathBuf>,
    pub staple: Option<PathBuf>,
}

/// `[[host.route]]`: a path and exactly one of `upstream`, `static`, `respond`, `redirect`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    pub path: String,
    #[serde(default)]
    pub exact: bool,
    pub when: Option<When>,
    pub upstream: Option<String>,
    pub split: Option<Split>,
    pub mirror: Option<Mirror>,
    #[serde(rename = "static")]
    pub directory: Option<PathBuf>,
    pub respond: Option<Respond>,
    pub redirect: Option<Redirect>,
    pub body_size: Option<SizeLimit>,
    pub buffer_request: Option<bool>,
    pub strip_prefix: Option<StripPrefix>,
    pub replace_prefix: Option<String>,
    pub rewrite_path: Option<RewritePath>,
    pub early_data: Option<EarlyData>,
    pub compression: Option<Compression>,
    pub precompressed: Option<bool>,
    pub fallback: Option<String>,
    pub listing: Option<bool>,
    pub request_headers: Option<HeaderRules>,
    pub response_headers: Option<HeaderRules>,
    pub error_pages: Option<ErrorPages>,
    pub early_hints: Option<EarlyHints>,
    pub rewrite: Option<RewriteDocuments>,
    pub keep_alive: Option<KeepAlive>,
    pub allow: Option<Vec<Network>>,
    pub deny: Option<Vec<Network>>,
    pub client_certificate: Option<ClientCertificate>,
    pub basic_auth: Option<BasicAuth>,
    pub jwt: Option<Jwt>,
    pub satisfy: Option<Satisfy>,
    pub forward_auth: Option<ForwardAuth>,
    pub limits: Option<Vec<String>>,
    pub trace: Option<Trace>,
    #[serde(default)]
    pub timeouts: RouteTimeouts,
    pub bandwidth: Option<Bandwidth>,
}

/// `respond`: the same answer to everyone.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Respond {
    pub status: Option<u16>,
    pub body: Option<String>,
    pub content_type: Option<String>,
}
