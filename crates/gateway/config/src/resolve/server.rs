//! `[server]`, `[tls]`, `[access_log]` and `[admin]`: settings common to all hosts.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use brisk_answer::features::TIMEOUTS;
use brisk_answer::settings::{HostSettings, HttpsRedirect, ServiceSettings, Underscores, Variants};
use brisk_certs::UnknownName;
use brisk_certs::store::Folder;
use brisk_config_file::{Findings, KeyPath, Period, Rate, Size};
use brisk_dashboard::DashboardSettings;
use brisk_gateway::settings::{
    CertificateSettings, ClientLimit, GatewaySettings, ProxyProtocol, SessionSettings, TcpSettings,
    VariationSettings,
};
use brisk_http_server::{AbortOnClose, HttpSettings, HttpTimeouts};
use brisk_keys::Keystore;
use brisk_logs::{AccessLogSettings, Sample};
use brisk_net::{ListenerSettings, RateLimits};
use brisk_pressure::Mode;
use brisk_server::ServerSettings;
use brisk_tls::settings::{Records, TlsSettings};
use brisk_upstream_group::settings::GroupSettings;
use brisk_wire::HttpVersion;
use brisk_wire::registry::ProtocolVersion;
use http::HeaderName;
use ipnet::IpNet;

use super::context::Context;
use super::{access_log, addresses, certificates, dashboard, drain, http3, isolation, keys};
use super::{memory_limits, otlp, sessions};
use crate::key_settings::KeySettings;
use crate::raw;
use crate::values::{self, Address, ClientConnections};

/// Length of the queue of connections that are not accepted yet unless another is written, and the lengths that may be.
const BACKLOG: u32 = 4096;
const BACKLOGS: RangeInclusive<u32> = 1..=1_048_576;

/// TCP Fast Open queue length unless another is written.
const FAST_OPEN: u32 = 256;

/// Settings that depend on the file alone.
pub(super) struct Server {
    pub(super) state_dir: Option<PathBuf>,
    workers: NonZeroUsize,
    https: Vec<ListenerSettings>,
    http: Vec<ListenerSettings>,
    http3: bool,
    admin: Option<SocketAddr>,
    proxy_protocol: ProxyProtocol,
    trusted_proxies: Vec<IpNet>,
    client_header: Option<HeaderName>,
    underscores: Underscores,
    max_connections: usize,
    per_client: Option<ClientLimit>,
    rates: RateLimits,
    handshake_timeout: Duration,
    drain_timeout: Duration,
    drain_delay: Duration,
    overload: Mode,
    protocol: HttpSettings,
    pub(super) tls: TlsSettings,
    pub(super) sessions: SessionSettings,
    pub(super) keys: KeySettings,
    pub(super) access_log: Vec<AccessLogSettings>,
    certificates: CertificateSettings,
    dashboard: Option<DashboardSettings>,
}

impl Server {
    /// Complete settings, with the parts resolved elsewhere.
    pub(super) fn complete(
        self,
        hosts: Vec<HostSettings>,
        (upstreams, tcp): (Vec<GroupSettings>, Vec<TcpSettings>),
        keystore: Arc<Keystore>,
        files: Vec<PathBuf>,
    ) -> GatewaySettings {
        // The port of the first listener, because clients of plain HTTP have to be sent to one of them.
        let redirect_port = self.https.first().map_or(443, |listener| listener.address.port());
        GatewaySettings {
            server: ServerSettings {
                workers: self.workers,
                max_connections: self.max_connections,
                // A proxied connection is one to an upstream too.
                descriptors_per_connection: if upstreams.is_empty() { 1 } else { 2 },
                admin: self.admin,
                drain_timeout: self.drain_timeout,
                drain_delay: self.drain_delay,
                overload: self.overload,
                files,
            },
            https: self.https,
            http: self.http,
            http3: self.http3,
            tcp,
            proxy_protocol: self.proxy_protocol,
            per_client: self.per_client,
            rates: self.rates,
            handshake_timeout: self.handshake_timeout,
            protocol: self.protocol,
            service: ServiceSettings {
                hosts,
                unknown_host: self.tls.unknown_host,
                trusted_proxies: self.trusted_proxies,
                client_header: self.client_header,
                underscores: self.underscores,
                variants: Variants::default(),
                beacons: None,
                redirect: HttpsRedirect::new(redirect_port),
                challenges: None,
            },
            tls: self.tls,
            sessions: self.sessions,
            keystore,
            variation: VariationSettings::default(),
            upstreams,
            access_log: self.access_log,
            certificates: self.certificates,
            dashboard: self.dashboard,
        }
    }
}

/// Resolves everything outside `[[host]]` and `[upstream]`.
pub(super) fn server(raw: &raw::Config, context: &mut Context<'_>) -> Server {
    let path = KeyPath::of("server");
    let server = &raw.server;
    addresses::check(raw, context);
    let cores = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    // The largest number that `workers` accepts: the default must be valid on any machine.
    let usual = cores.get().min(1024) as u16;
    let workers =
        count(context.shared.findings.within(&path.key("workers"), server.workers, usual, &(1..=1024)));
    // Here, so that a wrong number is reported once and not for each kind of listener.
    context.shared.findings.within(&path.key("backlog"), server.backlog, BACKLOG, &BACKLOGS);
    let https = listeners(&server.https, server);
    let http = listeners(&server.http, server);
    let state_dir = server.state_dir.as_ref().map(|dir| context.shared.base.join(dir));
    let state_dir = state_dir.or_else(|| dirs::state_dir().map(|dir| dir.join("brisk")));
    let tls = tls(raw, context);
    let keys = keys::keys(&raw.keys, cores, workers, context);
    let keys = isolation::settings(&raw.keys, keys, workers);
    context.key_process = (isolation::workers(workers), keys.processor.queue);
    let (max_connections, per_client) = connections(server, &path, context);
    Server {
        certificates: CertificateSettings {
            maintenance: certificates::maintenance(&raw.certificates, context),
            store: state_dir.as_ref().map(|dir| Arc::new(Folder::new(dir.join("certificates")))),
            fleet: None,
            allow_private: certificates::allow_private(&raw.certificates),
        },
        state_dir,
        workers,
        https,
        http,
        http3: http3::of_server(server, &path, context),
        admin: raw.admin.listen.map(|address| address.0),
        proxy_protocol: proxy_protocol(server.proxy_protocol.as_ref()),
        trusted_proxies: server.trusted_proxies.iter().map(|network| network.0).collect(),
        client_header: client_header(server, &path.key("client_header"), context),
        underscores: match server.underscores_in_headers {
            Some(raw::Underscores::Pass) => Underscores::Pass,
            Some(raw::Underscores::Drop) | None => Underscores::Drop,
        },
        max_connections,
        per_client,
        rates: rates(&server.rates),
        handshake_timeout: handshake_timeout(server, &path, context),
        drain_timeout: drain::timeout(server, &path, context),
        drain_delay: drain::delay(server, &path, context),
        overload: match server.overload {
            None | Some(raw::Overload::On) => Mode::Shed,
            Some(raw::Overload::Off) => Mode::Observe,
        },
        protocol: protocol(server, &path, context),
        sessions: sessions::sessions(raw, tls.session_lifetime, context),
        tls,
        keys,
        access_log: logs(raw, context),
        dashboard: dashboard::dashboard(raw.dashboard.as_ref(), context),
    }
}

/// The outputs of the access log, and the export of log records and spans.
fn logs(raw: &raw::Config, context: &mut Context<'_>) -> Vec<AccessLogSettings> {
    let mut outputs = access_log::access_log(&raw.access_log, context);
    if let Some(written) = &raw.otlp {
        // An invalid share is reported by the outputs, so no error is formed here.
        let lines = raw.access_log.sample.and_then(Sample::new);
        outputs.extend(otlp::otlp(written, lines, context));
    }
    context.shared.log_outputs = outputs.iter().map(|output| output.name.clone()).collect();
    outputs
}

/// The header in which trusted proxies name the client.
fn client_header(server: &raw::Server, path: &KeyPath, context: &mut Context<'_>) -> Option<HeaderName> {
    let text = server.client_header.as_deref()?;
    if server.trusted_proxies.is_empty() {
        context.shared.findings.wrong(path, "has no effect without `trusted_proxies`, from which it is read");
    }
    let usual = ["x-forwarded-for", "forwarded"];
    match text.parse::<HeaderName>() {
        Ok(name) if !usual.contains(&name.as_str()) => return Some(name),
        Ok(_) => context.shared.findings.wrong(path, "is read without this key: remove the line"),
        Err(_) => {
            let message = format!("{text:?} is not the name of a header: write one as \"X-Real-IP\"");
            context.shared.findings.wrong(path, message);
        }
    }
    None
}

fn proxy_protocol(written: Option<&values::ProxyProtocol>) -> ProxyProtocol {
    match written {
        None | Some(values::ProxyProtocol::Off) => ProxyProtocol::Off,
        Some(values::ProxyProtocol::Everyone) => ProxyProtocol::Everyone,
        Some(values::ProxyProtocol::Trusted(networks)) => {
            ProxyProtocol::Trusted(networks.iter().map(|network| network.0).collect())
        }
    }
}

fn handshake_timeout(server: &raw::Server, path: &KeyPath, context: &mut Context<'_>) -> Duration {
    let (path, usual) = (path.key("timeouts").key("hello"), Period(Duration::from_secs(10)));
    context.shared.findings.within(&path, server.timeouts.hello, usual, &TIMEOUTS).0
}

/// Settings of the listeners at `addresses`. A `backlog` out of range, which [`server`] reports, is replaced by the default.
pub(super) fn listeners(addresses: &[Address], server: &raw::Server) -> Vec<ListenerSettings> {
    let backlog = server.backlog.filter(|backlog| BACKLOGS.contains(backlog)).unwrap_or(BACKLOG);
    let fast_open = server.fast_open.map_or(Some(FAST_OPEN), |fast_open| fast_open.0);
    let listener = |address: &Address| ListenerSettings {
        backlog: i32::try_from(backlog).unwrap_or(i32::MAX),
        fast_open,
        ..ListenerSettings::new(address.0)
    };
    addresses.iter().map(listener).collect()
}

/// Maximum number of connections, in total and per client.
fn connections(
    server: &raw::Server,
    path: &KeyPath,
    context: &mut Context<'_>,
) -> (usize, Option<ClientLimit>) {
    let range = 1..=10_000_000;
    let total =
        context.shared.findings.within(&path.key("max_connections"), server.max_connections, 100_000, &range);
    let path = path.key("max_connections_per_client");
    let per_client = match server.max_connections_per_client {
        None => Some(ClientLimit::default()),
        Some(ClientConnections(most)) => most.map(|most| ClientLimit {
            most: context.shared.findings.within(&path, Some(most), 1, &range) as usize,
            // The default spares clients on this machine, a written number includes them.
            spares_loopback: false,
        }),
    };
    (total as usize, per_client)
}

fn rates(rates: &raw::ServerRates) -> RateLimits {
    let rate = |rate: Option<Rate>| rate.map(|rate| rate.0);
    RateLimits {
        connections: rate(rates.connections),
        handshakes: rate(rates.handshakes),
        requests: rate(rates.requests),
        errors: rate(rates.errors),
    }
}

fn protocol(server: &raw::Server, path: &KeyPath, context: &mut Context<'_>) -> HttpSettings {
    let (usual, path_of_limits) = (HttpSettings::default(), path.key("limits"));
    let findings = &mut context.shared.findings;
    let mut timeout = |key: &str, value, usual| {
        findings.within(&path.key("timeouts").key(key), value, Period(usual), &TIMEOUTS).0
    };
    let timeouts = HttpTimeouts {
        head: timeout("head", server.timeouts.head, usual.timeouts.head),
        body: timeout("body", server.timeouts.body, usual.timeouts.body),
        idle: timeout("idle", server.timeouts.idle, usual.timeouts.idle),
        write: timeout("write", server.timeouts.write, usual.timeouts.write),
        request: server.timeouts.request.map(|limit| timeout("request", Some(limit), Duration::ZERO)),
        connection: server
            .timeouts
            .connection
            .map(|limit| timeout("connection", Some(limit), Duration::ZERO)),
    };
    let heads = Size(8 << 10)..=Size(1 << 20);
    let head_size = Size(usual.head_size as u64);
    let raw = &server.limits;
    let requests =
        |most| findings.within(&path_of_limits.key("requests"), Some(most), 1, &(1..=1_000_000_000));
    let requests = raw.requests.map(requests);
    let mut settings = HttpSettings {
        timeouts,
        head_size: findings.within(&path_of_limits.key("head_size"), raw.head_size, head_size, &heads).0
            as usize,
        headers: findings
            .within(&path_of_limits.key("headers"), raw.headers, usual.headers as u16, &(10..=1000))
            .into(),
        h2_streams: findings.within(
            &path_of_limits.key("h2_streams"),
            raw.h2_streams,
            usual.h2_streams,
            &(1..=10_000),
        ),
        h2_resets: findings.within(
            &path_of_limits.key("h2_resets"),
            raw.h2_resets,
            usual.h2_resets as u32,
            &(1..=10_000),
        ) as usize,
        abort_on_close: match server.abort_on_close {
            None => usual.abort_on_close,
            Some(true) => AbortOnClose::Always,
            Some(false) => AbortOnClose::Never,
        },
        requests,
        ..usual
    };
    memory_limits::memory_and_pace(raw, &path_of_limits, findings, &mut settings);
    settings
}

fn tls(raw: &raw::Config, context: &mut Context<'_>) -> TlsSettings {
    let (path, usual) = (KeyPath::of("tls"), TlsSettings::default());
    let hello_path = KeyPath::of("server").key("limits").key("hello_size");
    let hellos = Size(4 << 10)..=Size(1 << 20);
    let findings = &mut context.shared.findings;
    let protocols = protocols(raw.tls.protocols.as_deref(), &path.key("protocols"), findings);
    let tickets =
        findings.within(&path.key("tickets_per_handshake"), raw.tls.tickets_per_handshake, 1, &(0..=8));
    let lifetime = Period(usual.session_lifetime);
    let hello_size = Size(usual.hello_size as u64);
    TlsSettings {
        min_version: match raw.tls.min_version {
            Some(raw::TlsVersion::Tls13) => ProtocolVersion::TLS1_3,
            Some(raw::TlsVersion::Tls12) | None => ProtocolVersion::TLS1_2,
        },
        protocols: protocols.unwrap_or(usual.protocols),
        tickets: raw.tls.tickets.unwrap_or(usual.tickets),
        tickets_per_handshake: tickets.into(),
        stateful: raw.tls.stateful.unwrap_or(usual.stateful),
        session_lifetime: findings
            .within(&path.key("session_lifetime"), raw.tls.session_lifetime, lifetime, &sessions::LIFETIMES)
            .0,
        certificate_compression: raw.tls.certificate_compression.unwrap_or(usual.certificate_compression),
        records: raw.tls.growing_records.map_or(usual.records, Records::new),
        hello_size: findings.within(&hello_path, raw.server.limits.hello_size, hello_size, &hellos).0
            as usize,
        unknown_host: match raw.server.unknown_host {
            Some(raw::UnknownHost::Refuse) => UnknownName::Refuse,
            Some(raw::UnknownHost::Default) | None => UnknownName::Default,
        },
        quic: raw.server.http3.unwrap_or(false),
        ja4: false,
        client_fingerprints: false,
        // The log of secrets is an option of the command line, so that no file can leave it on.
        key_log: false,
    }
}

/// The versions of HTTP, where any are written. Each once, and at least one.
fn protocols(
    written: Option<&[values::Protocol]>,
    path: &KeyPath,
    findings: &mut Findings<'_>,
) -> Option<Vec<HttpVersion>> {
    let written = written?;
    if written.is_empty() && !findings.written(&path.index(0)) {
        findings.wrong(path, "no protocol: write \"h2\", \"http/1.1\" or both, the preferred one first");
    }
    let repeated = written.iter().enumerate().filter(|(index, one)| written[..*index].contains(one));
    for (index, protocol) in repeated {
        let message = format!("{:?} is written already; once is enough", versions(*protocol)[0].alpn());
        findings.wrong(&path.index(index), message);
    }
    Some(written.iter().flat_map(|protocol| versions(*protocol)).copied().collect())
}

const fn versions(protocol: values::Protocol) -> &'static [HttpVersion] {
    match protocol {
        values::Protocol::Http2 => &[HttpVersion::Http2],
        // Some clients offer only `http/1.0`, and HTTP/1.1 serves them.
        values::Protocol::Http1 => &[HttpVersion::Http11, HttpVersion::Http10],
    }
}

/// A number that was checked to be at least 1.
pub(super) fn count(number: u16) -> NonZeroUsize {
    NonZeroUsize::new(number.into()).unwrap_or(NonZeroUsize::MIN)
}
