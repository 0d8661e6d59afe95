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

use brisk_net::{Deadline, Drain, Lingering};
use brisk_tls::Stream;
use brisk_wire::HttpVersion;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::io::AsyncWriteExt;

use super::io::HttpIo;
use super::turn::{self, Stop, Turns};
use super::{handshake, http2};
use crate::answer::service::Service;
use crate::body::client::ClientBody;
use crate::connection::buffers::WorkerBuffers;
use crate::connection::end::End;
use crate::connection::settings::HttpSettings;
use crate::connection::{Connection, Surroundings};
use crate::upstream::upgrade::PendingUpgrade;

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
    let multiplexed =
        http.connection.record.borrow().tls.as_ref().is_some_and(|tls| tls.alpn == Some(HttpVersion::Http2));
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
    let service = service_fn(|request| {
        let request = ClientBody::of_hyper(request);
        io.expect(request.body());
        let (service, connection) = (http.service.current(), Rc::clone(&http.connection));
        async move { Ok::<_, Infallible>(service.respond(&connection, request).await) }
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
    let upgrade = PendingUpgrade::take(&http.connection);
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
