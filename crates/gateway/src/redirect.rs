//! Plain HTTP connections: every request is answered with a redirect to HTTPS.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::Cursor;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

use brisk_net::Deadline;
use brisk_proxy::client::StrictLines;
use brisk_proxy::{ClientBody, Connection};
use brisk_telemetry::ConnectionRecord;
use brisk_telemetry::metrics::Listening;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::client::introduce;
use crate::connection::{failed, limit_requests};
use crate::worker::{Permits, Worker};

/// Serves one plain HTTP connection to its end. It may begin with a PROXY header, as HTTPS connections may.
pub(crate) async fn serve_http(
    worker: Rc<Worker>,
    mut tcp: TcpStream,
    peer: SocketAddr,
    local: SocketAddr,
    mut permits: Permits,
) {
    let shared = &worker.shared;
    let mut record = ConnectionRecord::new(shared.next_connection_id(), peer, local, Instant::now());
    record.count_in(&shared.metrics, Listening::Http);
    let deadline = worker.wheel.register();
    let live = shared.live.load_full();
    deadline.set_idle(live.handshake_timeout);
    match introduce(&worker, &live, &mut tcp, &mut record, &mut permits, &deadline).await {
        Ok(received) => answer(&worker, tcp, received, record, &deadline).await,
        Err(refusal) => failed(&worker, &record, refusal.outcome),
    }
}

async fn answer(
    worker: &Worker,
    tcp: TcpStream,
    received: Vec<u8>,
    record: ConnectionRecord,
    deadline: &Deadline,
) {
    let connection = Connection::new(record, false);
    limit_requests(worker, &connection);
    let (reader, writer) = tcp.into_split();
    let reader = StrictLines::new(Cursor::new(received).chain(reader));
    let lines = reader.watch();
    let service = service_fn(|request| {
        let (head, body) = ClientBody::of_hyper(request).into_parts();
        lines.expect(&body);
        let redirect = worker.shared.live.load().redirect;
        let response = worker.service.current().redirect(redirect, &connection, &head);
        async move { Ok::<_, Infallible>(response) }
    });
    let http = Rc::clone(&worker.http.borrow());
    let io = tokio::io::join(reader, writer);
    let hyper = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(http.timeouts.head)
        .max_buf_size(http.head_size.max(8192))
        .max_headers(http.headers)
        .serve_connection(TokioIo::new(io), service);
    let mut hyper = std::pin::pin!(hyper);
    // A client may send any number of requests, but its connection must not idle, and it has to read the responses.
    deadline.set_idle(http.timeouts.idle);
    let mut closing = false;
    let ended = poll_fn(|cx| {
        if let Poll::Ready(ended) = hyper.as_mut().poll(cx) {
            return Poll::Ready(Some(ended));
        }
        let late = deadline.poll_expired(cx).is_ready();
        if closing {
            return if late { Poll::Ready(None) } else { Poll::Pending };
        }
        if late || worker.drain.started() {
            closing = true;
            hyper.as_mut().graceful_shutdown();
            deadline.set(http.timeouts.write);
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await;
    if let Some(Err(error)) = ended {
        tracing::debug!(%error, "plain HTTP connection");
    }
}
