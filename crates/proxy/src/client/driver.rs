//! One client connection as HTTP/1.1 or HTTP/2, whichever ALPN chose, from its first byte to its end.
//!
//! The connection's future is its driver: it lets hyper work, then sends what hyper wrote, then looks at the time. An
//! idle HTTP/1.1 connection has no hyper connection and no buffers at all.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use brisk_net::{Deadline, Drain, Lingering};
use brisk_tls::Stream;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::io::AsyncWriteExt;

use super::io::HttpIo;
use super::turn::{self, Stop, Turns};
use super::{handshake, http2};
use crate::answer::head_limits::HeadLimits;
use crate::answer::service::Service;
use crate::connection::buffers::WorkerBuffers;
use crate::connection::{Connection, Surroundings};

/// Time limits and sizes of HTTP connections.
#[derive(Clone, Debug)]
pub struct HttpSettings {
    /// How long a client may take.
    pub timeouts: HttpTimeouts,
    /// Bytes of a request head: request line and headers together. Default: 64 KiB.
    pub head_size: usize,
    /// Headers of a request. Default: 100.
    pub headers: usize,
    /// Requests at a time on one HTTP/2 connection. Default: 128.
    pub h2_streams: u32,
    /// HTTP/2 streams that a client may reset, or make the server reset, before the connection is closed
    /// (CVE-2023-44487). Two answers earn one back, as does each second. A control frame without use counts a tenth.
    /// Default: 200.
    pub h2_resets: usize,
    /// Bytes of answers that a connection may hold while its client does not take them. Default: 1 MiB.
    pub buffered: usize,
    /// The same for all connections together, to some 64 KiB for each worker. Beyond it every connection keeps 64 KiB,
    /// those whose clients take nothing are closed, and new requests get 503. Default: 1 GiB.
    pub buffered_total: usize,
    /// Bytes of request bodies that are gathered before their upstream gets them, of all connections together, in memory
    /// and in files. Requests beyond it get 503. Default: 1 GiB.
    pub gathered_total: u64,
    /// Bytes per second that a request body has to come with, until its answer begins; 0 for none. The time of one
    /// pause (`timeouts.body`) is free. Default: 240.
    pub body_rate: u64,
    /// Requests on one connection: then it is closed as soon as those in flight are answered. Default: none.
    pub requests: Option<u32>,
    /// A client that closes its side while it waits for an answer over HTTP/1.1 is gone, and its request is given up.
    /// Otherwise it still gets the answer. One that resets the connection is gone in any case. Default: false.
    pub abort_on_close: bool,
}

/// How long a client may take. Granularity: 100 ms.
#[derive(Clone, Debug)]
pub struct HttpTimeouts {
    /// To send a request head, from its first byte. Default: 10 s.
    pub head: Duration,
    /// To go on with a request body. Default: 30 s.
    pub body: Duration,
    /// To begin the next request. Default: 60 s.
    pub idle: Duration,
    /// To go on reading an answer. Default: 30 s.
    pub write: Duration,
    /// For a whole request and its answer, from the end of the request's head. Default: none.
    pub request: Option<Duration>,
    /// For a connection: then it is closed as soon as its requests in flight are answered. Default: none.
    pub connection: Option<Duration>,
}

impl HttpSettings {
    pub(super) fn head_limits(&self) -> HeadLimits {
        HeadLimits { lines: self.headers, size: self.head_size }
    }
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            timeouts: HttpTimeouts::default(),
            head_size: 64 * 1024,
            headers: 100,
            h2_streams: 128,
            h2_resets: 200,
            buffered: 1 << 20,
            buffered_total: 1 << 30,
            gathered_total: 1 << 30,
            body_rate: 240,
            requests: None,
            abort_on_close: false,
        }
    }
}

impl Default for HttpTimeouts {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            body: Duration::from_secs(30),
            idle: Duration::from_mins(1),
            write: Duration::from_secs(30),
            request: None,
            connection: None,
        }
    }
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Closed by either side after whole requests.
    Closed,
    /// No request came for the idle time.
    Idle,
    /// It was idle and its place was needed.
    Evicted,
    /// The handshake of a connection with early data was not completed in time.
    HandshakeTimeout,
    /// A request head did not end in time.
    HeadTimeout,
    /// A request and its answer took too long.
    RequestTimeout,
    /// The client did not read its answer in time.
    WriteTimeout,
    /// An answer broke off; the connection cannot say so but by its own end.
    AnswerBroken,
    /// The client broke the connection.
    ClientGone,
    /// The client broke the protocol.
    Malformed,
    /// The client reset too many HTTP/2 streams, or sent too many frames that are of no use.
    Flood,
    /// Answers took too much memory, and the client did not take its own.
    Shed,
    /// The gateway is shutting down.
    Drained,
    /// The connection was upgraded, and that ended.
    Upgraded,
}

/// What serving a connection needs.
pub struct Http {
    /// Answers the requests.
    pub service: Rc<CurrentService>,
    /// The connection as its requests see it.
    pub connection: Rc<Connection>,
    /// Limits.
    pub settings: Rc<HttpSettings>,
    /// The connection's own deadline.
    pub deadline: Deadline,
    /// Tells when the gateway shuts down.
    pub drain: Drain,
}

/// The service of a worker, which a reload replaces: requests on open connections are answered by the new one too.
pub struct CurrentService {
    service: RefCell<Rc<Service>>,
    buffers: Rc<WorkerBuffers>,
}

impl CurrentService {
    /// Begins with `service`.
    pub fn new(service: Rc<Service>) -> Rc<Self> {
        let buffers = WorkerBuffers::new(Arc::clone(&service.telemetry().metrics));
        Rc::new(Self { service: RefCell::new(service), buffers })
    }

    /// Answers requests by `service` from now on; those in flight end with the old one.
    pub fn replace(&self, service: Rc<Service>) {
        self.service.replace(service);
    }

    /// The service that answers now.
    pub fn current(&self) -> Rc<Service> {
        Rc::clone(&self.service.borrow())
    }
}

/// Serves the connection to its end, and puts what it carried into its record.
pub async fn serve(io: HttpIo, http: &Http) -> End {
    http.connection.surround(Surroundings {
        settings: Rc::clone(&http.settings),
        wheel: http.deadline.wheel(),
        buffers: Rc::clone(&http.service.buffers),
        drain: http.drain.clone(),
    });
    let multiplexed = http.connection.record.borrow().tls.as_ref().is_some_and(|tls| tls.alpn == Some("h2"));
    handshake::acknowledge(&io).await;
    let stop = loop {
        // While its handshake is not complete, a connection never rests.
        if http.connection.is_confirmed()
            && let Err(stop) = rest(&io, http).await
        {
            break stop;
        }
        // Boxed, so that a resting connection does not carry the room for a busy one.
        let stop = if multiplexed {
            Box::pin(http2::turns(&io, http)).await
        } else {
            Box::pin(http1_turns(&io, http)).await
        };
        if stop != Stop::Rest {
            break stop;
        }
    };
    let stop = match stop {
        Stop::Close(_) if !http.connection.is_confirmed() => {
            Box::pin(handshake::finish(&io, http, stop)).await
        }
        stop => stop,
    };
    note_bytes(&io.stream(), http);
    match stop {
        Stop::Close(end) => {
            if let Some(closing) = closing(io, http, end) {
                closing.await;
            }
            end
        }
        Stop::Abort(End::AnswerBroken) => {
            if let Some(cutting) = cutting(io, http) {
                cutting.await;
            }
            End::AnswerBroken
        }
        Stop::Abort(end) => end,
        Stop::Rest => unreachable!("the loop goes on"),
    }
}

/// Boxed, and made outside of the connection's own future, which would keep room for it.
fn closing(io: HttpIo, http: &Http, end: End) -> Option<Pin<Box<impl Future<Output = ()>>>> {
    io.into_stream().map(|stream| Box::pin(close(stream, http, lingering(end))))
}

/// As [`closing`].
fn cutting(io: HttpIo, http: &Http) -> Option<Pin<Box<impl Future<Output = ()>>>> {
    io.into_stream().map(|stream| Box::pin(cut(stream, http)))
}

fn note_bytes(stream: &Stream, http: &Http) {
    let mut record = http.connection.record.borrow_mut();
    (record.bytes_received, record.bytes_sent) = stream.bytes();
}

/// Waits for the client with nothing but the connection itself in memory.
async fn rest(io: &HttpIo, http: &Http) -> Result<(), Stop> {
    http.deadline.set_idle(http.settings.timeouts.idle.min(http.connection.time_left()));
    poll_fn(|cx| {
        let mut stream = io.stream_mut();
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
        if http.drain.started() {
            return Poll::Ready(Err(Stop::Close(End::Drained)));
        }
        http.deadline.poll_expired(cx).map(|()| Err(Stop::Close(turn::end_of_idle(http))))
    })
    .await
}

/// Serves HTTP/1.1 until the connection rests, closes or is upgraded. An upgraded one is served to its end here.
async fn http1_turns(io: &HttpIo, http: &Http) -> Stop {
    io.watch_lines();
    let service = service_fn(|request: Request<Incoming>| {
        io.expect(request.body());
        let (service, connection) = (http.service.current(), Rc::clone(&http.connection));
        let limits = http.settings.head_limits();
        async move { Ok::<_, Infallible>(service.respond(&connection, limits, request).await) }
    });
    let mut hyper = http1::Builder::new()
        .max_headers(http.settings.headers)
        .max_buf_size(http.settings.head_size.max(8192))
        .header_read_timeout(None)
        // A client that has said all it will still gets its answer; one that is gone is an error of reading.
        .half_close(true)
        .serve_connection(io.clone(), service);
    let mut turns = Turns::new(false, http.connection.requests());
    let stop = poll_fn(|cx| {
        handshake::advance(cx, io, http);
        if turns.begins_to_drain(http) {
            Pin::new(&mut hyper).graceful_shutdown();
        }
        if let Poll::Ready(result) = Pin::new(&mut hyper).poll(cx) {
            return Poll::Ready(finished(&result, http));
        }
        turns.poll_end(cx, io, http)
    })
    .await;
    let read_ahead = hyper.into_parts().read_buf;
    let upgrade = http.connection.upgrade.borrow_mut().take();
    if let (Some(upgrade), Stop::Close(End::Closed | End::Drained)) = (upgrade, stop) {
        io.flush_at_once();
        upgrade.join(io.clone(), read_ahead, &http.deadline, http.settings.timeouts.idle).await;
        return Stop::Close(End::Upgraded);
    }
    if !read_ahead.is_empty() {
        io.stream_mut().unread(&read_ahead);
    }
    stop
}

pub(super) fn finished(result: &hyper::Result<()>, http: &Http) -> Stop {
    match result {
        Ok(()) if http.drain.started() => Stop::Close(End::Drained),
        Ok(()) => Stop::Close(End::Closed),
        // The body of an answer over HTTP/1.1.
        Err(error) if error.is_user() => Stop::Abort(End::AnswerBroken),
        Err(error) if error.is_parse() || is_http2_error(error) => Stop::Close(End::Malformed),
        // Not at once: GOAWAY, an alert, or the answer to a client that ended without close_notify wait to be sent.
        Err(_) => Stop::Close(End::ClientGone),
    }
}

/// Whether h2 found that the client broke the protocol.
fn is_http2_error(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<h2::Error>());
    let reason = source.filter(|error| error.is_library()).and_then(h2::Error::reason);
    reason.is_some_and(|reason| reason != h2::Reason::NO_ERROR)
}

/// How long the client is listened to after `end`.
fn lingering(end: End) -> Lingering {
    match end {
        End::Closed | End::Drained => Lingering::UPLOAD,
        _ => Lingering::BRIEF,
    }
}

/// Sends the rest and `close_notify`, then lets the client read it all: closing with unread data would reset.
async fn close(mut stream: Stream, http: &Http, lingering: Lingering) {
    // Its descriptor is needed now.
    let lingers = !http.deadline.is_evicted();
    http.deadline.set(http.settings.timeouts.write);
    let closed = poll_fn(|cx| match stream.poll_close(cx) {
        Poll::Pending => http.deadline.poll_expired(cx).map(|()| false),
        Poll::Ready(result) => Poll::Ready(result.is_ok()),
    })
    .await;
    note_bytes(&stream, http);
    if closed && lingers && !stream.is_peer_closed() {
        brisk_net::linger(&mut stream.into_tcp(), lingering).await;
    }
}

/// Sends the part of an answer that there is and closes, without `close_notify`: nobody is to take the part for the whole
/// (RFC 9112 section 8).
async fn cut(mut stream: Stream, http: &Http) {
    http.deadline.set(http.settings.timeouts.write);
    let sent = poll_fn(|cx| match stream.poll_drain(cx) {
        Poll::Pending => http.deadline.poll_expired(cx).map(|()| false),
        Poll::Ready(result) => Poll::Ready(result.is_ok()),
    })
    .await;
    note_bytes(&stream, http);
    let mut tcp = stream.into_tcp();
    if sent && tcp.shutdown().await.is_ok() {
        brisk_net::linger(&mut tcp, Lingering::BRIEF).await;
    }
}
