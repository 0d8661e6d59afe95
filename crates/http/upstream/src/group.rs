//! Upstream groups as used by one worker, with the worker's connections.

mod lease;
mod tending;

use std::cell::{Cell, Ref, RefCell};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use brisk_http::message::{HeaderList, RequestParts};
use brisk_http_connection::proxy_header;
use brisk_net::{Deadline, DeadlineWheel};
use brisk_upstream_group::places::Place;
use brisk_upstream_group::retry::Credit;
use brisk_upstream_group::settings::GroupSettings;
use brisk_upstream_group::{GroupState, Member, Members, ServerState, UpstreamIo};
use http::StatusCode;
use http::header::SET_COOKIE;
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::timeout;

use crate::call_counts::CallCounts;
use crate::error::UpstreamError;
use crate::http1::{ApplicationServer, Http1};
use crate::http2::{Http2Limits, Http2Pool};
use crate::open::OpenConnection;
use crate::pipeline::Pipelines;
use crate::pool::Pool;
use crate::proxied::{ProxiedClients, Requester};

pub(crate) use self::lease::Lease;
use self::tending::{Tended, tend};

/// A group as used by one worker, with the worker's own connections. [`GroupState`] is the part that all workers share.
#[derive(Debug)]
pub struct Group {
    state: Arc<GroupState>,
    wheel: DeadlineWheel,
    members: RefCell<Members<Rc<Server>>>,
    hedges: Credit,
    leaving: Credit,
    /// Signals requests that wait for the first servers.
    arrived: Notify,
}

/// A server as used by one worker. [`ServerState`] is the part that all workers share.
#[derive(Debug)]
pub struct Server {
    group: Arc<GroupState>,
    state: Arc<ServerState>,
    wheel: DeadlineWheel,
    pool: Pool,
    http2: Http2Pool,
    proxied: ProxiedClients,
    pipelines: Rc<Pipelines>,
    /// Connections passing from one request to another, which [`Grant::Connection`](brisk_upstream_group::places::Grant)
    /// notified.
    pub(crate) handed: RefCell<VecDeque<Box<Http1>>>,
    active: Cell<u32>,
    call_counts: CallCounts,
    /// See [`Self::exclusions`].
    exclusions: Notify,
    /// Whether waiting requests know that the server is excluded.
    was_excluded: Cell<bool>,
}

impl Group {
    /// A group without connections. The caller is the worker, inside a runtime for [`spawn_local`]: `new` spawns a
    /// local task that checks idle connections and ends with the group.
    pub fn new(state: Arc<GroupState>, wheel: &DeadlineWheel) -> Rc<Self> {
        let members = RefCell::new(members(&state, &[], wheel));
        let (wheel, hedges, leaving) = (wheel.clone(), Credit::empty(), Credit::full());
        let group = Rc::new(Self { state, wheel, members, hedges, leaving, arrived: Notify::new() });
        drop(spawn_local(tend(Rc::downgrade(&group), Arc::clone(&group.state))));
        group
    }

    /// The credit for second attempts of `hedge`.
    pub(crate) fn hedge_credit(&self) -> &Credit {
        &self.hedges
    }

    /// The credit for requests that leave a silent or excluded server.
    pub(crate) fn leaving_credit(&self) -> &Credit {
        &self.leaving
    }

    /// The part of the group that all workers share.
    pub fn state(&self) -> &Arc<GroupState> {
        &self.state
    }

    /// The servers at present, in the order of the settings. The [`Ref`] must not be held during an `await`: a change of DNS
    /// replaces the list.
    pub fn servers(&self) -> Ref<'_, [Rc<Server>]> {
        Ref::map(self.members.borrow(), |members| members.servers())
    }

    /// Chooses a server for a request: a healthy one, or any if none is healthy, because an attempt costs less than a
    /// refusal. Never returns `avoid`, which has just failed. `None` if there is no other server.
    pub(crate) fn choose(&self, key: u64, avoid: Option<&Rc<Server>>) -> Option<Rc<Server>> {
        let members = self.members.borrow();
        let is_avoided = |avoid| members.servers().iter().position(|server| Rc::ptr_eq(server, avoid));
        members.choose(key, avoid.and_then(is_avoided)).map(Rc::clone)
    }

    /// The available server that the cookie of a request names, if the group has `sticky`.
    pub(crate) fn assigned(&self, head: &RequestParts) -> Option<Rc<Server>> {
        let sticky = self.state.settings().sticky.as_ref()?;
        let servers = self.servers();
        let is_assigned = |server: &&Rc<Server>| {
            server.state.assignment().is_some_and(|assignment| sticky.is_assigned(&head.headers, assignment))
        };
        servers.iter().find(is_assigned).filter(|server| server.is_available()).cloned()
    }

    /// The balancing key of a request: requests with equal keys should reach the same server.
    pub(crate) fn key(&self, head: &RequestParts, client: impl FnOnce() -> IpAddr) -> u64 {
        self.members.borrow().key(head, client)
    }

    /// The balancing key of a TCP connection of `client`.
    pub(crate) fn client_key(&self, client: IpAddr) -> u64 {
        self.members.borrow().client_key(client)
    }

    /// Waits until DNS has named the first servers of a group without any, or has failed, at most for `timeouts.connect`.
    pub(crate) async fn await_servers(&self) {
        let arrival = async {
            // No signal is lost: between the check and the wait, nothing else runs on this thread.
            while self.members.borrow().is_awaited() {
                self.arrived.notified().await;
            }
        };
        // The caller finds out whether there are servers.
        drop(timeout(self.state.settings().timeouts.connect, arrival).await);
    }

    /// Closes idle connections and keeps none from now on. Called when a reload removes or replaces the [`Group`]. Requests
    /// in flight continue.
    pub fn retire(&self) {
        self.servers().iter().for_each(|server| server.retire());
    }
}

impl Tended for Group {
    fn sweep(&self) {
        for server in &*self.servers() {
            server.pool.sweep();
            let pool = &self.state.settings().pool;
            let ticks = idle_ticks(pool.idle_timeout);
            server.http2.sweep(pool.idle_connections, ticks);
            server.sweep_proxied(ticks);
            server.report_calls();
        }
    }

    /// Connections to removed servers close with their requests.
    fn follow(&self) {
        if self.members.borrow().are(&self.state.members()) {
            return;
        }
        let members = members(&self.state, &self.servers(), &self.wheel);
        let before = self.members.replace(members);
        let now = self.servers();
        let is_gone = |server: &&Rc<Server>| !now.iter().any(|kept| Rc::ptr_eq(kept, server));
        before.servers().iter().filter(is_gone).for_each(|server| server.retire());
        self.arrived.notify_waiters();
    }

    fn look(&self, is_tick: bool) {
        for server in &*self.servers() {
            server.yield_idle();
            let is_excluded = !server.is_available();
            let is_new = server.was_excluded.replace(is_excluded) != is_excluded;
            // Every second too, when the budget may permit more requests to leave.
            if is_excluded && (is_new || is_tick) {
                server.exclusions.notify_waiters();
            }
        }
    }
}

/// The present servers of `group`: those of `before` that remain, with their connections, and new ones.
fn members(group: &Arc<GroupState>, before: &[Rc<Server>], wheel: &DeadlineWheel) -> Members<Rc<Server>> {
    let shared = group.members();
    let servers = shared.servers().iter().map(|state| {
        let kept = before.iter().find(|server| Arc::ptr_eq(&server.state, state));
        kept.map_or_else(|| Rc::new(Server::new(group, state, wheel)), Rc::clone)
    });
    let servers = servers.collect();
    Members::new(shared, servers, &group.settings().balance)
}

fn idle_ticks(timeout: Duration) -> u32 {
    u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX)
}

impl Server {
    fn new(group: &Arc<GroupState>, state: &Arc<ServerState>, wheel: &DeadlineWheel) -> Self {
        let settings = &group.settings().pool;
        Self {
            group: Arc::clone(group),
            state: Arc::clone(state),
            wheel: wheel.clone(),
            pool: Pool::new(settings.idle_connections, idle_ticks(settings.idle_timeout)),
            http2: Http2Pool::new(Http2Limits::of(group.settings()), wheel),
            proxied: ProxiedClients::new(settings.idle_connections),
            pipelines: Pipelines::new(group.settings().pipeline, state.metrics()),
            handed: RefCell::default(),
            active: Cell::new(0),
            call_counts: CallCounts::default(),
            exclusions: Notify::new(),
            was_excluded: Cell::default(),
        }
    }

    /// Host and port, or the Unix socket, for the log and the metrics.
    pub fn name(&self) -> &str {
        self.state.name()
    }

    /// The part of the server that all workers share.
    pub fn state(&self) -> &ServerState {
        &self.state
    }

    /// Number of idle HTTP/1.1 connections of this worker.
    pub fn idle_connections(&self) -> usize {
        self.pool.len()
    }

    /// See [`Group::retire`].
    fn retire(&self) {
        self.pool.retire();
        self.http2.retire();
        self.retire_proxied();
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn http2(&self) -> &Http2Pool {
        &self.http2
    }

    pub(crate) fn proxied(&self) -> &ProxiedClients {
        &self.proxied
    }

    pub(crate) fn pipelines(&self) -> &Rc<Pipelines> {
        &self.pipelines
    }

    pub(crate) fn call_counts(&self) -> &CallCounts {
        &self.call_counts
    }

    /// Time of the last tick of the worker.
    pub(crate) fn now(&self) -> Duration {
        self.wheel.now()
    }

    /// Signals to waiting requests that the server is excluded: at once, and every second, when the budget may permit more of
    /// them to leave.
    pub(crate) fn exclusions(&self) -> &Notify {
        &self.exclusions
    }

    pub(crate) fn group_state(&self) -> &GroupState {
        &self.group
    }

    pub(crate) fn group_settings(&self) -> &GroupSettings {
        self.group.settings()
    }

    /// An empty [`Http2Pool`] of connections to the server.
    pub(crate) fn new_http2_pool(&self) -> Http2Pool {
        Http2Pool::new(Http2Limits::of(self.group.settings()), &self.wheel)
    }

    pub(crate) fn register_deadline(&self) -> Deadline {
        self.wheel.register()
    }

    /// Opens a transport with the permit `place`, which was granted to a request of `client`.
    pub(crate) async fn open(
        &self,
        client: Requester<'_>,
        place: Option<Place>,
    ) -> Result<(UpstreamIo, OpenConnection), UpstreamError> {
        let state = self.state();
        let header = state
            .proxy_protocol()
            .map(|version| proxy_header::header(client.connection, client.address, version));
        self.open_with(&header.unwrap_or_default(), place).await
    }

    /// Opens a transport with the permit `place`, which begins with the PROXY `header`.
    pub(crate) async fn open_with(
        &self,
        header: &[u8],
        place: Option<Place>,
    ) -> Result<(UpstreamIo, OpenConnection), UpstreamError> {
        let state = self.state();
        let io = state.connect(&self.group_settings().name, header).await?;
        Ok((io, OpenConnection::new(state.metrics(), place)))
    }

    /// Assigns the client to the server by `Set-Cookie`, in a group with `sticky`, unless the client has this cookie already.
    pub(crate) fn assign(&self, assigned: Option<&Rc<Self>>, headers: &mut HeaderList) {
        let is_assigned = assigned.is_some_and(|assigned| std::ptr::eq(&raw const **assigned, self));
        if let Some(assignment) = self.state.assignment()
            && !is_assigned
        {
            headers.append(SET_COOKIE, assignment.clone());
        }
    }

    /// Whether the server gets requests as variables: FastCGI, uwsgi or SCGI.
    pub(crate) fn is_application(&self) -> bool {
        self.state.url().scheme().cgi().is_some()
    }

    /// The application server of a connection; `None` for HTTP.
    pub(crate) fn application(&self) -> Option<ApplicationServer> {
        let protocol = self.state.url().scheme().cgi()?;
        let keeps = self.group_settings().pool.idle_connections > 0;
        Some(ApplicationServer {
            protocol,
            keeps,
            server: Arc::clone(&self.state),
            group: Arc::clone(&self.group),
        })
    }

    /// Records a response, which may be a failure of the server: 5xx with `health.server_errors`.
    pub(crate) fn answered(&self, status: StatusCode) {
        self.group.record_response(&self.state, status);
    }

    /// Records a request without a response.
    pub(crate) fn failed(&self, error: &UpstreamError) {
        let is_malformed = || matches!(error, UpstreamError::Malformed(_)) && self.is_application();
        if matches!(error, UpstreamError::HeadTooLarge) || is_malformed() {
            self.state.warn_of(error, &self.group_settings().name, "a response was refused");
        }
        self.group.record_failure(&self.state, error);
    }
}

impl Member for Server {
    fn name(&self) -> &str {
        self.state.name()
    }

    fn weight(&self) -> u32 {
        self.state.weight()
    }

    fn active(&self) -> u32 {
        self.active.get()
    }

    fn is_available(&self) -> bool {
        self.state().is_healthy()
    }

    fn is_backup(&self) -> bool {
        self.state.is_backup()
    }
}
