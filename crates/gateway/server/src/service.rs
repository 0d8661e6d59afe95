//! [`Service`], the interface between the workers and the protocol that they serve.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;

use brisk_net::{ConnectionPermit, DrainGuard};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::context::WorkerContext;

/// Handler of a server's connections. One value is shared by all workers.
pub trait Service: Send + Sync + 'static {
    /// Distinguishes the listeners of the service.
    type Listener: Copy + Send + 'static;

    /// State shared by the tasks of one worker.
    type Worker: 'static;

    /// Prepares a worker, on its thread and inside its runtime. Tasks that run as long as the worker go into `tasks`: if
    /// one of them panics, the process ends.
    fn start_worker(
        self: Arc<Self>,
        context: &WorkerContext,
        tasks: &mut JoinSet<()>,
    ) -> io::Result<Rc<Self::Worker>>;

    /// Serves a connection, in a task that it spawns on this thread. A drain waits for the connection's [`Place`].
    fn serve(worker: &Rc<Self::Worker>, connection: Accepted<Self::Listener>);

    /// Serves a datagram socket. The future runs on the worker's thread until the end of the drain, and then is dropped. A
    /// service without datagram listeners keeps the default.
    fn serve_datagrams(
        worker: &Rc<Self::Worker>,
        socket: DatagramSocket<Self::Listener>,
    ) -> impl Future<Output = ()> + 'static {
        let _ = (worker, socket);
        std::future::ready(())
    }

    /// Counts a connection that was closed at once.
    fn refused(worker: &Self::Worker, reason: NoService);
}

/// Reason for which a connection is closed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoService {
    /// No [`Place`] was free, or none until the drain started.
    Full,
    /// The process is overloaded ([`Work::Connection`](brisk_pressure::Work::Connection)).
    Overloaded,
}

/// A connection that has a [`Place`].
#[derive(Debug)]
pub struct Accepted<L> {
    /// The connection, with `TCP_NODELAY`.
    pub tcp: TcpStream,
    /// Address of the peer.
    pub peer: SocketAddr,
    /// The address of the listener.
    pub local: SocketAddr,
    /// The listener.
    pub listener: L,
    /// To be kept until the connection is closed.
    pub place: Place,
}

/// A socket of a group whose datagrams are distributed by connection ID (`brisk_net::datagram`). All sockets of a group
/// are bound before anything is served, and are open until the process ends.
#[derive(Debug)]
pub struct DatagramSocket<L> {
    /// The socket; non-blocking.
    pub socket: UdpSocket,
    /// Index of the socket in its group: datagrams reach it whose connection ID begins with a byte that equals `index`
    /// modulo `group`.
    pub index: usize,
    /// Number of sockets of the group.
    pub group: usize,
    /// The half of the group's sockets, if the group is inherited and has two: its sockets are those of a process and of its
    /// successor, and this is the second if true. Datagrams then reach the socket whose place among both halves, `index` or
    /// `group` more, equals the first byte of an issued ID modulo twice `group`.
    pub half: Option<bool>,
    /// The address of the group.
    pub local: SocketAddr,
    /// The listener.
    pub listener: L,
}

/// The place of a connection among all of the server; dropping it makes room for another. A drain waits for it, from the
/// acceptance on: for handshakes too.
#[derive(Debug)]
pub struct Place {
    _total: ConnectionPermit,
    _drain: DrainGuard,
}

impl Place {
    /// A [`Place`]; `None` if all are taken.
    pub(crate) fn take(context: &WorkerContext) -> Option<Self> {
        // Before the guard of the drain: a drain must not wait for a connection that is refused.
        let total = context.shared.connections.try_acquire()?;
        Some(Self { _total: total, _drain: context.drain.guard() })
    }
}
