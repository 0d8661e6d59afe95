//! What all workers share: counters, limits and engines that outlive a reload, and the configuration that does not.

use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use brisk_certs::{Care, Certificate, Challenges, Publish, Slot};
use brisk_keys::{Engines, Keystore};
use brisk_net::rates::{Rates, Refusals};
use brisk_net::{AddressLimit, DeadlineWheel, FairShare};
use brisk_proxy::HttpsRedirect;
use brisk_proxy::client::HttpSettings;
use brisk_proxy::settings::ServiceSettings;
use brisk_proxy::upstream::GroupState;
use brisk_proxy::{CompressionMetrics, RewritingMetrics, Service, ServiceError, Telemetry};
use brisk_telemetry::metrics::{CertificateExpiry, Metrics};
use brisk_telemetry::{AccessLog, Sink, Throttle};
use brisk_tls::{HostSettings, KeyGate, Resources};
use brisk_visits::Visits;
use ipnet::IpNet;
use tokio::sync::watch;
use tokio::task::LocalSet;

use crate::GatewayError;
use crate::draws::Draws;
use crate::errands::{self, CertificateMetrics};
use crate::measured::Measured;
use crate::metrics::RateMetrics;
use crate::obtained::{ObtainedHost, Obtainer};
use crate::page;
use crate::resumption::Resumption;
use crate::settings::{GatewaySettings, ProxyProtocol};
use crate::termination::Termination;
use crate::tickets::unix_seconds;
use crate::upstreams::{WorkerGroups, group_states};

/// The least time between two warnings about failed handshakes: clients can make handshakes fail.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);

/// What the composing program gives a gateway for its whole life. No reload changes it.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The engines that perform operations with the private keys of hosts.
    pub engines: Arc<dyn Engines>,
    /// Whether each worker performs X25519 exchanges and P-256 signatures of its handshakes together, where the
    /// processor is faster that way.
    pub gathers: bool,
    /// The metrics of the process, shared with the engines.
    pub metrics: Arc<Metrics>,
    /// What authorities are answered that check names.
    pub challenges: Arc<Challenges>,
    /// Obtains the certificates of hosts that have none of files.
    pub obtainer: Arc<dyn Obtainer>,
    /// Where the visits of pages go.
    pub visits: Visits,
}

/// Everything built from one configuration. Replaced whole on reload.
pub(crate) struct Live {
    pub(crate) tls: Termination,
    pub(crate) handshake_timeout: Duration,
    pub(crate) proxy_protocol: ProxyProtocol,
    trusted_proxies: Vec<IpNet>,
    pub(crate) http: HttpSettings,
    pub(crate) redirect: HttpsRedirect,
    /// Whether to ask the kernel for round-trip times: only if the access log, the built-in page or `Server-Timing` shows them.
    pub(crate) measures_rtt: bool,
    /// `None` if no rate is limited.
    pub(crate) rates: Option<Arc<Rates>>,
    /// Empty where there are no experiments, and before they begin.
    pub(crate) draws: OnceLock<Draws>,
    parts: ServiceParts,
}

impl Live {
    /// `client`, unless its address stands for many clients.
    pub(crate) fn one_client(&self, client: IpAddr) -> Option<IpAddr> {
        (!self.is_many_clients(client)).then_some(client)
    }

    /// Whether an address stands for many clients: limits of one client do not apply to it.
    pub(crate) fn is_many_clients(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.trusted_proxies.iter().any(|network| network.contains(&address))
    }

    /// Makes the experiments known as those in force, so that others end. From here on nothing may fail.
    fn begin_experiments(&self, visits: &Visits) {
        let settings = &self.parts.settings;
        settings.experiments.define(visits);
        if let Some(draws) = Draws::new(&settings.experiments, settings.hosts.len(), visits) {
            self.draws.get_or_init(|| draws);
        }
    }

    /// The service of one worker, with upstream connections of its own: those in `groups`, as far as their upstreams are
    /// still the same.
    pub(crate) fn service(
        &self,
        shared: &Shared,
        groups: &WorkerGroups,
    ) -> Result<Rc<Service>, ServiceError> {
        let metrics = Arc::clone(&shared.metrics);
        let telemetry = Telemetry { metrics, access_log: shared.sink.access_log().clone() };
        self.parts.service(telemetry, groups)
    }
}

/// What services are made of.
struct ServiceParts {
    settings: ServiceSettings,
    groups: Vec<Arc<GroupState>>,
}

impl ServiceParts {
    fn service(&self, telemetry: Telemetry, groups: &WorkerGroups) -> Result<Rc<Service>, ServiceError> {
        let groups = groups.follow(&self.groups);
        Service::new(&self.settings, telemetry, |name| groups.get(name).cloned()).map(Rc::new)
    }
}

/// What all workers share.
pub(crate) struct Shared {
    pub(crate) metrics: Arc<Metrics>,
    /// Where the records of connections go.
    pub(crate) sink: Arc<Sink>,
    pub(crate) live: ArcSwap<Live>,
    /// The number of the present [`Live`], of which it notifies the workers.
    pub(crate) changes: watch::Sender<u64>,
    /// The number of the one that each worker goes by.
    pub(crate) taken_over: watch::Sender<Vec<u64>>,
    pub(crate) client_connections: Option<AddressLimit>,
    /// Whether clients of this machine are not counted.
    pub(crate) spares_loopback: bool,
    /// Limits warnings about failed handshakes.
    pub(crate) handshake_warnings: Throttle,
    /// The same about connections that could not be given what an experiment says.
    pub(crate) experiment_warnings: Throttle,
    pub(crate) resumption: Resumption,
    /// Whether workers perform operations of their handshakes together.
    pub(crate) gathers: bool,
    engines: Arc<dyn Engines>,
    pub(crate) challenges: Arc<Challenges>,
    obtainer: Arc<dyn Obtainer>,
    measured: Measured,
    /// For those who publish certificates later.
    own: Weak<Self>,
    care: Arc<Care>,
    /// Each client's share of the engine's queue.
    key_share: FairShare,
    rate_refusals: Arc<Refusals>,
    ids: AtomicU64,
}

impl Shared {
    /// Prepares everything that `settings` ask for, without serving anything yet.
    pub(crate) fn new(
        settings: &GatewaySettings,
        environment: Environment,
    ) -> Result<Arc<Self>, GatewayError> {
        let Environment { engines, gathers, metrics, challenges, obtainer, visits } = environment;
        let resumption = Resumption::new(&settings.sessions, &metrics)?;
        let sink = Sink::new(Arc::clone(&metrics));
        sink.set_access_log(open_access_log(settings, &metrics)?);
        let (key_share, rate_refusals) = (FairShare::new(engines.queue().get()), Arc::default());
        let rates = rates(settings, None, &rate_refusals);
        let gate = KeyGate { share: Some(key_share.clone()), rates };
        let resources = resumption.resources(gate, Arc::clone(&challenges));
        let measured = Measured::new(visits, &metrics);
        let live = live(settings, &*engines, resources, &metrics, &measured, None)?;
        let care = Arc::new(errands::start(&settings.certificates)?);
        let replaces = Arc::clone(&obtainer);
        care.on_revoked(move |certificate| replaces.revoked(certificate));
        start_catalogues(settings, &engines, &care)?;
        publish(settings, &live.tls, &care);
        metrics.set_certificates(expiries(settings));
        metrics.register(CompressionMetrics);
        metrics.register(RewritingMetrics);
        metrics.register(RateMetrics(Arc::clone(&rate_refusals)));
        metrics.register(CertificateMetrics(Arc::clone(&care)));
        let shared = Arc::new_cyclic(|own| Self {
            sink,
            live: ArcSwap::from_pointee(live),
            changes: watch::Sender::new(0),
            taken_over: watch::Sender::default(),
            client_connections: settings.per_client.map(|limit| AddressLimit::new(limit.most)),
            spares_loopback: settings.per_client.is_some_and(|limit| limit.spares_loopback),
            resumption,
            gathers,
            engines,
            challenges,
            obtainer,
            measured,
            own: Weak::clone(own),
            care,
            key_share,
            rate_refusals,
            handshake_warnings: Throttle::new(WARNING_INTERVAL),
            experiment_warnings: Throttle::new(WARNING_INTERVAL),
            ids: AtomicU64::new(1),
            metrics,
        });
        shared.show_obtainer();
        Ok(shared)
    }

    /// The experiments of the first configuration begin, and those that are not in it end: before anything is served, and after
    /// all that can fail, since another process may have them.
    pub(crate) fn begin_experiments(&self) {
        self.live.load().begin_experiments(self.measured.visits());
    }

    /// Puts new settings in force for new connections and new requests. On an error nothing changes.
    pub(crate) fn apply(&self, settings: &GatewaySettings) -> Result<(), GatewayError> {
        let before = self.live.load();
        let rates = rates(settings, before.rates.as_ref(), &self.rate_refusals);
        let gate = KeyGate { share: Some(self.key_share.clone()), rates };
        let resources = self.resumption.resources(gate, Arc::clone(&self.challenges));
        let live = live(settings, &*self.engines, resources, &self.metrics, &self.measured, Some(&before))?;
        let access_log = open_access_log(settings, &self.metrics)?;
        self.resumption.configure(&settings.sessions)?;
        self.sink.set_access_log(access_log);
        self.metrics.set_certificates(expiries(settings));
        start_catalogues(settings, &self.engines, &self.care)?;
        live.begin_experiments(self.measured.visits());
        publish(settings, &live.tls, &self.care);
        self.live.store(Arc::new(live));
        self.changes.send_modify(|number| *number += 1);
        self.show_obtainer();
        Ok(())
    }

    /// Resolves when all workers go by the present configuration.
    pub(crate) async fn taken_over(&self) {
        let number = *self.changes.borrow();
        let mut taken_over = self.taken_over.subscribe();
        // It ends only with this.
        let _ = taken_over.wait_for(|taken| taken.iter().all(|taken| *taken >= number)).await;
    }

    /// Reports the hosts of the present configuration to what obtains their certificates.
    fn show_obtainer(&self) {
        let live = self.live.load();
        let host = |host: &HostSettings| ObtainedHost {
            names: host.names.clone(),
            publish: Arc::new(Publisher { slot: Arc::clone(&host.slot), shared: Weak::clone(&self.own) }),
        };
        self.obtainer.follow(live.tls.obtained().map(host).collect());
    }

    pub(crate) fn next_connection_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// The engines of the process.
    pub(crate) fn engines(&self) -> &Arc<dyn Engines> {
        &self.engines
    }

    /// What looks after the certificates.
    pub(crate) fn care(&self) -> &Arc<Care> {
        &self.care
    }

    /// The upstream groups of the present configuration.
    pub(crate) fn groups(&self) -> Vec<Arc<GroupState>> {
        self.live.load().parts.groups.clone()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// Publishes into the slot of one host.
struct Publisher {
    slot: Arc<Slot>,
    shared: Weak<Shared>,
}

impl Publish for Publisher {
    fn publish(&self, certificates: Vec<Arc<Certificate>>, keys: Keystore) {
        let Some(shared) = self.shared.upgrade() else { return };
        let engine = shared.engines.for_keys(Arc::new(keys));
        shared.care.prepare_more(&certificates);
        let served = certificates.iter().map(|certificate| shared.care.served(certificate, &engine));
        self.slot.publish(served.collect());
        shared.care.look(&self.slot);
        shared.live.load().tls.acceptor.refresh_slot(&self.slot);
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").field("slot", &self.slot).finish_non_exhaustive()
    }
}

/// Has the catalogues of `settings` load what clients ask for, and names on demand make engines of their keys.
fn start_catalogues(
    settings: &GatewaySettings,
    engines: &Arc<dyn Engines>,
    care: &Arc<Care>,
) -> Result<(), GatewayError> {
    for catalogue in settings.service.hosts.iter().filter_map(|host| host.tls.catalogue.as_ref()) {
        let engines = Arc::clone(engines);
        catalogue.start(Arc::new(move |keystore| engines.for_keys(keystore)), Some(care))?;
    }
    for on_demand in settings.service.hosts.iter().filter_map(|host| host.tls.on_demand.as_ref()) {
        let engines = Arc::clone(engines);
        on_demand.start(Arc::new(move |keystore| engines.for_keys(keystore)));
    }
    Ok(())
}

/// Publishes the certificates of `settings` when `care` has prepared them.
fn publish(settings: &GatewaySettings, tls: &Termination, care: &Care) {
    let hosts = settings.service.hosts.iter();
    let certificates: Vec<_> = hosts.flat_map(|host| host.tls.certificates.iter().cloned()).collect();
    care.prepare(&certificates, settings.certificates.care);
    tls.publish(care);
    errands::warn_of_long_flights(care, certificates.iter());
}

fn live(
    settings: &GatewaySettings,
    engines: &dyn Engines,
    resources: Resources,
    metrics: &Arc<Metrics>,
    measured: &Measured,
    before: Option<&Live>,
) -> Result<Live, GatewayError> {
    let tls = Termination::new(settings, &resources, engines, before.map(|before| &before.tls))?;
    let groups_before = before.map_or(&[][..], |before| &before.parts.groups);
    let groups = group_states(&settings.upstreams, groups_before, metrics)?;
    let mut service = settings.service.clone();
    let has_page = page::fill_hosts(&mut service);
    service.beacons = measured.beacons(&service);
    let has_timing =
        service.beacons.is_some() || service.hosts.iter().any(|host| host.server_timing.is_some());
    let parts = ServiceParts { settings: service, groups };
    // What is wrong with it shows here and not in a worker. The tasks of this trial are dropped unstarted.
    let _context = LocalSet::new().enter();
    let trial = WorkerGroups::new(&DeadlineWheel::new());
    parts.service(Telemetry { metrics: Arc::clone(metrics), access_log: None }, &trial)?;
    Ok(Live {
        rates: resources.key_gate.rates,
        tls,
        handshake_timeout: settings.handshake_timeout,
        proxy_protocol: settings.proxy_protocol.clone(),
        trusted_proxies: settings.service.trusted_proxies.clone(),
        http: settings.protocol.clone(),
        redirect: HttpsRedirect::new(settings.redirect_port),
        measures_rtt: settings.access_log.is_some() || has_page || has_timing,
        draws: OnceLock::new(),
        parts,
    })
}

/// The table of rates, where there are any: the one of `before` if it was made for the same.
fn rates(
    settings: &GatewaySettings,
    before: Option<&Arc<Rates>>,
    refusals: &Arc<Refusals>,
) -> Option<Arc<Rates>> {
    let limits = settings.rates;
    let same = before.filter(|before| *before.limits() == limits).cloned();
    same.or_else(|| (!limits.is_empty()).then(|| Arc::new(Rates::new(limits, Arc::clone(refusals)))))
}

fn open_access_log(
    settings: &GatewaySettings,
    metrics: &Metrics,
) -> Result<Option<Arc<AccessLog>>, GatewayError> {
    let Some(log) = &settings.access_log else { return Ok(None) };
    let log = AccessLog::open(log)?;
    metrics.attach_access_log(&log);
    Ok(Some(Arc::new(log)))
}

fn expiries(settings: &GatewaySettings) -> Vec<CertificateExpiry> {
    let of_host = |host: &HostSettings| {
        let name = host.names.first().cloned().unwrap_or_default();
        let certificates = host.certificates.clone().into_iter();
        certificates.map(move |certificate| CertificateExpiry {
            host: name.clone(),
            algorithm: certificate.algorithm.label().to_owned(),
            not_after: i64::try_from(unix_seconds(certificate.not_after)).unwrap_or(i64::MAX),
        })
    };
    settings.service.hosts.iter().map(|host| &host.tls).flat_map(of_host).collect()
}
