//! State of a client's connection, shared by its driver and its requests.

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

/// Maximum number of bytes that the responses of a connection compress per turn: at most 1 ms of work.
const WORK: u32 = 64 << 10;

/// One client connection, shared by its driver and the requests in flight on it.
#[derive(Debug)]
pub struct Connection {
    /// Facts for the log, the metrics and the built-in page.
    pub record: RefCell<ConnectionRecord>,
    /// Whether the connection is HTTPS, as opposed to plain HTTP.
    pub secure: bool,
    /// Requirements of its host that the client met in the handshake.
    pub demands: Demands,
    /// Headers that describe the client to upstreams. Kept between requests, and released while the connection is idle.
    pub forwarded: RefCell<Option<Box<ForwardedValues>>>,
    /// The handshake, if the connection started with early data.
    handshake: Option<Box<Handshake>>,
    in_flight: Cell<u32>,
    requests: Cell<u32>,
    held_answers: Cell<u32>,
    answer_bytes: Cell<u64>,
    /// Fields that few connections need.
    own: OnceCell<Box<Own>>,
    /// Memory held by its responses.
    pub answers: AnswerBuffers,
    /// Boxed because HTTP/1.1 connections, most of which are idle, do not need it.
    multiplexed: OnceCell<Box<Multiplexed>>,
    surroundings: OnceCell<Surroundings>,
    request_began: Cell<Option<Instant>>,
    /// Whether written data waits for the client to read.
    blocked: Cell<bool>,
    /// Bytes compressed for its responses in this turn.
    work: Cell<u32>,
    /// Idle timeout in milliseconds, and the number of requests after which the connection ends, from the route of the
    /// latest request; 0 for the defaults.
    idle: Cell<u32>,
    most_requests: Cell<u32>,
    unblocked: RefCell<Vec<Waker>>,
}

/// Fields that few connections need. Separate, so that an idle connection stays small.
#[derive(Debug, Default)]
struct Own {
    /// Arms in experiments, if the connection takes part in any.
    arms: OnceCell<Arms>,
    /// Rate limits of the client, if there are any.
    rates: OnceCell<(Arc<Rates>, IpAddr)>,
    /// The upstream's transport after a switch of protocols, until the driver joins both transports.
    upgrade: RefCell<Option<Box<dyn Any>>>,
    /// Upstream connections that carry only this client's requests.
    logins: OnceCell<Box<dyn Any>>,
}

/// Settings and resources of the worker that serves a connection.
#[derive(Debug)]
pub struct Surroundings {
    /// Timeouts and sizes.
    pub settings: Rc<HttpSettings>,
    /// Deadlines of the worker.
    pub wheel: DeadlineWheel,
    /// Memory held by responses of the worker.
    pub buffers: Rc<WorkerBuffers>,
    /// Signals the shutdown of the gateway.
    pub drain: Drain,
}

/// One request in flight, from its head to the end of the response body. Dropping it ends the request.
#[derive(Debug)]
pub struct RequestGuard(Rc<Connection>);

impl Connection {
    /// A connection without requests or a client certificate.
    pub fn new(record: ConnectionRecord, secure: bool) -> Rc<Self> {
        Self::with_handshake(record, secure, None)
    }

    /// An HTTPS connection without requests whose client met `demands`.
    pub fn under(demands: Demands, record: ConnectionRecord) -> Rc<Self> {
        Rc::new(Self { demands, ..Self::at_start(record, true, None) })
    }

    /// An HTTPS connection with an incomplete handshake, whose early data contains the first requests. `confirmation`
    /// reports the end of the handshake; `until` is the client's deadline for it.
    pub fn with_early_data(record: ConnectionRecord, confirmation: Confirmation, until: Instant) -> Rc<Self> {
        let handshake = Handshake::new(Completion::Stream(confirmation), until);
        Self::with_handshake(record, true, Some(Box::new(handshake)))
    }

    /// A connection without requests; with a `handshake` if it started with early data.
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

    /// Applies the rate limits of `client` to requests on this connection. Call it once, before the first request.
    pub fn limit_requests(&self, rates: Arc<Rates>, client: IpAddr) {
        // Already set; the first value is kept.
        let _ = self.own().rates.set((rates, client));
    }

    /// Assigns the connection to arms of experiments. Call it once, before the first request.
    pub fn take_part(&self, arms: Arms) {
        if !arms.is_empty() {
            // Already set; the first value is kept.
            let _ = self.own().arms.set(arms);
        }
    }

    /// Arms in experiments, if the connection takes part in any.
    pub fn arms(&self) -> Option<&Arms> {
        self.own.get()?.arms.get()
    }

    fn own(&self) -> &Own {
        self.own.get_or_init(Box::default)
    }

    /// Stores the upstream's transport of a switched protocol for the driver. Its type is defined in
    /// `brisk_upstream::upgrade`.
    pub fn leave_upgrade(&self, upgrade: Box<dyn Any>) {
        self.own().upgrade.replace(Some(upgrade));
    }

    /// Takes the upstream's transport of a switched protocol, if a request has left one.
    pub fn take_upgrade(&self) -> Option<Box<dyn Any>> {
        self.own.get()?.upgrade.take()
    }

    /// Upstream connections that carry only this client's requests. Their type is defined in `brisk-upstream`, module
    /// `login`.
    pub fn logins(&self) -> Option<&dyn Any> {
        self.own.get()?.logins.get().map(|logins| &**logins)
    }

    /// Like [`logins`](Self::logins), created by `make` if absent.
    pub fn logins_or(&self, make: impl FnOnce() -> Box<dyn Any>) -> &dyn Any {
        &**self.own().logins.get_or_init(make)
    }

    /// The time until the next permitted request, if the client exceeds its request rate.
    pub fn over_rate(&self) -> Option<Duration> {
        let (rates, client) = self.own.get()?.rates.get()?;
        rates.take(*client, Event::Request).err()
    }

    /// Whether the handshake is complete. Requests that arrive from then on, or waited for it, are not replays.
    pub fn is_confirmed(&self) -> bool {
        self.handshake().is_none()
    }

    /// The handshake, while it is incomplete.
    pub fn handshake(&self) -> Option<&Handshake> {
        self.handshake.as_deref().filter(|handshake| !handshake.is_complete())
    }

    /// Counts a request as in flight until the guard is dropped.
    pub fn begin_request(self: &Rc<Self>) -> RequestGuard {
        self.in_flight.set(self.in_flight.get() + 1);
        self.requests.set(self.requests.get().wrapping_add(1));
        RequestGuard(Rc::clone(self))
    }

    /// Number of requests whose response has not ended.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.get()
    }

    /// Number of requests begun on this connection.
    pub fn requests(&self) -> u32 {
        self.requests.get()
    }

    /// Whether the connection has reached its limit of requests or its lifetime.
    pub fn is_used_up(&self) -> bool {
        let most = self.most_requests.get();
        if most > 0 && self.requests() >= most {
            return true;
        }
        let Some(settings) = self.settings() else { return false };
        settings.requests.is_some_and(|most| self.requests() >= most) || self.time_left().is_zero()
    }

    /// Remaining time in which the connection accepts requests.
    pub fn time_left(&self) -> Duration {
        let limit = self.settings().and_then(|settings| settings.timeouts.connection);
        let Some(limit) = limit else { return Duration::MAX };
        limit.saturating_sub(self.record.borrow().timeline.started().elapsed())
    }

    /// Applies the keep-alive settings of a route; `None` restores the defaults.
    pub fn keep(&self, keep_alive: Option<KeepAlive>) {
        let idle = keep_alive.and_then(|keep_alive| keep_alive.idle);
        self.idle.set(idle.map_or(0, |idle| u32::try_from(idle.as_millis()).unwrap_or(u32::MAX)));
        self.most_requests.set(keep_alive.map_or(0, KeepAlive::most_requests));
    }

    /// Idle timeout of the connection; `usual` is the default.
    pub fn idle(&self, usual: Duration) -> Duration {
        match self.idle.get() {
            0 => usual,
            idle => Duration::from_millis(idle.into()),
        }
    }

    /// Records that a request begins at `time`.
    pub fn begin_at(&self, time: Instant) {
        self.request_began.set(Some(time));
    }

    /// Start of the latest request.
    pub fn request_began(&self) -> Option<Instant> {
        self.request_began.get()
    }

    /// Sets the worker's settings and resources. Without them, as in tests, there are neither deadlines nor limits.
    pub fn surround(&self, surroundings: Surroundings) {
        // Called once per connection.
        let _ = self.surroundings.set(surroundings);
    }

    /// The settings for clients; `None` before [`surround`](Self::surround).
    pub fn settings(&self) -> Option<&HttpSettings> {
        self.surroundings.get().map(|surroundings| &*surroundings.settings)
    }

    /// Whether the drain timeout is over. The connection then ends together with its requests in flight.
    pub fn is_cut(&self) -> bool {
        self.surroundings.get().is_some_and(|surroundings| surroundings.drain.is_cut())
    }

    /// Registers a new deadline of the worker.
    pub fn register_deadline(&self) -> Option<Deadline> {
        self.surroundings.get().map(|surroundings| surroundings.wheel.register())
    }

    /// Ready while a response may hold more memory. Otherwise the task is woken when it may.
    pub fn poll_room(&self, context: &mut Context<'_>) -> Poll<()> {
        match self.surroundings.get() {
            Some(Surroundings { settings, buffers, .. }) => {
                let (connection, process) = (settings.buffered, settings.buffered_total);
                self.answers.poll_room(context, &Budget { connection, process, worker: buffers })
            }
            None => Poll::Ready(()),
        }
    }

    /// Waits until a response may hold more memory.
    pub async fn room(&self) {
        std::future::poll_fn(|context| self.poll_room(context)).await;
    }

    /// Wakes responses that wait for memory of the process, if it has memory again.
    pub fn offer_room(&self) {
        if !self.is_overloaded() {
            self.answers.offer_room();
        }
    }

    /// Whether the responses of the process exceed their memory limit.
    pub fn is_overloaded(&self) -> bool {
        self.surroundings
            .get()
            .is_some_and(|Surroundings { settings, buffers, .. }| buffers.exceed(settings.buffered_total))
    }

    /// Adds `bytes`, which may be negative, to the memory held by the worker's responses.
    pub fn worker_held(&self, bytes: isize) {
        if let Some(surroundings) = self.surroundings.get() {
            surroundings.buffers.change(bytes);
        }
    }

    /// Makes the connection multiplexed: several requests may be in flight at a time.
    pub fn multiplex(&self) -> &Multiplexed {
        self.multiplexed.get_or_init(Box::default)
    }

    /// The state of a multiplexed connection; `None` for any other.
    pub fn multiplexed(&self) -> Option<&Multiplexed> {
        self.multiplexed.get().map(|multiplexed| &**multiplexed)
    }

    /// Records whether a response has data that is not polled because the client does not read.
    pub fn answer_held(&self, held: bool) {
        let now = self.held_answers.get();
        self.held_answers.set(if held { now + 1 } else { now.saturating_sub(1) });
    }

    /// Counts polled bytes of responses.
    pub fn answer_taken(&self, bytes: u64) {
        self.answer_bytes.set(self.answer_bytes.get() + bytes);
    }

    /// Progress of an HTTP/1.1 response that waits for the client to read.
    pub fn held_answer(&self) -> Option<u64> {
        (self.held_answers.get() > 0).then(|| self.answer_bytes.get())
    }

    /// Ends a turn of the driver.
    pub fn end_turn(&self) {
        self.work.set(0);
    }

    /// Whether a response may compress `bytes` in this turn. Counts them if so; otherwise they must wait for the next
    /// turn.
    pub fn may_work(&self, bytes: usize) -> bool {
        let work = self.work.get().saturating_add(bytes.min(WORK as usize) as u32);
        let may = work <= WORK;
        if may {
            self.work.set(work);
        }
        may
    }

    /// Records whether written data waits for the client to read.
    pub fn set_blocked(&self, blocked: bool) {
        if self.blocked.replace(blocked) && !blocked {
            self.unblocked.take().into_iter().for_each(Waker::wake);
        }
    }

    /// Ready while the client reads the written data.
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
