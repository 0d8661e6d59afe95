//! The admin listener: metrics and health over plain HTTP, for machines nearby.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use brisk_net::Drain;
use brisk_telemetry::Metrics;
use brisk_telemetry::metrics::CONTENT_TYPE as METRICS_TYPE;
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Semaphore;

/// Admin connections at a time: a few scrapers and people.
const CONNECTIONS: usize = 64;

/// To send a request head, or the next one.
const HEAD_LIMIT: Duration = Duration::from_secs(30);

/// What the admin listener tells.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) drain: Drain,
}

/// Serves `socket` for as long as it is polled.
pub(crate) async fn serve(admin: Admin, socket: TcpListener) -> std::io::Result<()> {
    let mut listener = brisk_net::Listener::new(socket)?;
    let free = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let (tcp, _) = listener.accept().await?;
        let Ok(permit) = Arc::clone(&free).try_acquire_owned() else { continue };
        let admin = admin.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let response = admin.respond(&request);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_LIMIT)
                .serve_connection(TokioIo::new(tcp), service);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "admin connection");
            }
            drop(permit);
        });
    }
}

impl Admin {
    fn respond<B>(&self, request: &Request<B>) -> Response<Full<Bytes>> {
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            "/metrics" => {
                let mut response = text(StatusCode::OK, self.metrics.render());
                response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(METRICS_TYPE));
                response
            }
            "/healthz" => text(StatusCode::OK, "ok\n"),
            "/readyz" if self.drain.started() => text(StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
            "/readyz" => text(StatusCode::OK, "ready\n"),
            _ => text(StatusCode::NOT_FOUND, "not found; there are /metrics, /healthz and /readyz\n"),
        }
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
