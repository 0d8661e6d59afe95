//! [`GatewaySockets`], bound first, and [`Gateway`]: serves, reloads and drains.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use brisk_pressure::{Mode, Sample};
use brisk_server::{Announcement, Control, Listen, Listening, Parts, Process, Refusal, Server};
use brisk_supervisor::succession::StatePart;
use brisk_telemetry::metrics::Reload;

use crate::GatewayError;
use crate::listener::Socket;
use crate::pages::dashboard::Served;
use crate::pages::pages_of;
use crate::part::GatewayPart;
use crate::settings::GatewaySettings;
use crate::shared::{Environment, Shared};
use crate::source::Source;
use crate::tcp::listeners;

/// Addresses on which a gateway listens, with the ports that the system chose for port `0`.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    /// HTTPS.
    pub https: Vec<SocketAddr>,
    /// Plain HTTP, redirected.
    pub http: Vec<SocketAddr>,
    /// TCP, forwarded as bytes.
    pub tcp: Vec<SocketAddr>,
    /// Metrics and health.
    pub admin: Option<SocketAddr>,
    /// The URL of the dashboard.
    pub dashboard: Option<String>,
}

/// The bound sockets of a gateway: connections wait until [`Gateway::run`] accepts them.
#[derive(Debug)]
pub struct GatewaySockets(Listening<Socket>);

impl GatewaySockets {
    /// Binds all addresses of `settings`.
    pub fn bind(settings: &GatewaySettings, process: Process) -> Result<Self, GatewayError> {
        Ok(Self(Listening::bind(settings.server.clone(), &listeners(settings), process)?))
    }
}

/// A gateway that is completely prepared and does not serve yet.
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
    server: Server<Socket>,
    addresses: Addresses,
    part: Rc<GatewayPart>,
}

impl Gateway {
    /// Prepares keys, sessions and logs, so that errors are reported before anything is served. Signals are caught from here on
    /// ([`Server::new`]).
    pub fn new(
        settings: &GatewaySettings,
        sockets: GatewaySockets,
        environment: &Environment,
    ) -> Result<Self, GatewayError> {
        let visits = environment.visits.clone();
        let shared = Shared::new(settings, environment, sockets.0.pressure())?;
        let dashboard = Served::start(settings.dashboard.as_ref(), &shared, sockets.0.loads(), visits)?;
        // Last of all that can fail: from here on signals are caught.
        let server = Server::new(sockets.0)?;
        shared.metrics.register(server.metrics());
        let addresses = Addresses { dashboard: dashboard.url(), ..addresses(&server) };
        if let Some(url) = &addresses.dashboard {
            // Set once: a gateway is bound once.
            let _ = shared.live.load().dashboard.set(url.clone());
        }
        if addresses.admin.is_some_and(|address| !address.ip().is_loopback()) {
            tracing::warn!(
                "the admin listener is not on loopback: its clients can read the metrics and the recent connections, with \
                 the addresses of clients, the names that they asked for and the subjects of their certificates, and \
                 rotate ticket keys"
            );
        }
        let part = Rc::new(GatewayPart::new(&shared, settings, dashboard));
        Ok(Self { shared, server, addresses, part })
    }

    /// The [`Addresses`] on which the gateway listens.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// The gateway as a part of the process.
    pub fn part(&self) -> Rc<GatewayPart> {
        Rc::clone(&self.part)
    }

    /// Serves until `SIGTERM` or `SIGINT`, and until the drain has ended. On `SIGHUP` and after a change of a file, reads
    /// `source` and applies the configuration to `parts`, which include [`part`](Self::part); if either fails, the
    /// previous configuration remains in use. If only certificate files have changed, only these certificates are
    /// loaded and published.
    ///
    /// Continues the state of a predecessor, which serves until this process is ready ([`Server::predecessor`]). `announce` is
    /// called when connections reach this process, also on a thread of its own ([`Control::announcement`]).
    pub fn run<S: Source>(
        self,
        parts: &Parts<S::Configuration>,
        source: S,
        announce: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Result<(), GatewayError> {
        let Self { shared, mut server, part, .. } = self;
        // As late as possible: the predecessor rotates its keys until then.
        if let Some(predecessor) = server.predecessor() {
            shared.resumption.continue_from(&predecessor);
        }
        // Not in `new`, which may still fail while another process varies these settings.
        shared.begin_variation();
        let pages = pages_of(&shared);
        let control = Reloads { part, parts, source, announcement: Some(Box::new(announce)) };
        let served = server.run(&shared, control, pages);
        // After the drain, whose last requests have lines too.
        shared.sink.close_access_log();
        Ok(served?)
    }
}

fn listeners(settings: &GatewaySettings) -> Vec<Listen<Socket>> {
    let https = settings.https.iter().map(|listener| (Socket::Https, "https", listener));
    let http = settings.http.iter().map(|listener| (Socket::Http, "http", listener));
    let tcp = listeners::of(&settings.tcp);
    let tcp = tcp.iter().enumerate().map(|(number, own)| (Socket::Tcp(number), "tcp", &own.settings));
    https
        .chain(http)
        .chain(tcp)
        .map(|(kind, name, listener)| Listen {
            kind,
            name,
            settings: listener.clone(),
            datagrams: settings.http3 && kind == Socket::Https,
        })
        .collect()
}

fn addresses(server: &Server<Socket>) -> Addresses {
    let mut addresses = Addresses { admin: server.admin_address(), ..Addresses::default() };
    for (kind, address) in server.addresses() {
        match kind {
            Socket::Https => addresses.https.push(address),
            Socket::Http => addresses.http.push(address),
            Socket::Tcp(_) => addresses.tcp.push(address),
        }
    }
    addresses
}

/// The main thread's work for a gateway: reloads, and the rotation of keys.
struct Reloads<'p, S: Source> {
    part: Rc<GatewayPart>,
    parts: &'p Parts<S::Configuration>,
    source: S,
    /// `None` after the start.
    announcement: Option<Announcement>,
}

impl<S: Source> Control for Reloads<'_, S> {
    type Settings = S::Configuration;

    fn announcement(&mut self) -> Option<Announcement> {
        self.announcement.take()
    }

    fn export(&self) -> Vec<StatePart> {
        self.part.shared.resumption.export()
    }

    fn start(&mut self) {
        self.part.check_health();
    }

    fn read(&mut self) -> Result<S::Configuration, Refusal> {
        self.source.read()
    }

    fn parts(&self) -> &Parts<S::Configuration> {
        self.parts
    }

    fn renew(&mut self, changed: &BTreeSet<PathBuf>) -> Option<Result<(), String>> {
        let loaded = self.source.renew(changed)?;
        Some(loaded.map(|hosts| self.part.shared.renew(hosts)))
    }

    fn taken_over(&self) -> impl Future<Output = ()> {
        self.part.shared.live.taken_over()
    }

    fn reloaded(&self, outcome: Reload) {
        self.part.shared.metrics.reloaded(outcome);
    }

    fn reopen_logs(&mut self) {
        if let Some(log) = self.part.shared.sink.access_log().as_ref() {
            log.reopen();
        }
    }

    fn measure(&mut self, sample: &mut Sample, mode: Mode) {
        self.part.shared.measure(sample);
        self.part.adapt_limits(mode);
    }

    fn each_minute(&mut self) {
        self.part.shared.resumption.age();
    }

    fn end(&mut self) {
        self.part.end();
    }
}
