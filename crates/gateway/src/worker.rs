//! One worker: a thread with its own runtime, listeners, upstream connections and deadlines.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use brisk_net::{AddressPermit, ConnectionPermit, DeadlineWheel, Drain, DrainGuard, Listener};
use brisk_proxy::serve::{CurrentService, HttpSettings};
use brisk_telemetry::metrics::Listening;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;
use tokio::task::spawn_local;

use crate::accept::accept;
use crate::shared::{Live, Shared, WorkerGroups};

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
    /// Lets go of connections that are idle longest: here, or, if none is, at other workers.
    pub(crate) fn make_room(&self) {
        if self.wheel.evict_idle() == 0 {
            self.shared.shortages.send_replace(());
        }
    }
}

/// A connection's share of the limits, given back when it ends.
pub(crate) struct Permits {
    pub(crate) _total: ConnectionPermit,
    /// None where the client is not counted, or not known yet.
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
) -> io::Result<thread::JoinHandle<()>> {
    let ended = move |error: io::Error| tracing::error!(%error, worker = number, "a worker ended");
    thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
        let built = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        let ran = built.and_then(|local| local.block_on(run(shared, sockets, drain, stop)));
        ran.unwrap_or_else(ended);
    })
}

async fn run(
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
    spawn_local(async move { deadlines.run().await });
    spawn_local(follow(Rc::clone(&worker), changes));
    spawn_local(help_others(Rc::clone(&worker), shortages));
    spawn_local(give_back_memory(worker.shared.program.give_back_memory));
    let mut accepting = Vec::new();
    let https = sockets.https.into_iter().map(|socket| (socket, Listening::Https));
    let http = sockets.http.into_iter().map(|socket| (socket, Listening::Http));
    for (socket, kind) in https.chain(http) {
        accepting.push(spawn_local(accept(Rc::clone(&worker), Listener::new(socket)?, kind)));
    }
    worker.drain.wait().await;
    for task in accepting {
        task.abort();
    }
    worker.wheel.wake_all();
    // Ends with an error when the sender is gone: that is the signal.
    let _gone = stop.changed().await;
    Ok(())
}

/// After a burst, its memory goes back although nothing is allocated any more.
async fn give_back_memory(give_back: fn()) {
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    loop {
        seconds.tick().await;
        give_back();
    }
}

/// Makes room when another worker has nothing to let go of.
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
