//! Plain HTTP connections. Requests are redirected to HTTPS by [`serve_plain`], except the validation requests of certificate
//! authorities. If a host has `plain = "serve"`, [`brisk_http_server::serve`] serves the connections, and the service decides.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Poll;

use brisk_http_connection::Connection;
use brisk_http_server::{End, Http, HttpIo, serve_plain};
use brisk_net::Deadline;
use brisk_net::rates::Event;
use brisk_telemetry::metrics::Listening;
use brisk_telemetry::{ConnectionEnd, ConnectionRecord, Timeline};
use brisk_wire::h2::frame::PREFACE;
use tokio::net::TcpStream;

use crate::connection::client::{Permits, introduce};
use crate::connection::{charge, limit_client};
use crate::worker::Worker;

/// Serves one plain HTTP connection to its end. As with HTTPS, a PROXY header may precede the first request.
pub(crate) async fn serve_http(
    worker: Rc<Worker>,
    mut tcp: TcpStream,
    peer: SocketAddr,
    local: SocketAddr,
    mut permits: Permits,
) {
    let shared = &worker.shared;
    let mut record = ConnectionRecord::new(shared.next_connection_id(), peer, local, Timeline::start());
    record.report_to(&shared.sink, Listening::Http);
    let deadline = worker.wheel.register();
    let live = shared.live.load_full();
    deadline.set_idle(live.handshake_timeout);
    match introduce(&worker, &live, &mut tcp, &mut record, &mut permits, &deadline).await {
        Ok(received) if live.serves_plain => {
            // Boxed, so that redirected connections do not hold the memory of HTTP/2.
            Box::pin(serve_hosts(&worker, tcp, received, record, deadline)).await;
        }
        Ok(received) => redirect(&worker, tcp, received, record, deadline).await,
        Err(refusal) => record.finish(ConnectionEnd::HandshakeFailed(refusal.outcome)),
    }
}

/// Serves the connection as one over TLS, on an [`HttpIo::plain`].
async fn serve_hosts(
    worker: &Worker,
    mut tcp: TcpStream,
    mut received: Vec<u8>,
    mut record: ConnectionRecord,
    deadline: Deadline,
) {
    let begin = read_begin(worker, &mut tcp, &mut received, &mut record, &deadline);
    let end = match deadline.within(begin).await {
        Some(Ok(())) => None,
        Some(Err(end)) => Some(end),
        None if deadline.is_evicted() => Some(End::Evicted),
        None => Some(if received.is_empty() { End::Idle } else { End::HeadTimeout }),
    };
    if let Some(end) = end {
        return record.finish(ConnectionEnd::Served(end.name()));
    }
    let (bytes, permits_http2) = (record.bytes_received, worker.shared.live.load().permits_http2);
    let http = http_of(worker, record, deadline);
    let io = HttpIo::plain(tcp, received, bytes, permits_http2);
    let end = brisk_http_server::serve(io, &http).await;
    let mut record = http.connection.client.record.borrow_mut();
    if matches!(end, End::Malformed | End::Flood) {
        charge(worker, &record, Event::Error);
    }
    record.finish(ConnectionEnd::Served(end.name()));
}

/// Reads until it is known whether the client speaks HTTP/2: until `received` cannot become [`PREFACE`].
async fn read_begin(
    worker: &Worker,
    tcp: &mut TcpStream,
    received: &mut Vec<u8>,
    record: &mut ConnectionRecord,
    deadline: &Deadline,
) -> Result<(), End> {
    let timeouts = worker.http.borrow().timeouts.clone();
    if received.is_empty() {
        deadline.set_idle(timeouts.idle);
    } else {
        // Bytes behind a PROXY header have begun a request already.
        deadline.set(timeouts.head);
    }
    while received.len() < PREFACE.len() && PREFACE.starts_with(received) {
        let has_begun = !received.is_empty();
        poll_fn(|cx| match tcp.poll_read_ready(cx) {
            Poll::Ready(ready) => Poll::Ready(ready.map_err(|_| End::ClientGone)),
            // The wheel of the deadlines wakes the task at a drain.
            Poll::Pending if !has_begun && worker.drain.started() => Poll::Ready(Err(End::Drained)),
            Poll::Pending => Poll::Pending,
        })
        .await?;
        let length = match tcp.try_read_buf(received) {
            // The end after a part of a request is a broken connection; before one, it is a
            // client that changed its mind.
            Ok(0) if has_begun => return Err(End::ClientGone),
            Ok(0) => return Err(End::Closed),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => return Err(End::ClientGone),
        };
        record.bytes_received += length as u64;
        // Once, with the first byte: a client that sends single bytes must not extend the time of its head.
        if !has_begun {
            deadline.set(timeouts.head);
        }
    }
    Ok(())
}

/// Redirects the requests of the connection, and answers those of certificate authorities.
async fn redirect(
    worker: &Worker,
    tcp: TcpStream,
    received: Vec<u8>,
    record: ConnectionRecord,
    deadline: Deadline,
) {
    let http = http_of(worker, record, deadline);
    let respond = async |head| http.service.current().redirect(&http.connection, &head).await;
    let end = serve_plain(tcp, &received, &http, respond).await;
    http.connection.client.record.borrow_mut().finish(ConnectionEnd::Served(end.name()));
}

/// The [`Http`] of a connection, within the limits of its client.
fn http_of(worker: &Worker, record: ConnectionRecord, deadline: Deadline) -> Http {
    let connection = Connection::new(record, false);
    limit_client(worker, &connection);
    Http {
        service: Rc::clone(&worker.service),
        connection,
        settings: Rc::clone(&worker.http.borrow()),
        deadline,
        drain: worker.drain.clone(),
    }
}
