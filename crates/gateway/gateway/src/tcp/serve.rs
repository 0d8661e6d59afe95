//! Connections of the listeners of `[[tcp]]`, up to their [`Entry`].

use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use brisk_net::Deadline;
use brisk_telemetry::metrics::Listening;
use brisk_telemetry::{ConnectionEnd, ConnectionRecord, HandshakeOutcome, Timeline};
use brisk_tls::{ReadHello, Refusal, Stream, Variant, read_hello, refuse_name};
use tokio::net::TcpStream;

use super::forward::{Entry, forward};
use super::io::ClientIo;
use super::routes::TcpService;
use crate::connection::client::{Permits, introduce, timed_out};
use crate::connection::{refused, trace_of};
use crate::worker::Worker;

/// Serves one connection of a listener of `[[tcp]]`, the one with this number, to its end. Never fails: errors are recorded.
pub(crate) fn serve_tcp(
    worker: Rc<Worker>,
    tcp: TcpStream,
    (peer, local): (SocketAddr, SocketAddr),
    mut permits: Permits,
    listener: usize,
) -> impl Future<Output = ()> {
    let record = ConnectionRecord::new(worker.shared.next_connection_id(), peer, local, Timeline::start());
    let mut record = Box::new(record);
    record.report_to(&worker.shared.sink, Listening::Tcp);
    async move {
        let deadline = worker.wheel.register();
        // Boxed: the state of the handshake is freed at the end of this statement instead of enlarging the task.
        let entered = Box::pin(enter(&worker, tcp, &mut record, &mut permits, (&deadline, listener))).await;
        match entered {
            Ok(Some(entry)) => forward(worker, record, deadline, entry).await,
            // A reload has removed all services of the listener.
            Ok(None) => record.finish(ConnectionEnd::Served("no-service")),
            Err(refusal) => refused(&worker, &mut record, &refusal),
        }
        drop(permits);
    }
}

/// Reads the PROXY header, and the `ClientHello` if the routes of the listener depend on it.
async fn enter(
    worker: &Worker,
    mut tcp: TcpStream,
    record: &mut ConnectionRecord,
    permits: &mut Permits,
    (deadline, listener): (&Deadline, usize),
) -> Result<Option<Entry>, Refusal> {
    let live = worker.shared.live.load_full();
    // Until the service is known, a connection counts as idle: under shortage the oldest is closed first.
    deadline.set_idle(live.handshake_timeout);
    let received = introduce(worker, &live, &mut tcp, record, permits, deadline).await?;
    let routes = live.tcp.of_listener(listener);
    if let Some(service) = &routes.plain {
        return Ok(Some(Entry::plain(service, tcp, received)));
    }
    if routes.acceptor.is_none() && !routes.reads_hello() {
        return Ok(None);
    }
    let client = live.one_client(record.client.ip());
    let entering = async {
        let mut trace = trace_of(record);
        let read = read_hello(&mut tcp, received, live.hello_size, &mut trace).await?;
        if let Some(service) = routes.passes(&read.hello, routes.acceptor.as_deref()) {
            return Ok(Entry::passed(service, tcp, read));
        }
        let Some(acceptor) = &routes.acceptor else {
            // An alert instead of a closed connection, so that the client learns the reason.
            let refusal = refuse_name(&mut tcp, &mut trace).await;
            return Err(Refusal { server_name: read.hello.server_name, ..refusal });
        };
        let vary = |_| Variant::default();
        let accepted = acceptor.accept_read(client, tcp, read, &vary, trace).await?;
        let service = routes.terminated(accepted.place);
        let service = service.ok_or_else(|| Refusal::new(HandshakeOutcome::Internal))?;
        worker.shared.metrics.handshake(&accepted.facts);
        record.tls = Some(Box::new(accepted.facts));
        Ok(Entry::terminated(service, accepted.stream))
    };
    deadline.within(entering).await.unwrap_or_else(|| Err(timed_out(deadline))).map(Some)
}

impl Entry {
    /// A connection without TLS, of which `received` was read already.
    fn plain(service: &Arc<TcpService>, tcp: TcpStream, received: Vec<u8>) -> Self {
        Self {
            service: Arc::clone(service),
            io: ClientIo::plain(tcp),
            read_ahead: received,
            server_name: None,
        }
    }

    /// A connection whose TLS is passed on.
    pub(crate) fn passed(service: &Arc<TcpService>, tcp: TcpStream, read: ReadHello) -> Self {
        let ReadHello { hello, incoming, .. } = read;
        let server_name = hello.server_name.map(String::into_boxed_str);
        Self { server_name, ..Self::plain(service, tcp, incoming) }
    }

    /// A connection whose TLS brisk has terminated.
    pub(crate) fn terminated(service: &Arc<TcpService>, stream: Stream) -> Self {
        let io = ClientIo::Tls(Box::new(stream));
        Self { service: Arc::clone(service), io, read_ahead: Vec::new(), server_name: None }
    }
}
