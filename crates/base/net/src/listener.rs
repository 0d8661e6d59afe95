//! Listening sockets with the options of the gateway, and an accept loop that survives shortages.

use std::fs::{self, File};
use std::future::poll_fn;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};
use tracing::warn;

use crate::options;
use crate::unsent;

/// Pause of accepting while the process or the machine has no descriptors or memory left.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(50);
/// Minimum interval between two log lines about failed accepts.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// The settings of a listening socket, for [`bind`] and [`adopt`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSettings {
    /// Address to listen on. An IPv6 address accepts IPv6 only: `[::]` does not include `0.0.0.0`.
    pub address: SocketAddr,
    /// Maximum number of connections waiting for [`Listener::accept`]; the kernel caps it at `net.core.somaxconn`.
    pub backlog: i32,
    /// Maximum number of TCP Fast Open connections (RFC 7413) whose handshake is not complete. `None` disables Fast
    /// Open.
    pub fast_open: Option<u32>,
    /// Whether each worker binds a socket of its own to the address (`SO_REUSEPORT`).
    pub reuse_port: bool,
}

impl ListenerSettings {
    /// Settings for `address`: a backlog of 4096, no Fast Open, a socket per worker.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, backlog: 4096, fast_open: None, reuse_port: true }
    }
}

/// Binds and listens; the socket is non-blocking. A kernel without Fast Open is not an error, see [`fast_open_state`].
pub fn bind(settings: &ListenerSettings) -> io::Result<std::net::TcpListener> {
    let address = settings.address;
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_nonblocking(true)?;
    // A restarted gateway must not wait for old connections in TIME_WAIT.
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(settings.reuse_port)?;
    if address.is_ipv6() {
        // So that `[::]` and `0.0.0.0` can be separate listeners with the same port.
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    listen(socket, settings)
}

/// Listens on a TCP socket that another process has bound and may also hold. The socket becomes non-blocking. Applies
/// only backlog and Fast Open of `settings`.
pub fn adopt(socket: Socket, settings: &ListenerSettings) -> io::Result<std::net::TcpListener> {
    socket.set_nonblocking(true)?;
    listen(socket, settings)
}

fn listen(socket: Socket, settings: &ListenerSettings) -> io::Result<std::net::TcpListener> {
    // Accepted connections inherit these options, which saves system calls.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(unsent::FIRST)?;
    if let Some(queue) = settings.fast_open {
        options::set_fast_open(&socket, queue)?;
    }
    socket.listen(settings.backlog)?;
    Ok(socket.into())
}

/// Takes a listening socket out of service: the kernel assigns its connections to the other sockets of the address, and
/// resets those that have not been accepted. [`resume`] reverts it. Affects all copies of the socket.
pub fn pause(socket: &std::net::TcpListener) -> io::Result<()> {
    SockRef::from(socket).shutdown(Shutdown::Read)
}

/// Listens again after [`pause`]. The socket must have been bound to a specific port: a port chosen by the kernel is
/// given up by the pause.
pub fn resume(socket: &impl AsFd, backlog: i32) -> io::Result<()> {
    SockRef::from(socket).listen(backlog)
}

/// The kernel's permission for TCP Fast Open: `net.ipv4.tcp_fastopen`, which also applies to IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastOpenState {
    /// Listeners may use it.
    Server,
    /// Disabled for listeners, because bit 2 is not set in this value.
    Off(u32),
    /// The setting cannot be read.
    Unknown,
}

/// Reads the kernel's current setting from `/proc/sys`.
pub fn fast_open_state() -> FastOpenState {
    fs::read_to_string("/proc/sys/net/ipv4/tcp_fastopen")
        .map_or(FastOpenState::Unknown, |text| parse_fast_open(&text))
}

fn parse_fast_open(text: &str) -> FastOpenState {
    match text.trim().parse::<u32>() {
        // Bit 2 permits Fast Open for listeners, bit 1 for connecting sockets.
        Ok(bits) if bits & 2 != 0 => FastOpenState::Server,
        Ok(bits) => FastOpenState::Off(bits),
        Err(_) => FastOpenState::Unknown,
    }
}

/// A listening socket on a tokio runtime.
#[derive(Debug)]
pub struct Listener {
    // Not tokio's `TcpListener`, which hides that the runtime takes the socket for closed: after a pause it would call
    // `accept4` without end.
    socket: AsyncFd<std::net::TcpListener>,
    last_log: Option<Instant>,
    /// Descriptors reserved for a shortage (`EMFILE`), of `/dev/null`.
    spare: Vec<File>,
    spares: usize,
}

impl Listener {
    /// Wraps a socket from [`bind`]. Must be called inside a runtime.
    pub fn new(socket: std::net::TcpListener) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket: registered(socket)?, last_log: None, spare: Vec::new(), spares: 0 })
    }

    /// Reserves `spares` descriptors, so that as many connections can be accepted when the process has no others left.
    #[must_use]
    pub fn with_spare_descriptors(mut self, spares: usize) -> Self {
        self.spares = spares;
        self.keep_spare();
        self
    }

    /// The local address, with the port that the kernel chose if it was 0.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.get_ref().local_addr()
    }

    /// Accepts the next connection. It has `TCP_NODELAY` set if the socket is from [`bind`].
    ///
    /// Connections that are already closed are skipped. Without free descriptors or memory it pauses briefly and
    /// retries, with at most one log line per second. Other errors mean that the socket is unusable, and are returned.
    pub async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        self.accept_making_room(|| {}).await
    }

    /// Like [`accept`](Self::accept), and calls `make_room` each time descriptors or memory run out.
    pub async fn accept_making_room(
        &mut self,
        mut make_room: impl FnMut(),
    ) -> io::Result<(TcpStream, SocketAddr)> {
        self.keep_spare();
        loop {
            // Not `readable`, which takes nothing from the task's budget: the accept loop of a flood would never yield.
            let mut ready = poll_fn(|cx| self.socket.poll_read_ready(cx)).await?;
            // The runtime saw a pause, and keeps this state of the socket even after `resume`.
            if ready.ready().is_read_closed() {
                self.renew().await;
                continue;
            }
            match ready.try_io(|socket| accept_from(socket.get_ref())) {
                Ok(Ok(accepted)) => return Ok(accepted),
                Ok(Err(error)) => self.survive(error, &mut make_room).await?,
                Err(_would_block) => {}
            }
        }
    }

    /// Waits until the socket listens, and registers a copy of it with the runtime.
    async fn renew(&mut self) {
        loop {
            let socket = self.socket.get_ref();
            let is_listener = SockRef::from(socket).is_listener().unwrap_or_default();
            let copy = is_listener.then(|| registered(socket.try_clone()?));
            match copy {
                Some(Ok(socket)) => return self.socket = socket,
                // A shortage of descriptors ends, too.
                Some(Err(_)) | None => sleep(SHORTAGE_PAUSE).await,
            }
        }
    }

    /// Fills up `spare`. Errors are ignored; the next call tries again.
    fn keep_spare(&mut self) {
        while self.spare.len() < self.spares {
            let Ok(spare) = File::open("/dev/null") else { return };
            self.spare.push(spare);
        }
    }

    async fn survive(&mut self, error: io::Error, make_room: &mut impl FnMut()) -> io::Result<()> {
        match AcceptError::of(&error) {
            AcceptError::Connection => Ok(()),
            // The next accept uses the descriptor that is freed here.
            AcceptError::Shortage if self.spare.pop().is_some() => Ok(()),
            AcceptError::Shortage => {
                make_room();
                self.log(&error);
                sleep(SHORTAGE_PAUSE).await;
                Ok(())
            }
            AcceptError::Paused => {
                self.renew().await;
                Ok(())
            }
            AcceptError::Listener => Err(error),
        }
    }

    fn log(&mut self, error: &io::Error) {
        let now = Instant::now();
        if self.last_log.is_none_or(|last| now.duration_since(last) >= LOG_INTERVAL) {
            self.last_log = Some(now);
            warn!(%error, "cannot accept connections for now; raise the limit on open files if this goes on");
        }
    }
}

fn registered(socket: std::net::TcpListener) -> io::Result<AsyncFd<std::net::TcpListener>> {
    #[expect(
        deprecated,
        reason = "its successor is unsafe, against files that change; a socket of the standard library stays"
    )]
    AsyncFd::with_interest(socket, Interest::READABLE)
}

/// The next connection, or [`WouldBlock`](io::ErrorKind::WouldBlock). The connection is registered with the runtime.
fn accept_from(socket: &std::net::TcpListener) -> io::Result<(TcpStream, SocketAddr)> {
    // The flags save two system calls per connection.
    let (stream, peer) = acceptfrom_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
    let peer = SocketAddr::try_from(peer.ok_or(Errno::CONNABORTED)?)?;
    Ok((TcpStream::from_std(stream.into())?, peer))
}

/// Scope of an error of `accept(2)`.
#[derive(Debug, PartialEq, Eq)]
enum AcceptError {
    Connection,
    Shortage,
    /// The socket is not listening because of [`pause`].
    Paused,
    Listener,
}

impl AcceptError {
    fn of(error: &io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM) => Self::Shortage,
            // accept(2): the socket is not listening for connections.
            Some(libc::EINVAL) => Self::Paused,
            // accept(2): Linux returns errors that are already pending on the new socket; treat them like EAGAIN.
            Some(
                libc::ECONNABORTED
                | libc::EINTR
                | libc::EPROTO
                | libc::EPERM
                | libc::ENETDOWN
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::EHOSTUNREACH
                | libc::EOPNOTSUPP
                | libc::ENETUNREACH
                | libc::ETIMEDOUT
                | libc::ECONNRESET,
            ) => Self::Connection,
            _ => Self::Listener,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};

    use tokio::task::{LocalSet, spawn_local};
    use tokio::time::timeout;

    use super::*;

    fn loopback() -> ListenerSettings {
        ListenerSettings::new(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// A socket that was bound to a specific port, which a pause does not give up. The port stays taken meanwhile.
    fn bound() -> std::net::TcpListener {
        let any = bind(&loopback()).expect("bind");
        bind(&ListenerSettings::new(any.local_addr().expect("address"))).expect("bind")
    }

    #[tokio::test]
    async fn an_accepted_connection_sends_without_delay() {
        let settings = ListenerSettings { fast_open: Some(64), ..loopback() };
        let mut listener = Listener::new(bind(&settings).expect("bind")).expect("listener");
        let address = listener.local_address().expect("address");
        let client = TcpStream::connect(address).await.expect("connect");
        let (stream, peer) = listener.accept().await.expect("accept");
        assert!(stream.nodelay().expect("nodelay"));
        assert_eq!(peer, client.local_addr().expect("address"));
    }

    #[tokio::test]
    async fn a_socket_of_another_process_has_the_same_options() {
        let foreign = std::net::TcpListener::bind(loopback().address).expect("bind");
        let settings = ListenerSettings { fast_open: Some(64), ..loopback() };
        let mut listener = Listener::new(adopt(foreign.into(), &settings).expect("adopt")).expect("listener");
        let address = listener.local_address().expect("address");
        let _client = TcpStream::connect(address).await.expect("connect");
        let (stream, _) = listener.accept().await.expect("accept");
        assert!(stream.nodelay().expect("nodelay"));
    }

    #[tokio::test]
    async fn the_kernel_takes_little_ahead_of_a_client_that_does_not_read() {
        let mut listener = Listener::new(bind(&loopback()).expect("bind")).expect("listener");
        let client = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        client.set_recv_buffer_size(64 << 10).expect("a size");
        client.connect(&listener.local_address().expect("address").into()).expect("connect");
        let (stream, _) = listener.accept().await.expect("accept");
        let mut taken = 0;
        // Until the windows are full, which takes the kernel a moment.
        while let Ok(Ok(())) = timeout(Duration::from_millis(200), stream.writable()).await {
            taken += stream.try_write(&[0; 16 << 10]).unwrap_or(0);
        }
        // Without the limit, the kernel's buffers take 2.5 MB.
        assert!(taken < 1 << 20, "{taken} bytes");
    }

    #[test]
    fn workers_share_an_address_only_when_asked_to() {
        let first = bind(&loopback()).expect("first");
        let address = first.local_addr().expect("address");
        bind(&ListenerSettings::new(address)).expect("a second worker");
        let alone = ListenerSettings { reuse_port: false, ..ListenerSettings::new(address) };
        let error = bind(&alone).expect_err("in use");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[tokio::test]
    async fn a_paused_listener_accepts_again_when_it_is_resumed() {
        let socket = bound();
        let handle = socket.try_clone().expect("a copy");
        let mut listener = Listener::new(socket).expect("listener");
        let address = listener.local_address().expect("address");
        pause(&handle).expect("pause");
        let error = TcpStream::connect(address).await.expect_err("no listener");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let accepting =
            tokio::spawn(async move { listener.accept().await.map(|(_, peer)| (peer, listener)) });
        tokio::task::yield_now().await;
        resume(&handle, 16).expect("resume");
        let client = TcpStream::connect(address).await.expect("connect");
        let (peer, mut listener) = accepting.await.expect("a task").expect("accept");
        assert_eq!(peer, client.local_addr().expect("address"));
        // Without a connection, the task of a listener yields to others.
        let accepting = tokio::spawn(async move { listener.accept().await });
        tokio::task::yield_now().await;
        let client = TcpStream::connect(address).await.expect("connect");
        let (_, peer) = accepting.await.expect("a task").expect("accept");
        assert_eq!(peer, client.local_addr().expect("address"));
    }

    #[tokio::test]
    async fn a_flood_of_connections_leaves_turns_to_other_tasks() {
        let mut listener = Listener::new(bind(&loopback()).expect("bind")).expect("listener");
        let address = listener.local_address().expect("address");
        let waiting: Vec<_> =
            (0..300).map(|_| std::net::TcpStream::connect(address).expect("a connection")).collect();
        let accepted = Rc::new(Cell::new(0));
        let seen = Rc::clone(&accepted);
        let tasks = LocalSet::new();
        let accepting = tasks.run_until(async move {
            // The first one waits for the runtime.
            listener.accept().await.expect("accept");
            let other = spawn_local(async move { seen.get() });
            for _ in 1..waiting.len() {
                listener.accept().await.expect("accept");
                accepted.set(accepted.get() + 1);
            }
            other.await.expect("a task")
        });
        let before = accepting.await;
        assert!(before < 299, "all connections were accepted before the other task had a turn");
    }

    /// Counts the wake-ups of a future.
    #[derive(Default)]
    struct WakeUps(AtomicUsize);

    impl Wake for WakeUps {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn a_listener_that_is_resumed_before_it_accepts_rests() {
        let socket = bound();
        let handle = socket.try_clone().expect("a copy");
        let mut listener = Listener::new(socket).expect("listener");
        let address = listener.local_address().expect("address");
        pause(&handle).expect("pause");
        // The runtime learns of the pause while it waits for this connection.
        TcpStream::connect(address).await.expect_err("no listener");
        resume(&handle, 16).expect("resume");
        let wake_ups = Arc::new(WakeUps::default());
        let waker = Waker::from(Arc::clone(&wake_ups));
        let mut accepting = pin!(listener.accept());
        for _ in 0..10 {
            assert!(accepting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            tokio::task::yield_now().await;
        }
        assert_eq!(wake_ups.0.load(Ordering::Relaxed), 0);
        let client = TcpStream::connect(address).await.expect("connect");
        let (_, peer) = accepting.await.expect("accept");
        assert_eq!(peer, client.local_addr().expect("address"));
    }

    #[test]
    fn errors_are_distinguished() {
        let scope = |code| AcceptError::of(&io::Error::from_raw_os_error(code));
        assert_eq!(scope(libc::EMFILE), AcceptError::Shortage);
        assert_eq!(scope(libc::ECONNABORTED), AcceptError::Connection);
        assert_eq!(scope(libc::EBADF), AcceptError::Listener);
    }

    #[test]
    fn the_kernels_fast_open_setting_is_a_set_of_bits() {
        assert_eq!(parse_fast_open("3\n"), FastOpenState::Server);
        assert_eq!(parse_fast_open("1\n"), FastOpenState::Off(1));
        assert_eq!(parse_fast_open("?"), FastOpenState::Unknown);
    }
}
