//! The part of groups that all workers share.

use std::sync::Arc;
use std::time::Duration;

use brisk_net::DialLimits;
use brisk_telemetry::Throttle;
use brisk_telemetry::metrics::{Metrics, UpstreamMetrics};
use brisk_tls::TlsError;
use brisk_tls::connector::Connector;
use tokio::sync::Notify;

use super::tls::{TlsFiles, connector};
use crate::error::UpstreamError;
use crate::health::{Availability, ServerHealth, Verdict};
use crate::io::Dialer;
use crate::places::Places;
use crate::proxy_header;
use crate::settings::{GroupSettings, ProxyVersion, ServerScheme, ServerSettings, ServerUrl, TlsProtocol};

/// Minimum interval between two warnings of failed connections to a server.
const WARNING_INTERVAL: Duration = Duration::from_secs(10);

/// A group as shared by all workers: settings, health and connection counts.
#[derive(Debug)]
pub struct GroupState {
    pub(super) settings: GroupSettings,
    pub(super) servers: Vec<ServerState>,
    /// Hashes of the files used for TLS.
    files: TlsFiles,
    /// Signals that a request waits for a permit that an idle connection of some worker holds.
    pub(super) idle_wanted: Arc<Notify>,
}

/// A server as shared by all workers.
#[derive(Debug)]
pub struct ServerState {
    pub(super) name: Box<str>,
    pub(super) weight: u32,
    pub(super) is_backup: bool,
    multiplexes: bool,
    proxy_protocol: Option<ProxyVersion>,
    pub(super) dialer: Dialer,
    /// Permits for connections, if their number is limited.
    pub(crate) places: Option<Arc<Places>>,
    pub(super) health: ServerHealth,
    pub(crate) metrics: Arc<UpstreamMetrics>,
    /// Warnings of failed connections and of large heads.
    warnings: Throttle,
}

impl GroupState {
    /// Creates the state from the settings. Reads the authorities and the client certificate for `https` servers from
    /// files. Figures of each server appear in `metrics` for the lifetime of this value.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if a file is unreadable or invalid.
    pub fn new(settings: GroupSettings, metrics: &Metrics) -> Result<Arc<Self>, TlsError> {
        let files = TlsFiles::read(&settings.tls);
        let connector = connector(&settings)?;
        let servers = settings.servers.iter().map(|server| {
            let tls = connector.clone().filter(|_| server.url.scheme() == ServerScheme::Https);
            let metrics = metrics.upstream(&settings.name, &server.url.name());
            ServerState::new(&settings, server, tls, metrics)
        });
        let servers = servers.collect();
        Ok(Arc::new(Self { settings, servers, files, idle_wanted: Arc::default() }))
    }

    /// Whether a group created from `settings` now would be equal, including the contents of files. Reads the files.
    pub fn is_made_of(&self, settings: &GroupSettings) -> bool {
        self.settings == *settings && self.files == TlsFiles::read(&settings.tls)
    }

    /// The settings of the group.
    pub fn settings(&self) -> &GroupSettings {
        &self.settings
    }

    /// The servers, in the order of the settings.
    pub fn servers(&self) -> &[ServerState] {
        &self.servers
    }

    /// Requests all workers to close idle connections whose permits are needed.
    pub(crate) fn ask_for_idle(&self) {
        self.idle_wanted.notify_waiters();
    }
}

impl ServerState {
    fn new(
        settings: &GroupSettings,
        server: &ServerSettings,
        connector: Option<Connector>,
        metrics: Arc<UpstreamMetrics>,
    ) -> Self {
        let url = &server.url;
        let host = || url.authority().host().to_owned();
        let tls =
            connector.map(|connector| (connector, settings.tls.server_name.clone().unwrap_or_else(host)));
        let multiplexes = match url.scheme() {
            ServerScheme::Http => false,
            ServerScheme::Https => settings.tls.protocol == TlsProtocol::Http2,
            ServerScheme::H2c => true,
        };
        Self {
            name: url.name().into(),
            weight: server.weight.max(1),
            is_backup: server.is_backup,
            multiplexes,
            proxy_protocol: settings.proxy_protocol,
            dialer: Dialer { url: url.clone(), tls, limits: dial_limits(settings) },
            places: settings.pool.max_connections.map(|limit| Places::new(limit, settings.pool.queue.size)),
            health: ServerHealth::default(),
            metrics,
            warnings: Throttle::new(WARNING_INTERVAL),
        }
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

    /// Logs why no connection was opened, at most once in [`WARNING_INTERVAL`].
    pub(super) fn warn_of(&self, error: &UpstreamError, group: &str, fault: &str) {
        if let Some(more) = self.warnings.pass() {
            tracing::warn!(group, server = self.name(), %error, more, "{fault}");
        }
    }

    /// The version of the PROXY protocol on connections to the server, if any.
    pub(crate) fn proxy_protocol(&self) -> Option<ProxyVersion> {
        self.proxy_protocol
    }

    /// The PROXY header of connections for health checks; empty without the PROXY protocol.
    pub(crate) fn own_header(&self) -> Vec<u8> {
        self.proxy_protocol.map(proxy_header::own_header).unwrap_or_default()
    }

    pub(crate) fn multiplexes(&self) -> bool {
        self.multiplexes
    }

    pub(crate) fn dialer(&self) -> &Dialer {
        &self.dialer
    }
}

/// Limits for sockets. Data unacknowledged for the response timeout counts as lost, and the connection with it.
fn dial_limits(settings: &GroupSettings) -> DialLimits {
    let timeouts = &settings.timeouts;
    DialLimits { connect: timeouts.connect, unacknowledged: timeouts.head }
}
