//! A server as shared by all workers: [`ServerState`].

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use brisk_dns::Endpoint;
use brisk_http_connection::proxy_header;
use brisk_net::DialLimits;
use brisk_telemetry::Throttle;
use brisk_tls::connector::Connector;
use http::HeaderValue;

use crate::concurrency::Concurrency;
use crate::features::health::server_health::{Availability, ServerHealth, Verdict};
use crate::features::pool::places::Places;
use crate::io::{DialError, Dialer, UpstreamIo};
use crate::metrics::{UpstreamMetrics, Upstreams};
use crate::settings::{GroupSettings, ProxyVersion, ServerAddress, ServerScheme, ServerUrl, TlsProtocol};

/// Minimum interval between two warnings of failed connections to a server.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// Minimum interval between two log lines with messages of the application of a server.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Weight of a server with weight 1 in a group with slow start.
const SLOW_START_UNIT: u32 = 100;

/// A server as shared by all workers.
#[derive(Debug)]
pub struct ServerState {
    name: Box<str>,
    /// Index of the entry of [`GroupSettings::servers`] that the server belongs to.
    entry: usize,
    /// The address, if DNS has named it.
    address: Option<SocketAddr>,
    weight: AtomicU32,
    is_backup: AtomicBool,
    /// Whether the entry of the settings makes the server a backup, independently of DNS.
    is_backup_entry: bool,
    /// Whether the entry is a service, of which DNS names weights and priorities too.
    is_of_service: bool,
    multiplexes: bool,
    proxy_protocol: Option<ProxyVersion>,
    dialer: Dialer,
    /// Permits for connections, if their number is limited.
    places: Option<Arc<Places>>,
    /// Concurrent requests, unless the number of connections is limited.
    concurrency: Option<Concurrency>,
    health: ServerHealth,
    slow_start: Option<Duration>,
    metrics: Arc<UpstreamMetrics>,
    /// Warnings of failed connections and of large heads.
    warnings: Throttle,
    /// Messages of applications.
    reports: Throttle,
    /// The cookie of the server, if the group has `sticky`.
    assignment: Option<HeaderValue>,
}

impl ServerState {
    /// A server of entry `entry` of the settings: the one that is written there, or one that DNS has named.
    pub(crate) fn new(
        settings: &GroupSettings,
        entry: usize,
        endpoint: Option<&Endpoint>,
        connector: Option<&Connector>,
        metrics: &Upstreams,
    ) -> Arc<Self> {
        let server = &settings.servers[entry];
        let url = endpoint.map_or_else(|| server.url.clone(), |endpoint| server.url.at(endpoint.address));
        let name = endpoint.map_or_else(|| url.name(), |endpoint| endpoint.address.to_string());
        let host = || url.authority().host().to_owned();
        // Sessions by server and not by name: servers with one name and ticket keys of their own would get
        // the tickets of one another, which costs full handshakes.
        let connector = connector.filter(|_| url.scheme().is_encrypted()).map(Connector::with_own_sessions);
        let tls =
            connector.map(|connector| (connector, settings.tls.server_name.clone().unwrap_or_else(host)));
        let multiplexes = match url.scheme() {
            ServerScheme::Http | ServerScheme::Tcp | ServerScheme::Tls | ServerScheme::Cgi(_) => false,
            ServerScheme::Https => settings.tls.protocol == TlsProtocol::Http2,
            ServerScheme::H2c => true,
        };
        // The limit of the operator replaces one that adapts. The bytes of TCP connections are no requests.
        let adapts = settings.pool.max_connections.is_none() && !settings.is_stream();
        let assignment = settings.sticky.as_ref().map(|sticky| sticky.assignment(&settings.name, &name));
        let state = Self {
            metrics: metrics.get(&settings.name, &name),
            name: name.into(),
            entry,
            address: endpoint.map(|endpoint| endpoint.address),
            weight: AtomicU32::new(server.weight.max(1)),
            is_backup: AtomicBool::new(server.is_backup),
            is_backup_entry: server.is_backup,
            is_of_service: matches!(server.url.address(), ServerAddress::Service(_)),
            multiplexes,
            proxy_protocol: settings.proxy_protocol,
            dialer: Dialer { url, tls, limits: dial_limits(settings) },
            places: settings.pool.max_connections.map(|limit| Places::new(limit, settings.pool.queue.size)),
            concurrency: adapts.then(|| Concurrency::new(settings.pool.queue.size)),
            health: ServerHealth::default(),
            slow_start: settings.health.slow_start,
            warnings: Throttle::new(WARNING_INTERVAL),
            reports: Throttle::new(REPORT_INTERVAL),
            assignment,
        };
        if let Some(endpoint) = endpoint {
            state.update(endpoint);
        }
        Arc::new(state)
    }

    /// Takes weight and priority of a service from DNS (RFC 2782).
    pub(crate) fn update(&self, endpoint: &Endpoint) {
        if let Some(weight) = endpoint.weight {
            self.weight.store(weight.into(), Ordering::Relaxed);
        }
        self.is_backup.store(self.is_backup_entry || endpoint.is_backup, Ordering::Relaxed);
    }

    /// The server as DNS has named it; `None` for a server without DNS.
    pub(crate) fn endpoint(&self) -> Option<Endpoint> {
        // Of a service only: other weights are those of the settings, which may differ after the reload.
        let weight = u16::try_from(self.weight.load(Ordering::Relaxed)).ok().filter(|_| self.is_of_service);
        self.address.map(|address| Endpoint {
            address,
            weight,
            is_backup: self.is_of_service && self.is_backup(),
        })
    }

    pub(crate) fn entry(&self) -> usize {
        self.entry
    }

    /// Whether the server belongs to this entry of the settings.
    pub(crate) fn is_of(&self, entry: usize) -> bool {
        self.entry == entry
    }

    /// Whether DNS has named the server at this address for this entry of the settings.
    pub(crate) fn is_at(&self, entry: usize, address: SocketAddr) -> bool {
        self.is_of(entry) && self.address == Some(address)
    }

    /// Share of the requests at present, in proportion to other servers of the group; at least 1. With `health.slow_start`,
    /// weights are multiplied by 100, and the share grows after an exclusion.
    pub fn weight(&self) -> u32 {
        let weight = self.weight.load(Ordering::Relaxed);
        match self.slow_start {
            None => weight,
            // Parts of weight 1 need a finer unit.
            Some(slow_start) => self.health.ramped(weight * SLOW_START_UNIT, slow_start),
        }
    }

    /// Whether the server gets requests only while no other is available.
    pub fn is_backup(&self) -> bool {
        self.is_backup.load(Ordering::Relaxed)
    }

    /// Host and port, or the Unix socket, for the log and the metrics.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address of the server.
    pub fn url(&self) -> &ServerUrl {
        &self.dialer.url
    }

    /// Whether the server receives requests.
    pub fn is_healthy(&self) -> bool {
        match self.health.availability() {
            Availability::Available => true,
            Availability::Unavailable => false,
            Availability::BackAgain => {
                self.metrics.healthy();
                true
            }
        }
    }

    /// Records the verdict of the active checks.
    pub(crate) fn set_checked(&self, verdict: Verdict) {
        self.health.set_checked(verdict);
        match verdict {
            Verdict::Up => self.metrics.healthy(),
            Verdict::Down => self.metrics.unhealthy(),
        }
    }

    /// Opens a transport for requests, and counts its TLS handshake. `header` precedes all other bytes, TLS included. A failure
    /// is logged with the name of the group.
    ///
    /// # Errors
    ///
    /// [`DialError::Timeout`] if there is no connection within `timeouts.connect`, [`DialError::Failed`] for other failures.
    pub async fn connect(&self, group: &str, header: &[u8]) -> Result<UpstreamIo, DialError> {
        let connected = self.dialer.connect(header).await;
        let io = connected
            .inspect_err(|error| self.warn_of(error, group, "no connection to the upstream server"))?;
        match io.is_resumed() {
            None => {}
            Some(true) => self.metrics.resumed_handshake(),
            Some(false) => self.metrics.full_handshake(),
        }
        Ok(io)
    }

    /// Logs a fault of the server, at most once in 10 s.
    pub fn warn_of(&self, error: &dyn Display, group: &str, fault: &str) {
        if let Some(more) = self.warnings.pass() {
            tracing::warn!(group, server = self.name(), %error, more, "{fault}");
        }
    }

    /// Logs messages of the application (`FCGI_STDERR`), at most once a second. `lost`: number of bytes that were not kept.
    pub fn report(&self, group: &str, text: &str, lost: usize) {
        if let Some(more) = self.reports.pass() {
            tracing::warn!(group, server = self.name(), ?text, lost, more, "an application reports");
        }
    }

    /// Permits for connections; `None` without `pool.max_connections`.
    pub fn places(&self) -> Option<&Arc<Places>> {
        self.places.as_ref()
    }

    /// Concurrent requests and their limit; `None` with `pool.max_connections`, and for servers of bytes.
    pub fn concurrency(&self) -> Option<&Concurrency> {
        self.concurrency.as_ref()
    }

    /// Figures of the server.
    pub fn metrics(&self) -> &Arc<UpstreamMetrics> {
        &self.metrics
    }

    /// The value of `Set-Cookie` that assigns a client to the server; `None` without `sticky`.
    pub fn assignment(&self) -> Option<&HeaderValue> {
        self.assignment.as_ref()
    }

    /// The outcomes of requests to the server.
    pub(crate) fn health(&self) -> &ServerHealth {
        &self.health
    }

    /// The version of the PROXY protocol on connections to the server, if any.
    pub fn proxy_protocol(&self) -> Option<ProxyVersion> {
        self.proxy_protocol
    }

    /// The PROXY header of connections for health checks; empty without the PROXY protocol.
    pub(crate) fn own_header(&self) -> Vec<u8> {
        self.proxy_protocol.map(proxy_header::own_header).unwrap_or_default()
    }

    /// Whether connections to the server carry concurrent requests: HTTP/2.
    pub fn multiplexes(&self) -> bool {
        self.multiplexes
    }

    pub(crate) fn dialer(&self) -> &Dialer {
        &self.dialer
    }
}

/// Limits for sockets. Data unacknowledged for `timeouts.head` counts as lost, and the connection with it (`TCP_USER_TIMEOUT`).
/// A server of bytes may pause for the idle timeout of its `[[tcp]]`.
fn dial_limits(settings: &GroupSettings) -> DialLimits {
    let timeouts = &settings.timeouts;
    // 0 selects the kernel's default, a number of retransmissions.
    let unacknowledged = if settings.is_stream() { Duration::ZERO } else { timeouts.head };
    DialLimits { connect: timeouts.connect, unacknowledged }
}
