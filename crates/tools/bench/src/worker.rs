//! One thread of a run. It combines workload and schedule.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use tokio::task::{JoinSet, spawn_local};
use tokio::time::{sleep, sleep_until, timeout};

use crate::choice::Axis;
use crate::connection::{Kind, Link, Opener};
use crate::contact;
use crate::error::Failure;
use crate::feed::{self, Feed, Operation, Plan};
use crate::http1::{ExchangeError, Http1};
use crate::http2::Http2;
use crate::http3::Http3;
use crate::measure::{Recorder, Report};
use crate::quic::QuicLink;
use crate::result::Cause;
use crate::schedule::Pace;
use crate::shared::{Multiplexed, SharedConnection};
use crate::workload::{HttpVersion, PerConnection, Workload};

/// Pause of a slot after a failure in a closed loop, so that a server that refuses everything is not flooded.
const PAUSE: Duration = Duration::from_millis(10);

/// Interval at which the end of a second or of the run is checked.
const TICK: Duration = Duration::from_millis(100);

/// Number of concurrent connections that fetch sessions.
const FETCHERS: usize = 8;

/// The settings of a thread.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) thread: usize,
    pub(crate) plan: Arc<Plan>,
    pub(crate) workload: Arc<Workload>,
    pub(crate) timeout: Duration,
    /// Maximum number of waiting operations, of this thread.
    pub(crate) room: usize,
    /// Whether the run is to end now.
    pub(crate) stop: Arc<AtomicBool>,
}

/// Performs the [`Operation`]s of one thread.
struct Worker {
    opener: Opener,
    workload: Arc<Workload>,
    feed: Feed,
    recorder: Rc<Recorder>,
    timeout: Duration,
    /// Whether a failure is followed by a pause.
    pauses: bool,
}

/// The connection of a slot between its operations.
enum SlotConnection {
    Handshakes,
    Http1(Option<Box<Http1>>),
    Http2(Rc<SharedConnection<Http2>>),
    Http3(Rc<SharedConnection<Http3>>),
}

/// A connection after its last operation.
enum FinishedConnection {
    None,
    Handshake(Box<Link>),
    QuicHandshake(Box<QuicLink>),
    Http1(Box<Http1>),
    Http2(Box<Http2>),
    Http3(Box<Http3>),
}

/// Fetches sessions, reports readiness, waits for the start, and performs operations until the run ends.
pub(crate) async fn run(setup: Setup, opener: Opener, begin: Receiver<Instant>) {
    let recorder = Rc::clone(&opener.recorder);
    let opener = prime(&setup, opener).await;
    recorder.report(Report::Ready);
    // A closed channel means that the run was aborted.
    let Ok(begin) = begin.recv() else { return };
    let schedule = &setup.plan.schedule;
    recorder.begin_at(begin + schedule.warmup());
    let feed = Feed::new(Arc::clone(&setup.plan), setup.thread, begin, setup.room, Rc::clone(&recorder));
    let worker = Rc::new(Worker {
        opener,
        workload: Arc::clone(&setup.workload),
        feed,
        recorder: Rc::clone(&recorder),
        timeout: setup.timeout,
        // At a fixed rate, the schedule alone decides: a pause would delay operations that are due.
        pauses: matches!(schedule.pace(), Pace::Closed(_)),
    });
    let mut slots = spawn_slots(&worker, &setup, begin);
    let pacing = Rc::clone(&worker);
    // A task of its own: arrivals must not wait for slots.
    let pacer = spawn_local(async move { pacing.feed.pace().await });
    let stopped = tokio::select! {
        () = all(&mut slots) => false,
        () = deadline(&setup, begin) => true,
        () = stop(&setup, &recorder) => true,
    };
    // Before the slots are cut, so that none begins another operation.
    worker.feed.stop();
    pacer.abort();
    slots.shutdown().await;
    // The measured time lasts until the end of the schedule, also if the last operation ended before.
    if let Some(end) = schedule.end().filter(|_| !stopped && schedule.count().is_none()) {
        sleep_until((begin + end).into()).await;
    }
    recorder.finish(Instant::now());
}

fn spawn_slots(worker: &Rc<Worker>, setup: &Setup, begin: Instant) -> JoinSet<()> {
    let mut slots = JoinSet::new();
    let streams = setup.workload.http.streams();
    let schedule = &setup.plan.schedule;
    let connections = schedule.most().div_ceil(streams);
    // Connections are dealt to the threads in turn, so that each step of a ramp loads all threads.
    for connection in (setup.thread..connections).step_by(setup.plan.threads as usize) {
        // All slots of a connection are on one thread, which needs no lock to share the connection.
        let (http2, http3) = (Rc::default(), Rc::default());
        for slot in (connection * streams..schedule.most()).take(streams) {
            let held = match (setup.workload.requests, setup.workload.http) {
                (PerConnection::HandshakeOnly, _) => SlotConnection::Handshakes,
                (_, HttpVersion::One) => SlotConnection::Http1(None),
                (_, HttpVersion::Two { .. }) => SlotConnection::Http2(Rc::clone(&http2)),
                (_, HttpVersion::Three { .. }) => SlotConnection::Http3(Rc::clone(&http3)),
            };
            let opening = begin + schedule.opening(slot);
            slots.spawn_local(Rc::clone(worker).slot(held, opening));
        }
    }
    slots
}

async fn all(slots: &mut JoinSet<()>) {
    while slots.join_next().await.is_some() {}
}

/// Waits until running operations are cut: in a closed loop at its end, otherwise when the last one exceeds its timeout.
async fn deadline(setup: &Setup, begin: Instant) {
    let schedule = &setup.plan.schedule;
    let Some(end) = schedule.end() else { return std::future::pending().await };
    let grace = match schedule.pace() {
        Pace::Closed(_) => Duration::ZERO,
        Pace::Fixed { .. } => feed::GRACE + setup.timeout + TICK,
    };
    sleep_until((begin + end + grace).into()).await;
}

/// Reports each second that is over. Returns when the run is to be stopped.
async fn stop(setup: &Setup, recorder: &Recorder) {
    // Relaxed: the flag publishes no other data, and a delay of one tick does not matter.
    while !setup.stop.load(Ordering::Relaxed) {
        sleep(TICK).await;
        recorder.roll(Instant::now());
    }
}

/// Fetches the sessions that the first connections will resume. Continues if a server sends none: the run counts the
/// failures.
async fn prime(setup: &Setup, opener: Opener) -> Opener {
    let opener = Rc::new(opener);
    for kind in opener.kinds.values() {
        let Some(sessions) = kind.handshake().and_then(|kind| kind.sessions.as_ref()) else { continue };
        let mut fetching = JoinSet::new();
        for attempt in 0..sessions.most() {
            if fetching.len() == FETCHERS {
                let _ = fetching.join_next().await;
            }
            // A server that sends no session would otherwise get a handshake for each free place of the cache.
            let is_vain = attempt >= 2 * FETCHERS && sessions.len() == 0;
            if is_vain || sessions.is_full() {
                break;
            }
            fetching.spawn_local(fetch(
                Rc::clone(&opener),
                kind.clone(),
                Arc::clone(&setup.workload),
                setup.timeout,
            ));
        }
        all(&mut fetching).await;
    }
    Rc::into_inner(opener).expect("all who used it have ended")
}

/// Makes one connection to obtain its sessions.
async fn fetch(opener: Rc<Opener>, kind: Kind, workload: Arc<Workload>, limit: Duration) {
    let fetched = timeout(limit, contact::once(&opener, &kind, None, &workload)).await;
    if matches!(fetched, Ok(Ok(_))) {
        opener.recorder.primed();
    }
}

impl Worker {
    async fn slot(self: Rc<Self>, mut held: SlotConnection, opening: Instant) {
        sleep_until(opening.into()).await;
        while let Some(operation) = self.feed.next().await {
            let going_on = self.recorder.in_flight();
            let performed = timeout(self.timeout, self.perform(&mut held, operation)).await;
            // Before the close: the wait for the server's end of the connection is no part of the operation.
            drop(going_on);
            let failure = match performed {
                // The slot waits for the close, so that no more connections are open than slots exist.
                Ok(Ok(spent)) => {
                    spent.close().await;
                    continue;
                }
                Ok(Err(failure)) => failure,
                Err(_) => {
                    // The operation was dropped in the middle: a shared connection that is stuck must not get
                    // the next request.
                    held.forget();
                    let text = format!("an operation took longer than {:?}", self.timeout);
                    Failure::new(Cause::Timeout, text)
                }
            };
            if operation.counted {
                self.recorder.failure(Instant::now(), &failure);
            }
            if self.pauses {
                sleep(PAUSE).await;
            }
        }
    }

    async fn perform(
        &self,
        held: &mut SlotConnection,
        operation: Operation,
    ) -> Result<FinishedConnection, Failure> {
        match held {
            SlotConnection::Handshakes => self.handshake(operation).await,
            SlotConnection::Http1(kept) => self.over_http1(kept, operation).await,
            SlotConnection::Http2(shared) => {
                let spent = self.over_shared(shared, operation).await?;
                Ok(spent.map_or(FinishedConnection::None, |spent| FinishedConnection::Http2(Box::new(spent))))
            }
            SlotConnection::Http3(shared) => {
                let spent = self.over_shared(shared, operation).await?;
                Ok(spent.map_or(FinishedConnection::None, |spent| FinishedConnection::Http3(Box::new(spent))))
            }
        }
    }

    async fn handshake(&self, operation: Operation) -> Result<FinishedConnection, Failure> {
        let kind = self.opener.next_kind();
        let finished = if let (HttpVersion::Three { .. }, Kind::Tls(handshake)) = (self.workload.http, kind) {
            let (link, _) = self.opener.open_quic(handshake, kind.session(), None).await?;
            FinishedConnection::QuicHandshake(Box::new(link))
        } else {
            let link = self.opener.open(kind, kind.session(), None).await?;
            FinishedConnection::Handshake(Box::new(link))
        };
        if operation.counted {
            self.recorder.operation(operation.start, Instant::now());
        }
        Ok(finished)
    }

    async fn over_http1(
        &self,
        kept: &mut Option<Box<Http1>>,
        operation: Operation,
    ) -> Result<FinishedConnection, Failure> {
        let request = self.workload.choice.pick(operation.number, Axis::Request);
        let open = async || {
            let kind = self.opener.next_kind();
            let opened =
                Http1::open(&self.opener, kind, kind.session(), self.workload.requests, request).await;
            opened.map(Box::new)
        };
        let mut connection = match kept.take() {
            Some(connection) => connection,
            None => open().await?,
        };
        let mut exchanged = connection.exchange(request).await;
        // RFC 9112 section 9.5: a server may close an idle connection at any time, which is no failure.
        if matches!(exchanged, Err(ExchangeError::Idle)) {
            self.recorder.reconnected(Instant::now());
            connection = open().await?;
            exchanged = connection.exchange(request).await;
        }
        let exchange = exchanged.map_err(Failure::from)?;
        if operation.counted {
            self.recorder.response(operation.start, &exchange);
            self.recorder.operation(operation.start, exchange.ended);
        }
        if connection.is_open() {
            *kept = Some(connection);
            return Ok(FinishedConnection::None);
        }
        Ok(FinishedConnection::Http1(connection))
    }

    /// Returns the connection if it is to be closed.
    async fn over_shared<C: Multiplexed>(
        &self,
        shared: &SharedConnection<C>,
        operation: Operation,
    ) -> Result<Option<C>, Failure> {
        let request = self.workload.choice.pick(operation.number, Axis::Request);
        let connection = shared.connection(&self.opener, self.workload.requests, request).await?;
        let exchange = connection.exchange(request).await;
        // Before the result is examined: a failed exchange has to release the connection too.
        let spent = shared.give_back(connection);
        let exchange = exchange?;
        if operation.counted {
            self.recorder.response(operation.start, &exchange);
            self.recorder.operation(operation.start, exchange.ended);
        }
        Ok(spent)
    }
}

impl SlotConnection {
    /// Discards the connection, so that the next operation gets a new one.
    fn forget(&mut self) {
        match self {
            Self::Handshakes => {}
            Self::Http1(kept) => *kept = None,
            Self::Http2(shared) => shared.forget(),
            Self::Http3(shared) => shared.forget(),
        }
    }
}

impl FinishedConnection {
    async fn close(self) {
        match self {
            Self::None => {}
            Self::Handshake(link) => link.close_unused().await,
            Self::QuicHandshake(link) => link.close().await,
            Self::Http1(connection) => connection.close().await,
            Self::Http2(connection) => connection.close().await,
            Self::Http3(connection) => connection.close().await,
        }
    }
}
