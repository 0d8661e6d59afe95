//! An upstream group: what the process knows of it ([`GroupState`]) and what each worker does with it ([`Group`]).

mod lease;
mod tls;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use brisk_net::{Deadline, DeadlineWheel, DialLimits};
use brisk_telemetry::metrics::{Metrics, UpstreamMetrics};
use brisk_tls::TlsError;
use brisk_tls::connector::Connector;
use http::request::Parts;
use tokio::sync::Notify;
use tokio::task::spawn_local;
use tokio::time::{MissedTickBehavior, interval};

use crate::balance::{Balancer, Member};
use crate::error::UpstreamError;
use crate::health::{Availability, ServerHealth, Verdict};
use crate::http1::Http1;
use crate::http2::{Http2Limits, Http2Pool};
use crate::io::{Dialer, UpstreamIo};
use crate::open::OpenConnection;
use crate::places::{Place, Places};
use crate::pool::Pool;
use crate::settings::{GroupSettings, ServerScheme, ServerSettings, ServerUrl, TlsProtocol};

pub(crate) use self::lease::Lease;
use self::tls::{TlsFiles, connector};

/// How often idle connections are checked.
const SWEEP: Duration = Duration::from_secs(1);

/// A group as all workers share it: settings, health and connection counts.
#[derive(Debug)]
pub struct GroupState {
    settings: GroupSettings,
    servers: Vec<ServerState>,
    /// The contents of the files that TLS was made of.
    files: TlsFiles,
    /// A request waits for a place that an idle connection of some worker may have.
    idle_wanted: Arc<Notify>,
}

/// A server as all workers share it.
#[derive(Debug)]
pub struct ServerState {
    name: Box<str>,
    weight: u32,
    multiplexes: bool,
    dialer: Dialer,
    /// The places for connections, where their number is limited.
    pub(crate) places: Option<Arc<Places>>,
    health: ServerHealth,
    metrics: Arc<UpstreamMetrics>,
}

impl GroupState {
    /// Makes the state from the settings. Reads authorities and client certificate for `https` servers from files. The
    /// figures of each server appear in `metrics` for as long as this lives.
    pub fn new(settings: GroupSettings, metrics: &Metrics) -> Result<Arc<Self>, TlsError> {
        let files = TlsFiles::read(&settings.tls);
        let connector = connector(&settings)?;
        let servers = settings.servers.iter().map(|server| {
            let tls = connector.clone().filter(|_| server.url.scheme() == ServerScheme::Https);
            let metrics = metrics.upstream(&settings.name, server.url.authority().as_str());
            ServerState::new(&settings, server, tls, metrics)
        });
        let servers = servers.collect();
        Ok(Arc::new(Self { settings, servers, files, idle_wanted: Arc::default() }))
    }

    /// Whether a group made of `settings` now would be the same, contents of files included. Reads the files.
    pub fn is_made_of(&self, settings: &GroupSettings) -> bool {
        self.settings == *settings && self.files == TlsFiles::read(&settings.tls)
    }

    /// The settings of the group.
    pub fn settings(&self) -> &GroupSettings {
        &self.settings
    }

    /// The servers, in the order of the settings.
    pub fn servers(&self) -> &[ServerState] {
        &self.servers
    }

    /// Asks all workers to close idle connections for whose places requests wait.
    pub(crate) fn ask_for_idle(&self) {
        self.idle_wanted.notify_waiters();
    }
}

impl ServerState {
    fn new(
        settings: &GroupSettings,
        server: &ServerSettings,
        connector: Option<Connector>,
        metrics: Arc<UpstreamMetrics>,
    ) -> Self {
        let url = &server.url;
        let host = || url.authority().host().to_owned();
        let tls =
            connector.map(|connector| (connector, settings.tls.server_name.clone().unwrap_or_else(host)));
        let multiplexes = match url.scheme() {
            ServerScheme::Http => false,
            ServerScheme::Https => settings.tls.protocol == TlsProtocol::Http2,
            ServerScheme::H2c => true,
        };
        Self {
            name: url.authority().as_str().into(),
            weight: server.weight.max(1),
            multiplexes,
            dialer: Dialer { url: url.clone(), tls, limits: dial_limits(settings) },
            places: settings.pool.max_connections.map(Places::new),
            health: ServerHealth::default(),
            metrics,
        }
    }

    /// Host and port, for the log and the metrics.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The address of the server.
    pub fn url(&self) -> &ServerUrl {
        &self.dialer.url
    }

    /// Whether requests are sent to the server.
    pub fn is_healthy(&self) -> bool {
        match self.health.availability() {
            Availability::Available => true,
            Availability::Unavailable => false,
            Availability::BackAgain => {
                self.metrics.healthy();
                true
            }
        }
    }

    /// Records the verdict of the active checks.
    pub(crate) fn set_checked(&self, verdict: Verdict) {
        self.health.set_checked(verdict);
        match verdict {
            Verdict::Up => self.metrics.healthy(),
            Verdict::Down => self.metrics.unhealthy(),
        }
    }

    pub(crate) fn multiplexes(&self) -> bool {
        self.multiplexes
    }

    pub(crate) fn dialer(&self) -> &Dialer {
        &self.dialer
    }
}

/// Data that a server has not acknowledged when the time for a response is over is lost, and so is the connection.
fn dial_limits(settings: &GroupSettings) -> DialLimits {
    let timeouts = &settings.timeouts;
    DialLimits { connect: timeouts.connect, unacknowledged: timeouts.head }
}

/// A group as one worker uses it, with its own connections.
#[derive(Debug)]
pub struct Group {
    state: Arc<GroupState>,
    servers: Vec<Rc<Server>>,
    balancer: Balancer,
}

/// A server as one worker uses it.
#[derive(Debug)]
pub struct Server {
    group: Arc<GroupState>,
    index: usize,
    wheel: DeadlineWheel,
    pool: Pool,
    http2: Http2Pool,
    /// Connections on their way from one request to another, which was notified to take one.
    pub(crate) handed: RefCell<VecDeque<Box<Http1>>>,
    active: Cell<u32>,
}

impl Group {
    /// A group without connections yet. Has to be called on the worker, inside its local runtime: idle connections are
    /// looked over by a local task, which ends with the group.
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

    /// The server for a request: a healthy one, or any if none is healthy, because trying costs less than refusing.
    /// Never `avoid`, which has just failed.
    pub(crate) fn choose(&self, key: u64, avoid: Option<usize>) -> Option<&Rc<Server>> {
        self.balancer.choose(&self.servers, key, avoid).map(|index| &self.servers[index])
    }

    /// The key that a request shares with those that should reach the same server.
    pub(crate) fn key(&self, head: &Parts, client: impl FnOnce() -> IpAddr) -> u64 {
        self.balancer.key(head, client)
    }

    /// Closes idle connections and keeps none from now on: a reload has removed the group or made another of its name.
    /// Requests in flight go on.
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

/// Looks over idle connections, once a second and when others want their places.
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
            handed: RefCell::default(),
            active: Cell::new(0),
        }
    }

    /// Host and port, for the log and the metrics.
    pub fn name(&self) -> &str {
        &self.state().name
    }

    /// The part of the server that all workers share.
    pub fn state(&self) -> &ServerState {
        &self.group.servers[self.index]
    }

    /// Idle HTTP/1.1 connections that this worker keeps.
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

    pub(crate) fn group_state(&self) -> &GroupState {
        &self.group
    }

    pub(crate) fn group_settings(&self) -> &GroupSettings {
        &self.group.settings
    }

    pub(crate) fn register_deadline(&self) -> Deadline {
        self.wheel.register()
    }

    /// A new transport, in the place that the request was granted.
    pub(crate) async fn open(
        &self,
        place: Option<Place>,
    ) -> Result<(UpstreamIo, OpenConnection), UpstreamError> {
        let state = self.state();
        let io = state.dialer.connect().await?;
        Ok((io, OpenConnection::new(&state.metrics, place)))
    }

    pub(crate) fn succeeded(&self) {
        self.state().health.request_succeeded();
    }

    pub(crate) fn failed(&self, error: &UpstreamError) {
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
}
