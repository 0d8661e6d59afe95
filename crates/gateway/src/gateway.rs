//! A gateway as a whole: binds, serves, reloads, drains.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;

use brisk_server::{Control, Listen, Pages, Part, PartError, Process, Server, ServerSettings};
use brisk_telemetry::metrics::{CONTENT_TYPE as METRICS_TYPE, Listening, Reload};

use crate::GatewayError;
use crate::connections;
use crate::dashboard::Served;
use crate::errands;
use crate::fixed::Fixed;
use crate::settings::GatewaySettings;
use crate::shared::{Environment, Shared};
use crate::tickets;
use crate::upstreams::HealthChecks;

/// Where a gateway listens, with the ports that the system chose for port 0.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    /// HTTPS.
    pub https: Vec<SocketAddr>,
    /// Plain HTTP, redirected.
    pub http: Vec<SocketAddr>,
    /// Metrics and health.
    pub admin: Option<SocketAddr>,
    /// The URL of the dashboard.
    pub dashboard: Option<String>,
}

/// A gateway that has everything it needs and serves nothing yet.
#[derive(Debug)]
pub struct Gateway {
    settings: GatewaySettings,
    shared: Arc<Shared>,
    server: Server<Listening>,
    addresses: Addresses,
    dashboard: Served,
}

impl Gateway {
    /// Binds all addresses and prepares keys, sessions and logs. Errors are reported here, before anything is served.
    ///
    /// Signals are caught from here on. One that arrives right after the program has reported its start is not lost,
    /// and does not end the process.
    pub fn bind(
        settings: GatewaySettings,
        process: Process,
        environment: Environment,
    ) -> Result<Self, GatewayError> {
        let visits = environment.visits.clone();
        let shared = Shared::new(&settings, environment)?;
        let server = Server::bind(settings.server.clone(), &listeners(&settings), process)?;
        shared.metrics.register(server.metrics());
        let dashboard = Served::start(settings.dashboard.as_ref(), &shared, server.loads(), visits)?;
        let addresses = Addresses { dashboard: dashboard.url(), ..addresses(&server) };
        if addresses.admin.is_some_and(|address| !address.ip().is_loopback()) {
            tracing::warn!(
                "the admin listener is not on loopback: its clients can read the metrics and the recent connections, with \
                 the addresses of clients, the names that they asked for and the subjects of their certificates, and \
                 rotate ticket keys"
            );
        }
        Ok(Self { settings, shared, server, addresses, dashboard })
    }

    /// The addresses that it listens on.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Serves until SIGTERM or SIGINT and the end of the drain. `read` is called for new settings on SIGHUP and when
    /// one of their files has changed; if it fails, the old ones stay in force. `settled` is called after each that was read,
    /// with whether it is in force now.
    pub fn run<E: Display>(
        self,
        read: impl FnMut() -> Result<GatewaySettings, E>,
        settled: impl FnMut(bool),
    ) -> Result<(), GatewayError> {
        let Self { settings, shared, server, dashboard, .. } = self;
        shared.begin_experiments();
        let pages = pages(&shared);
        let checks = HealthChecks::default();
        let reloads = Reloads {
            shared: Arc::clone(&shared),
            fixed: Fixed::of(&settings),
            read,
            settled,
            checks,
            dashboard,
        };
        Ok(server.run(&shared, reloads, pages)?)
    }
}

fn listeners(settings: &GatewaySettings) -> Vec<Listen<Listening>> {
    let https = settings.https.iter().map(|listener| (Listening::Https, "https", listener));
    let http = settings.http.iter().map(|listener| (Listening::Http, "http", listener));
    https
        .chain(http)
        .map(|(kind, name, settings)| Listen { kind, name, settings: settings.clone() })
        .collect()
}

fn addresses(server: &Server<Listening>) -> Addresses {
    let mut addresses = Addresses { admin: server.admin_address(), ..Addresses::default() };
    for (kind, address) in server.addresses() {
        match kind {
            Listening::Https => addresses.https.push(address),
            Listening::Http => addresses.http.push(address),
        }
    }
    addresses
}

/// What the admin listener shows and does.
fn pages(shared: &Shared) -> Pages {
    let (metrics, sink) = (Arc::clone(&shared.metrics), Arc::clone(&shared.sink));
    let (shown, rotated) = (Arc::clone(shared.resumption.keyring()), Arc::clone(shared.resumption.keyring()));
    let (engines, care) = (Arc::clone(&shared.certificates.engines), Arc::clone(&shared.certificates.care));
    Pages::default()
        .ready_unless(move || engines.trouble())
        .show_under_any_name("/metrics", METRICS_TYPE, move || metrics.render())
        .show("/connections", "application/json", move || connections::shown(&sink.recent()))
        .show("/tickets", "application/json", move || tickets::shown(&shown, SystemTime::now()))
        .show("/certificates", "application/json", move || errands::shown(&care, SystemTime::now()))
        .act("/tickets/rotate", move || match tickets::rotate(&rotated, SystemTime::now()) {
            Ok(done) => Ok(done.to_owned()),
            Err(error) => Err(error.to_string()),
        })
}

/// The main thread's part: new settings, health checks, and what ages.
struct Reloads<R, S> {
    shared: Arc<Shared>,
    fixed: Fixed,
    read: R,
    settled: S,
    checks: HealthChecks,
    dashboard: Served,
}

impl<R, S, E> Control for Reloads<R, S>
where
    R: FnMut() -> Result<GatewaySettings, E>,
    S: FnMut(bool),
    E: Display,
{
    type Settings = GatewaySettings;

    fn start(&mut self) {
        self.checks.follow(self.shared.live.load().groups());
    }

    fn read(&mut self) -> Result<GatewaySettings, String> {
        (self.read)().map_err(|error| error.to_string())
    }

    fn apply(&mut self, settings: GatewaySettings) -> Result<(), String> {
        let applied = self.apply_whole(&settings).map_err(|error| error.to_string());
        (self.settled)(applied.is_ok());
        applied?;
        self.checks.follow(self.shared.live.load().groups());
        let fixed = Fixed::of(&settings);
        self.fixed.warn_of_changes(&fixed);
        self.fixed = fixed;
        Ok(())
    }

    fn taken_over(&self) -> impl Future<Output = ()> {
        self.shared.live.taken_over()
    }

    fn reloaded(&self, outcome: Reload) {
        self.shared.metrics.reloaded(outcome);
    }

    fn reopen_logs(&mut self) {
        if let Some(log) = self.shared.sink.access_log().as_ref() {
            log.reopen();
        }
    }

    fn each_minute(&mut self) {
        self.shared.resumption.age();
    }
}

impl<R, S> Reloads<R, S> {
    /// Puts new settings in force. On an error nothing changes.
    fn apply_whole(&mut self, settings: &GatewaySettings) -> Result<(), PartError> {
        let dashboard = self.dashboard.prepare(settings.dashboard.as_ref())?;
        let prepared = self.shared.prepare(settings)?;
        self.dashboard.take_over(dashboard);
        self.shared.commit(prepared);
        Ok(())
    }
}

impl AsRef<ServerSettings> for GatewaySettings {
    fn as_ref(&self) -> &ServerSettings {
        &self.server
    }
}
