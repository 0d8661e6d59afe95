//! [`Listening`], the bound sockets, and [`Server`], which starts the workers, serves and drains.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use brisk_net::datagram::Halves;
use brisk_net::drain;
use brisk_net::listener::ListenerSettings;
use brisk_pressure::Pressure;
use brisk_supervisor::succession::Predecessor;
use brisk_supervisor::{Notifier, is_supervised};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};

use crate::ServerError;
use crate::admin::{self, Admin, Pages};
use crate::context::Shared;
use crate::control::{Announcement, Control, MainThread, Outside, Refused};
use crate::files::WatchedFiles;
use crate::metrics::ServerMetrics;
use crate::sampling::Sampling;
use crate::service::{DatagramSocket, Service};
use crate::settings::{Listen, Program, ServerSettings};
use crate::signals::Signals;
use crate::sockets::{AllBound, Bound, Sockets};
use crate::stored::Stored;
use crate::succession::Succession;
use crate::watchdog::{Watchdog, WorkerLoads};
use crate::worker::{self, Start, WorkerSockets};

/// Maximum time for the workers to end after the drain, and the pause between looks at them ([`join_all`]).
const END: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// Resources that a [`Server`] takes over from its program.
#[derive(Debug)]
pub struct Process {
    /// Functions of the program.
    pub program: Program,
    /// The sockets that were passed to the process ([`Sockets::inherited`]).
    pub sockets: Sockets,
    /// The files of [`ServerSettings::files`], watched since they were read.
    pub files: WatchedFiles,
}

/// Bound sockets before a [`Server`] has them: connections wait in their queues. A process binds them as early as possible,
/// because clients are refused before.
#[derive(Debug)]
pub struct Listening<L> {
    settings: ServerSettings,
    program: Program,
    shared: Arc<Shared>,
    bound: Vec<Bound<L>>,
    admin: Option<Bound<()>>,
    stored: Stored,
    succession: Succession,
    manager: Notifier,
    files: WatchedFiles,
}

/// A server that is completely prepared and does not serve yet.
#[derive(Debug)]
pub struct Server<L> {
    listening: Listening<L>,
    /// The runtime of the main thread.
    runtime: Runtime,
    signals: Signals,
}

impl<L: Copy + Send + 'static> Listening<L> {
    /// Binds all addresses, or takes the [`Sockets`] that were passed for them. Returns [`ServerError::Listen`] if any
    /// address cannot be bound, or if another process serves it: no server starts with a part of its listeners.
    pub fn bind(
        settings: ServerSettings,
        listeners: &[Listen<L>],
        process: Process,
    ) -> Result<Self, ServerError> {
        let Process { program, mut sockets, files } = process;
        let mut succession = mem::take(&mut sockets.succession);
        let manager = succession.manager();
        let sockets_per_worker = listeners.iter().map(|own| 1 + 2 * usize::from(own.datagrams)).sum();
        let shared = Arc::new(Shared::new(&settings, sockets_per_worker, program));
        let admin = settings.admin.map(ListenerSettings::new);
        let AllBound { listeners: bound, admin, stored } =
            sockets.bind_all(listeners, admin.as_ref(), (settings.workers.get(), manager.stores()))?;
        Ok(Self { settings, program, shared, bound, admin, stored, succession, manager, files })
    }

    /// Load of the workers that will serve the sockets: [`WorkerLoad`](crate::WorkerLoad).
    pub fn loads(&self) -> WorkerLoads {
        WorkerLoads(Arc::clone(&self.shared.pulse))
    }

    /// The overload of the process, measured while the server runs.
    pub fn pressure(&self) -> Arc<Pressure> {
        Arc::clone(&self.shared.pressure)
    }
}

impl<L: Copy + Send + 'static> Server<L> {
    /// A server with the sockets of `listening`, after everything else that can fail or take long.
    ///
    /// Signals are caught from here on: a signal that arrives right after the start was reported is not lost and does
    /// not kill the process. Before, a signal ends the process.
    pub fn new(listening: Listening<L>) -> Result<Self, ServerError> {
        let runtime = Builder::new_current_thread().enable_all().build().map_err(ServerError::Threads)?;
        let signals = runtime.block_on(async { Signals::catch() })?;
        Ok(Self { listening, runtime, signals })
    }

    /// The addresses of the service's listeners, with the ports that the system chose for port 0.
    pub fn addresses(&self) -> impl Iterator<Item = (L, SocketAddr)> {
        self.listening.bound.iter().map(|bound| (bound.kind, bound.address))
    }

    /// The address of the admin listener; `None` without `admin.listen`.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.listening.admin.as_ref().map(|bound| bound.address)
    }

    /// The generation that serves while this process starts, whose state this process can continue; `None` if there is none. A
    /// second call returns `None`.
    pub fn predecessor(&mut self) -> Option<Predecessor> {
        self.listening.succession.predecessor.take()
    }

    /// [`ServerMetrics`] of this server.
    pub fn metrics(&self) -> ServerMetrics {
        let Listening { shared, program, .. } = &self.listening;
        ServerMetrics { pulse: Arc::clone(&shared.pulse), dropped_log_lines: program.dropped_log_lines }
    }

    /// Serves until `SIGTERM` or `SIGINT` and the end of the drain. Reloads on `SIGHUP` and when a file of
    /// [`ServerSettings::files`] has changed; if that fails, the old settings stay in force. Returns
    /// [`ServerError::Worker`] without a drain if a worker fails.
    ///
    /// Before it accepts, all workers are prepared, the sockets are stored, [`Halves::take_over`] directs new connections over QUIC
    /// to this process, and the service manager gets `READY=1`. [`Control::announcement`] is called then: a client that connects
    /// right after the start was reported reaches no other process.
    pub fn run<S>(self, service: &Arc<S>, mut control: impl Control, pages: Pages) -> Result<(), ServerError>
    where
        S: Service<Listener = L>,
    {
        let Self { listening, runtime, signals } = self;
        let Listening { settings, program, shared, bound, admin, stored, succession, manager, files } =
            listening;
        let (trigger, drain) = drain::channel();
        let (stop, stopped) = watch::channel(());
        let (gate, opened) = watch::channel(false);
        // Unbounded without risk: each worker sends at most one message over each.
        let (failed, mut failures) = mpsc::unbounded_channel();
        let (prepared, mut preparations) = mpsc::unbounded_channel();
        let pulse = Arc::clone(&shared.pulse);
        let watchdog = Watchdog::new(Arc::clone(&pulse), settings.workers.get(), &bound)
            .map_err(ServerError::Threads)?;
        let sampling = Sampling::new(Arc::clone(&shared));
        let start =
            Start { shared, drain: drain.clone(), stop: stopped, failures: failed, prepared, gate: opened };
        // Kept until the end, so that the sockets of both processes keep their places.
        let (sockets, halves) = of_workers(bound, settings.workers.get());
        let workers = start_workers(service, sockets, start)?;
        let halves: Rc<[_]> = halves.into();
        let served = runtime.block_on(async {
            for _ in 0..workers.len() {
                tokio::select! {
                    Some(()) = preparations.recv() => {}
                    Some(failure) = failures.recv() => return Err(failure),
                    else => break,
                }
            }
            let successors = succession.serve().map_err(ServerError::Threads)?;
            report(&halves, &stored, &manager)?;
            stored.resume();
            // The copies would keep the ports open during the drain.
            drop(stored);
            // Only now, since a predecessor serves the same sockets until the report.
            gate.send_replace(true);
            announce(control.announcement(), manager.is_managed())?;
            let page = Admin::new(pages, drain, pulse);
            let exit = Arc::clone(page.exit());
            let admin = admin.into_iter().flat_map(|bound| bound.sockets).flatten();
            let admin = admin.map(|socket| tokio::spawn(admin::serve(page.clone(), socket)).abort_handle());
            let admin = admin.collect();
            let (refused, halves) = (Refused::default(), Rc::clone(&halves));
            let outside = Outside { manager, successors, halves, admin, exit };
            let main = MainThread {
                control,
                settings,
                files,
                signals,
                watchdog,
                sampling,
                failures,
                dropped_log_lines: program.dropped_log_lines,
                refused,
                outside,
            };
            main.run(&trigger).await
        });
        if served.is_err() {
            // No drain went before: the other workers end as after one, at once.
            trigger.cut();
            trigger.start();
        }
        // Workers end when the senders are dropped.
        drop((stop, gate));
        join_all(workers, END);
        // A blocking task of the main thread, such as the look-up of a name, must not hold up the end.
        runtime.shutdown_background();
        served
    }
}

#[expect(clippy::needless_pass_by_value, reason = "its senders are dropped when each worker has its own")]
fn start_workers<S: Service>(
    service: &Arc<S>,
    sockets: Vec<WorkerSockets<S::Listener>>,
    start: Start,
) -> Result<Vec<JoinHandle<()>>, ServerError> {
    let start = |(number, sockets)| {
        worker::start(number, Arc::clone(service), sockets, start.clone()).map_err(ServerError::Threads)
    };
    sockets.into_iter().enumerate().map(start).collect()
}

/// Calls [`Stored::pass_to`], [`Halves::take_over`] and [`Notifier::ready`].
fn report(halves: &[Halves], stored: &Stored, manager: &Notifier) -> Result<(), ServerError> {
    required(stored.pass_to(manager))?;
    // From here on clients of QUIC reach this process. If the report fails, the process ends, and
    // the supervisor makes the predecessor take over again.
    halves.iter().try_for_each(Halves::take_over).map_err(ServerError::Report)?;
    required(manager.ready("serves"))
}

/// Makes the [`Announcement`]. With a service manager, the predecessor has been stopped already: standard output that is closed
/// must not end its successor, and standard output that is not read must not hold up the main thread.
fn announce(announcement: Option<Announcement>, is_managed: bool) -> Result<(), ServerError> {
    let Some(announcement) = announcement else { return Ok(()) };
    if !is_managed {
        return announcement().map_err(ServerError::Report);
    }
    let warn = |error: io::Error| tracing::warn!(%error, "the addresses are not reported");
    let start = move || announcement().unwrap_or_else(warn);
    if let Err(error) = thread::Builder::new().name("start".to_owned()).spawn(start) {
        warn(error);
    }
    Ok(())
}

/// A report, without which a supervisor would kill this process. Any other service manager is not a reason to refuse service.
fn required(report: io::Result<()>) -> Result<(), ServerError> {
    match report {
        Err(error) if !is_supervised() => {
            tracing::warn!(%error, "the service manager of NOTIFY_SOCKET gets no report");
            Ok(())
        }
        sent => sent.map_err(ServerError::Report),
    }
}

/// The sockets of each worker. Datagram sockets go to the workers in turns: with one for each worker, the index of the
/// socket is the number of the worker.
fn of_workers<L: Copy>(bound: Vec<Bound<L>>, workers: usize) -> (Vec<WorkerSockets<L>>, Vec<Halves>) {
    let none = |_| WorkerSockets { streams: Vec::new(), datagrams: Vec::new() };
    let mut all: Vec<_> = (0..workers).map(none).collect();
    let mut kept = Vec::new();
    for Bound { kind, address, sockets, datagrams, halves, .. } in bound {
        let half = halves.as_ref().and_then(Halves::half);
        kept.extend(halves);
        for (worker, sockets) in all.iter_mut().zip(sockets) {
            worker.streams.extend(sockets.into_iter().map(|socket| (kind, socket)));
        }
        let group = datagrams.len();
        for (index, socket) in datagrams.into_iter().enumerate() {
            let socket = DatagramSocket { socket, index, group, half, local: address, listener: kind };
            all[index % workers].datagrams.push(socket);
        }
    }
    (all, kept)
}

/// Waits for the end of all `workers`, at most for `limit`: a worker in an endless loop, or one that waits for a file system that
/// does not respond, must not keep the process.
fn join_all(workers: Vec<JoinHandle<()>>, limit: Duration) {
    let deadline = Instant::now() + limit;
    for worker in workers {
        while !worker.is_finished() && Instant::now() < deadline {
            thread::sleep(PAUSE);
        }
        if !worker.is_finished() {
            let name = worker.thread().name();
            tracing::error!(name, "a worker does not end: the process ends without it");
        } else if worker.join().is_err() {
            tracing::error!("a worker had panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use brisk_telemetry::metrics::Reload;

    use super::*;
    use crate::control::Refusal;
    use crate::part::Parts;
    use crate::testing::{ANY, Closing, PROGRAM, settings};

    /// Does nothing.
    struct Idle(Parts<Unchanged>);

    struct Unchanged(ServerSettings);

    impl AsRef<ServerSettings> for Unchanged {
        fn as_ref(&self) -> &ServerSettings {
            &self.0
        }
    }

    impl Control for Idle {
        type Settings = Unchanged;

        fn start(&mut self) {}

        fn read(&mut self) -> Result<Unchanged, Refusal> {
            Err(Refusal { message: "there is nothing to read".to_owned(), files: Vec::new() })
        }

        fn parts(&self) -> &Parts<Unchanged> {
            &self.0
        }

        fn reloaded(&self, _outcome: Reload) {}

        fn reopen_logs(&mut self) {}

        fn each_minute(&mut self) {}

        fn end(&mut self) {}
    }

    #[test]
    fn a_worker_that_does_not_end_is_left_after_the_limit() {
        let (release, released) = channel::<()>();
        let stuck = thread::spawn(move || {
            let _ = released.recv();
        });
        join_all(vec![stuck, thread::spawn(|| panic!("as a bug would"))], Duration::from_millis(20));
        drop(release);
    }

    #[test]
    fn a_report_of_the_start_that_blocks_or_fails_does_not_hold_up_a_managed_server() {
        let (release, released) = channel::<()>();
        let blocked: Announcement = Box::new(move || {
            let _ = released.recv();
            Ok(())
        });
        announce(Some(blocked), true).expect("no error");
        drop(release);
        let broken = || -> Announcement { Box::new(|| Err(io::Error::from(io::ErrorKind::BrokenPipe))) };
        announce(Some(broken()), true).expect("a warning");
        announce(Some(broken()), false).expect_err("standard output is the only report");
    }

    #[test]
    fn a_worker_that_fails_ends_the_server_whatever_the_others_do() {
        let listen =
            Listen { kind: (), name: "test", settings: ListenerSettings::new(ANY), datagrams: false };
        let files = WatchedFiles::start(&[]);
        let process = Process { program: PROGRAM, sockets: Sockets::default(), files };
        let listening = Listening::bind(settings(3, 10), &[listen], process).expect("sockets");
        let server = Server::new(listening).expect("a server");
        let ended = server.run(&Arc::new(Closing { broken: Some(1) }), Idle(Parts::new()), Pages::default());
        assert!(matches!(ended, Err(ServerError::Worker { number: 1, .. })), "{ended:?}");
    }
}
