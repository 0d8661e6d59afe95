//! One connection to a key server: made again whenever it ends.

mod sending;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use brisk_keys::KeyId;
use brisk_net::dial::DialLimits;
use brisk_tls::connector::Connector;
use bytes::{Bytes, BytesMut};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::backoff::Backoff;
use super::place::Stream;
use super::pool::Pool;
use crate::code::ErrorCode;
use crate::frame::{Answer, Hello, Request, VERSION};
use crate::io::{poll_drain, poll_fill};

/// Time to connect, the handshake and the server's first frame included.
const CONNECT: Duration = Duration::from_secs(2);

/// How long data may stay unacknowledged before the kernel ends the connection.
const UNACKNOWLEDGED: Duration = Duration::from_secs(10);

/// A connection that lasted for this time was good: the pauses after it begin anew. One that ends at once may do so again.
const GOOD: Duration = Duration::from_secs(5);

/// A server that is silent is asked for a sign of life, at these intervals.
const BEAT: Duration = Duration::from_millis(500);

/// A connection on which nothing came for this time, although something is due, ends.
const SILENCE: Duration = Duration::from_secs(3);

/// After this many operations in a row that the server could not perform, others are asked first, for a while.
const TROUBLES: u32 = 8;
const REST: Duration = Duration::from_secs(1);

/// What the client would like: as many as the protocol can say.
const HELLO: Hello = Hello { version: VERSION, operations: u16::MAX, keys: 4096 };

/// A place for one connection to one server.
pub(super) struct Link {
    /// The server's place in the settings.
    pub(super) server: usize,
    connected: RefCell<Option<Connected>>,
    /// Nothing is heard of the server although an operation waits.
    silent: Cell<bool>,
    troubles: Cell<u32>,
    rests_until: Cell<Option<Instant>>,
    waker: RefCell<Option<Waker>>,
}

/// The state of a connection that the server has accepted.
struct Connected {
    outgoing: BytesMut,
    /// Operations without an answer, and when they were sent.
    under_way: HashMap<u32, Instant>,
    numbers: HashMap<KeyId, u32>,
    /// What the server takes at a time.
    limits: Hello,
    heard: Instant,
    pinged: Option<Instant>,
    draining: bool,
}

/// What was heard of a server that has an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Silence {
    /// It is slow, and lives.
    Heard,
    /// Nothing; a sign of life is due.
    Asked,
    /// No sign of life came.
    Silent,
}

impl Link {
    pub(super) fn new(server: usize) -> Self {
        Self {
            server,
            connected: RefCell::default(),
            silent: Cell::new(false),
            troubles: Cell::new(0),
            rests_until: Cell::new(None),
            waker: RefCell::default(),
        }
    }

    /// Connects, converses, and connects again, until it is dropped.
    pub(super) async fn run(self: Rc<Self>, pool: Rc<Pool>, connector: Option<Connector>) {
        let (mut backoff, mut was_reported) = (Backoff::new(), false);
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
                    if since.elapsed() >= GOOD {
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
            sleep(backoff.pause()).await;
        }
    }

    /// A connection on which the server has said what it takes, and what came behind that.
    async fn connect(&self, pool: &Pool, connector: Option<&Connector>) -> io::Result<(Stream, BytesMut)> {
        let place = &pool.settings.servers[self.server];
        let limits = DialLimits { connect: CONNECT, unacknowledged: UNACKNOWLEDGED };
        let mut stream = place.connect(&pool.settings, connector, limits).await?;
        let mut outgoing = BytesMut::new();
        Request::Hello(HELLO).write(&mut outgoing);
        poll_fn(|context| poll_drain(&mut stream, context, &mut outgoing)).await?;
        let mut incoming = BytesMut::new();
        let limits = loop {
            match Answer::read(&mut incoming).map_err(|error| invalid(error.to_string()))? {
                Some(Answer::Hello(hello)) => break hello,
                Some(Answer::Error { code, text, .. }) => return Err(refused(code, &text)),
                Some(_) => return Err(invalid("the server does not begin with a hello".to_owned())),
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

    /// From here on the server gets operations.
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

    /// Reads and writes until the connection ends; why it did.
    async fn converse(&self, pool: &Pool, mut stream: Stream, mut incoming: BytesMut) -> io::Error {
        let mut beats = interval(BEAT);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ended = poll_fn(|context| {
            self.waker.replace(Some(context.waker().clone()));
            if let Poll::Ready(error) = self.poll_answers(pool, &mut stream, &mut incoming, context) {
                return Poll::Ready(error);
            }
            while beats.poll_tick(context).is_ready() {
                if let Err(error) = self.beat(pool, Instant::now()) {
                    return Poll::Ready(error);
                }
            }
            self.poll_requests(&mut stream, context)
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
        loop {
            loop {
                match Answer::read(incoming) {
                    Ok(Some(answer)) => match self.take(pool, answer) {
                        Ok(()) => {}
                        Err(error) => return Poll::Ready(error),
                    },
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

    /// Writes what there is. A server that drains is left when it has answered everything.
    fn poll_requests(&self, stream: &mut Stream, context: &mut Context<'_>) -> Poll<io::Error> {
        let mut connected = self.connected.borrow_mut();
        let Some(connected) = connected.as_mut() else { return Poll::Pending };
        if connected.draining && connected.under_way.is_empty() {
            return Poll::Ready(io::Error::other("the key server stops"));
        }
        match poll_drain(stream, context, &mut connected.outgoing) {
            Poll::Ready(Err(error)) => Poll::Ready(error),
            _ => Poll::Pending,
        }
    }

    /// Something came: the server lives.
    fn hear(&self, pool: &Pool) {
        if let Some(connected) = self.connected.borrow_mut().as_mut() {
            connected.heard = Instant::now();
            connected.pinged = None;
        }
        if self.silent.replace(false) {
            pool.statistics.servers[self.server].usable.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn take(&self, pool: &Pool, answer: Answer) -> Result<(), io::Error> {
        match answer {
            Answer::Result { operation, result } => {
                self.answered(pool, operation, Ok(result));
                Ok(())
            }
            Answer::Error { operation: 0, code, text } => Err(refused(code, &text)),
            Answer::Error { operation, code, .. } => {
                self.answered(pool, operation, Err(code));
                Ok(())
            }
            Answer::Key { state: Err(code), .. } => {
                let server = &pool.statistics.servers[self.server].address;
                tracing::warn!(keyserver = pool.settings.name, server, %code, "a key server refuses a key");
                Ok(())
            }
            Answer::Drain => {
                if let Some(connected) = self.connected.borrow_mut().as_mut() {
                    connected.draining = true;
                }
                Ok(())
            }
            Answer::Key { .. } | Answer::Pong { .. } => Ok(()),
            Answer::Hello(_) => Err(invalid("the server says hello again".to_owned())),
        }
    }

    fn answered(&self, pool: &Pool, number: u32, result: Result<Bytes, ErrorCode>) {
        let sent = self.connected.borrow_mut().as_mut().and_then(|own| own.under_way.remove(&number));
        // An answer to what was not asked.
        let Some(sent) = sent else { return };
        let figures = &pool.statistics.servers[self.server];
        match &result {
            Ok(_) => {
                figures.answered(sent.elapsed());
                self.troubles.set(0);
            }
            Err(ErrorCode::Cancelled) => {}
            Err(code) => {
                figures.refused.fetch_add(1, Ordering::Relaxed);
                self.note_trouble(*code);
            }
        }
        pool.answered(number, result.map(|bytes| bytes.to_vec()));
        pool.has_room();
    }

    /// A server that cannot do its work now is asked last for a while.
    fn note_trouble(&self, code: ErrorCode) {
        if !code.is_trouble() {
            return;
        }
        self.troubles.update(|troubles| troubles + 1);
        if self.troubles.get() >= TROUBLES {
            self.troubles.set(0);
            self.rests_until.set(Some(Instant::now() + REST));
        }
    }

    /// Asks for a sign of life; an error when none came.
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

    /// What was heard of the server since it got an operation at `sent`. If nothing, it is asked for a sign of life; if none comes,
    /// it is silent.
    pub(super) fn check_silence(&self, sent: Instant, pool: &Pool, now: Instant) -> Silence {
        let mut connected = self.connected.borrow_mut();
        let Some(own) = connected.as_mut() else { return Silence::Silent };
        if self.silent.get() {
            return Silence::Silent;
        }
        if own.heard > sent {
            return Silence::Heard;
        }
        match own.pinged {
            None => {
                own.ping(now);
                drop(connected);
                self.wake();
                Silence::Asked
            }
            Some(pinged) if now.duration_since(pinged) < pool.settings.probe() => Silence::Asked,
            Some(_) => {
                self.fall_silent(pool);
                Silence::Silent
            }
        }
    }

    fn disconnect(&self, pool: &Pool) {
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
    let text = text.escape_debug();
    io::Error::new(io::ErrorKind::PermissionDenied, format!("the key server refuses: {code}: {text}"))
}
