//! One worker: a thread with its own runtime, listeners, upstream connections and deadlines.

use std::cell::RefCell;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use brisk_net::{AddressPermit, ConnectionPermit, DeadlineWheel, Drain, DrainGuard, Listener};
use brisk_proxy::serve::{CurrentService, HttpSettings};
use brisk_telemetry::metrics::Refusal;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;
use tokio::task::spawn_local;

use crate::connection::serve_https;
use crate::redirect::serve_http;
use crate::shared::{Live, Shared};

/// What the tasks of a worker share.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) service: Rc<CurrentService>,
    pub(crate) http: RefCell<Rc<HttpSettings>>,
    pub(crate) wheel: DeadlineWheel,
    pub(crate) drain: Drain,
}

/// A connection's share of the limits, given back when it ends.
pub(crate) struct Permits {
    _total: ConnectionPermit,
    /// None where the client is not counted, or not known yet.
    pub(crate) client: Option<AddressPermit>,
    /// From its acceptance on: a drain waits for handshakes too.
    _drain: DrainGuard,
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
    let wheel = DeadlineWheel::new();
    let live = shared.live.load_full();
    let worker = Rc::new(Worker {
        service: CurrentService::new(live.service(&shared, &wheel).map_err(io::Error::other)?),
        http: RefCell::new(Rc::new(live.http.clone())),
        shared,
        wheel,
        drain,
    });
    let deadlines = worker.wheel.clone();
    spawn_local(async move { deadlines.run().await });
    spawn_local(follow(Rc::clone(&worker), changes));
    spawn_local(give_back_memory(worker.shared.program.give_back_memory));
    let mut accepting = Vec::new();
    for socket in sockets.https {
        accepting.push(spawn_local(told(accept_https(Rc::clone(&worker), Listener::new(socket)?))));
    }
    for socket in sockets.http {
        accepting.push(spawn_local(told(accept_http(Rc::clone(&worker), Listener::new(socket)?))));
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

/// Takes over each new configuration.
async fn follow(worker: Rc<Worker>, mut changes: watch::Receiver<()>) {
    while changes.changed().await.is_ok() {
        let live: Arc<Live> = worker.shared.live.load_full();
        match live.service(&worker.shared, &worker.wheel) {
            Ok(service) => worker.service.replace(service),
            Err(error) => tracing::error!(%error, "a worker keeps its old routes"),
        }
        worker.http.replace(Rc::new(live.http.clone()));
    }
}

/// Accepting ends only with an error of the socket itself.
async fn told(accepting: impl Future<Output = io::Result<()>>) {
    if let Err(error) = accepting.await {
        tracing::error!(%error, "a listener broke: its worker accepts nothing more on it");
    }
}

async fn accept_https(worker: Rc<Worker>, mut listener: Listener) -> io::Result<()> {
    let local = listener.local_address()?;
    loop {
        let (tcp, peer) = listener.accept().await?;
        if let Ok(permits) = admit(&worker, peer) {
            spawn_local(serve_https(Rc::clone(&worker), tcp, peer, local, permits));
        }
    }
}

async fn accept_http(worker: Rc<Worker>, mut listener: Listener) -> io::Result<()> {
    let local = listener.local_address()?;
    loop {
        let (tcp, peer) = listener.accept().await?;
        if let Ok(permits) = admit(&worker, peer) {
            spawn_local(serve_http(Rc::clone(&worker), tcp, peer, local, permits));
        }
    }
}

/// Limits refuse before any work is done. A connection with a PROXY header is its client's only when that is read.
fn admit(worker: &Worker, peer: SocketAddr) -> Result<Permits, Refusal> {
    let shared = &worker.shared;
    let Some(total) = shared.connections.try_acquire() else {
        shared.metrics.connection_refused(Refusal::Limit);
        return Err(Refusal::Limit);
    };
    let mut permits = Permits { _total: total, client: None, _drain: worker.drain.guard() };
    let live = shared.live.load();
    if !live.proxy_protocol.expected_from(peer.ip()) {
        permits.count_client(shared, &live, peer.ip())?;
    }
    Ok(permits)
}
