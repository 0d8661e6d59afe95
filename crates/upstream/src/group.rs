//! Upstream groups: the part shared by the process ([`GroupState`]) and the part of each worker ([`Group`]).

mod lease;
mod state;
mod tls;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use brisk_http_connection::Connection;
use brisk_net::{Deadline, DeadlineWheel};
use http::request::Parts;
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::{MissedTickBehavior, interval};

use crate::balance::{Balancer, Member};
use crate::error::UpstreamError;
use crate::http1::Http1;
use crate::http2::{Http2Limits, Http2Pool};
use crate::io::UpstreamIo;
use crate::open::OpenConnection;
use crate::pipeline::Pipelines;
use crate::places::Place;
use crate::pool::Pool;
use crate::proxy_header;
use crate::settings::GroupSettings;

pub(crate) use self::lease::Lease;
pub use self::state::{GroupState, ServerState};

/// Interval between checks of idle connections.
const SWEEP: Duration = Duration::from_secs(1);

/// A group as used by one worker, with the worker's own connections.
#[derive(Debug)]
pub struct Group {
    state: Arc<GroupState>,
    servers: Vec<Rc<Server>>,
    balancer: Balancer,
}

/// A server as used by one worker.
#[derive(Debug)]
pub struct Server {
    group: Arc<GroupState>,
    index: usize,
    wheel: DeadlineWheel,
    pool: Pool,
    http2: Http2Pool,
    pipelines: Rc<Pipelines>,
    /// Connections passing from one request to another, which was notified to take one.
    pub(crate) handed: RefCell<VecDeque<Box<Http1>>>,
    active: Cell<u32>,
}

impl Group {
    /// A group without connections. Call it on the worker, inside its local runtime: it spawns a local task that checks
    /// idle connections and ends with the group.
    pub fn new(state: Arc<GroupState>, wheel: &DeadlineWheel) -> Rc<Self> {
        let servers = (0..state.servers.len()).map(|index| Rc::new(Server::new(&state, index, wheel)));
        let servers: Vec<_> = servers.collect();
        let balancer = Balancer::new(&state.settings.balance, &servers);
        let group = Rc::new(Self { state, servers, balancer });
        let wanted = Arc::clone(&group.state.idle_wanted);
        drop(spawn_local(tend(Rc::downgrade(&group), wanted)));
        group
    }

    /// The part of the group that all workers share.
    pub fn state(&self) -> &Arc<GroupState> {
        &self.state
    }

    /// The servers, in the order of the settings.
    pub fn servers(&self) -> &[Rc<Server>] {
        &self.servers
    }

    /// Chooses a server for a request: a healthy one, or any if none is healthy, because an attempt costs less than a
    /// refusal. Never returns `avoid`, which has just failed.
    pub(crate) fn choose(&self, key: u64, avoid: Option<usize>) -> Option<&Rc<Server>> {
        self.balancer.choose(&self.servers, key, avoid).map(|index| &self.servers[index])
    }

    /// The balancing key of a request: requests with equal keys should reach the same server.
    pub(crate) fn key(&self, head: &Parts, client: impl FnOnce() -> IpAddr) -> u64 {
        self.balancer.key(head, client)
    }

    /// Closes idle connections and keeps none from now on. Called when a reload removes or replaces the group. Requests
    /// in flight continue.
    pub fn retire(&self) {
        for server in &self.servers {
            server.pool.retire();
            server.http2.retire();
        }
    }

    fn sweep(&self) {
        for server in &self.servers {
            server.pool.sweep();
            let pool = &self.state.settings.pool;
            server.http2.sweep(pool.idle_connections, idle_ticks(pool.idle_timeout));
        }
    }
}

/// Checks idle connections once a second and when other requests need their permits.
async fn tend(group: Weak<Group>, wanted: Arc<Notify>) {
    let mut ticks = interval(SWEEP);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut asked = pin!(wanted.notified());
    loop {
        let ticked = tokio::select! {
            _ = ticks.tick() => true,
            () = asked.as_mut() => false,
        };
        let Some(group) = group.upgrade() else {
            return;
        };
        if ticked {
            group.sweep();
        } else {
            asked.set(wanted.notified());
        }
        group.servers.iter().for_each(|server| server.yield_idle());
    }
}

fn idle_ticks(timeout: Duration) -> u32 {
    u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX)
}

impl Server {
    fn new(group: &Arc<GroupState>, index: usize, wheel: &DeadlineWheel) -> Self {
        let settings = &group.settings.pool;
        Self {
            group: Arc::clone(group),
            index,
            wheel: wheel.clone(),
            pool: Pool::new(settings.idle_connections, idle_ticks(settings.idle_timeout)),
            http2: Http2Pool::new(Http2Limits::of(&group.settings), wheel),
            pipelines: Pipelines::new(group.settings.pipeline, &group.servers[index].metrics),
            handed: RefCell::default(),
            active: Cell::new(0),
        }
    }

    /// Host and port, or the Unix socket, for the log and the metrics.
    pub fn name(&self) -> &str {
        &self.state().name
    }

    /// The part of the server that all workers share.
    pub fn state(&self) -> &ServerState {
        &self.group.servers[self.index]
    }

    /// Number of idle HTTP/1.1 connections of this worker.
    pub fn idle_connections(&self) -> usize {
        self.pool.len()
    }

    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn http2(&self) -> &Http2Pool {
        &self.http2
    }

    pub(crate) fn pipelines(&self) -> &Rc<Pipelines> {
        &self.pipelines
    }

    pub(crate) fn group_state(&self) -> &GroupState {
        &self.group
    }

    pub(crate) fn group_settings(&self) -> &GroupSettings {
        &self.group.settings
    }

    /// An empty pool of HTTP/2 connections to the server.
    pub(crate) fn new_http2_pool(&self) -> Http2Pool {
        Http2Pool::new(Http2Limits::of(&self.group.settings), &self.wheel)
    }

    pub(crate) fn register_deadline(&self) -> Deadline {
        self.wheel.register()
    }

    /// Opens a transport with a permit that was granted to a request of `client`.
    pub(crate) async fn open(
        &self,
        client: &Connection,
        place: Option<Place>,
    ) -> Result<(UpstreamIo, OpenConnection), UpstreamError> {
        let state = self.state();
        let header = state.proxy_protocol().map(|version| proxy_header::header(client, version));
        let connected = state.dialer.connect(&header.unwrap_or_default()).await;
        let io = connected.inspect_err(|error| {
            state.warn_of(error, &self.group.settings.name, "no connection to the upstream server");
        })?;
        Ok((io, OpenConnection::new(&state.metrics, place)))
    }

    pub(crate) fn succeeded(&self) {
        self.state().health.request_succeeded();
    }

    pub(crate) fn failed(&self, error: &UpstreamError) {
        if let UpstreamError::HeadTooLarge = error {
            self.state().warn_of(error, &self.group.settings.name, "a response was refused");
        }
        self.state().metrics.failure();
        let Some(pause) = self.state().health.request_failed(&self.group.settings.health.passive) else {
            return;
        };
        self.state().metrics.unhealthy();
        let group = &self.group.settings.name;
        tracing::warn!(%group, server = self.name(), ?pause, last = %error, "upstream server left out after failed requests");
    }
}

impl Member for Rc<Server> {
    fn name(&self) -> &str {
        &self.state().name
    }

    fn weight(&self) -> u32 {
        self.state().weight
    }

    fn active(&self) -> u32 {
        self.active.get()
    }

    fn is_available(&self) -> bool {
        self.state().is_healthy()
    }

    fn is_backup(&self) -> bool {
        self.state().is_backup
    }
}
