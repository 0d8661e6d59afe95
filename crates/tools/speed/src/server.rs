//! The server of the measured handshakes: an acceptor with the defaults of the gateway, on one thread, without HTTP.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use brisk_certs::{DevelopmentCa, load};
use brisk_keys::{Keystore, LocalEngine, PrivateKeyEngine};
use brisk_net::{Listener, ListenerSettings, listener};
use brisk_telemetry::Timeline;
use brisk_tls::{Acceptor, HostSettings, Resources, TlsSettings};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{LocalSet, spawn_local};

use crate::SpeedError;
use crate::measure::thread_cpu;

/// Name in the certificates of the [`Server`].
pub(crate) const NAME: &str = "localhost";

/// A request for the [`Usage`] of a [`Server`].
pub(crate) type UsageRequest = oneshot::Sender<Usage>;

/// Usage of the server so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    /// Processor time of the thread of [`Server::run`], user and system.
    pub(crate) cpu: Duration,
    /// Completed handshakes.
    pub(crate) handshakes: u64,
    /// Open connections.
    pub(crate) open: usize,
}

/// A listening server.
pub(crate) struct Server {
    acceptor: Arc<Acceptor>,
    socket: TcpListener,
    runtime: Runtime,
}

impl Server {
    /// Creates certificates with ECDSA P-256 and RSA-2048 keys, and listens on a loopback port.
    pub(crate) fn new() -> Result<Self, SpeedError> {
        let acceptor = Arc::new(acceptor()?);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let socket =
            // Without `SO_REUSEPORT`, by which another process could take a part of the connections.
            listener::bind(&ListenerSettings { reuse_port: false, ..ListenerSettings::new(address) })?;
        Ok(Self { acceptor, socket, runtime: Builder::new_current_thread().enable_all().build()? })
    }

    /// The loopback address of the socket.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves on the calling thread until all senders of `requests` are dropped.
    pub(crate) fn run(self, mut requests: mpsc::Receiver<UsageRequest>) -> io::Result<()> {
        let Self { acceptor, socket, runtime } = self;
        LocalSet::new().block_on(&runtime, async {
            let mut listener = Listener::new(socket)?;
            // Each open connection has a clone of `completed`, so its reference count yields their number.
            let completed = Rc::new(Cell::new(0));
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let (tcp, _) = accepted?;
                        spawn_local(connection(Arc::clone(&acceptor), tcp, Rc::clone(&completed)));
                    }
                    request = requests.recv() => {
                        let Some(request) = request else { return Ok(()) };
                        let open = Rc::strong_count(&completed) - 1;
                        // A requester that no longer waits does not need the reply.
                        let _ = request.send(Usage { cpu: thread_cpu(), handshakes: completed.get(), open });
                    }
                }
            }
        })
    }
}

/// Performs a handshake, sends the ticket, and waits for the end of the client.
async fn connection(acceptor: Arc<Acceptor>, tcp: TcpStream, completed: Rc<Cell<u64>>) {
    // The client reports why a handshake failed.
    let Ok(mut accepted) = acceptor.accept(tcp, Vec::new(), &mut Timeline::start()).await else { return };
    completed.set(completed.get() + 1);
    // After the count, the connection remains open until the client closes: closing is a part of the cost.
    let stream = &mut accepted.stream;
    // The client may have left without its ticket.
    let _ = poll_fn(|cx| stream.poll_drain(cx)).await;
    let _ = poll_fn(|cx| stream.poll_read(cx, <[u8]>::len)).await;
}

/// An acceptor with the defaults of the gateway, and an engine that works on the calling thread.
fn acceptor() -> Result<Acceptor, SpeedError> {
    let now = SystemTime::now();
    // Deleted at the end of this function: certificates and keys are in memory by then.
    let folder = tempfile::tempdir()?;
    let authority = DevelopmentCa::open_or_create(folder.path(), now)?;
    let mut keystore = Keystore::new();
    let mut certificates = Vec::new();
    for files in authority.servers() {
        let loaded = load(&files.chain, &files.key, &mut keystore, now)?;
        certificates.push(Arc::new(loaded.certificate));
    }
    let host = HostSettings { certificates, ..HostSettings::new([NAME]) };
    // On the serving thread, as with `offload = []`: the processor time of other threads is not measured.
    let engine: Arc<dyn PrivateKeyEngine> = Arc::new(LocalEngine::new(Arc::new(keystore)));
    host.publish(&engine);
    Ok(Acceptor::new(TlsSettings::default(), &[host], &Resources::of_process(now))?)
}
