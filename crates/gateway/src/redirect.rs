//! Plain HTTP connections: every request is redirected to HTTPS, except the validation requests of certificate
//! authorities.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::{self, Cursor};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use brisk_answer::RecordedBody;
use brisk_certs::challenge::HTTP_PATH;
use brisk_http_connection::Connection;
use brisk_http_server::{End, HttpSettings, StrictLines};
use brisk_net::Deadline;
use brisk_telemetry::metrics::Listening;
use brisk_telemetry::{ConnectionEnd, ConnectionRecord, Timeline};
use http::request::Parts;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::client::{Permits, introduce};
use crate::connection::limit_requests;
use crate::worker::Worker;

/// Serves one plain HTTP connection to its end. It may begin with a PROXY header, as HTTPS connections may.
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
        Ok(received) => answer(&worker, tcp, received, record, &deadline).await,
        Err(refusal) => record.finish(ConnectionEnd::HandshakeFailed(refusal.outcome)),
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
    let bytes = Rc::new(Bytes::default());
    let (reader, writer) = (Counted::new(reader, &bytes), Counted::new(writer, &bytes));
    let reader = StrictLines::new(Cursor::new(received).chain(reader));
    let lines = reader.watch();
    let service = service_fn(|request: Request<Incoming>| {
        let (head, body) = request.into_parts();
        lines.expect(&body);
        respond(worker, Rc::clone(&connection), head)
    });
    let http = Rc::clone(&worker.http.borrow());
    let io = tokio::io::join(reader, writer);
    let hyper = builder(&http).serve_connection(TokioIo::new(io), service);
    let mut hyper = std::pin::pin!(hyper);
    // A client may send any number of requests, but its connection must not idle, and it has to read the responses.
    deadline.set_idle(http.timeouts.idle);
    let (mut closing, mut end) = (false, End::Closed);
    let ended = poll_fn(|cx| {
        if let Poll::Ready(ended) = hyper.as_mut().poll(cx) {
            return Poll::Ready(Some(ended));
        }
        let late = deadline.poll_expired(cx).is_ready();
        if closing {
            return if late { Poll::Ready(None) } else { Poll::Pending };
        }
        if late || worker.drain.started() {
            (closing, end) = (true, if late { End::Idle } else { End::Drained });
            hyper.as_mut().graceful_shutdown();
            // A client that does not read the last response must not prevent the end of the connection.
            deadline.set(http.timeouts.write);
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await;
    if let Some(Err(error)) = ended {
        tracing::debug!(%error, "plain HTTP connection");
        end = end_of(&error);
    }
    let mut record = connection.client.record.borrow_mut();
    record.bytes_received += bytes.received.get();
    record.bytes_sent += bytes.sent.get();
    record.finish(ConnectionEnd::Served(end.name()));
}

/// Responds to a validation request of a certificate authority, or redirects to HTTPS.
async fn respond(
    worker: &Worker,
    connection: Rc<Connection>,
    head: Parts,
) -> Result<Response<RecordedBody>, Infallible> {
    // RFC 8555 section 8.3: the authority sends HTTP-01 requests to port 80, so they take precedence over the redirect.
    let asked = head.uri.path();
    let text = if asked.starts_with(HTTP_PATH) {
        worker.shared.certificates.challenges.http(asked).await
    } else {
        None
    };
    let redirect = worker.shared.live.load().redirect;
    Ok(worker.service.current().redirect(redirect, text.as_deref(), &connection, &head))
}

/// Limits of the server.
fn builder(http: &HttpSettings) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(http.timeouts.head)
        .max_buf_size(http.head_size.max(8192))
        .max_headers(http.headers);
    builder
}

fn end_of(error: &hyper::Error) -> End {
    if error.is_timeout() {
        End::HeadTimeout
    } else if error.is_parse() {
        End::Malformed
    } else {
        End::ClientGone
    }
}

/// Bytes received and sent on a connection.
#[derive(Default)]
struct Bytes {
    received: Cell<u64>,
    sent: Cell<u64>,
}

/// Half of a socket that counts its bytes.
struct Counted<T> {
    half: T,
    bytes: Rc<Bytes>,
}

impl<T> Counted<T> {
    fn new(half: T, bytes: &Rc<Bytes>) -> Self {
        Self { half, bytes: Rc::clone(bytes) }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.half).poll_read(cx, buf);
        self.bytes.received.update(|count| count + (buf.filled().len() - before) as u64);
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.half).poll_write(cx, buf);
        if let Poll::Ready(Ok(len)) = polled {
            self.bytes.sent.update(|count| count + len as u64);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.half).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.half).poll_shutdown(cx)
    }
}
