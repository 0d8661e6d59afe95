//! [`Driver`] of a client connection over HTTP/1.1 or HTTP/2, from the first byte to the close.
//!
//! The driver is the connection's future. Each turn lets the protocol work, sends its output, then checks the deadline. An
//! idle HTTP/1.1 connection has neither protocol state nor buffers.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use brisk_answer::Service;
use brisk_budget::Budgets;
use brisk_http_connection::Connection;
use brisk_http_connection::buffers::WorkerBuffers;
use brisk_http_connection::connection::Surroundings;
use brisk_http_connection::end::End;
use brisk_http_connection::settings::HttpSettings;
use brisk_net::{Deadline, Drain, Lingering};
use brisk_pressure::Pressure;
use brisk_tls::Stream;
use brisk_wire::HttpVersion;
use tokio::io::AsyncWriteExt;

use super::io::HttpIo;
use crate::date::Date;
use crate::flood::FloodMetrics;

/// Inputs of [`serve`] for one connection.
pub struct Http {
    /// Service that responds to the requests.
    pub service: Rc<CurrentService>,
    /// State of the connection that all its requests share.
    pub connection: Rc<Connection>,
    /// Timeouts and size limits.
    pub settings: Rc<HttpSettings>,
    /// Deadline of the connection in the wheel of its worker.
    pub deadline: Deadline,
    /// Reports that the gateway drains.
    pub drain: Drain,
}

/// [`Service`] of a worker. A reload replaces it, for later requests on open connections too.
pub struct CurrentService {
    service: RefCell<Rc<Service>>,
    buffers: Rc<WorkerBuffers>,
    floods: Arc<FloodMetrics>,
    date: Date,
}

impl CurrentService {
    /// Creates the holder with its first service, the memory budgets and the overload of the process.
    pub fn new(service: Rc<Service>, budgets: Arc<Budgets>, pressure: Arc<Pressure>) -> Rc<Self> {
        let metrics = Arc::clone(&service.telemetry().metrics);
        let floods = metrics.collector();
        let buffers = WorkerBuffers::under(pressure, metrics, budgets);
        Rc::new(Self { service: RefCell::new(service), buffers, floods, date: Date::default() })
    }

    /// Divides the work for responses among the clients of the worker. Never ends.
    pub fn divide_work(&self) -> impl Future<Output = ()> + use<> {
        Rc::clone(&self.buffers).divide_work()
    }

    /// Replaces the service. Requests in flight keep the former [`Service`].
    pub fn replace(&self, service: Rc<Service>) {
        self.service.replace(service);
    }

    /// Service for the next request.
    pub fn current(&self) -> Rc<Service> {
        Rc::clone(&self.service.borrow())
    }

    /// Counters of connections that are closed with [`End::Flood`].
    pub(super) fn floods(&self) -> &FloodMetrics {
        &self.floods
    }

    /// `Date` header for responses.
    pub(super) fn date(&self) -> &Date {
        &self.date
    }
}

/// Serves the connection `io` until it ends, and records its bytes in the record of [`Http::connection`]. Returns the reason of
/// the end; no error of the client is an error of `serve`.
pub fn serve(io: HttpIo, http: &Http) -> impl Future<Output = End> {
    http.surround();
    Driver { io, http }.run()
}

/// Connection being served: its stream and its inputs.
pub(super) struct Driver<'a> {
    pub(super) io: HttpIo,
    pub(super) http: &'a Http,
}

/// Reason to leave the protocol code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Idle: release the protocol state and wait with less memory.
    Rest,
    /// Close after pending output, with `close_notify`.
    Close(End),
    /// Close immediately: the client does not read, or is gone.
    Abort(End),
}

impl Driver<'_> {
    async fn run(self) -> End {
        self.acknowledge_handshake().await;
        let stop = loop {
            // A connection with an incomplete handshake does not rest, since only the driver advances the handshake.
            if self.http.handshake().is_none()
                && let Err(stop) = self.rest().await
            {
                break stop;
            }
            // Boxed: otherwise the future of a resting connection would include space for the protocol state.
            let stop = match self.version() {
                HttpVersion::Http2 => Box::pin(self.h2_turns()).await,
                HttpVersion::Http11 | HttpVersion::Http10 => Box::pin(self.http1_turns()).await,
                HttpVersion::Http3 => unreachable!("TLS over TCP does not offer HTTP/3"),
            };
            if stop != Stop::Rest {
                break stop;
            }
        };
        let stop = match stop {
            Stop::Close(_) if self.http.handshake().is_some() => Box::pin(self.finish_handshake(stop)).await,
            stop => stop,
        };
        self.http.note_bytes(&self.io.stream());
        match stop {
            Stop::Close(end) => {
                if let Some(closing) = self.closing(end) {
                    closing.await;
                }
                end
            }
            Stop::Abort(End::AnswerBroken) => {
                if let Some(cutting) = self.cutting() {
                    cutting.await;
                }
                End::AnswerBroken
            }
            Stop::Abort(end) => end,
            Stop::Rest => unreachable!("the loop goes on"),
        }
    }

    /// Version chosen by ALPN, or by the first bytes without TLS; otherwise HTTP/1.1 (HTTP/1.0 requests are accepted there too).
    fn version(&self) -> HttpVersion {
        if self.io.knows_http2() {
            return HttpVersion::Http2;
        }
        let record = self.http.connection.client.record.borrow();
        record.tls.as_ref().and_then(|tls| tls.alpn).unwrap_or(HttpVersion::Http11)
    }

    /// Waits for the client without protocol state and buffers, at most for the idle timeout of the route or `timeouts.idle`,
    /// within `timeouts.connection`.
    async fn rest(&self) -> Result<(), Stop> {
        let Http { connection, settings, deadline, .. } = self.http;
        deadline.set_idle(connection.idle_time(settings.timeouts.idle).min(connection.time_left()));
        self.io.stream_mut().rest();
        connection.client.forwarded.take();
        poll_fn(|cx| self.poll_rest(cx)).await
    }

    fn poll_rest(&self, cx: &mut Context<'_>) -> Poll<Result<(), Stop>> {
        let mut stream = self.io.stream_mut();
        match stream.poll_fill(cx) {
            Poll::Ready(Ok(true)) => return Poll::Ready(Ok(())),
            Poll::Ready(Ok(false)) => return Poll::Ready(Err(Stop::Close(End::Closed))),
            // `Close` instead of `Abort`, because an alert may wait to be sent.
            Poll::Ready(Err(_)) => return Poll::Ready(Err(Stop::Close(End::ClientGone))),
            Poll::Pending => {}
        }
        // Session tickets may still be unsent after the handshake.
        if let Poll::Ready(Err(_)) = stream.poll_drain(cx) {
            return Poll::Ready(Err(Stop::Abort(End::ClientGone)));
        }
        // After `poll_fill`: a request that has already arrived is served before the connection closes.
        if self.http.drain.started() {
            return Poll::Ready(Err(Stop::Close(End::Drained)));
        }
        self.http.deadline.poll_expired(cx).map(|()| Err(Stop::Close(self.http.end_of_idle())))
    }

    /// Future that closes the connection. Boxed, and created outside of [`Self::run`], whose future would otherwise include
    /// its space.
    fn closing(self, end: End) -> Option<Pin<Box<impl Future<Output = ()>>>> {
        let http = self.http;
        self.io.into_stream().map(|stream| Box::pin(http.close(stream, lingering(end))))
    }

    /// Future that cuts the connection off; boxed like [`Self::closing`].
    fn cutting(self) -> Option<Pin<Box<impl Future<Output = ()>>>> {
        let http = self.http;
        self.io.into_stream().map(|stream| Box::pin(http.cut(stream)))
    }
}

/// Limits, in time and bytes, of reading from the client after `end`: longer if an upload may be in progress.
pub(super) fn lingering(end: End) -> Lingering {
    match end {
        End::Closed | End::Drained => Lingering::UPLOAD,
        _ => Lingering::BRIEF,
    }
}

impl Http {
    /// Gives the connection the settings and resources of its worker.
    pub(super) fn surround(&self) {
        self.connection.surround(Surroundings {
            settings: Rc::clone(&self.settings),
            wheel: self.deadline.wheel(),
            buffers: Rc::clone(&self.service.buffers),
            drain: self.drain.clone(),
        });
    }

    /// Reason of the end of a connection whose idle deadline has passed: [`End::Evicted`] if another client needs its
    /// descriptor.
    pub(super) fn end_of_idle(&self) -> End {
        if self.deadline.is_evicted() { End::Evicted } else { End::Idle }
    }

    fn note_bytes(&self, stream: &Stream) {
        let mut record = self.connection.client.record.borrow_mut();
        (record.bytes_received, record.bytes_sent) = stream.bytes();
    }

    /// Sends pending output and `close_notify`, then reads for a while: closing a socket with unread data sends a reset,
    /// which would destroy output that the client has not read yet.
    async fn close(&self, mut stream: Stream, lingering: Lingering) {
        // An evicted connection does not linger, because its descriptor is needed for another client.
        let lingers = !self.deadline.is_evicted();
        self.deadline.set(self.settings.timeouts.write);
        let closed = poll_fn(|cx| match stream.poll_close(cx) {
            Poll::Pending => self.deadline.poll_expired(cx).map(|()| false),
            Poll::Ready(result) => Poll::Ready(result.is_ok()),
        })
        .await;
        self.note_bytes(&stream);
        if closed {
            stream.ends_whole();
        }
        if closed && lingers && !stream.is_peer_closed() {
            brisk_net::linger(&mut stream.into_tcp(), lingering).await;
        }
    }

    /// Sends the available part of a response and closes without `close_notify`, or without TLS [by a
    /// reset](Stream::cuts_by_reset), so that the client detects a truncated response (RFC 9112 section 8).
    async fn cut(&self, mut stream: Stream) {
        self.deadline.set(self.settings.timeouts.write);
        let sent = poll_fn(|cx| match stream.poll_drain(cx) {
            Poll::Pending => self.deadline.poll_expired(cx).map(|()| false),
            Poll::Ready(result) => Poll::Ready(result.is_ok()),
        })
        .await;
        self.note_bytes(&stream);
        if stream.is_plain() {
            return;
        }
        let mut tcp = stream.into_tcp();
        if sent && tcp.shutdown().await.is_ok() {
            brisk_net::linger(&mut tcp, Lingering::BRIEF).await;
        }
    }
}
