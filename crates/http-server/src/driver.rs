//! One client connection as HTTP/1.1 or HTTP/2, whichever ALPN chose, from its first byte to its end.
//!
//! The connection's future is its driver: it lets the protocol work, then sends what that wrote, then looks at the time. An
//! idle HTTP/1.1 connection has no protocol machinery and no buffers at all.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use brisk_answer::Service;
use brisk_http_connection::Connection;
use brisk_http_connection::buffers::WorkerBuffers;
use brisk_http_connection::connection::Surroundings;
use brisk_http_connection::end::End;
use brisk_http_connection::handshake::Handshake;
use brisk_http_connection::settings::HttpSettings;
use brisk_net::{Deadline, Drain, Lingering};
use brisk_tls::Stream;
use brisk_wire::HttpVersion;
use tokio::io::AsyncWriteExt;

use super::io::HttpIo;
use crate::date::Date;

/// Everything that serving a connection needs.
pub struct Http {
    /// Answers the requests.
    pub service: Rc<CurrentService>,
    /// The connection as its requests see it.
    pub connection: Rc<Connection>,
    /// Time limits and sizes.
    pub settings: Rc<HttpSettings>,
    /// The connection's own deadline.
    pub deadline: Deadline,
    /// Signals that the gateway shuts down.
    pub drain: Drain,
}

/// The service of a worker, which a reload replaces: requests on open connections are answered by the new one too.
pub struct CurrentService {
    service: RefCell<Rc<Service>>,
    buffers: Rc<WorkerBuffers>,
    date: Date,
}

impl CurrentService {
    /// Begins with `service`.
    pub fn new(service: Rc<Service>) -> Rc<Self> {
        let buffers = WorkerBuffers::new(Arc::clone(&service.telemetry().metrics));
        Rc::new(Self { service: RefCell::new(service), buffers, date: Date::default() })
    }

    /// Answers requests by `service` from now on; those in flight end with the old one.
    pub fn replace(&self, service: Rc<Service>) {
        self.service.replace(service);
    }

    /// The service that answers now.
    pub fn current(&self) -> Rc<Service> {
        Rc::clone(&self.service.borrow())
    }

    /// The buffers of the worker, for a connection without a socket.
    #[cfg(any(test, fuzzing))]
    pub(super) fn buffers(&self) -> Rc<WorkerBuffers> {
        Rc::clone(&self.buffers)
    }

    /// The date for answers.
    pub(super) fn date(&self) -> &Date {
        &self.date
    }
}

/// Serves the connection to its end, and puts what it carried into its record.
pub fn serve(io: HttpIo, http: &Http) -> impl Future<Output = End> {
    http.connection.surround(Surroundings {
        settings: Rc::clone(&http.settings),
        wheel: http.deadline.wheel(),
        buffers: Rc::clone(&http.service.buffers),
        drain: http.drain.clone(),
    });
    Driver { io, http }.run()
}

/// A connection that is being served: its stream, and what serving it needs.
pub(super) struct Driver<'a> {
    pub(super) io: HttpIo,
    pub(super) http: &'a Http,
}

/// Why a turn ends the HTTP machinery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Idle for a while: rest with less memory.
    Rest,
    /// Close, after what was written.
    Close(End),
    /// Close at once: the client does not read, or is gone.
    Abort(End),
}

impl Driver<'_> {
    async fn run(self) -> End {
        self.acknowledge_handshake().await;
        let stop = loop {
            // While its handshake is not complete, a connection never rests.
            if self.handshake().is_none()
                && let Err(stop) = self.rest().await
            {
                break stop;
            }
            // Boxed, so that a resting connection does not carry the room for a busy one.
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
            Stop::Close(_) if self.handshake().is_some() => Box::pin(self.finish_handshake(stop)).await,
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

    /// The version that ALPN chose. Without ALPN clients speak HTTP/1.1, or HTTP/1.0.
    fn version(&self) -> HttpVersion {
        let record = self.http.connection.record.borrow();
        record.tls.as_ref().and_then(|tls| tls.alpn).unwrap_or(HttpVersion::Http11)
    }

    /// The handshake, while it is not complete: early data is being served.
    pub(super) fn handshake(&self) -> Option<&Handshake> {
        self.http.connection.handshake()
    }

    /// Waits for the client with nothing but the connection itself in memory.
    async fn rest(&self) -> Result<(), Stop> {
        let Http { connection, settings, deadline, .. } = self.http;
        deadline.set_idle(connection.idle(settings.timeouts.idle).min(connection.time_left()));
        self.io.stream_mut().rest();
        connection.forwarded.take();
        poll_fn(|cx| self.poll_rest(cx)).await
    }

    fn poll_rest(&self, cx: &mut Context<'_>) -> Poll<Result<(), Stop>> {
        let mut stream = self.io.stream_mut();
        match stream.poll_fill(cx) {
            Poll::Ready(Ok(true)) => return Poll::Ready(Ok(())),
            Poll::Ready(Ok(false)) => return Poll::Ready(Err(Stop::Close(End::Closed))),
            // An alert may be due.
            Poll::Ready(Err(_)) => return Poll::Ready(Err(Stop::Close(End::ClientGone))),
            Poll::Pending => {}
        }
        // Tickets are still waiting here after the handshake.
        if let Poll::Ready(Err(_)) = stream.poll_drain(cx) {
            return Poll::Ready(Err(Stop::Abort(End::ClientGone)));
        }
        if self.http.drain.started() {
            return Poll::Ready(Err(Stop::Close(End::Drained)));
        }
        self.http.deadline.poll_expired(cx).map(|()| Err(Stop::Close(self.end_of_idle())))
    }

    /// Why an idle connection whose deadline has passed ends.
    pub(super) fn end_of_idle(&self) -> End {
        if self.http.deadline.is_evicted() { End::Evicted } else { End::Idle }
    }

    /// Boxed, and made outside of the connection's own future, which would keep room for it.
    fn closing(self, end: End) -> Option<Pin<Box<impl Future<Output = ()>>>> {
        let http = self.http;
        self.io.into_stream().map(|stream| Box::pin(http.close(stream, lingering(end))))
    }

    /// As [`Self::closing`].
    fn cutting(self) -> Option<Pin<Box<impl Future<Output = ()>>>> {
        let http = self.http;
        self.io.into_stream().map(|stream| Box::pin(http.cut(stream)))
    }
}

/// How long, and how much, is read from the client after `end`.
fn lingering(end: End) -> Lingering {
    match end {
        End::Closed | End::Drained => Lingering::UPLOAD,
        _ => Lingering::BRIEF,
    }
}

impl Http {
    fn note_bytes(&self, stream: &Stream) {
        let mut record = self.connection.record.borrow_mut();
        (record.bytes_received, record.bytes_sent) = stream.bytes();
    }

    /// Sends the rest and `close_notify`, then lets the client read it all: closing with unread data would reset.
    async fn close(&self, mut stream: Stream, lingering: Lingering) {
        // Its descriptor is needed now.
        let lingers = !self.deadline.is_evicted();
        self.deadline.set(self.settings.timeouts.write);
        let closed = poll_fn(|cx| match stream.poll_close(cx) {
            Poll::Pending => self.deadline.poll_expired(cx).map(|()| false),
            Poll::Ready(result) => Poll::Ready(result.is_ok()),
        })
        .await;
        self.note_bytes(&stream);
        if closed && lingers && !stream.is_peer_closed() {
            brisk_net::linger(&mut stream.into_tcp(), lingering).await;
        }
    }

    /// Sends the available part of an answer and closes, without `close_notify`, so that the client does not take the
    /// part for the whole (RFC 9112 section 8).
    async fn cut(&self, mut stream: Stream) {
        self.deadline.set(self.settings.timeouts.write);
        let sent = poll_fn(|cx| match stream.poll_drain(cx) {
            Poll::Pending => self.deadline.poll_expired(cx).map(|()| false),
            Poll::Ready(result) => Poll::Ready(result.is_ok()),
        })
        .await;
        self.note_bytes(&stream);
        let mut tcp = stream.into_tcp();
        if sent && tcp.shutdown().await.is_ok() {
            brisk_net::linger(&mut tcp, Lingering::BRIEF).await;
        }
    }
}
