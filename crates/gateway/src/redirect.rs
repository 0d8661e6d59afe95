//! Plain HTTP connections, which get nothing but a redirect to HTTPS.

use std::convert::Infallible;
use std::rc::Rc;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;

use crate::worker::{Permits, Worker};

/// Serves one plain HTTP connection to its end.
pub(crate) async fn serve_http(worker: Rc<Worker>, tcp: TcpStream, permits: Permits) {
    let service = service_fn(|request| {
        let (head, _) = Request::<Incoming>::into_parts(request);
        let response = worker.shared.live.load().redirect.answer(&head);
        async move { Ok::<_, Infallible>(response) }
    });
    let http = Rc::clone(&worker.http.borrow());
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(http.timeouts.head)
        .max_buf_size(http.head_size.max(8192))
        .max_headers(http.headers)
        .serve_connection(TokioIo::new(tcp), service);
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = worker.drain.wait() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "plain HTTP connection");
    }
    drop(permits);
}
