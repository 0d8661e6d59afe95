//! Accepted connections that hold a permit: counts them per client and starts to serve them.

use std::io;
use std::rc::Rc;
use std::sync::Arc;

use brisk_server::{Accepted, DatagramSocket, NoService, Service, WorkerContext};
use tokio::task::{JoinSet, spawn_local};

use crate::connection::client::{Permits, counted_as};
use crate::connection::plain::serve_http;
use crate::connection::quic;
use crate::connection::serve_https;
use crate::listener::Socket;
use crate::shared::Shared;
use crate::tcp::serve::serve_tcp;
use crate::worker::Worker;

impl Service for Shared {
    type Listener = Socket;
    type Worker = Worker;

    fn start_worker(
        self: Arc<Self>,
        context: &WorkerContext,
        tasks: &mut JoinSet<()>,
    ) -> io::Result<Rc<Worker>> {
        Worker::start(self, context, tasks)
    }

    fn serve(worker: &Rc<Worker>, connection: Accepted<Socket>) {
        let Accepted { tcp, peer, local, listener, place } = connection;
        let mut permits = Permits::new(place);
        // Behind a PROXY header the client is known only after the header has been read.
        let live = worker.shared.live.load();
        if !live.proxy_protocol.expected_from(peer.ip())
            // Before the task: a refused connection costs one accept and one close.
            && let Err(refusal) = permits.count_client(&worker.shared, &live, peer.ip())
        {
            return worker.shared.metrics.connection_refused(refusal);
        }
        let worker = Rc::clone(worker);
        match listener {
            Socket::Https => spawn_local(serve_https(worker, tcp, peer, local, permits)),
            Socket::Http => spawn_local(serve_http(worker, tcp, peer, local, permits)),
            Socket::Tcp(number) => spawn_local(serve_tcp(worker, tcp, (peer, local), permits, number)),
        };
    }

    fn serve_datagrams(
        worker: &Rc<Worker>,
        socket: DatagramSocket<Socket>,
    ) -> impl Future<Output = ()> + 'static {
        quic::serve(Rc::clone(worker), socket)
    }

    fn refused(worker: &Worker, reason: NoService) {
        worker.shared.metrics.connection_refused(counted_as(reason));
    }
}
