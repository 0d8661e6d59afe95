//! Plain HTTP connections, which get nothing but a redirect to HTTPS.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::Poll;

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
    // A client may ask again and again, but not for ever, and may not let its answers lie.
    let deadline = worker.wheel.register();
    deadline.set(http.timeouts.idle);
    let mut closing = false;
    let ended = poll_fn(|cx| {
        if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
            return Poll::Ready(Some(ended));
        }
        let late = deadline.poll_expired(cx).is_ready();
        if closing {
            return if late { Poll::Ready(None) } else { Poll::Pending };
        }
        if late || worker.drain.started() {
            closing = true;
            connection.as_mut().graceful_shutdown();
            deadline.set(http.timeouts.write);
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await;
    if let Some(Err(error)) = ended {
        tracing::debug!(%error, "plain HTTP connection");
    }
    drop(permits);
}
