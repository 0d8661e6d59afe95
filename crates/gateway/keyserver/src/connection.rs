//! Lifecycle of one connection: handshake, requests, operations, responses. The functions follow that order.

mod peer;
mod requests;

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, SystemTime};

use brisk_keyless::io::{poll_drain, poll_fill};
use brisk_keyless::{Hello, Request, Response};
use brisk_keys::KeyId;
use brisk_net::{Deadline, TurnLimit};
use brisk_secrets::buffer;
use brisk_server::Accepted;
use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;

pub(crate) use self::peer::GATEWAY;
use self::peer::Peer;
use crate::metrics::Figures;
use crate::operations::Operations;
use crate::service::{ActiveConfig, Worker};

/// Timeout of the handshake, and then of the client's first frame.
const BEGINNING: Duration = Duration::from_secs(10);

/// Timeout of a started frame.
const FRAME: Duration = Duration::from_secs(10);

/// Timeout for write progress while responses are pending.
const WRITE: Duration = Duration::from_secs(20);

/// Time for a rejected client to read the error.
const LINGER: Duration = Duration::from_secs(2);

/// Idle timeout: effectively none, because gateways keep connections open.
const REST: Duration = Duration::from_hours(10 * 365 * 24);

/// Limit of buffered responses, in bytes. Beyond it no requests are read.
const OUTGOING: usize = 64 * 1024;

/// Maximum number of requests per poll, so that other connections of the [`Worker`] are served too.
const TURN: usize = 64;

/// Serves one connection to its end. Errors are counted and logged.
pub(crate) async fn serve(worker: Rc<Worker>, accepted: Accepted<()>) {
    let Accepted { tcp, peer, place, .. } = accepted;
    let figures = Arc::clone(&worker.shared.figures);
    let _open = OpenConnection::new(&figures);
    let deadline = worker.wheel.register();
    // A client without a verified certificate may be evicted in favour of newer connections.
    deadline.set_idle(BEGINNING);
    let live = worker.shared.live.load_full();
    // Only listeners have an acceptor, and only they accept connections.
    let Some(acceptor) = &live.acceptor else { return };
    let accepted = deadline.within(acceptor.accept(tcp)).await;
    let reason = match accepted {
        Some(Ok(stream)) => {
            let peer = Peer::of_certificate(peer.to_string(), &stream);
            Connection::new(worker, live, peer, deadline).run(stream).await;
            drop(place);
            return;
        }
        Some(Err(error)) => error.to_string(),
        None if deadline.is_evicted() => {
            figures.evicted.fetch_add(1, Ordering::Relaxed);
            "evicted in favour of a newer connection".to_owned()
        }
        None => "timeout".to_owned(),
    };
    // An eviction is counted above, and is no failure of the client.
    if !deadline.is_evicted() {
        figures.handshakes_failed.fetch_add(1, Ordering::Relaxed);
    }
    if let Some(more) = worker.shared.handshake_lines.pass() {
        tracing::warn!(target: "brisk_keyserver::audit", %peer, reason, more, "handshake refused");
    }
}

/// Serves the gateway that started this process, over a passed socket.
pub(crate) async fn serve_local(worker: Rc<Worker>, stream: UnixStream) {
    let figures = Arc::clone(&worker.shared.figures);
    let _open = OpenConnection::new(&figures);
    let deadline = worker.wheel.register();
    let live = worker.shared.live.load_full();
    Connection::new(worker, live, Peer::local(), deadline).run(stream).await;
}

/// Shuts down the write side and discards input. Closing a socket with unread input would send a reset, which could
/// overtake the error response.
async fn linger<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    if stream.shutdown().await.is_err() {
        return;
    }
    let (mut discarded, mut turn) = (BytesMut::new(), TurnLimit::default());
    while let Ok(length @ 1..) = poll_fn(|context| poll_fill(&mut stream, context, &mut discarded)).await {
        discarded.clear();
        turn.take(length);
        poll_fn(|context| turn.poll_more(context)).await;
    }
}

/// Counts a [`Connection`] as open until dropped.
struct OpenConnection<'f>(&'f Figures);

impl<'f> OpenConnection<'f> {
    fn new(figures: &'f Figures) -> Self {
        figures.accepted.fetch_add(1, Ordering::Relaxed);
        figures.open.fetch_add(1, Ordering::Relaxed);
        Self(figures)
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Purpose of the present deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeadlinePurpose {
    Beginning,
    Frame,
    Write,
    Rest,
}

/// Result of writing in one poll.
#[derive(Clone, Copy, Debug)]
struct WriteProgress {
    /// The client must read before more can be written.
    is_blocked: bool,
    /// Some bytes were written.
    some: bool,
}

struct Connection {
    worker: Rc<Worker>,
    live: Arc<ActiveConfig>,
    peer: Peer,
    incoming: BytesMut,
    outgoing: BytesMut,
    keys: Vec<Option<KeyId>>,
    operations: Operations,
    /// Granted limits; `None` before the client's `HELLO`.
    limits: Option<Hello>,
    /// Number of refused requests that no honest gateway sends.
    faults: u32,
    deadline: Deadline,
    waits: DeadlinePurpose,
    /// `DRAIN` was sent.
    draining: bool,
    /// No further requests are read; the [`Connection`] ends after the last write.
    ending: bool,
}

impl Drop for Connection {
    /// Wipes results that the client has not read: they may be premaster secrets.
    fn drop(&mut self) {
        buffer::wipe(&mut self.outgoing);
    }
}

impl Connection {
    fn new(worker: Rc<Worker>, live: Arc<ActiveConfig>, peer: Peer, deadline: Deadline) -> Self {
        Self {
            worker,
            live,
            peer,
            incoming: BytesMut::new(),
            outgoing: BytesMut::new(),
            keys: Vec::new(),
            operations: Operations::default(),
            limits: None,
            faults: 0,
            deadline,
            waits: DeadlinePurpose::Beginning,
            draining: false,
            ending: false,
        }
    }

    async fn run<S: AsyncRead + AsyncWrite + Unpin>(mut self, mut stream: S) {
        tracing::debug!(peer = self.peer.address, client = self.peer.client, "a gateway connected");
        // From here on the connection cannot be evicted.
        self.deadline.set(BEGINNING);
        poll_fn(|context| self.poll_turn(&mut stream, context)).await;
        if self.ending {
            self.deadline.set(LINGER);
            self.deadline.within(linger(stream)).await;
        }
    }

    /// Reads requests, starts operations, and writes the results of finished ones. Ready when the [`Connection`] has
    /// ended.
    fn poll_turn<S>(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<()>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        // First: a client that has lost its permission must not begin another operation.
        self.follow();
        let mut turn = TURN;
        loop {
            let turn_before = turn;
            if self.poll_requests(stream, context, &mut turn).is_ready() {
                return Poll::Ready(());
            }
            let was_full = !self.has_room();
            // After the requests, so that results that are ready at once leave with the same write.
            self.collect(context);
            let before = self.outgoing.len();
            let drained = poll_drain(&mut *stream, context, &mut self.outgoing);
            if matches!(drained, Poll::Ready(Err(_))) {
                return Poll::Ready(());
            }
            if self.ending && drained.is_ready() {
                return Poll::Ready(());
            }
            let written =
                WriteProgress { is_blocked: drained.is_pending(), some: self.outgoing.len() < before };
            self.set_deadline(turn < turn_before, written);
            // Input or operations were not polled while there was no room. Now there is room, so they are polled again;
            // without it no waker would be registered.
            let was_blocked = before >= OUTGOING && self.outgoing.len() < OUTGOING;
            if turn == 0 || !(was_blocked || was_full && self.has_room()) {
                break;
            }
        }
        if turn == 0 {
            // Other tasks of the worker run before the next poll.
            context.waker().wake_by_ref();
        }
        if self.deadline.poll_expired(context).is_ready() {
            self.expired();
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Applies reloaded settings, and the start of a drain.
    fn follow(&mut self) {
        let present = self.worker.shared.live.load();
        if !Arc::ptr_eq(&present, &self.live) {
            let before = std::mem::replace(&mut self.live, Arc::clone(&present));
            if !before.has_authorities_of(&self.live) {
                self.end_unauthorized("the trust anchors for clients have changed; connect again");
            }
        }
        drop(present);
        if self.live.policy.client(&self.peer.client).is_none() {
            self.end_unauthorized("no client of this name is configured");
        }
        // Looked at in each turn instead of a timer: an expired certificate matters only when a request
        // arrives, which is read after this check.
        if self.peer.valid_until.is_some_and(|end| SystemTime::now() > end) {
            self.end_unauthorized("the client's certificate has expired");
        }
        self.follow_drain();
    }

    /// Writes `DRAIN` once, after the client's `HELLO`.
    fn follow_drain(&mut self) {
        if self.limits.is_some() && self.worker.drain.started() && !self.draining {
            self.draining = true;
            Response::Drain.write(&mut self.outgoing);
        }
    }

    /// Reads at most `turn` requests while there is room for their operations and responses. Ready when the client has
    /// closed the [`Connection`].
    fn poll_requests<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
        turn: &mut usize,
    ) -> Poll<()> {
        while *turn > 0 && !self.ending && self.has_room() {
            match Request::read(&mut self.incoming) {
                Ok(Some(request)) => {
                    self.take(request);
                    *turn -= 1;
                }
                Ok(None) => match poll_fill(&mut *stream, context, &mut self.incoming) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
                    Poll::Ready(Ok(_)) => {}
                    Poll::Pending => break,
                },
                Err(error) => self.end(&error.to_string()),
            }
        }
        Poll::Pending
    }

    fn has_room(&self) -> bool {
        // Before `HELLO` there is no operation, so that 1 admits the frame itself.
        let most = self.limits.map_or(1, |limits| limits.operations);
        self.operations.len() < usize::from(most) && self.outgoing.len() < OUTGOING
    }

    fn set_deadline(&mut self, has_read: bool, written: WriteProgress) {
        let waits = if written.is_blocked {
            DeadlinePurpose::Write
        } else if self.limits.is_none() {
            DeadlinePurpose::Beginning
        // Without room the client is not read, so that a part of a frame is no delay of the client.
        } else if !self.incoming.is_empty() && self.has_room() {
            DeadlinePurpose::Frame
        } else {
            DeadlinePurpose::Rest
        };
        let is_other = waits != self.waits;
        self.waits = waits;
        match waits {
            DeadlinePurpose::Write if is_other || written.some => self.deadline.set(WRITE),
            DeadlinePurpose::Frame if is_other || has_read => self.deadline.set(FRAME),
            DeadlinePurpose::Rest if is_other || has_read => self.deadline.set(REST),
            // `Beginning` is never extended: single bytes could otherwise delay the `HELLO` without end.
            _ => {}
        }
    }

    fn expired(&self) {
        let detail = match self.waits {
            DeadlinePurpose::Write => "the client does not read its responses",
            DeadlinePurpose::Frame => "the client did not complete a frame",
            _ => "the client sent no HELLO",
        };
        self.worker.shared.figures.stalled.fetch_add(1, Ordering::Relaxed);
        let (peer, client) = (&*self.peer.address, &*self.peer.client);
        tracing::warn!(target: "brisk_keyserver::audit", client, peer, detail, "closed");
    }
}
