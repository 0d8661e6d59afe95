//! The state of a client's connection, shared by its driver and its requests.

use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use brisk_net::rates::{Event, Rates};
use brisk_net::{Deadline, DeadlineWheel, Drain};
use brisk_telemetry::ConnectionRecord;
use brisk_tls::{Confirmation, Demands};
use brisk_visits::Arms;

use crate::buffers::{AnswerBuffers, Budget, WorkerBuffers};
use crate::forwarded::ForwardedValues;
use crate::handshake::{Completion, Handshake};
use crate::keep_alive::KeepAlive;
pub use crate::multiplexed::Multiplexed;
use crate::settings::HttpSettings;

/// Bytes that the answers of a connection may compress in a turn: 1 ms of work at most.
const WORK: u32 = 64 << 10;

/// One client connection, shared by its driver and the requests in flight on it.
#[derive(Debug)]
pub struct Connection {
    /// Facts for the log, the metrics and the built-in page.
    pub record: RefCell<ConnectionRecord>,
    /// The connection is HTTPS, not plain HTTP.
    pub secure: bool,
    /// The demands of its host that the client met in the handshake.
    pub demands: Demands,
    /// The headers that describe the client to upstreams, kept from one request to the next, but not while it rests.
    pub forwarded: RefCell<Option<Box<ForwardedValues>>>,
    /// The handshake of a connection that came with early data.
    handshake: Option<Box<Handshake>>,
    in_flight: Cell<u32>,
    requests: Cell<u32>,
    held_answers: Cell<u32>,
    answer_bytes: Cell<u64>,
    /// What few connections have.
    own: OnceCell<Box<Own>>,
    /// The memory that its answers hold.
    pub answers: AnswerBuffers,
    /// Boxed: connections of HTTP/1.1, most of which are idle, do without.
    multiplexed: OnceCell<Box<Multiplexed>>,
    surroundings: OnceCell<Surroundings>,
    request_began: Cell<Option<Instant>>,
    /// Something that was written waits for the client to take it.
    blocked: Cell<bool>,
    /// Bytes that its answers have compressed in this turn.
    work: Cell<u32>,
    /// How long it waits for the next request, in milliseconds, and the number of requests after which it ends: by what its
    /// last request was for. 0: as all connections.
    idle: Cell<u32>,
    most_requests: Cell<u32>,
    unblocked: RefCell<Vec<Waker>>,
}

/// What a connection has of its own, of which most have nothing.
#[derive(Debug, Default)]
struct Own {
    /// What it got in experiments, if it takes part in any.
    arms: OnceCell<Arms>,
    /// The rate limits of its client, if it has any.
    rates: OnceCell<(Arc<Rates>, IpAddr)>,
    /// Upstream's side of a connection whose protocol was switched, until the driver joins the two sides.
    upgrade: RefCell<Option<Box<dyn Any>>>,
    /// Upstream connections that carry the requests of this client alone.
    logins: OnceCell<Box<dyn Any>>,
}

/// The settings and resources of the worker that serves a connection.
#[derive(Debug)]
pub struct Surroundings {
    /// Time limits and sizes.
    pub settings: Rc<HttpSettings>,
    /// Deadlines of the worker.
    pub wheel: DeadlineWheel,
    /// Memory that answers of the worker hold.
    pub buffers: Rc<WorkerBuffers>,
    /// Signals that the gateway shuts down.
    pub drain: Drain,
}

/// One request in flight, from its head to the end of the answer's body. Dropping it ends the request.
#[derive(Debug)]
pub struct RequestGuard(Rc<Connection>);

impl Connection {
    /// A connection without requests, whose client was asked for no certificate.
    pub fn new(record: ConnectionRecord, secure: bool) -> Rc<Self> {
        Self::with_handshake(record, secure, None)
    }

    /// An HTTPS connection without requests, whose client met `demands`.
    pub fn under(demands: Demands, record: ConnectionRecord) -> Rc<Self> {
        Rc::new(Self { demands, ..Self::at_start(record, true, None) })
    }

    /// An HTTPS connection whose handshake is not complete: its early data holds the first requests. `confirmation`
    /// reports when the handshake is complete; `until` is the client's deadline for it.
    pub fn with_early_data(record: ConnectionRecord, confirmation: Confirmation, until: Instant) -> Rc<Self> {
        let handshake = Handshake::new(Completion::Stream(confirmation), until);
        Self::with_handshake(record, true, Some(Box::new(handshake)))
    }

    /// A connection without requests; with a `handshake`, it came with early data.
    pub fn with_handshake(
        record: ConnectionRecord,
        secure: bool,
        handshake: Option<Box<Handshake>>,
    ) -> Rc<Self> {
        Rc::new(Self::at_start(record, secure, handshake))
    }

    fn at_start(record: ConnectionRecord, secure: bool, handshake: Option<Box<Handshake>>) -> Self {
        Self {
            record: RefCell::new(record),
            secure,
            demands: Demands::default(),
            forwarded: RefCell::new(None),
            handshake,
            in_flight: Cell::new(0),
            requests: Cell::new(0),
            held_answers: Cell::new(0),
            answer_bytes: Cell::new(0),
            own: OnceCell::new(),
            answers: AnswerBuffers::default(),
            multiplexed: OnceCell::new(),
            surroundings: OnceCell::new(),
            request_began: Cell::new(None),
            blocked: Cell::new(false),
            work: Cell::new(0),
            idle: Cell::new(0),
            most_requests: Cell::new(0),
            unblocked: RefCell::default(),
        }
    }

    /// Limits the requests on this connection as those of `client`. To be called once, before the first.
    pub fn limit_requests(&self, rates: Arc<Rates>, client: IpAddr) {
        // An error: it was called before, and that holds.
        let _ = self.own().rates.set((rates, client));
    }

    /// The connection takes part in experiments. To be called once, before the first request.
    pub fn take_part(&self, arms: Arms) {
        if !arms.is_empty() {
            // An error: it was called before, and that holds.
            let _ = self.own().arms.set(arms);
        }
    }

    /// What it got in experiments, if it takes part in any.
    pub fn arms(&self) -> Option<&Arms> {
        self.own.get()?.arms.get()
    }

    fn own(&self) -> &Own {
        self.own.get_or_init(Box::default)
    }

    /// Keeps the upstream's side of a switched protocol for the driver. Its type is that of `upstream::upgrade`.
    pub fn leave_upgrade(&self, upgrade: Box<dyn Any>) {
        self.own().upgrade.replace(Some(upgrade));
    }

    /// Upstream's side of a switched protocol, if a request has left one.
    pub fn take_upgrade(&self) -> Option<Box<dyn Any>> {
        self.own.get()?.upgrade.take()
    }

    /// Upstream connections that carry the requests of this client alone. Their type is that of `upstream::login`.
    pub fn logins(&self) -> Option<&dyn Any> {
        self.own.get()?.logins.get().map(|logins| &**logins)
    }

    /// As [`Self::logins`], made by `make` for the first of them.
    pub fn logins_or(&self, make: impl FnOnce() -> Box<dyn Any>) -> &dyn Any {
        &**self.own().logins.get_or_init(make)
    }

    /// How long the client has to wait, if it has sent too many requests.
    pub fn over_rate(&self) -> Option<Duration> {
        let (rates, client) = self.own.get()?.rates.get()?;
        rates.take(*client, Event::Request).err()
    }

    /// Whether the handshake is complete: what the client sent from then on, and what waited for it, is no replay.
    pub fn is_confirmed(&self) -> bool {
        self.handshake().is_none()
    }

    /// The handshake, while it is not complete.
    pub fn handshake(&self) -> Option<&Handshake> {
        self.handshake.as_deref().filter(|handshake| !handshake.is_complete())
    }

    /// Counts a request as in flight until the guard is dropped.
    pub fn begin_request(self: &Rc<Self>) -> RequestGuard {
        self.in_flight.set(self.in_flight.get() + 1);
        self.requests.set(self.requests.get().wrapping_add(1));
        RequestGuard(Rc::clone(self))
    }

    /// Requests whose answer has not ended.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.get()
    }

    /// Requests begun on this connection so far.
    pub fn requests(&self) -> u32 {
        self.requests.get()
    }

    /// Whether the connection has had as many requests, or as much time, as it may.
    pub fn is_used_up(&self) -> bool {
        let most = self.most_requests.get();
        if most > 0 && self.requests() >= most {
            return true;
        }
        let Some(settings) = self.settings() else { return false };
        settings.requests.is_some_and(|most| self.requests() >= most) || self.time_left().is_zero()
    }

    /// How much longer the connection may take requests.
    pub fn time_left(&self) -> Duration {
        let limit = self.settings().and_then(|settings| settings.timeouts.connection);
        let Some(limit) = limit else { return Duration::MAX };
        limit.saturating_sub(self.record.borrow().timeline.started().elapsed())
    }

    /// Keeps the connection from now on as requests of one kind want it, or as all connections are kept.
    pub fn keep(&self, keep_alive: Option<KeepAlive>) {
        let idle = keep_alive.and_then(|keep_alive| keep_alive.idle);
        self.idle.set(idle.map_or(0, |idle| u32::try_from(idle.as_millis()).unwrap_or(u32::MAX)));
        self.most_requests.set(keep_alive.map_or(0, KeepAlive::most_requests));
    }

    /// How long the connection waits for the next request; `usual` is how long all do.
    pub fn idle(&self, usual: Duration) -> Duration {
        match self.idle.get() {
            0 => usual,
            idle => Duration::from_millis(idle.into()),
        }
    }

    /// Notes that a request begins at `time`.
    pub fn begin_at(&self, time: Instant) {
        self.request_began.set(Some(time));
    }

    /// When the latest request began.
    pub fn request_began(&self) -> Option<Instant> {
        self.request_began.get()
    }

    /// Gives the connection what it needs of its worker. Without it, as in tests, there are neither deadlines nor limits.
    pub fn surround(&self, surroundings: Surroundings) {
        // Once for each connection.
        let _ = self.surroundings.set(surroundings);
    }

    /// The settings for clients, once the connection is being served.
    pub fn settings(&self) -> Option<&HttpSettings> {
        self.surroundings.get().map(|surroundings| &*surroundings.settings)
    }

    /// Whether the drain timeout is over: the connection ends, with the requests in flight on it.
    pub fn is_cut(&self) -> bool {
        self.surroundings.get().is_some_and(|surroundings| surroundings.drain.is_cut())
    }

    /// A new deadline of the worker.
    pub fn register_deadline(&self) -> Option<Deadline> {
        self.surroundings.get().map(|surroundings| surroundings.wheel.register())
    }

    /// Ready while an answer may hold more; otherwise the task is woken when it may.
    pub fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        match self.surroundings.get() {
            Some(Surroundings { settings, buffers, .. }) => {
                let (connection, process) = (settings.buffered, settings.buffered_total);
                self.answers.poll_room(context, &Budget { connection, process, worker: buffers })
            }
            None => Poll::Ready(()),
        }
    }

    /// Waits until an answer may hold more.
    pub async fn room(&self) {
        std::future::poll_fn(|context| self.poll_room(context)).await;
    }

    /// Lets answers go on that found the process without room, if it has room again.
    pub fn offer_room(&self) {
        if !self.is_overloaded() {
            self.answers.offer_room();
        }
    }

    /// Whether all answers of the process hold more than they may.
    pub fn is_overloaded(&self) -> bool {
        self.surroundings
            .get()
            .is_some_and(|Surroundings { settings, buffers, .. }| buffers.exceed(settings.buffered_total))
    }

    /// Adds `bytes`, which may be negative, to what the answers of the worker hold.
    pub fn worker_held(&self, bytes: isize) {
        if let Some(surroundings) = self.surroundings.get() {
            surroundings.buffers.change(bytes);
        }
    }

    /// From now on several requests may be in flight at a time.
    pub fn multiplex(&self) -> &Multiplexed {
        self.multiplexed.get_or_init(Box::default)
    }

    /// The state of a connection with several requests at a time; `None` for any other.
    pub fn multiplexed(&self) -> Option<&Multiplexed> {
        self.multiplexed.get().map(|multiplexed| &**multiplexed)
    }

    /// Counts one answer more, or less, with data that is not asked for because the client does not take it.
    pub fn answer_held(&self, held: bool) {
        let now = self.held_answers.get();
        self.held_answers.set(if held { now + 1 } else { now.saturating_sub(1) });
    }

    /// Counts bytes of answers that were asked for.
    pub fn answer_taken(&self, bytes: u64) {
        self.answer_bytes.set(self.answer_bytes.get() + bytes);
    }

    /// The progress of an answer over HTTP/1.1, while it waits for the client to take more.
    pub fn held_answer(&self) -> Option<u64> {
        (self.held_answers.get() > 0).then(|| self.answer_bytes.get())
    }

    /// A turn of the driver ends.
    pub fn end_turn(&self) {
        self.work.set(0);
    }

    /// Whether an answer may compress `bytes` in this turn. They count, unless they are too many: then the next turn is for
    /// them.
    pub fn may_work(&self, bytes: usize) -> bool {
        let work = self.work.get().saturating_add(bytes.min(WORK as usize) as u32);
        let may = work <= WORK;
        if may {
            self.work.set(work);
        }
        may
    }

    /// Notes whether something that was written still waits for the client to take it.
    pub fn set_blocked(&self, blocked: bool) {
        if self.blocked.replace(blocked) && !blocked {
            self.unblocked.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Ready while the client takes what is written.
    pub fn poll_unblocked(&self, context: &mut Context<'_>) -> Poll<()> {
        if !self.blocked.get() {
            return Poll::Ready(());
        }
        let mut waiting = self.unblocked.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.in_flight.set(self.0.in_flight.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_holds_no_more_than_it_must() {
        // With the two counts of its `Rc` it fits the allocator's class of 512 bytes.
        assert!(size_of::<Connection>() <= 496, "{}", size_of::<Connection>());
    }
}
