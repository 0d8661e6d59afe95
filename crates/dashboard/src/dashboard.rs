//! The dashboard as a thread: listens, takes connections through TLS where it is to, answers.

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
use brisk_net::{AddressLimit, ConnectionLimit, Listener};
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
use crate::token::Keeper;

/// Connections at a time, and those of one address: a stranger leaves room for operators.
const CONNECTIONS: usize = 256;
const CONNECTIONS_OF_ONE: usize = 64;

/// File descriptors reserved for it, so that it can be looked at in a shortage.
const SPARE_DESCRIPTORS: usize = 4;

/// Time for a handshake, and for each request head.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
const HEAD_LIMIT: Duration = Duration::from_secs(30);

/// After this time the kernel ends a connection whose client takes nothing of what was sent.
const UNREAD_LIMIT: Duration = Duration::from_secs(20);

/// Interval of samples.
const SECOND: Duration = Duration::from_secs(1);

/// A dashboard that is served. Dropping it ends that.
pub struct Dashboard {
    address: SocketAddr,
    settings: DashboardSettings,
    live: watch::Sender<Arc<Live>>,
    /// Its socket, once it is bound.
    socket: Arc<OnceLock<TcpListener>>,
}

/// Settings that a dashboard may take over.
#[derive(Debug)]
pub struct Prepared(Arc<Live>);

/// What a reload replaces.
#[derive(Debug)]
struct Live {
    settings: DashboardSettings,
    acceptor: Option<InternalAcceptor>,
    /// Of the files that the acceptor was made of.
    digests: Vec<Option<Vec<u8>>>,
}

impl Live {
    fn new(settings: &DashboardSettings) -> Result<Arc<Self>, DashboardError> {
        // Before they are read for use: if one changes in between, it counts as changed the next time.
        let digests = settings.tls.as_ref().map(digests).unwrap_or_default();
        let acceptor = settings.tls.as_ref().map(InternalAcceptor::new).transpose()?;
        Ok(Arc::new(Self { settings: settings.clone(), acceptor, digests }))
    }

    /// Whether connections that were accepted by `other` may go on.
    fn is_like(&self, other: &Self) -> bool {
        self.settings == other.settings && self.digests == other.digests
    }
}

/// Digests of the files; `None` for one that cannot be read.
fn digests(tls: &InternalSettings) -> Vec<Option<Vec<u8>>> {
    let files = [Some(&tls.identity.chain), Some(&tls.identity.key), tls.clients.as_ref()];
    let digest = |bytes: Vec<u8>| digest::digest(&digest::SHA256, &Zeroizing::new(bytes)).as_ref().to_vec();
    files.into_iter().flatten().map(|file| fs::read(file).ok().map(digest)).collect()
}

impl Dashboard {
    /// Binds the address and serves on a thread of its own.
    pub fn start(settings: DashboardSettings, sources: Sources) -> Result<Self, DashboardError> {
        let socket = socket::bind(&settings).map_err(|source| cannot_listen(&settings, source))?;
        Self::serve(settings, sources, Some(socket))
    }

    /// As [`Self::start`]; but where another process has the address, it is served as soon as it is free. A gateway does not
    /// depend on its dashboard: the one that it replaces may still run.
    pub fn start_when_free(settings: DashboardSettings, sources: Sources) -> Result<Self, DashboardError> {
        let socket = match socket::bind(&settings) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                tracing::error!(
                    address = %settings.listen,
                    %error,
                    "the dashboard cannot listen: it tries each second, and the gateway serves without it"
                );
                None
            }
            bound => Some(bound.map_err(|source| cannot_listen(&settings, source))?),
        };
        Self::serve(settings, sources, socket)
    }

    /// Starts another one in place of this one, which serves until it is dropped. Its address may be the same port of other
    /// addresses of the machine.
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
            let _ = bound.set(socket.try_clone().map_err(|error| failed(&error))?);
        }
        let place = Place { socket, address, bound: Arc::clone(&bound) };
        let keeper = Keeper::new().map_err(|error| failed(&error))?;
        let (live, changes) = watch::channel(Live::new(&settings)?);
        let serve = move || {
            let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
            let served = runtime.and_then(|runtime| runtime.block_on(serve(place, keeper, sources, changes)));
            if let Err(error) = served {
                tracing::error!(%error, "the dashboard's listener broke: it shows nothing more");
            }
        };
        thread::Builder::new().name("dashboard".to_owned()).spawn(serve).map_err(|error| failed(&error))?;
        Ok(Self { address, settings, live, socket: bound })
    }

    /// Where it listens, with the port that the system chose if it was to choose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL, for who sits at this machine. `None` while another process has its address.
    pub fn url(&self) -> Option<String> {
        self.socket.get()?;
        let scheme = if self.settings.tls.is_some() { "https" } else { "http" };
        Some(format!("{scheme}://{}", self.address))
    }

    /// Whether `settings` are for the same listener, so that it may take them over.
    pub fn is_at(&self, settings: &DashboardSettings) -> bool {
        self.settings.listen == settings.listen
    }

    /// Reads what [`Self::take_over`] needs for other settings of the same listener.
    pub fn prepare(settings: &DashboardSettings) -> Result<Prepared, DashboardError> {
        Live::new(settings).map(Prepared)
    }

    /// Goes by other settings from now on. Connections that were accepted by other ones end.
    pub fn take_over(&mut self, prepared: Prepared) {
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

/// Where it listens, or is to.
struct Place {
    socket: Option<TcpListener>,
    address: SocketAddr,
    bound: Arc<OnceLock<TcpListener>>,
}

impl Place {
    /// Its socket, when no other has the address.
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

/// What all connections share.
struct Desk {
    board: Rc<Board>,
    keeper: Keeper,
    live: watch::Receiver<Arc<Live>>,
    places: ConnectionLimit,
    of_one: AddressLimit,
}

/// Serves until the dashboard is dropped, or until the socket breaks.
async fn serve(
    place: Place,
    keeper: Keeper,
    sources: Sources,
    mut changes: watch::Receiver<Arc<Live>>,
) -> io::Result<()> {
    let board = Rc::new(Board::new(sources));
    let desk = Rc::new(Desk {
        board: Rc::clone(&board),
        keeper,
        live: changes.clone(),
        places: ConnectionLimit::new(CONNECTIONS),
        of_one: AddressLimit::new(CONNECTIONS_OF_ONE),
    });
    let ticks = async {
        let mut seconds = interval(SECOND);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            seconds.tick().await;
            board.tick();
            board.forget();
        }
    };
    tokio::select! {
        broken = async { accept(&desk, place.listener().await?).await } => broken,
        () = async { while changes.changed().await.is_ok() {} } => Ok(()),
        () = ticks => Ok(()),
    }
}

async fn accept(desk: &Rc<Desk>, mut listener: Listener) -> io::Result<()> {
    loop {
        let (tcp, peer) = listener.accept().await?;
        let places = desk.places.try_acquire().zip(desk.of_one.try_acquire(peer.ip()));
        let Some(places) = places else { continue };
        // Without it nothing more is lost than the end of a connection that is not read.
        let _ = SockRef::from(&tcp).set_tcp_user_timeout(Some(UNREAD_LIMIT));
        let desk = Rc::clone(desk);
        spawn_local(async move {
            serve_connection(desk, tcp, peer.ip()).await;
            drop(places);
        });
    }
}

async fn serve_connection(desk: Rc<Desk>, tcp: TcpStream, peer: IpAddr) {
    let live = Arc::clone(&desk.live.borrow());
    let Some(acceptor) = &live.acceptor else { return serve_http(desk, tcp, &live, peer).await };
    match timeout(HANDSHAKE_LIMIT, acceptor.accept(tcp)).await {
        Ok(Ok(stream)) => serve_http(desk, stream, &live, peer).await,
        Ok(Err(error)) => tracing::debug!(%peer, %error, "dashboard: handshake failed"),
        Err(_) => tracing::debug!(%peer, "dashboard: handshake took too long"),
    }
}

/// Serves requests while the settings are those that the connection was accepted under: who may look is asked anew.
async fn serve_http(
    desk: Rc<Desk>,
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    live: &Arc<Live>,
    peer: IpAddr,
) {
    let mut changes = desk.live.clone();
    let service = service_fn(|request| {
        let (desk, live) = (Rc::clone(&desk), Arc::clone(live));
        async move {
            let answered = pages::answer(&desk.board, &live.settings, &desk.keeper, request).await;
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
        // A client that was admitted by old settings is to show again who it is. The page connects anew by itself.
        _ = changes.wait_for(|live| !Arc::ptr_eq(live, &own)) => {}
    }
}
