//! The configuration in the operator's form: one struct per table, one field per key, without defaults.
//!
//! `resolve` adds defaults and cross-checks; `docs/configuration.md` describes every key.

mod access;
mod access_log;
mod acme;
mod clients;
mod compression;
mod consolidate;
mod dashboard;
mod early_hints;
mod error_pages;
mod experiments;
mod headers;
mod keep_alive;
mod keys;
mod keyserver;
mod maintenance;
mod map;
mod redis;
mod upstream_path;
mod upstreams;
mod visit_store;
mod visits;
mod when;

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::path::PathBuf;

use brisk_config_file::{Period, Rate, Size, SizeLimit};
use serde::Deserialize;

use super::values::{
    Address, ClientConnections, EarlyData, FastOpen, KeyPlace, Network, PrivateHost, ProxyProtocol, Redirect,
    TicketKeys, UpstreamServer,
};
pub(crate) use access::{BasicAuth, ClientCertificate, ForwardAuth, Satisfy};
pub(crate) use access_log::AccessLog;
pub use access_log::AccessLogFormat;
pub(crate) use acme::{
    Acme, AcmeKey, AcmeStore, Challenge, Dns, ExternalAccount, HostAcme, KeyAlgorithm, OnDemand, Trial,
};
pub(crate) use clients::{ClientCertificateMode, ClientCertificates, CrlMode, ForwardCertificate};
pub(crate) use compression::{BreachGuard, CodingName, Compression, CompressionTable};
pub(crate) use consolidate::{Consolidate, ConsolidateTable, Cookies};
pub(crate) use dashboard::Dashboard;
pub(crate) use early_hints::EarlyHints;
pub(crate) use error_pages::ErrorPages;
pub(crate) use experiments::{Experiment, ExperimentValue};
pub(crate) use headers::{HeaderRules, Hsts, SecurityHeaders, TextOrOff};
pub(crate) use keep_alive::{KeepAlive, Preconnect, Profile};
pub(crate) use keyserver::{Client, KeyServers, Operation, ServerConfig, ServerSection};
pub(crate) use map::Map;
pub(crate) use redis::{Redis, RedisTopology};

pub(crate) use keys::{KeyFamily, Keys};
pub(crate) use maintenance::Maintenance;
pub(crate) use upstream_path::{RewriteDocuments, RewritePath, StripPrefix};
pub(crate) use upstreams::{Balance, Health, Pool, Upstream, UpstreamTimeouts};
pub(crate) use visit_store::Visits;
pub(crate) use visits::{HostVisits, ServerTiming};
pub(crate) use when::{Test, When};

/// A whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) server: Server,
    pub(crate) tls: Tls,
    pub(crate) sessions: Sessions,
    pub(crate) keys: Keys,
    pub(crate) access_log: AccessLog,
    pub(crate) admin: Admin,
    pub(crate) visits: Visits,
    pub(crate) experiment: BTreeMap<String, Experiment>,
    pub(crate) dashboard: Option<Dashboard>,
    pub(crate) acme: Acme,
    pub(crate) certificates: Certificates,
    pub(crate) host: Vec<Host>,
    pub(crate) upstream: BTreeMap<String, Upstream>,
    pub(crate) map: BTreeMap<String, Map>,
    pub(crate) keyserver: BTreeMap<String, KeyServers>,
}

/// `[server]`: listeners and capacities.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Server {
    pub(crate) https: Vec<Address>,
    pub(crate) http: Vec<Address>,
    pub(crate) http3: Option<bool>,
    pub(crate) alt_svc: AltSvc,
    pub(crate) workers: Option<u16>,
    pub(crate) backlog: Option<u32>,
    pub(crate) fast_open: Option<FastOpen>,
    pub(crate) proxy_protocol: Option<ProxyProtocol>,
    pub(crate) trusted_proxies: Vec<Network>,
    pub(crate) underscores_in_headers: Option<Underscores>,
    pub(crate) max_connections: Option<u32>,
    pub(crate) max_connections_per_client: Option<ClientConnections>,
    pub(crate) drain_timeout: Option<Period>,
    pub(crate) abort_on_close: Option<bool>,
    pub(crate) unknown_host: Option<UnknownHost>,
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) timeouts: ServerTimeouts,
    pub(crate) limits: ServerLimits,
    pub(crate) rates: ServerRates,
}

/// `alt_svc`: the announcement of HTTP/3.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AltSvc {
    pub(crate) port: Option<NonZeroU16>,
    pub(crate) max_age: Option<Period>,
}

/// The answer to a client that names a host that is not configured.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UnknownHost {
    Default,
    Refuse,
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
    pub(crate) hello: Option<Period>,
    pub(crate) head: Option<Period>,
    pub(crate) body: Option<Period>,
    pub(crate) idle: Option<Period>,
    pub(crate) write: Option<Period>,
    pub(crate) request: Option<Period>,
    pub(crate) connection: Option<Period>,
}

/// `[server.limits]`: how much a client may send.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServerLimits {
    pub(crate) hello_size: Option<Size>,
    pub(crate) head_size: Option<Size>,
    pub(crate) headers: Option<u16>,
    pub(crate) body_size: Option<SizeLimit>,
    pub(crate) h2_streams: Option<u32>,
    pub(crate) h2_resets: Option<u32>,
    pub(crate) buffered: Option<Size>,
    pub(crate) buffered_total: Option<Size>,
    pub(crate) buffered_requests: Option<Size>,
    pub(crate) compression_memory: Option<Size>,
    pub(crate) compressed_files: Option<Size>,
    pub(crate) dictionaries: Option<Size>,
    pub(crate) body_rate: Option<SizeLimit>,
    pub(crate) read_rate: Option<SizeLimit>,
    pub(crate) requests: Option<u32>,
}

/// `[server.rates]`: rate limits per client.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServerRates {
    pub(crate) connections: Option<Rate>,
    pub(crate) handshakes: Option<Rate>,
    pub(crate) requests: Option<Rate>,
    pub(crate) errors: Option<Rate>,
}

/// `[tls]`: parameters negotiated by all hosts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Tls {
    pub(crate) min_version: Option<TlsVersion>,
    pub(crate) protocols: Option<Vec<super::values::Protocol>>,
    pub(crate) certificate_compression: Option<bool>,
    pub(crate) growing_records: Option<bool>,
    pub(crate) session_lifetime: Option<Period>,
    pub(crate) tickets: Option<bool>,
    pub(crate) tickets_per_handshake: Option<u8>,
    pub(crate) ticket_rotation: Option<Period>,
    pub(crate) stateful: Option<bool>,
    pub(crate) early_data_size: Option<Size>,
    pub(crate) session_cache: SessionCache,
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
    pub(crate) entries: Option<u32>,
    pub(crate) size: Option<Size>,
}

/// `[sessions]`: resumption of sessions across machines.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Sessions {
    pub(crate) secret: Option<PathBuf>,
    pub(crate) ticket_keys: Option<TicketKeys>,
    pub(crate) redis: Option<Redis>,
}

/// `[admin]`: metrics and health of the gateway itself.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Admin {
    pub(crate) listen: Option<Address>,
}

/// `[certificates]`: maintenance of the certificates of all hosts.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Certificates {
    pub(crate) staple: Option<bool>,
    pub(crate) staple_wait: Option<Period>,
    pub(crate) watch_revocation: Option<bool>,
    pub(crate) complete_chains: Option<bool>,
    pub(crate) allow_private: Vec<PrivateHost>,
}

/// `[[host]]`: names, their certificates and their routes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Host {
    pub(crate) names: Vec<String>,
    #[serde(default)]
    pub(crate) certificates: Vec<Certificate>,
    pub(crate) certificate_folder: Option<PathBuf>,
    #[serde(default)]
    pub(crate) acme: HostAcme,
    pub(crate) on_demand: Option<OnDemand>,
    pub(crate) upstream: Option<UpstreamServer>,
    #[serde(default)]
    pub(crate) default: bool,
    pub(crate) http3: Option<bool>,
    pub(crate) hsts: Option<Hsts>,
    pub(crate) client_certificates: Option<ClientCertificates>,
    pub(crate) early_data: Option<EarlyData>,
    pub(crate) compression: Option<Compression>,
    pub(crate) security_headers: Option<SecurityHeaders>,
    pub(crate) maintenance: Option<Maintenance>,
    pub(crate) error_pages: Option<ErrorPages>,
    pub(crate) keep_alive: Option<KeepAlive>,
    pub(crate) preconnect: Option<Preconnect>,
    pub(crate) server_timing: Option<ServerTiming>,
    pub(crate) visits: Option<HostVisits>,
    #[serde(default)]
    pub(crate) consolidate: BTreeMap<String, Consolidate>,
    pub(crate) allow: Option<Vec<Network>>,
    pub(crate) deny: Option<Vec<Network>>,
    #[serde(default)]
    pub(crate) route: Vec<Route>,
}

/// A certificate of a host, or that of an upstream's client.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Certificate {
    pub(crate) chain: PathBuf,
    pub(crate) key: KeyPlace,
    pub(crate) fallback_key: Option<PathBuf>,
    pub(crate) staple: Option<PathBuf>,
}

/// `[[host.route]]`: a path and exactly one of `upstream`, `static`, `respond`, `redirect`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Route {
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) exact: bool,
    pub(crate) when: Option<When>,
    pub(crate) upstream: Option<String>,
    #[serde(rename = "static")]
    pub(crate) directory: Option<PathBuf>,
    pub(crate) respond: Option<Respond>,
    pub(crate) redirect: Option<Redirect>,
    pub(crate) body_size: Option<SizeLimit>,
    pub(crate) buffer_request: Option<bool>,
    pub(crate) strip_prefix: Option<StripPrefix>,
    pub(crate) replace_prefix: Option<String>,
    pub(crate) rewrite_path: Option<RewritePath>,
    pub(crate) early_data: Option<EarlyData>,
    pub(crate) compression: Option<Compression>,
    pub(crate) precompressed: Option<bool>,
    pub(crate) fallback: Option<String>,
    pub(crate) request_headers: Option<HeaderRules>,
    pub(crate) response_headers: Option<HeaderRules>,
    pub(crate) error_pages: Option<ErrorPages>,
    pub(crate) early_hints: Option<EarlyHints>,
    pub(crate) rewrite: Option<RewriteDocuments>,
    pub(crate) keep_alive: Option<KeepAlive>,
    pub(crate) allow: Option<Vec<Network>>,
    pub(crate) deny: Option<Vec<Network>>,
    pub(crate) client_certificate: Option<ClientCertificate>,
    pub(crate) basic_auth: Option<BasicAuth>,
    pub(crate) satisfy: Option<Satisfy>,
    pub(crate) forward_auth: Option<ForwardAuth>,
}

/// `respond`: the same answer to everyone.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Respond {
    pub(crate) status: Option<u16>,
    pub(crate) body: Option<String>,
    pub(crate) content_type: Option<String>,
}
