//! Plain HTTP connections: every request is redirected to HTTPS, except the validation requests of certificate
//! authorities.

use std::net::SocketAddr;
use std::rc::Rc;

use brisk_answer::RecordedBody;
use brisk_certs::challenge::HTTP_PATH;
use brisk_http::message::{RequestParts, Response};
use brisk_http_connection::Connection;
use brisk_http_server::{Http, serve_plain};
use brisk_net::Deadline;
use brisk_telemetry::metrics::Listening;
use brisk_telemetry::{ConnectionEnd, ConnectionRecord, Timeline};
use tokio::net::TcpStream;

use crate::connection::client::{Permits, introduce};
use crate::connection::limit_client;
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
        Ok(received) => answer(&worker, tcp, received, record, deadline).await,
        Err(refusal) => record.finish(ConnectionEnd::HandshakeFailed(refusal.outcome)),
    }
}

async fn answer(
    worker: &Worker,
    tcp: TcpStream,
    received: Vec<u8>,
    record: ConnectionRecord,
    deadline: Deadline,
) {
    let connection = Connection::new(record, false);
    limit_client(worker, &connection);
    let http = Http {
        service: Rc::clone(&worker.service),
        connection: Rc::clone(&connection),
        settings: Rc::clone(&worker.http.borrow()),
        deadline,
        drain: worker.drain.clone(),
    };
    let end = serve_plain(tcp, &received, &http, |head| respond(worker, &connection, head)).await;
    connection.client.record.borrow_mut().finish(ConnectionEnd::Served(end.name()));
}

/// Responds to a validation request of a certificate authority below [`HTTP_PATH`], or redirects to HTTPS.
async fn respond(worker: &Worker, connection: &Rc<Connection>, head: RequestParts) -> Response<RecordedBody> {
    // RFC 8555 section 8.3: the authority sends HTTP-01 requests to port 80, so they take precedence over the redirect.
    let asked = head.uri.path();
    let text = if asked.starts_with(HTTP_PATH) {
        worker.shared.certificates.challenges.http(asked).await
    } else {
        None
    };
    let redirect = worker.shared.live.load().redirect;
    worker.service.current().redirect(redirect, text.as_deref(), connection, &head)
}
