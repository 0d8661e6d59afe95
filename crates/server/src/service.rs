//! [`Service`], the interface between the workers and the protocol that they serve.

use std::io;
use std::net::SocketAddr;
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

    /// Counts a connection that was closed since all places were taken, or were until the drain started.
    fn refused(worker: &Self::Worker);
}

/// A connection that has a place.
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
    /// To be kept as long as the connection.
    pub place: Place,
}

/// The place of a connection among all of the server; dropping it makes room for another. A drain waits for it, from the
/// acceptance on: for handshakes too.
#[derive(Debug)]
pub struct Place {
    _total: ConnectionPermit,
    _drain: DrainGuard,
}

impl Place {
    /// A place, if one is free.
    pub(crate) fn take(context: &WorkerContext) -> Option<Self> {
        let total = context.shared.connections.try_acquire()?;
        Some(Self { _total: total, _drain: context.drain.guard() })
    }
}
