//! The dashboard's thread: listener, TLS, connections, and replacement of settings on reload.

use std::convert::Infallible;
use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use aws_lc_rs::digest;
use brisk_net::{Listener, SilentLimit, SilentPermit};
use brisk_tls::internal::{InternalAcceptor, InternalSettings};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::watch;
use tokio::task::spawn_local;
use tokio::time::{MissedTickBehavior, interval, timeout};
use zeroize::Zeroizing;

use crate::board::Board;
use crate::error::DashboardError;
use crate::pages;
use crate::settings::DashboardSettings;
use crate::socket;
use crate::sources::Sources;
use crate::token::TokenVerifier;

/// Maximum number of connections, in total and per client address, so that one client cannot exclude operators.
const CONNECTIONS: usize = 256;
const CONNECTIONS_OF_ONE: usize = 64;

/// File descriptors reserved for the dashboard, so that it works when the process has no others left.
const SPARE_DESCRIPTORS: usize = 4;

/// Timeouts of a handshake and of a request head.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
const HEAD_LIMIT: Duration = Duration::from_secs(5);

/// Timeout of the kernel (`TCP_USER_TIMEOUT`) for a client that does not acknowledge data.
const UNREAD_LIMIT: Duration = Duration::from_secs(20);

/// Interval of samples.
const SECOND: Duration = Duration::from_secs(1);

/// A running dashboard, which ends when the `Dashboard` is dropped.
pub struct Dashboard {
    address: SocketAddr,
    settings: DashboardSettings,
    live: watch::Sender<Arc<ActiveSettings>>,
    /// The socket, once bound.
    socket: Arc<OnceLock<TcpListener>>,
}

/// Prepared settings for [`Dashboard::take_over`].
#[derive(Debug)]
pub struct Prepared(Arc<ActiveSettings>);

/// State that a reload replaces.
#[derive(Debug)]
struct ActiveSettings {
    settings: DashboardSettings,
    acceptor: Option<InternalAcceptor>,
    /// Digests of the files that the acceptor was created from.
    digests: Vec<Option<Vec<u8>>>,
}

impl ActiveSettings {
    fn new(settings: &DashboardSettings) -> Result<Arc<Self>, DashboardError> {
        // Computed before the acceptor reads the files: a file that changes in between counts as changed at the next
        // reload.
        let digests = settings.tls.as_ref().map(digests).unwrap_or_default();
        let acceptor = settings.tls.as_ref().map(InternalAcceptor::new).transpose()?;
        Ok(Arc::new(Self { settings: settings.clone(), acceptor, digests }))
    }

    /// Returns whether connections accepted under `other` may continue.
    fn is_like(&self, other: &Self) -> bool {
        self.settings == other.settings && self.digests == other.digests
    }
}

/// SHA-256 digests of the TLS files; `None` for an unreadable one.
fn digests(tls: &InternalSettings) -> Vec<Option<Vec<u8>>> {
    let files = [Some(&tls.identity.chain), Some(&tls.identity.key), tls.clients.as_ref()];
    // One of the files is a private key, so its bytes are wiped.
    let digest = |bytes: Vec<u8>| digest::digest(&digest::SHA256, &Zeroizing::new(bytes)).as_ref().to_vec();
    files.into_iter().flatten().map(|file| fs::read(file).ok().map(digest)).collect()
}

impl Dashboard {
    /// Binds the address and starts the thread.
    ///
    /// # Errors
    ///
    /// [`DashboardError`] if the address, the TLS files or the thread are not available.
    pub fn start(settings: DashboardSettings, sources: Sources) -> Result<Self, DashboardError> {
        let socket = socket::bind(&settings).map_err(|source| cannot_listen(&settings, source))?;
        Self::serve(settings, sources, Some(socket))
    }

    /// Starts the dashboard like [`start`](Self::start), but if its address is in use, retries in the background. A
    /// gateway must not depend on its dashboard: the process that it replaces may still be running.
    pub fn start_when_free(settings: DashboardSettings, sources: Sources) -> Result<Self, DashboardError> {
        let socket = match socket::bind(&settings) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                tracing::error!(
                    address = %settings.listen,
                    %error,
                    "the dashboard cannot listen; it tries again each second, and the gateway serves without it"
                );
                None
            }
            bound => Some(bound.map_err(|source| cannot_listen(&settings, source))?),
        };
        Self::serve(settings, sources, socket)
    }

    /// Starts a dashboard with another address while this one continues until dropped. Both addresses may have the same
    /// port and overlap, as `127.0.0.1` and `0.0.0.0`.
    pub fn start_beside(
        &self,
        settings: DashboardSettings,
        sources: Sources,
    ) -> Result<Self, DashboardError> {
        let Some(old) = self.socket.get() else { return Self::start(settings, sources) };
        let socket =
            socket::bind_beside(settings.listen, old).map_err(|source| cannot_listen(&settings, source))?;
        Self::serve(settings, sources, Some(socket))
    }

    fn serve(
        settings: DashboardSettings,
        sources: Sources,
        socket: Option<TcpListener>,
    ) -> Result<Self, DashboardError> {
        let failed = |error: &dyn fmt::Display| DashboardError::Start(error.to_string());
        let bound = Arc::new(OnceLock::new());
        let mut address = settings.listen;
        if let Some(socket) = &socket {
            address = socket.local_addr().map_err(|error| failed(&error))?;
            // A second descriptor, through which `start_beside` lets a new socket share the port for a
            // moment.
            let _ = bound.set(socket.try_clone().map_err(|error| failed(&error))?);
        }
        let pending = PendingListener { socket, address, bound: Arc::clone(&bound) };
        // Before the thread: without random numbers the start fails, and is no error of a background thread.
        let verifier = TokenVerifier::new().map_err(|error| failed(&error))?;
        let (live, changes) = watch::channel(ActiveSettings::new(&settings)?);
        let serve = move || {
            let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
            let served =
                runtime.and_then(|runtime| runtime.block_on(serve(pending, verifier, sources, changes)));
            if let Err(error) = served {
                tracing::error!(%error, "the dashboard's listener failed; the dashboard has stopped");
            }
        };
        thread::Builder::new().name("dashboard".to_owned()).spawn(serve).map_err(|error| failed(&error))?;
        Ok(Self { address, settings, live, socket: bound })
    }

    /// The bound address, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// URL for a browser on this machine, `http` or `https`. `None` while another process uses the address.
    pub fn url(&self) -> Option<String> {
        self.socket.get()?;
        let scheme = if self.settings.tls.is_some() { "https" } else { "http" };
        Some(format!("{scheme}://{}", self.address))
    }

    /// Returns whether `settings` have the same address, so that [`take_over`](Self::take_over) applies.
    pub fn is_at(&self, settings: &DashboardSettings) -> bool {
        self.settings.listen == settings.listen
    }

    /// Prepares other settings with the same address.
    ///
    /// # Errors
    ///
    /// [`DashboardError::Tls`] if a TLS file cannot be used.
    pub fn prepare(settings: &DashboardSettings) -> Result<Prepared, DashboardError> {
        ActiveSettings::new(settings).map(Prepared)
    }

    /// Applies [`Prepared`] settings. Connections that were accepted under different settings end.
    pub fn take_over(&mut self, prepared: Prepared) {
        // A reload that changes nothing about the dashboard ends no connection.
        if self.live.borrow().is_like(&prepared.0) {
            return;
        }
        self.settings = prepared.0.settings.clone();
        self.live.send_replace(prepared.0);
    }
}

impl fmt::Debug for Dashboard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dashboard").field("address", &self.address).finish_non_exhaustive()
    }
}

fn cannot_listen(settings: &DashboardSettings, source: io::Error) -> DashboardError {
    DashboardError::Listen { address: settings.listen, source }
}

/// The address to listen on, and its socket if bound.
struct PendingListener {
    socket: Option<TcpListener>,
    address: SocketAddr,
    bound: Arc<OnceLock<TcpListener>>,
}

impl PendingListener {
    /// The listener, after the address has become free.
    async fn listener(self) -> io::Result<Listener> {
        let Self { socket, address, bound } = self;
        let socket = if let Some(socket) = socket {
            socket
        } else {
            let socket = socket::bind_when_free(address).await;
            let _ = bound.set(socket.try_clone()?);
            tracing::info!(%address, "the dashboard listens now");
            socket
        };
        Ok(Listener::new(socket)?.with_spare_descriptors(SPARE_DESCRIPTORS))
    }
}

/// State that all connections share.
struct ServerState {
    board: Rc<Board>,
    verifier: TokenVerifier,
    live: watch::Receiver<Arc<ActiveSettings>>,
    connections: SilentLimit,
}

/// Serves until the dashboard is dropped or the listener fails.
async fn serve(
    pending: PendingListener,
    verifier: TokenVerifier,
    sources: Sources,
    mut changes: watch::Receiver<Arc<ActiveSettings>>,
) -> io::Result<()> {
    let board = Rc::new(Board::new(sources));
    let state = Rc::new(ServerState {
        board: Rc::clone(&board),
        verifier,
        live: changes.clone(),
        connections: SilentLimit::new(CONNECTIONS, CONNECTIONS_OF_ONE),
    });
    let ticks = async {
        // After a pause of the machine, missed ticks would follow at once, and give rows for seconds without
        // a length.
        let mut seconds = interval(SECOND);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            seconds.tick().await;
            board.tick();
            board.forget();
        }
    };
    tokio::select! {
        broken = async { accept(&state, pending.listener().await?).await } => broken,
        // The sender is in the `Dashboard`, so the wait ends when that is dropped.
        () = async { while changes.changed().await.is_ok() {} } => Ok(()),
        () = ticks => Ok(()),
    }
}

async fn accept(state: &Rc<ServerState>, mut listener: Listener) -> io::Result<()> {
    loop {
        let (tcp, peer) = listener.accept().await?;
        // Dropping `tcp` closes the connection; the client may retry.
        let Some(permit) = state.connections.try_acquire(peer.ip()) else { continue };
        // A failure only loses the timeout for clients that do not read.
        let _ = SockRef::from(&tcp).set_tcp_user_timeout(Some(UNREAD_LIMIT));
        let state = Rc::clone(state);
        spawn_local(async move {
            permit.run(serve_connection(state, tcp, peer.ip(), &permit)).await;
        });
    }
}

async fn serve_connection(state: Rc<ServerState>, tcp: TcpStream, peer: IpAddr, permit: &SilentPermit) {
    let live = Arc::clone(&state.live.borrow());
    let Some(acceptor) = &live.acceptor else { return serve_http(state, tcp, &live, peer, permit).await };
    match timeout(HANDSHAKE_LIMIT, acceptor.accept(tcp)).await {
        Ok(Ok(stream)) => serve_http(state, stream, &live, peer, permit).await,
        Ok(Err(error)) => tracing::debug!(%peer, %error, "dashboard: handshake failed"),
        Err(_) => tracing::debug!(%peer, "dashboard: handshake took too long"),
    }
}

/// Serves requests while the [`DashboardSettings`] stay the same; after a reload, clients must authenticate again.
async fn serve_http(
    state: Rc<ServerState>,
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    live: &Arc<ActiveSettings>,
    peer: IpAddr,
    permit: &SilentPermit,
) {
    let mut changes = state.live.clone();
    let service = service_fn(|request| {
        permit.head_received();
        let (state, live) = (Rc::clone(&state), Arc::clone(live));
        async move {
            let answered = pages::answer(&state.board, &live.settings, &state.verifier, request).await;
            Ok::<_, Infallible>(answered)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .serve_connection(TokioIo::new(stream), service);
    let own = Arc::clone(live);
    tokio::select! {
        served = connection => if let Err(error) = served {
            tracing::debug!(%peer, %error, "dashboard connection");
        },
        // The page reconnects by itself, and its client authenticates under the new settings.
        _ = changes.wait_for(|live| !Arc::ptr_eq(live, &own)) => {}
    }
}
