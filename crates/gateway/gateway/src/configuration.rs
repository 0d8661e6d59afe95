//! The current configuration, replaced as a whole by a reload, and the workers that follow it.

pub(crate) mod restart;
pub(crate) mod termination;
pub(crate) mod upstreams;

use std::net::IpAddr;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use brisk_answer::settings::{AltSvc, HostSettings, Plain, ServiceSettings};
use brisk_answer::{Service, ServiceError, Telemetry};
use brisk_beacon::Beacons;
use brisk_http_server::HttpSettings;
use brisk_net::DeadlineWheel;
use brisk_net::rates::Rates;
use brisk_telemetry::Metrics;
use brisk_tls::Resources;
use brisk_upstream_group::GroupState;
use brisk_visits::Visits;
use brisk_wire::HttpVersion;
use ipnet::IpNet;
use tokio::sync::watch;
use tokio::task::LocalSet;

use self::termination::Termination;
use self::upstreams::{WorkerGroups, group_states};
use crate::GatewayError;
use crate::pages::built_in::{self, DashboardUrl};
use crate::settings::{GatewaySettings, ProxyProtocol};
use crate::tcp::routes::TcpServices;
use crate::variation::Variation;

/// Everything built from one configuration.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own, and they occur in any combination"
)]
pub(crate) struct Live {
    pub(crate) tls: Termination,
    /// Routes of connections whose bytes are forwarded.
    pub(crate) tcp: TcpServices,
    /// Number of hosts that serve HTTP, which the acceptor has before those of [`Self::tcp`].
    hosts: usize,
    /// Maximum size of a `ClientHello` in bytes.
    pub(crate) hello_size: usize,
    /// Whether the sockets for HTTP/3 exist, which are bound at the start.
    pub(crate) has_http3: bool,
    pub(crate) handshake_timeout: Duration,
    pub(crate) proxy_protocol: ProxyProtocol,
    trusted_proxies: Vec<IpNet>,
    pub(crate) http: HttpSettings,
    /// Whether a host serves plain HTTP, instead of redirecting it.
    pub(crate) serves_plain: bool,
    /// Whether clients may use HTTP/2.
    pub(crate) permits_http2: bool,
    /// Whether to query the kernel for round-trip times: only if the access log, the built-in page or `Server-Timing`
    /// uses them.
    pub(crate) measures_rtt: bool,
    /// `None` if no rate is limited.
    pub(crate) rates: Option<Arc<Rates>>,
    /// Settings that vary between connections.
    pub(crate) variation: Variation,
    /// For the built-in page.
    pub(crate) dashboard: DashboardUrl,
    settings: ServiceSettings,
    groups: Vec<Arc<GroupState>>,
}

impl Live {
    /// The state for `settings`, which shows no certificate and whose [`Variation`] has not begun. Parts of `before` whose
    /// settings are the same stay.
    pub(crate) fn new(
        settings: &GatewaySettings,
        resources: Resources,
        beacons: Option<Arc<Beacons>>,
        metrics: &Arc<Metrics>,
        before: Option<&Self>,
    ) -> Result<Self, GatewayError> {
        let tls = Termination::new(settings, &resources, before.map(|before| &before.tls))?;
        let groups_before = before.map_or(&[][..], |before| &before.groups);
        let groups = group_states(&settings.upstreams, groups_before, metrics)?;
        let tcp_before = before.map(|before| &before.tcp);
        let tcp = TcpServices::new(settings, &groups, &resources, metrics, tcp_before)?;
        let mut service = settings.service.clone();
        let dashboard = before.map_or_else(DashboardUrl::default, |before| Arc::clone(&before.dashboard));
        // Only a first run without a file leaves the choice of the port to the system.
        let is_first_run = settings.dashboard.as_ref().is_some_and(|dashboard| dashboard.or_any_port);
        let has_page = built_in::fill_hosts(&mut service, is_first_run.then_some(&dashboard));
        service.beacons = beacons;
        service.challenges = Some(Arc::clone(&resources.challenges));
        let has_http3 = before.map_or(settings.http3, |before| before.has_http3);
        if !has_http3 {
            service.hosts.iter_mut().for_each(announce_nothing);
        }
        let has_timing =
            service.beacons.is_some() || service.hosts.iter().any(|host| host.server_timing.is_some());
        let live = Self {
            // The same counters limit key operations, connections and requests of a client.
            rates: resources.key_gate.rates,
            tls,
            tcp,
            hosts: settings.service.hosts.len(),
            hello_size: settings.tls.hello_size,
            has_http3,
            handshake_timeout: settings.handshake_timeout,
            proxy_protocol: settings.proxy_protocol.clone(),
            trusted_proxies: settings.service.trusted_proxies.clone(),
            http: settings.protocol.clone(),
            permits_http2: settings.tls.protocols.contains(&HttpVersion::Http2),
            serves_plain: settings.service.hosts.iter().any(|host| host.plain == Plain::Serve),
            measures_rtt: !settings.access_log.is_empty() || has_page || has_timing,
            variation: Variation::new(&settings.variation),
            dashboard,
            settings: service,
            groups,
        };
        // Detects errors here instead of in a worker. The tasks of this trial are dropped before they start.
        let _context = LocalSet::new().enter();
        let trial = WorkerGroups::new(&DeadlineWheel::new());
        live.service(Telemetry { metrics: Arc::clone(metrics), access_log: None }, &trial)?;
        Ok(live)
    }

    /// `client`, or `None` if its address represents many clients.
    pub(crate) fn one_client(&self, client: IpAddr) -> Option<IpAddr> {
        (!self.is_many_clients(client)).then_some(client)
    }

    /// Whether an address represents many clients, so that limits per client do not apply.
    pub(crate) fn is_many_clients(&self, address: IpAddr) -> bool {
        // An inherited socket may report IPv4 clients as mapped IPv6 addresses, which
        // no IPv4 network contains.
        let address = address.to_canonical();
        self.trusted_proxies.iter().any(|network| network.contains(&address))
    }

    /// Whether the host with this index in the acceptor is one of [`Self::tcp`].
    pub(crate) fn is_tcp(&self, host: usize) -> bool {
        host >= self.hosts
    }

    /// Begins to vary settings as this configuration says, which ends all earlier variation.
    pub(crate) fn begin_variation(&self, visits: &Visits) {
        self.variation.begin(&self.settings, visits);
    }

    /// Creates the [`Service`] of one worker. Upstream connections are per worker; groups in `groups` whose upstreams are
    /// unchanged keep their connections.
    pub(crate) fn service(
        &self,
        telemetry: Telemetry,
        groups: &WorkerGroups,
    ) -> Result<Rc<Service>, ServiceError> {
        let groups = groups.follow(&self.groups);
        Service::new(&self.settings, telemetry, |name| groups.get(name).cloned()).map(Rc::new)
    }

    /// Adapts the limits of concurrent requests of all upstream servers to the time since the last call, `passed` ago. `delay`:
    /// delay of the event loops meanwhile. `None`: the limits end.
    pub(crate) fn adapt_limits(&self, passed: Duration, delay: Option<Duration>) {
        for group in &self.groups {
            match delay {
                Some(delay) => group.adapt_limits(passed, delay),
                None => group.end_limits(),
            }
        }
    }

    /// The upstream groups.
    pub(crate) fn groups(&self) -> Vec<Arc<GroupState>> {
        self.groups.clone()
    }
}

/// Removes the announcement of HTTP/3 by `Alt-Svc`.
fn announce_nothing(host: &mut HostSettings) {
    // RFC 7838 section 3: `clear` makes clients forget an earlier announcement, which needs no socket here.
    host.alt_svc = host.alt_svc.filter(|alt_svc| *alt_svc == AltSvc::Clear);
}

/// The configuration in force. Dereferences to the [`ArcSwap`] of [`Live`].
pub(crate) struct Current {
    live: ArcSwap<Live>,
    /// The number of `live`, which every replacement increments.
    number: watch::Sender<u64>,
    /// The number of the configuration that each worker follows.
    followed: watch::Sender<Vec<u64>>,
}

impl Current {
    pub(crate) fn new(live: Live) -> Self {
        Self {
            live: ArcSwap::from_pointee(live),
            number: watch::Sender::new(0),
            followed: watch::Sender::default(),
        }
    }

    /// Makes `live` the current configuration and notifies the workers.
    pub(crate) fn replace(&self, live: Live) {
        // In this order: a worker that sees the new number finds at least this configuration.
        self.live.store(Arc::new(live));
        self.number.send_modify(|number| *number += 1);
    }

    /// The [`Replacements`] from now on, for a worker, which begins with the current configuration.
    pub(crate) fn follow(&self) -> Replacements {
        // Subscribes before the worker reads the configuration, so that no change is missed.
        let mut numbers = self.number.subscribe();
        let number = *numbers.borrow_and_update();
        let mut worker = 0;
        self.followed.send_modify(|followed| {
            // Within the lock of the channel: two workers that start at the same time get different numbers.
            worker = followed.len();
            followed.push(number);
        });
        Replacements { numbers, worker, followed: self.followed.clone() }
    }

    /// Resolves when all workers follow the configuration in force.
    pub(crate) async fn taken_over(&self) {
        let number = *self.number.borrow();
        let mut followed = self.followed.subscribe();
        // The error is ignored: the channel closes only together with `self`.
        let _ = followed.wait_for(|followed| followed.iter().all(|own| *own >= number)).await;
    }
}

impl Deref for Current {
    type Target = ArcSwap<Live>;

    fn deref(&self) -> &ArcSwap<Live> {
        &self.live
    }
}

/// The replacements of the configuration, for one worker.
pub(crate) struct Replacements {
    numbers: watch::Receiver<u64>,
    worker: usize,
    followed: watch::Sender<Vec<u64>>,
}

impl Replacements {
    /// Waits for the next [`Replacement`]. `None` when there will be none, because [`Current`] is dropped.
    pub(crate) async fn next(&mut self) -> Option<Replacement> {
        self.numbers.changed().await.ok()?;
        Some(Replacement(*self.numbers.borrow_and_update()))
    }

    /// Reports that the worker follows the configuration of the [`Replacement`].
    pub(crate) fn followed(&self, Replacement(number): Replacement) {
        self.followed.send_modify(|followed| followed[self.worker] = number);
    }
}

/// The number of a configuration in force.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replacement(u64);
