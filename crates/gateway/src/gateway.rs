//! A gateway as a whole: binds, starts the workers, reloads, drains.

use std::fmt::Display;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use brisk_certs::FileWatch;
use brisk_keys::Engines;
use brisk_net::drain::{self, Drain, DrainTrigger};
use brisk_net::listener::ListenerSettings;
use brisk_telemetry::Metrics;
use brisk_telemetry::metrics::Reload;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use crate::GatewayError;
use crate::admin::{self, Admin};
use crate::listen::{self, Addresses};
use crate::settings::GatewaySettings;
use crate::shared::Shared;
use crate::upstreams::HealthChecks;
use crate::watchdog::{BEAT, Watchdog};
use crate::worker::{self, Sockets};

/// Time without further changes after which changed files are reloaded: a certificate and its key change together.
const QUIET: Duration = Duration::from_millis(500);

/// Interval at which expired ticket keys and sessions are wiped.
const MINUTE: Duration = Duration::from_mins(1);

/// Interval at which the program's own log is checked for dropped lines.
const LOG_CHECK: Duration = Duration::from_secs(10);

/// Functions of the program that the gateway runs in.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Called by each worker once a second. Returns to the system what the allocator keeps after a burst.
    pub give_back_memory: fn(),
    /// The number of dropped lines of the program's own log so far.
    pub dropped_log_lines: fn() -> u64,
}

/// What the composing program gives a gateway for its whole life. No reload changes it.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Functions of the program.
    pub program: Program,
    /// The engines that perform operations with the private keys of hosts.
    pub engines: Arc<dyn Engines>,
    /// The metrics of the process, shared with the engines.
    pub metrics: Arc<Metrics>,
}

/// A gateway that has everything it needs and serves nothing yet.
#[derive(Debug)]
pub struct Gateway {
    settings: GatewaySettings,
    shared: Arc<Shared>,
    sockets: Vec<Sockets>,
    admin: Option<TcpListener>,
    addresses: Addresses,
    files: Option<FileWatch>,
    /// The runtime of the main thread.
    runtime: Runtime,
    signals: Signals,
}

impl Gateway {
    /// Binds all addresses and prepares keys, sessions and logs. Errors are reported here, before anything is served.
    ///
    /// Signals are caught from here on. One that arrives right after the program has reported its start is not lost,
    /// and does not end the process.
    pub fn bind(settings: GatewaySettings, environment: Environment) -> Result<Self, GatewayError> {
        let files = watch_files(&settings);
        let shared = Shared::new(&settings, environment)?;
        let (sockets, mut addresses) = listen::bind_all(&settings)?;
        let admin = settings.admin.map(|address| listen::bind_one(&ListenerSettings::new(address)));
        let admin = admin.transpose()?;
        addresses.admin = admin.as_ref().map(|(address, _)| *address);
        if addresses.admin.is_some_and(|address| !address.ip().is_loopback()) {
            tracing::warn!(
                "the admin listener is not on loopback: its clients can read the metrics and rotate ticket keys"
            );
        }
        let runtime = Builder::new_current_thread().enable_all().build().map_err(GatewayError::Threads)?;
        let signals = runtime.block_on(async { Signals::new() })?;
        let admin = admin.map(|(_, socket)| socket);
        Ok(Self { settings, shared, sockets, admin, addresses, files, runtime, signals })
    }

    /// The addresses that it listens on.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Serves until SIGTERM or SIGINT and the end of the drain. `read` is called for new settings on SIGHUP and when
    /// one of their files has changed; if it fails, the old ones stay in force.
    pub fn run<E: Display>(
        self,
        read: impl FnMut() -> Result<GatewaySettings, E>,
    ) -> Result<(), GatewayError> {
        let (trigger, drain) = drain::channel();
        let (stop, stopped) = watch::channel(());
        let mut workers = Vec::with_capacity(self.sockets.len());
        let pulse = Arc::clone(&self.shared.pulse);
        let watchdog = Watchdog::new(pulse, &self.settings, &self.sockets).map_err(GatewayError::Threads)?;
        let (failed, failures) = mpsc::unbounded_channel();
        for (number, sockets) in self.sockets.into_iter().enumerate() {
            let (shared, failed) = (Arc::clone(&self.shared), failed.clone());
            let started = worker::start(number, shared, sockets, drain.clone(), stopped.clone(), failed);
            workers.push(started.map_err(GatewayError::Threads)?);
        }
        let (shared, settings, files, signals) = (self.shared, self.settings, self.files, self.signals);
        let control = Control { shared, settings, files, read, watchdog, failures, signals };
        let served = self.runtime.block_on(control.run(self.admin, &trigger, drain));
        drop(stop);
        workers.into_iter().for_each(join);
        served
    }
}

fn join(worker: JoinHandle<()>) {
    if worker.join().is_err() {
        tracing::error!("a worker had panicked");
    }
}

/// The main thread's part: signals, reloads, health checks, the admin listener.
struct Control<R> {
    shared: Arc<Shared>,
    settings: GatewaySettings,
    files: Option<FileWatch>,
    read: R,
    watchdog: Watchdog,
    failures: UnboundedReceiver<GatewayError>,
    signals: Signals,
}

impl<R, E> Control<R>
where
    R: FnMut() -> Result<GatewaySettings, E>,
    E: Display,
{
    async fn run(
        mut self,
        admin: Option<TcpListener>,
        trigger: &DrainTrigger,
        drain: Drain,
    ) -> Result<(), GatewayError> {
        if let Some(socket) = admin {
            let (metrics, keyring) = (&self.shared.metrics, self.shared.resumption.keyring());
            let (metrics, keyring) = (Arc::clone(metrics), Arc::clone(keyring));
            let admin = Admin { metrics, keyring, drain, pulse: Arc::clone(&self.shared.pulse) };
            tokio::spawn(admin::serve(admin, socket));
        }
        let mut checks = HealthChecks::default();
        checks.follow(&self.shared);
        let mut minute = tokio::time::interval(MINUTE);
        let mut log_check = tokio::time::interval(LOG_CHECK);
        let mut dropped = 0;
        let mut beats = tokio::time::interval(BEAT);
        // A process that was held up as a whole has no beats to make up for.
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = minute.tick() => self.shared.resumption.age(),
                _ = log_check.tick() => dropped = self.report_dropped_lines(dropped),
                _ = beats.tick() => self.watchdog.look(),
                Some(failure) = self.failures.recv() => return Err(failure),
                action = self.signals.next() => match action {
                    SignalAction::Stop => break,
                    SignalAction::Reload => {
                        self.reload("SIGHUP");
                        checks.follow(&self.shared);
                    }
                    SignalAction::ReopenLog => self.reopen_log(),
                },
                () = changed(self.files.as_mut()) => {
                    self.reload("changed files");
                    checks.follow(&self.shared);
                }
            }
        }
        drop(checks);
        self.watchdog.end();
        self.drain(trigger).await;
        Ok(())
    }

    fn reload(&mut self, why: &'static str) {
        // Watched from before the files are read: if they are refused, they are not read again before they change.
        let watch = watch_files(&self.settings);
        let result = (self.read)().map_err(|error| error.to_string()).and_then(|settings| {
            // Watched from before the settings are applied, so that no change is missed.
            let files = watch_files(&settings);
            self.shared.apply(&settings).map_err(|error| error.to_string())?;
            Ok((settings, files))
        });
        match result {
            Ok((settings, files)) => {
                self.warn_unchangeable(&settings);
                self.settings = settings;
                self.files = files;
                self.shared.metrics.reloaded(Reload::Applied);
                tracing::info!(why, "reloaded: new connections and requests go by the new configuration");
            }
            Err(error) => {
                self.files = watch.or(self.files.take());
                self.shared.metrics.reloaded(Reload::Refused);
                tracing::error!(why, "not reloaded, the old configuration stays in force: {error}");
            }
        }
    }

    /// Warns of changed settings that only a restart applies.
    fn warn_unchangeable(&self, new: &GatewaySettings) {
        let old = &self.settings;
        let changed = [
            ("server.workers", old.workers != new.workers),
            ("server.https, http, backlog or fast_open", old.https != new.https || old.http != new.http),
            ("server.max_connections or max_connections_per_client", old.connections != new.connections),
            ("tls.session_cache", old.sessions.memory != new.sessions.memory),
            (
                "sessions.redis, or the secret that seals what is in it",
                old.sessions.fleet != new.sessions.fleet,
            ),
            ("admin.listen", old.admin != new.admin),
        ];
        for (key, _) in changed.into_iter().filter(|(_, changed)| *changed) {
            tracing::warn!(key, "changed, but takes full effect only after a restart");
        }
    }

    /// Warns if more lines of the program's log were dropped than `before`. Returns the number dropped so far.
    fn report_dropped_lines(&self, before: u64) -> u64 {
        let dropped = (self.shared.program.dropped_log_lines)();
        if dropped > before {
            tracing::warn!(dropped, "log lines were dropped: standard error is not read fast enough");
        }
        // Counted again: the warning itself may have been dropped, which needs no further warning.
        (self.shared.program.dropped_log_lines)()
    }

    fn reopen_log(&self) {
        if let Some(log) = self.shared.access_log.load().as_ref() {
            log.reopen();
        }
    }

    async fn drain(&mut self, trigger: &DrainTrigger) {
        trigger.start();
        let limit = self.settings.drain_timeout;
        tracing::info!(
            ?limit,
            open = trigger.open(),
            "draining: no new connections, running requests finish"
        );
        tokio::select! {
            left = trigger.finished(limit) => match left {
                0 => return tracing::info!("drained"),
                left => tracing::warn!(left, "the drain took too long: connections are cut"),
            },
            () = self.signals.stopped() => {
                tracing::warn!(left = trigger.open(), "second signal to stop: connections are cut");
            }
        }
        trigger.cut();
    }
}

/// Without a watch (no more inotify instances, say) SIGHUP still reloads.
fn watch_files(settings: &GatewaySettings) -> Option<FileWatch> {
    if settings.files.is_empty() {
        return None;
    }
    FileWatch::start(settings.files.clone(), QUIET)
        .inspect_err(|error| tracing::warn!(%error, "changed files are not noticed; SIGHUP still reloads"))
        .ok()
}

/// Completes when a watched file has changed; never without a watch, or when the watch has ended.
async fn changed(files: Option<&mut FileWatch>) {
    if let Some(files) = files
        && files.changed().await.is_some()
    {
        return;
    }
    std::future::pending::<()>().await;
}

#[derive(Debug)]
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    reopen: Signal,
}

impl Signals {
    fn new() -> Result<Self, GatewayError> {
        let listen = |kind| signal(kind).map_err(GatewayError::Signals);
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
            hangup: listen(SignalKind::hangup())?,
            reopen: listen(SignalKind::user_defined1())?,
        })
    }

    async fn next(&mut self) -> SignalAction {
        tokio::select! {
            _ = self.terminate.recv() => SignalAction::Stop,
            _ = self.interrupt.recv() => SignalAction::Stop,
            _ = self.hangup.recv() => SignalAction::Reload,
            _ = self.reopen.recv() => SignalAction::ReopenLog,
        }
    }

    async fn stopped(&mut self) {
        while !matches!(self.next().await, SignalAction::Stop) {}
    }
}

/// The action that a signal requests.
enum SignalAction {
    Stop,
    Reload,
    ReopenLog,
}
