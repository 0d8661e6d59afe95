//! A group as shared by all workers: [`GroupState`].

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brisk_dns::{Endpoint, Known};
use brisk_telemetry::Metrics;
use brisk_tls::TlsError;
use brisk_tls::connector::Connector;
use http::StatusCode;
use tokio::sync::{Notify, watch};

use crate::concurrency::{Concurrency, LimitChange};
use crate::features::health::server_health::Verdict;
use crate::metrics::Upstreams;
use crate::server::ServerState;
use crate::settings::{GroupSettings, ServerSettings};
use crate::tls::{TlsFiles, connector};

/// A group as shared by all workers: settings, health and connection counts.
#[derive(Debug)]
pub struct GroupState {
    settings: GroupSettings,
    members: watch::Sender<SharedMembers>,
    /// Addresses that DNS has named for each entry of [`GroupSettings::servers`], by host and family.
    known: Box<[Mutex<Known>]>,
    connector: Option<Connector>,
    metrics: Arc<Upstreams>,
    /// Hashes of the files used for TLS.
    files: TlsFiles,
    /// See [`Self::attention`].
    attention: Arc<Notify>,
}

/// The servers of a group at present, in the order of [`GroupSettings::servers`].
#[derive(Clone, Debug)]
pub struct SharedMembers {
    pub(crate) servers: Arc<[Arc<ServerState>]>,
    /// Number of entries of the settings that DNS has not been asked for yet.
    pub(crate) unresolved: usize,
}

impl SharedMembers {
    /// The servers, in the order of the settings.
    pub fn servers(&self) -> &[Arc<ServerState>] {
        &self.servers
    }
}

impl GroupState {
    /// Creates the state from the settings. Reads the authorities and the client certificate for `https` servers from files.
    /// The [`UpstreamMetrics`](crate::metrics::UpstreamMetrics) of each server appear in `metrics` for the lifetime of this
    /// value.
    ///
    /// # Errors
    ///
    /// [`TlsError`] if a file is unreadable or invalid.
    pub fn new(settings: GroupSettings, metrics: &Metrics) -> Result<Arc<Self>, TlsError> {
        // Hashed before the connector reads the files: a file that changes in between then differs at the
        // next reload, which makes the group anew. In the other order the old contents would stay in use.
        let files = TlsFiles::read(&settings.tls);
        let connector = connector(&settings)?;
        let metrics = metrics.collector::<Upstreams>();
        let fixed = (0..settings.servers.len()).filter(|index| settings.servers[*index].question().is_none());
        let servers: Arc<_> = fixed
            .map(|index| ServerState::new(&settings, index, None, connector.as_ref(), &metrics))
            .collect();
        let unresolved = settings.servers.len() - servers.len();
        let members = watch::Sender::new(SharedMembers { servers, unresolved });
        let known = settings.servers.iter().map(|_| Mutex::default()).collect();
        Ok(Arc::new(Self { settings, members, known, connector, metrics, files, attention: Arc::default() }))
    }

    /// Takes the addresses that DNS has named for the same servers in the group `earlier`, so that a reload does not wait for
    /// DNS.
    pub fn inherit(&self, earlier: &Self) {
        let known = earlier.members();
        for (index, server) in
            self.settings.servers.iter().enumerate().filter(|(_, server)| server.question().is_some())
        {
            let is_same =
                |other: &ServerSettings| other.question() == server.question() && other.url == server.url;
            let Some(entry) = earlier.settings.servers.iter().position(is_same) else { continue };
            let endpoints: Vec<_> = known
                .servers
                .iter()
                .filter(|known| known.is_of(entry))
                .filter_map(|known| known.endpoint())
                .collect();
            // An empty list would be a first outcome without servers, and requests would not wait for DNS.
            if !endpoints.is_empty() {
                self.resolved(index, Some(&endpoints), true);
                self.remember(index, &earlier.known(entry));
            }
        }
    }

    /// Records the outcome of asking DNS for the servers of entry `index` of the settings: their addresses, or `None` after
    /// a failure, which keeps the known ones. Each address must occur once, as in [`brisk_dns::Answer`]: an address is one
    /// server with one priority. `is_first`: it is the first outcome for the entry.
    pub(crate) fn resolved(&self, index: usize, endpoints: Option<&[Endpoint]>, is_first: bool) {
        debug_assert!(endpoints.is_none_or(are_distinct), "DNS names an address twice: {endpoints:?}");
        self.members.send_if_modified(|members| {
            members.unresolved -= usize::from(is_first);
            let Some(endpoints) = endpoints else { return is_first };
            let member = |endpoint: &Endpoint| {
                // The same state for an address that remains: its health, connections and permits
                // must survive the change.
                let known = members.servers.iter().find(|known| known.is_at(index, endpoint.address));
                let known = known.inspect(|known| known.update(endpoint));
                known.map_or_else(|| self.server(index, endpoint), Arc::clone)
            };
            let is_before = |server: &&Arc<ServerState>| server.entry() < index;
            let (before, after): (Vec<_>, Vec<_>) =
                members.servers.iter().filter(|server| !server.is_of(index)).partition(is_before);
            let servers = before
                .into_iter()
                .cloned()
                .chain(endpoints.iter().map(member))
                .chain(after.into_iter().cloned());
            let servers: Arc<[_]> = servers.collect();
            let is_same = servers.len() == members.servers.len()
                && servers.iter().zip(&*members.servers).all(|(new, old)| Arc::ptr_eq(new, old));
            members.servers = servers;
            // An answer with the same servers wakes no worker; a first outcome does,
            // because requests wait for it.
            is_first || !is_same
        });
    }

    /// The addresses that DNS has named for entry `index` of the settings.
    pub(crate) fn known(&self, index: usize) -> Known {
        self.known[index].lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps the addresses that DNS has named, for a later configuration.
    pub(crate) fn remember(&self, index: usize, known: &Known) {
        self.known[index].lock().unwrap_or_else(PoisonError::into_inner).clone_from(known);
    }

    fn server(&self, index: usize, endpoint: &Endpoint) -> Arc<ServerState> {
        ServerState::new(&self.settings, index, Some(endpoint), self.connector.as_ref(), &self.metrics)
    }

    /// Whether a group that [`Self::new`] creates from `settings` now would be equal, including the contents of files. Reads
    /// the files.
    pub fn is_made_of(&self, settings: &GroupSettings) -> bool {
        self.settings == *settings && self.files == TlsFiles::read(&settings.tls)
    }

    /// The settings of the group.
    pub fn settings(&self) -> &GroupSettings {
        &self.settings
    }

    /// The servers at present, in the order of the settings.
    pub fn servers(&self) -> Arc<[Arc<ServerState>]> {
        self.members().servers
    }

    /// The servers at present, with the number of names that DNS has not been asked for yet.
    pub fn members(&self) -> SharedMembers {
        self.members.borrow().clone()
    }

    /// Reports changes of [`Self::members`].
    pub fn changes(&self) -> watch::Receiver<SharedMembers> {
        self.members.subscribe()
    }

    /// Whether another server may be paused, so that at most `percentage` of the servers are (`health.max_excluded`).
    fn may_pause(&self, percentage: u32) -> bool {
        let servers = self.servers();
        let paused = servers.iter().filter(|server| server.health().is_paused()).count();
        let most = servers.len() as u64 * u64::from(percentage) / 100;
        // One may always be paused: 10 % of three servers would otherwise be none.
        (paused as u64) < most.max(1)
    }

    /// Records a response of `server`, which is a failure of the server from `500` to `599` with `health.server_errors`.
    pub fn record_response(&self, server: &ServerState, status: StatusCode) {
        let checks = &self.settings.health.passive;
        if checks.counts_server_errors && status.is_server_error() {
            self.record_failure(server, &format_args!("status {}", status.as_u16()));
        } else {
            self.record_success(server);
        }
    }

    /// Records a request that `server` did not fail, or an accepted connection of a group for bytes.
    pub fn record_success(&self, server: &ServerState) {
        server.health().request_succeeded(&self.settings.health.passive);
    }

    /// Records a request without a response of `server`, for the reason `last`.
    pub fn record_failure(&self, server: &ServerState, last: &dyn fmt::Display) {
        server.metrics().failure();
        let checks = &self.settings.health.passive;
        let pause = server.health().request_failed(checks, || self.may_pause(checks.max_excluded));
        let Some(pause) = pause else {
            return;
        };
        server.metrics().unhealthy();
        self.ask_for_attention();
        let group = &self.settings.name;
        tracing::warn!(%group, server = server.name(), ?pause, %last, "upstream server left out after failed requests");
    }

    /// Records the verdict of the active checks about `server`.
    pub(crate) fn set_checked(&self, server: &ServerState, verdict: Verdict) {
        server.set_checked(verdict);
        // A server that is up again concerns no request: waiting ones stay where they are.
        if verdict == Verdict::Down {
            self.ask_for_attention();
        }
    }

    /// Adapts the limits of concurrent requests to the time since the last call, `passed` ago. `delay`: delay of the event loops
    /// meanwhile, for which servers are not responsible. A change is logged. To be called by one thread, ten times a second.
    pub fn adapt_limits(&self, passed: Duration, delay: Duration) {
        self.change_limits(|concurrency| concurrency.adapt(passed, delay));
    }

    /// Ends the limits of concurrent requests.
    pub fn end_limits(&self) {
        self.change_limits(|concurrency| concurrency.reset().then_some(LimitChange::Ended));
    }

    fn change_limits(&self, change: impl Fn(&Concurrency) -> Option<LimitChange>) {
        let group = &self.settings.name;
        for server in &*self.servers() {
            let Some(concurrency) = server.concurrency() else { continue };
            let change = change(concurrency);
            server.metrics().set_limit(concurrency.limit());
            match change {
                Some(LimitChange::Limited(limit)) => tracing::warn!(
                    %group, server = server.name(), limit,
                    "upstream server overloaded: more requests at a time do not give more responses, so they are limited"
                ),
                Some(LimitChange::Ended) => {
                    tracing::info!(%group, server = server.name(), "upstream server without a limit of requests again");
                }
                None => {}
            }
        }
    }

    /// Signals to all workers that a request waits for a permit that an idle connection of some worker holds, or that a server
    /// was excluded.
    pub fn attention(&self) -> &Arc<Notify> {
        &self.attention
    }

    /// Requests all workers to close idle connections whose permits are needed, and to send requests that wait for an
    /// excluded server elsewhere.
    pub fn ask_for_attention(&self) {
        self.attention.notify_waiters();
    }
}

fn are_distinct(endpoints: &[Endpoint]) -> bool {
    let mut addresses = HashSet::with_capacity(endpoints.len());
    endpoints.iter().all(|endpoint| addresses.insert(endpoint.address))
}
