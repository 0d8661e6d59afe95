//! A complete key server: bind, serve, reload, drain.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;

use brisk_server::{Control, Listen, Pages, Process, Server};
use brisk_telemetry::metrics::{CONTENT_TYPE, Reload};

use crate::KeyServerError;
use crate::metrics::KeyServerMetrics;
pub use crate::service::Environment;
use crate::service::Shared;
use crate::settings::KeyServerSettings;

/// A key server that is bound but does not serve yet.
#[derive(Debug)]
pub struct KeyServer {
    settings: KeyServerSettings,
    shared: Arc<Shared>,
    server: Server<()>,
}

impl KeyServer {
    /// Binds all addresses and reads the certificates.
    ///
    /// # Errors
    ///
    /// [`KeyServerError`], before anything is served.
    pub fn bind(
        settings: KeyServerSettings,
        process: Process,
        environment: Environment,
    ) -> Result<Self, KeyServerError> {
        let shared = Shared::new(&settings, environment)?;
        let listen = |settings: &brisk_net::ListenerSettings| Listen {
            kind: (),
            name: "keyserver",
            settings: settings.clone(),
        };
        let listeners: Vec<_> = settings.listen.iter().map(listen).collect();
        let server = Server::bind(settings.server.clone(), &listeners, process)?;
        shared.metrics.register(server.metrics());
        shared.metrics.register(KeyServerMetrics(Arc::clone(&shared.figures)));
        Ok(Self { settings, shared, server })
    }

    /// The bound addresses, with the ports that the system chose for port 0.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.server.addresses().map(|((), address)| address)
    }

    /// The address of the admin listener.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.server.admin_address()
    }

    /// Serves until `SIGTERM` or `SIGINT` and the end of the drain. `read` is called on `SIGHUP` and after a change of a
    /// watched file; if it fails, the previous settings stay in effect.
    pub fn run<E: Display>(
        self,
        read: impl FnMut() -> Result<KeyServerSettings, E>,
    ) -> Result<(), KeyServerError> {
        let Self { settings, shared, server } = self;
        let metrics = Arc::clone(&shared.metrics);
        let engines = Arc::clone(shared.engines());
        let pages = Pages::default().ready_unless(move || engines.trouble()).show_under_any_name(
            "/metrics",
            CONTENT_TYPE,
            move || metrics.render(),
        );
        let reloads = Reloads { shared: Arc::clone(&shared), settings, read };
        Ok(server.run(&shared, reloads, pages)?)
    }
}

/// Reloads, on the main thread.
struct Reloads<R> {
    shared: Arc<Shared>,
    settings: KeyServerSettings,
    read: R,
}

impl<R, E> Control for Reloads<R>
where
    R: FnMut() -> Result<KeyServerSettings, E>,
    E: Display,
{
    type Settings = KeyServerSettings;

    fn start(&mut self) {}

    fn read(&mut self) -> Result<KeyServerSettings, String> {
        (self.read)().map_err(|error| error.to_string())
    }

    fn apply(&mut self, settings: KeyServerSettings) -> Result<(), String> {
        self.shared.apply(&settings).map_err(|error| error.to_string())?;
        if self.settings.listen != settings.listen {
            tracing::warn!(key = "server.listen", "changed, but takes full effect only after a restart");
        }
        self.settings = settings;
        Ok(())
    }

    fn reloaded(&self, outcome: Reload) {
        self.shared.metrics.reloaded(outcome);
    }

    fn reopen_logs(&mut self) {}

    fn each_minute(&mut self) {}
}
