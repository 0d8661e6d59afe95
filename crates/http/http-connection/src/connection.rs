//! State of a client's connection, shared by its driver and its requests.

mod client;
mod extras;
mod flow;
mod limits;

use std::cell::OnceCell;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use brisk_budget::{Budgets, Full, Resource};
use brisk_certs::Identity;
use brisk_net::{Deadline, DeadlineWheel, Drain};
use brisk_pressure::Pressure;
use brisk_telemetry::ConnectionRecord;
use brisk_tls::{Confirmation, Demands};

use crate::buffers::{AnswerBuffers, RoomLimits, WorkerBuffers};
pub use crate::connection::client::ClientFacts;
pub use crate::connection::extras::{Extras, InterimResponse};
pub use crate::connection::flow::Flow;
pub use crate::connection::limits::Limits;
use crate::gathering::Gathering;
use crate::handshake::{Completion, Handshake};
pub use crate::multiplexed::Multiplexed;
use crate::settings::HttpSettings;
use crate::work::{Owner, WorkPlace};

/// One client connection, shared by its driver and the requests in flight on it. Not `Send`: it belongs to one worker.
#[derive(Debug)]
pub struct Connection {
    /// Facts about the client of the connection.
    pub client: ClientFacts,
    /// The requests in flight on the connection.
    pub flow: Flow,
    /// Idle timeout of the connection, and its maximum number of requests.
    pub limits: Limits,
    /// State that few connections need.
    pub extras: Extras,
    /// Memory held by the responses of the connection.
    pub answers: AnswerBuffers,
    /// Boxed because HTTP/1.1 connections, most of which are idle, do not need [`Multiplexed`].
    multiplexed: OnceCell<Box<Multiplexed>>,
    surroundings: OnceCell<Surroundings>,
}

/// Settings and resources of the worker that serves a connection, for [`Connection::surround`].
#[derive(Debug)]
pub struct Surroundings {
    /// Timeouts and sizes of client connections.
    pub settings: Rc<HttpSettings>,
    /// Deadlines of the worker.
    pub wheel: DeadlineWheel,
    /// Memory held by responses of the worker.
    pub buffers: Rc<WorkerBuffers>,
    /// Signals the shutdown of the gateway.
    pub drain: Drain,
}

/// One request in flight, from its head to the end of the response body. Dropping the guard ends the request.
#[derive(Debug)]
pub struct RequestGuard(Rc<Connection>);

impl Connection {
    /// A connection without requests or a client certificate.
    pub fn new(record: ConnectionRecord, secure: bool) -> Rc<Self> {
        Self::with_handshake(record, secure, None)
    }

    /// An HTTPS connection without requests whose client met `demands`.
    pub fn under(demands: Demands, record: ConnectionRecord) -> Rc<Self> {
        let mut client = ClientFacts::new(record, true, None);
        client.demands = demands;
        Self::of(client)
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
        Self::of(ClientFacts::new(record, secure, handshake))
    }

    fn of(client: ClientFacts) -> Rc<Self> {
        Rc::new(Self {
            client,
            flow: Flow::default(),
            limits: Limits::default(),
            extras: Extras::default(),
            answers: AnswerBuffers::default(),
            multiplexed: OnceCell::new(),
            surroundings: OnceCell::new(),
        })
    }

    /// Counts a request as in flight until the [`RequestGuard`] is dropped.
    pub fn begin_request(self: &Rc<Self>) -> RequestGuard {
        self.flow.begin();
        RequestGuard(Rc::clone(self))
    }

    /// Whether the connection has reached `requests` of its settings or route, or `timeouts.connection`, or has had a request while
    /// connections hold resources that are short.
    pub fn is_used_up(&self) -> bool {
        let requests = self.flow.requests();
        if self.limits.end_after(requests) {
            return true;
        }
        // Not before the first request, for which the handshake was made.
        if requests > 0 && self.pressure().is_some_and(Pressure::ends_connections) {
            return true;
        }
        let Some(settings) = self.settings() else { return false };
        settings.requests.is_some_and(|most| requests >= most) || self.time_left().is_zero()
    }

    /// Remaining time in which the connection accepts requests (`timeouts.connection`).
    pub fn time_left(&self) -> Duration {
        let limit = self.settings().and_then(|settings| settings.timeouts.connection);
        let Some(limit) = limit else { return Duration::MAX };
        limit.saturating_sub(self.client.record.borrow().timeline.started().elapsed())
    }

    /// The identity of a client with a verified certificate, if its host keeps certificates. Read once for the
    /// connection; in a resumed session, the certificate is that of the first handshake.
    pub fn identity(&self) -> Option<&Identity> {
        let record = self.client.record.borrow();
        let certificate = record.tls.as_ref()?.client_chain.first()?;
        Some(self.extras.identity_of(certificate))
    }

    /// Sets the worker's settings and resources. Without them, as in tests, there are neither deadlines nor limits.
    pub fn surround(&self, surroundings: Surroundings) {
        // Called once per connection.
        let _ = self.surroundings.set(surroundings);
    }

    /// The settings for clients; `None` before [`Self::surround`].
    pub fn settings(&self) -> Option<&HttpSettings> {
        self.surroundings.get().map(|surroundings| &*surroundings.settings)
    }

    /// The memory budgets of the process; `None` before [`Self::surround`].
    pub fn budgets(&self) -> Option<&Budgets> {
        self.surroundings.get().map(|surroundings| surroundings.buffers.budgets())
    }

    /// The overload of the process; `None` before [`Self::surround`].
    pub fn pressure(&self) -> Option<&Pressure> {
        self.surroundings.get().map(|surroundings| surroundings.buffers.pressure())
    }

    /// Idle timeout of the connection; `usual` is the default. Shorter in an overload.
    pub fn idle_time(&self, usual: Duration) -> Duration {
        let own = self.limits.idle(usual);
        self.pressure().map_or(own, |pressure| pressure.idle_time(own))
    }

    /// Whether a response may process `bytes` at once. If not, its body must wait for [`Self::poll_work`].
    pub fn may_work(&self, bytes: usize) -> bool {
        self.surroundings.get().is_none_or(|surroundings| surroundings.buffers.work.may_work(bytes))
    }

    /// Ready when the body that owns `place` may process `bytes`.
    pub fn poll_work(&self, bytes: usize, place: &mut WorkPlace, context: &mut Context<'_>) -> Poll<()> {
        let Some(surroundings) = self.surroundings.get() else { return Poll::Ready(()) };
        // A fair share needs an owner for each connection. Behind a trusted proxy the address represents many
        // clients, so the number of the connection replaces the address.
        let owner = Owner::of(self.client.address(), self.client.record.borrow().id);
        surroundings.buffers.work.poll_work(owner, bytes, place, context)
    }

    /// Starts to gather a response of at most `limit` bytes while it is sent; `None` without memory for the client.
    pub fn gather(&self, limit: usize) -> Option<Gathering> {
        let budget = self.budgets().map(|budgets| budgets.of(Resource::Copies));
        // No bytes yet: the reservation only names the client, and grows with the gathered bytes.
        let reservation = budget.map(|budget| budget.reserve(self.client.address(), 0)).transpose().ok()?;
        let gathering = Gathering::new(limit, reservation);
        self.extras.gather(gathering.shared());
        Some(gathering)
    }

    /// Gives up all gathered bytes of responses, because the client reads them too slowly.
    pub fn stop_gathering(&self) {
        let gatherings = self.extras.take_gatherings();
        // `Weak`, because a finished response must not keep its copy in memory until the end of the
        // connection.
        gatherings.iter().filter_map(Weak::upgrade).for_each(|shared| drop(shared.take()));
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
        // Short responses, the usual case, need neither the settings nor the address of the client.
        if !self.answers.has_share() {
            return Poll::Ready(());
        }
        self.room_limits().map_or(Poll::Ready(()), |limits| self.answers.poll_room(context, &limits))
    }

    /// Waits until a response may hold more memory.
    pub async fn room(&self) {
        std::future::poll_fn(|context| self.poll_room(context)).await;
    }

    /// Waits until the connection may hold `bytes` more, which come at once.
    pub async fn room_for(&self, bytes: usize) {
        if let Some(limits) = self.room_limits() {
            std::future::poll_fn(|context| self.answers.poll_fits(context, bytes, &limits)).await;
        }
    }

    /// Reserves the client's share for `bytes` more of a response, which the caller takes at once; `None` while
    /// [`Self::room_for`] waits.
    ///
    /// # Errors
    ///
    /// [`Full`] if the client has its share of the budget for responses, or the limit of the process is reached.
    pub(crate) fn reserve_share(&self, bytes: usize) -> Option<Result<(), Full>> {
        self.room_limits().map_or(Some(Ok(())), |limits| self.answers.reserve(bytes, &limits))
    }

    fn room_limits(&self) -> Option<RoomLimits<'_>> {
        let Surroundings { settings, buffers, .. } = self.surroundings.get()?;
        let (connection, process) = (settings.buffered, settings.buffered_total);
        Some(RoomLimits { connection, process, worker: buffers, client: self.client.address() })
    }

    /// Wakes responses that wait for memory of the process, if it has memory again.
    pub fn offer_room(&self) {
        if !self.is_overloaded() {
            self.answers.offer_room();
        }
    }

    /// Whether the responses of the process exceed `limits.buffered_total`.
    pub fn is_overloaded(&self) -> bool {
        self.surroundings
            .get()
            .is_some_and(|Surroundings { settings, buffers, .. }| buffers.exceed(settings.buffered_total))
    }

    /// Whether further requests of the connection must be refused: the responses of the process exceed their memory limit,
    /// and the connection has used up its minimum share. Other connections are served, however many clients together
    /// exceed the limit with their minimum shares.
    pub fn must_refuse(&self) -> bool {
        self.answers.has_share() && self.is_overloaded()
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
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.flow.end();
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
