//! One worker: a thread with its own runtime, listeners, upstream connections and deadlines.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::TcpListener;
use std::panic::{self, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;

use brisk_net::{AddressPermit, ConnectionPermit, DeadlineWheel, Drain, DrainGuard, Listener};
use brisk_proxy::client::{CurrentService, HttpSettings};
use brisk_telemetry::metrics::Listening;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::GatewayError;
use crate::accept::accept;
use crate::shared::{Live, Shared};
use crate::upstreams::WorkerGroups;
use crate::watchdog::BEAT;

/// Turns of connections between two looks at the sockets. A turn with a long answer takes 0.3 ms, so tokio's 61 would leave
/// a new request unseen for 20 ms while many such answers are under way; looking costs a system call.
const TURNS: u32 = 8;

/// Threads of a worker for files that are not in memory and for names of upstreams. Each takes up to 1 MiB, and a client can
/// ask for many files at once; tokio's 512 would be half a GiB.
const FILE_THREADS: usize = 16;

const PANICKED: &str = "it panicked, as the log says";

/// What the tasks of a worker share.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) service: Rc<CurrentService>,
    pub(crate) groups: WorkerGroups,
    pub(crate) http: RefCell<Rc<HttpSettings>>,
    pub(crate) wheel: DeadlineWheel,
    pub(crate) drain: Drain,
    /// Connections that wait for a place.
    pub(crate) waiting: Cell<usize>,
}

impl Worker {
    /// Closes the connections that are idle longest: of this worker or, if it has none, of others.
    pub(crate) fn make_room(&self) {
        if self.wheel.evict_idle() == 0 {
            self.shared.shortages.send_replace(());
        }
    }
}

/// A connection's share of the limits, given back when it ends.
pub(crate) struct Permits {
    pub(crate) _total: ConnectionPermit,
    /// `None` if the client is not counted, or not known yet.
    pub(crate) counted: Option<AddressPermit>,
    /// From its acceptance on: a drain waits for handshakes too.
    pub(crate) _drain: DrainGuard,
}

/// The sockets of one worker.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    pub(crate) https: Vec<TcpListener>,
    pub(crate) http: Vec<TcpListener>,
}

/// Starts a worker. It ends when `stop` is dropped.
pub(crate) fn start(
    number: usize,
    shared: Arc<Shared>,
    sockets: Sockets,
    drain: Drain,
    stop: watch::Receiver<()>,
    failures: UnboundedSender<GatewayError>,
) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
        let serve = || {
            let built = Builder::new_current_thread()
                .enable_all()
                .event_interval(TURNS)
                .max_blocking_threads(FILE_THREADS)
                .build_local(LocalOptions::default());
            built.and_then(|local| local.block_on(run(number, shared, sockets, drain, stop)))
        };
        let ended = panic::catch_unwind(AssertUnwindSafe(serve));
        let reason = match ended {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => PANICKED.to_owned(),
        };
        // An error: the process ends already.
        let _ = failures.send(GatewayError::Worker { number, reason });
    })
}

async fn run(
    number: usize,
    shared: Arc<Shared>,
    sockets: Sockets,
    drain: Drain,
    mut stop: watch::Receiver<()>,
) -> io::Result<()> {
    // From before the configuration is read, so that no change of it is missed.
    let changes = shared.changes.subscribe();
    let shortages = shared.shortages.subscribe();
    let wheel = DeadlineWheel::new();
    let live = shared.live.load_full();
    let groups = WorkerGroups::new(&wheel);
    let worker = Rc::new(Worker {
        service: CurrentService::new(live.service(&shared, &groups).map_err(io::Error::other)?),
        groups,
        http: RefCell::new(Rc::new(live.http.clone())),
        shared,
        wheel,
        drain,
        waiting: Cell::new(0),
    });
    let deadlines = worker.wheel.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn_local(async move { deadlines.run().await });
    tasks.spawn_local(follow(Rc::clone(&worker), changes));
    tasks.spawn_local(help_others(Rc::clone(&worker), shortages));
    tasks.spawn_local(each_second(Rc::clone(&worker), number));
    let mut accepting = JoinSet::new();
    let https = sockets.https.into_iter().map(|socket| (socket, Listening::Https));
    let http = sockets.http.into_iter().map(|socket| (socket, Listening::Http));
    for (socket, kind) in https.chain(http) {
        accepting.spawn_local(accept(Rc::clone(&worker), Listener::new(socket)?, kind));
    }
    tokio::select! {
        () = worker.drain.wait() => {}
        failed = panicked(&mut accepting) => return Err(failed),
        failed = panicked(&mut tasks) => return Err(failed),
    }
    drop(accepting);
    worker.wheel.wake_all();
    tokio::select! {
        // Ends with an error when the sender is gone: that is the signal.
        _gone = stop.changed() => Ok(()),
        failed = panicked(&mut tasks) => Err(failed),
    }
}

/// Waits until one of these tasks panics: without it the worker would seem to live and not serve. The log has the panic.
async fn panicked(tasks: &mut JoinSet<()>) -> io::Error {
    while let Some(ended) = tasks.join_next().await {
        if ended.is_err_and(|error| error.is_panic()) {
            return io::Error::other(PANICKED);
        }
    }
    std::future::pending().await
}

/// Shows that the worker turns. And after a burst its memory goes back, although nothing is allocated any more.
async fn each_second(worker: Rc<Worker>, number: usize) {
    let mut seconds = tokio::time::interval(BEAT);
    loop {
        seconds.tick().await;
        worker.shared.pulse.beat(number);
        (worker.shared.program.give_back_memory)();
    }
}

/// Closes idle connections when another worker needs places and has none to close.
async fn help_others(worker: Rc<Worker>, mut shortages: watch::Receiver<()>) {
    while shortages.changed().await.is_ok() {
        worker.wheel.evict_idle();
    }
}

/// Takes over each new configuration.
async fn follow(worker: Rc<Worker>, mut changes: watch::Receiver<()>) {
    while changes.changed().await.is_ok() {
        let live: Arc<Live> = worker.shared.live.load_full();
        match live.service(&worker.shared, &worker.groups) {
            Ok(service) => worker.service.replace(service),
            Err(error) => tracing::error!(%error, "a worker keeps its old routes"),
        }
        worker.http.replace(Rc::new(live.http.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_noticed_and_one_that_ends_is_not() {
        let mut tasks = JoinSet::new();
        tasks.spawn(async {});
        tasks.spawn(async {
            tokio::task::yield_now().await;
            panic!("as a bug would");
        });
        let failed = panicked(&mut tasks).await;
        assert_eq!(failed.to_string(), PANICKED);
    }
}
