//! A complete key server: bind, serve, reload, drain.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::Arc;

use brisk_net::ListenerSettings;
use brisk_server::{
    Control, Listen, Listening, Pages, Part, PartError, Parts, Process, Refusal, Server, ServerSettings,
};
use brisk_telemetry::metrics::{CONTENT_TYPE, Reload};

use crate::KeyServerError;
use crate::metrics::KeyServerMetrics;
pub use crate::service::Environment;
use crate::service::{ActiveConfig, Shared};
use crate::settings::KeyServerSettings;

/// The bound sockets of a key server: connections wait until [`KeyServer::run`] accepts them.
#[derive(Debug)]
pub struct KeyServerSockets(Listening<()>);

impl KeyServerSockets {
    /// Binds all addresses of `settings`.
    ///
    /// # Errors
    ///
    /// [`KeyServerError`] if an address cannot be bound.
    pub fn bind(settings: &KeyServerSettings, process: Process) -> Result<Self, KeyServerError> {
        let listen = |settings: &ListenerSettings| Listen {
            kind: (),
            name: "keyserver",
            settings: settings.clone(),
            datagrams: false,
        };
        let listeners: Vec<_> = settings.listen.iter().map(listen).collect();
        Ok(Self(Listening::bind(settings.server.clone(), &listeners, process)?))
    }
}

/// A key server that is completely prepared and does not serve yet.
#[derive(Debug)]
pub struct KeyServer {
    listen: Vec<ListenerSettings>,
    shared: Arc<Shared>,
    server: Server<()>,
}

impl KeyServer {
    /// Reads the certificates.
    ///
    /// # Errors
    ///
    /// [`KeyServerError`], before anything is served.
    pub fn new(
        settings: &KeyServerSettings,
        sockets: KeyServerSockets,
        environment: Environment,
    ) -> Result<Self, KeyServerError> {
        let shared = Shared::new(settings, environment)?;
        let server = Server::new(sockets.0)?;
        shared.metrics.register(server.metrics());
        shared.metrics.register(KeyServerMetrics(Arc::clone(&shared.figures)));
        Ok(Self { listen: settings.listen.clone(), shared, server })
    }

    /// The bound addresses, with the ports that the system chose for port `0`.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.server.addresses().map(|((), address)| address)
    }

    /// The address of the admin listener; `None` without `admin.listen`.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.server.admin_address()
    }

    /// The key server as a part of the process.
    pub fn part(&self) -> KeyServerPart {
        KeyServerPart { shared: Arc::clone(&self.shared), listen: RefCell::new(self.listen.clone()) }
    }

    /// Serves until `SIGTERM`, `SIGINT` or `SIGQUIT` and the end of the drain. `read` is called on `SIGHUP` and after a change of a
    /// watched file, and `parts`, of which [`part`](Self::part) is one, adopt the configuration. If either fails, the
    /// previous one stays in effect.
    pub fn run<S: AsRef<ServerSettings>>(
        self,
        parts: &Parts<S>,
        read: impl FnMut() -> Result<S, Refusal>,
    ) -> Result<(), KeyServerError> {
        let Self { shared, server, .. } = self;
        let metrics = Arc::clone(&shared.metrics);
        let engines = Arc::clone(shared.engines());
        let pages = Pages::default().ready_unless(move || engines.trouble()).show_under_any_name(
            "/metrics",
            CONTENT_TYPE,
            move || metrics.render(),
        );
        let reloads = Reloads { shared: Arc::clone(&shared), parts, read };
        Ok(server.run(&shared, reloads, pages)?)
    }
}

/// A key server as a part of the process.
#[derive(Debug)]
pub struct KeyServerPart {
    shared: Arc<Shared>,
    /// The listeners of the configuration in force.
    listen: RefCell<Vec<ListenerSettings>>,
}

/// A key server, prepared for another configuration.
pub struct PreparedKeyServer {
    live: ActiveConfig,
    listen: Vec<ListenerSettings>,
}

impl Part for KeyServerPart {
    type Settings = KeyServerSettings;
    type Prepared = PreparedKeyServer;

    fn prepare(&self, settings: &KeyServerSettings) -> Result<PreparedKeyServer, PartError> {
        Ok(PreparedKeyServer { live: self.shared.prepare(settings)?, listen: settings.listen.clone() })
    }

    /// Puts the settings in force, for connections that are open too.
    fn commit(&self, PreparedKeyServer { live, listen }: PreparedKeyServer) {
        self.shared.live.store(Arc::new(live));
        if self.listen.replace(listen) != *self.listen.borrow() {
            tracing::warn!(key = "server.listen", "changed, but takes full effect only after a restart");
        }
    }
}

/// The reloads of the main thread.
struct Reloads<'p, S, R> {
    shared: Arc<Shared>,
    parts: &'p Parts<S>,
    read: R,
}

impl<S, R> Control for Reloads<'_, S, R>
where
    S: AsRef<ServerSettings>,
    R: FnMut() -> Result<S, Refusal>,
{
    type Settings = S;

    fn start(&mut self) {}

    fn read(&mut self) -> Result<S, Refusal> {
        (self.read)()
    }

    fn parts(&self) -> &Parts<S> {
        self.parts
    }

    fn reloaded(&self, outcome: Reload) {
        self.shared.metrics.reloaded(outcome);
    }

    fn reopen_logs(&mut self) {}

    fn each_minute(&mut self) {}

    fn end(&mut self) {}
}
