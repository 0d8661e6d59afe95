//! The admin listener: metrics, health and ticket keys over plain HTTP, for machines nearby.

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use brisk_net::Drain;
use brisk_session::TicketKeyring;
use brisk_telemetry::Metrics;
use brisk_telemetry::metrics::CONTENT_TYPE as METRICS_TYPE;
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderMap, HeaderValue, ORIGIN};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::Semaphore;

use crate::tickets;
use crate::watchdog::Pulse;

/// Admin connections at a time: a few scrapers and people.
const CONNECTIONS: usize = 64;

/// File descriptors reserved for admin connections, so that metrics can be read in a shortage.
pub(crate) const SPARE_DESCRIPTORS: usize = 8;

/// Time for a client to send a request head, from the start of the connection or the end of the last response.
const HEAD_LIMIT: Duration = Duration::from_secs(30);

/// The service behind the admin listener: metrics, health, and ticket keys.
#[derive(Clone, Debug)]
pub(crate) struct Admin {
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) keyring: Arc<TicketKeyring>,
    pub(crate) drain: Drain,
    pub(crate) pulse: Arc<Pulse>,
}

/// Serves `socket` for as long as it is polled.
pub(crate) async fn serve(admin: Admin, socket: TcpListener) -> std::io::Result<()> {
    let mut listener = brisk_net::Listener::new(socket)?.with_spare_descriptors(SPARE_DESCRIPTORS);
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
        let path = request.uri().path();
        let changes = path == "/tickets/rotate";
        match *request.method() {
            Method::POST if changes => self.rotate(request.headers()),
            _ if changes => not_allowed("POST", "only POST\n"),
            Method::GET | Method::HEAD => self.report(path),
            _ => not_allowed("GET, HEAD", "only GET and HEAD\n"),
        }
    }

    fn report(&self, path: &str) -> Response<Full<Bytes>> {
        match path {
            "/metrics" => typed(METRICS_TYPE, self.metrics.render()),
            "/tickets" => typed("application/json", tickets::shown(&self.keyring, SystemTime::now())),
            "/healthz" => text(StatusCode::OK, "ok\n"),
            "/readyz" if self.drain.started() => text(StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
            "/readyz" => self.readiness(),
            _ => {
                text(StatusCode::NOT_FOUND, "not found; there are /metrics, /healthz, /readyz and /tickets\n")
            }
        }
    }

    fn readiness(&self) -> Response<Full<Bytes>> {
        let stuck = self.pulse.stuck();
        if stuck.is_empty() {
            return text(StatusCode::OK, "ready\n");
        }
        text(StatusCode::SERVICE_UNAVAILABLE, format!("workers that do not turn: {stuck:?}\n"))
    }

    fn rotate(&self, headers: &HeaderMap) -> Response<Full<Bytes>> {
        // A page of a stranger can make a browser on this machine send a POST here, but not without this header.
        if headers.contains_key(ORIGIN) {
            return text(StatusCode::FORBIDDEN, "not for pages in a browser\n");
        }
        match tickets::rotate(&self.keyring, SystemTime::now()) {
            Ok(done) => text(StatusCode::OK, done),
            Err(error) => text(StatusCode::CONFLICT, format!("{error}\n")),
        }
    }
}

fn not_allowed(allowed: &'static str, message: &'static str) -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, message);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

fn typed(kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = text(StatusCode::OK, body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
