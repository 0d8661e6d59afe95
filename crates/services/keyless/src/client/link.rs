//! One connection to a key server, which is reopened whenever it ends.

mod answers;
mod sending;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{pending, poll_fn};
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use brisk_keys::KeyId;
use brisk_net::TurnLimit;
use brisk_net::dial::DialLimits;
use brisk_tls::connector::Connector;
use bytes::BytesMut;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::address::Stream;
use super::backoff::Backoff;
use super::pool::Pool;
use crate::code::ErrorCode;
use crate::frame::{Hello, Request, Response, VERSION};
use crate::io::{poll_drain, poll_fill};

/// Timeout for connecting, with handshake and the server's `HELLO`; then the next pause of [`Backoff`] begins.
const CONNECT: Duration = Duration::from_secs(2);

/// Timeout of the kernel for unacknowledged data.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// Minimum duration of a [`ServerLink`] after which the pauses restart at the shortest. A connection that ends sooner
/// counts as a failure.
const GOOD: Duration = Duration::from_secs(5);

/// Interval without input after which a `PING` is sent.
const BEAT: Duration = Duration::from_millis(500);

/// Time without a [`Response`] to a `PING` after which the [`ServerLink`] is closed.
const SILENCE: Duration = Duration::from_secs(3);

/// Requested limits: the maximum that the protocol can express, so that the server decides.
const HELLO: Hello = Hello { version: VERSION, operations: u16::MAX, keys: 4096 };

/// One connection to one server.
pub(super) struct ServerLink {
    /// Index of the server in the settings.
    pub(super) server: usize,
    connected: RefCell<Option<Connected>>,
    /// Whether the server does not respond ([`Responsiveness::Silent`]) although an operation is waiting.
    silent: Cell<bool>,
    troubles: Cell<u32>,
    rests_until: Cell<Option<Instant>>,
    /// The server returned a wrong signature on this connection.
    is_wrong: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// State of a [`ServerLink`] after the server's `HELLO`.
struct Connected {
    outgoing: BytesMut,
    /// Operations without a [`Response`], with the time of their request.
    under_way: HashMap<u32, Instant>,
    numbers: HashMap<KeyId, u32>,
    /// Limits that the server granted.
    limits: Hello,
    heard: Instant,
    pinged: Option<Instant>,
    draining: bool,
}

/// Responsiveness of a server with a pending operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Responsiveness {
    /// The server has sent something since the request; it is slow.
    Slow,
    /// A `PING` is pending.
    Pinged,
    /// A `PING` was not answered in time.
    Silent,
}

impl ServerLink {
    pub(super) fn new(server: usize) -> Self {
        Self {
            server,
            connected: RefCell::default(),
            silent: Cell::new(false),
            troubles: Cell::new(0),
            rests_until: Cell::new(None),
            is_wrong: Cell::new(false),
            waker: RefCell::default(),
        }
    }

    /// Connects, exchanges frames, and reconnects, until the task is dropped.
    pub(super) async fn run(self: Rc<Self>, pool: Rc<Pool>, connector: Option<Connector>) {
        let (mut backoff, mut was_reported, mut is_wrong) = (Backoff::new(), false, false);
        let server = pool.settings.servers[self.server].to_string();
        let (name, figures) = (&*pool.settings.name, &pool.statistics.servers[self.server]);
        loop {
            figures.connects.fetch_add(1, Ordering::Relaxed);
            let connected = timeout(CONNECT, self.connect(&pool, connector.as_ref())).await;
            let error = match connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok((stream, incoming)) => {
                    tracing::info!(keyserver = name, server, "connected to a key server");
                    was_reported = false;
                    let since = Instant::now();
                    let error = self.converse(&pool, stream, incoming).await;
                    self.disconnect(&pool);
                    is_wrong = self.is_wrong.replace(false);
                    if !is_wrong && since.elapsed() >= GOOD {
                        backoff.reset();
                    }
                    error
                }
                Err(error) => {
                    figures.failures.fetch_add(1, Ordering::Relaxed);
                    error
                }
            };
            figures.set_trouble(Some(error.to_string()));
            if std::mem::replace(&mut was_reported, true) {
                tracing::debug!(keyserver = name, server, %error, "still no connection to a key server");
            } else {
                tracing::warn!(keyserver = name, server, %error, "no connection to a key server");
            }
            let wanted = async || if is_wrong { pending().await } else { pool.wanted().await };
            backoff.wait(wanted()).await;
        }
    }

    /// Connects and waits for the server's `HELLO`. Returns the stream and the bytes received after it.
    async fn connect(&self, pool: &Pool, connector: Option<&Connector>) -> io::Result<(Stream, BytesMut)> {
        let place = &pool.settings.servers[self.server];
        let limits = DialLimits { connect: CONNECT, unacknowledged: UNACKNOWLEDGED };
        let mut stream = place.connect(&pool.settings, connector, limits).await?;
        let mut outgoing = BytesMut::new();
        Request::Hello(HELLO).write(&mut outgoing);
        poll_fn(|context| poll_drain(&mut stream, context, &mut outgoing)).await?;
        let mut incoming = BytesMut::new();
        let limits = loop {
            match Response::read(&mut incoming).map_err(|error| invalid(error.to_string()))? {
                Some(Response::Hello(hello)) => break hello,
                Some(Response::Error { code, text, .. }) => return Err(refused(code, &text)),
                Some(_) => return Err(invalid("the first frame of the server is not a HELLO".to_owned())),
                None => {}
            }
            if poll_fn(|context| poll_fill(&mut stream, context, &mut incoming)).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        };
        self.open(outgoing, limits);
        self.silent.set(false);
        self.troubles.set(0);
        let figures = &pool.statistics.servers[self.server];
        figures.set_trouble(None);
        figures.usable.fetch_add(1, Ordering::Relaxed);
        pool.has_room();
        Ok((stream, incoming))
    }

    /// Makes the [`ServerLink`] available for operations.
    pub(super) fn open(&self, outgoing: BytesMut, limits: Hello) {
        *self.connected.borrow_mut() = Some(Connected {
            outgoing,
            under_way: HashMap::new(),
            numbers: HashMap::new(),
            limits,
            heard: Instant::now(),
            pinged: None,
            draining: false,
        });
    }

    /// Reads and writes until the [`ServerLink`] ends, and returns the reason.
    async fn converse(&self, pool: &Pool, mut stream: Stream, mut incoming: BytesMut) -> io::Error {
        let mut beats = interval(BEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ended = poll_fn(|context| {
            self.waker.replace(Some(context.waker().clone()));
            // Input first: a response that waits in the socket must not count as silence.
            if let Poll::Ready(error) = self.poll_answers(pool, &mut stream, &mut incoming, context) {
                return Poll::Ready(error);
            }
            while beats.poll_tick(context).is_ready() {
                if let Err(error) = self.beat(pool, Instant::now()) {
                    return Poll::Ready(error);
                }
            }
            self.poll_requests(pool, &mut stream, context)
        });
        ended.await
    }

    fn poll_answers(
        &self,
        pool: &Pool,
        stream: &mut Stream,
        incoming: &mut BytesMut,
        context: &mut Context<'_>,
    ) -> Poll<io::Error> {
        let mut turn = TurnLimit::default();
        loop {
            loop {
                ready!(turn.poll_more(context));
                let before = incoming.len();
                match Response::read(incoming) {
                    Ok(Some(answer)) => {
                        turn.take(before - incoming.len());
                        if let Err(error) = self.take(pool, answer) {
                            return Poll::Ready(error);
                        }
                    }
                    Ok(None) => break,
                    Err(error) => return Poll::Ready(invalid(error.to_string())),
                }
            }
            match poll_fill(&mut *stream, context, incoming) {
                Poll::Ready(Ok(0)) => return Poll::Ready(io::ErrorKind::UnexpectedEof.into()),
                Poll::Ready(Ok(_)) => self.hear(pool),
                Poll::Ready(Err(error)) => return Poll::Ready(error),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Writes buffered requests. The [`ServerLink`] to a draining server ends after the last response.
    fn poll_requests(&self, pool: &Pool, stream: &mut Stream, context: &mut Context<'_>) -> Poll<io::Error> {
        let mut connected = self.connected.borrow_mut();
        let Some(connected) = connected.as_mut() else { return Poll::Pending };
        if connected.has_drained(pool.settings.deadline, Instant::now()) {
            return Poll::Ready(io::Error::other("the key server is draining"));
        }
        match poll_drain(stream, context, &mut connected.outgoing) {
            Poll::Ready(Err(error)) => Poll::Ready(error),
            _ => Poll::Pending,
        }
    }

    /// Records received input: the server is not [`Responsiveness::Silent`].
    pub(super) fn hear(&self, pool: &Pool) {
        if let Some(connected) = self.connected.borrow_mut().as_mut() {
            connected.heard = Instant::now();
            // Any input counts: at the granted number of operations, a server sends no `PONG`.
            connected.pinged = None;
        }
        if self.silent.replace(false) {
            pool.statistics.servers[self.server].usable.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn take(&self, pool: &Pool, answer: Response) -> Result<(), io::Error> {
        match answer {
            Response::Result { operation, result } => self.answered(pool, operation, Ok(result)),
            Response::Error { operation: 0, code, text } => Err(refused(code, &text)),
            Response::Error { operation, code, .. } => self.answered(pool, operation, Err(code)),
            Response::Key { state: Err(code), .. } => {
                let server = &pool.statistics.servers[self.server].address;
                tracing::warn!(keyserver = pool.settings.name, server, %code, "a key server refuses a key");
                Ok(())
            }
            Response::Drain => {
                if let Some(connected) = self.connected.borrow_mut().as_mut() {
                    connected.draining = true;
                }
                Ok(())
            }
            Response::Key { .. } | Response::Pong { .. } => Ok(()),
            Response::Hello(_) => Err(invalid("the server sent a second HELLO".to_owned())),
        }
    }

    /// Sends a `PING` after silence.
    ///
    /// # Errors
    ///
    /// `TimedOut` if the previous `PING` was not answered for [`SILENCE`].
    fn beat(&self, pool: &Pool, now: Instant) -> Result<(), io::Error> {
        let mut connected = self.connected.borrow_mut();
        let Some(connected) = connected.as_mut() else { return Ok(()) };
        let Some(pinged) = connected.pinged else {
            if now.duration_since(connected.heard) >= BEAT {
                connected.ping(now);
            }
            return Ok(());
        };
        let silence = now.duration_since(pinged);
        if silence >= pool.settings.hedge.max(BEAT) {
            self.fall_silent(pool);
        }
        if silence >= SILENCE {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the key server does not answer"));
        }
        Ok(())
    }

    fn fall_silent(&self, pool: &Pool) {
        if !self.silent.replace(true) {
            let figures = &pool.statistics.servers[self.server];
            figures.usable.fetch_sub(1, Ordering::Relaxed);
            figures.set_trouble(Some("it does not answer".to_owned()));
        }
    }

    /// Responsiveness of the server since an operation was sent at `sent`. Sends a `PING` if nothing has arrived since.
    pub(super) fn check_responsiveness(&self, sent: Instant, pool: &Pool, now: Instant) -> Responsiveness {
        let mut connected = self.connected.borrow_mut();
        let Some(own) = connected.as_mut() else { return Responsiveness::Silent };
        if self.silent.get() {
            return Responsiveness::Silent;
        }
        if own.heard > sent {
            return Responsiveness::Slow;
        }
        match own.pinged {
            None => {
                own.ping(now);
                drop(connected);
                self.wake();
                Responsiveness::Pinged
            }
            Some(pinged) if now.duration_since(pinged) < pool.settings.probe() => Responsiveness::Pinged,
            Some(_) => {
                self.fall_silent(pool);
                Responsiveness::Silent
            }
        }
    }

    /// Ends the [`ServerLink`], and returns its operations to the pool.
    pub(super) fn disconnect(&self, pool: &Pool) {
        let Some(connected) = self.connected.borrow_mut().take() else { return };
        if !self.silent.replace(false) {
            pool.statistics.servers[self.server].usable.fetch_sub(1, Ordering::Relaxed);
        }
        pool.lost(self.server, connected.under_way.into_keys());
    }
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

fn refused(code: ErrorCode, text: &str) -> io::Error {
    // Text of the peer must not forge lines of the log.
    let text = text.escape_debug();
    io::Error::new(io::ErrorKind::PermissionDenied, format!("the key server refuses: {code}: {text}"))
}
