//! State shared by all workers: counters, limits and engines that persist across reloads, and the current
//! configuration.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use brisk_answer::{CompressionMetrics, MirrorMetrics, RewritingMetrics, Telemetry};
use brisk_beacon::Beacons;
use brisk_budget::{BudgetMetrics, Budgets, Resource};
use brisk_certs::{Catalogues, Challenges, OnDemandHosts, RefusedKeys, Slot};
use brisk_http_server::FloodMetrics;
use brisk_jwt::KeySource;
use brisk_keys::{Engines, Keystore};
use brisk_limits::Limits;
use brisk_logs::{AccessLog, LostLines, connect_exporter};
use brisk_pressure::{Pressure, Sample, Source};
use brisk_telemetry::{Metrics, Sink, Throttle};
use brisk_upstream_group::metrics::Upstreams;
use brisk_visits::Visits;

use crate::GatewayError;
use crate::beacons::BeaconReceiver;
use crate::certificates::key_checks;
use crate::certificates::{Certificates, HostCertificates, Obtainer};
use crate::configuration::{Current, Live};
use crate::connection::quic::endpoints::Quic;
use crate::connection::quic::metrics::QuicMetrics;
use crate::limits::ClientLimits;
use crate::resumption::{PreparedKeys, Resumption};
use crate::settings::{CertificateSettings, GatewaySettings};
use crate::tcp::TcpMetrics;

/// The least time between two warnings about failed handshakes: clients can make handshakes fail.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);

/// Components that the composing program provides for the whole life of a gateway. Unaffected by reloads.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The engines that perform operations with the private keys of hosts.
    pub engines: Arc<dyn Engines>,
    /// Maximum time for which key operations of handshakes wait for others of the same worker, so that the processor
    /// performs them together where it is faster that way. `None`: each operation is performed alone.
    pub gathers: Option<Duration>,
    /// The metrics of the process, shared with the engines.
    pub metrics: Arc<Metrics>,
    /// Responses to the validation requests of certificate authorities.
    pub challenges: Arc<Challenges>,
    /// Obtains the certificates of hosts without `cert`, as with ACME.
    pub obtainer: Arc<dyn Obtainer>,
    /// Store of page visits.
    pub visits: Visits,
    /// The folders of certificates by name in use.
    pub catalogues: Catalogues,
    /// The hosts with names on demand in use.
    pub on_demand: OnDemandHosts,
    /// Limits of requests, whose fleets count in the Redis of sessions.
    pub limits: Limits,
    /// Keys for which the last configuration was refused.
    pub refused_keys: RefusedKeys,
}

/// The state that all workers share.
pub(crate) struct Shared {
    pub(crate) metrics: Arc<Metrics>,
    /// Receiver of each [`ConnectionRecord`](brisk_telemetry::ConnectionRecord).
    pub(crate) sink: Arc<Sink>,
    pub(crate) live: Current,
    pub(crate) limits: ClientLimits,
    /// Memory held for clients.
    pub(crate) budgets: Arc<Budgets>,
    /// Overload of the process.
    pub(crate) pressure: Arc<Pressure>,
    pub(crate) certificates: Certificates,
    pub(crate) resumption: Resumption,
    beacons: BeaconReceiver,
    /// Maximum time for which operations of handshakes wait for others; `None` if they do not gather.
    pub(crate) gathers: Option<Duration>,
    /// Throttles warnings about failed handshakes.
    pub(crate) handshake_warnings: Throttle,
    /// Throttles warnings about connections that could not get their variant of a setting.
    pub(crate) variation_warnings: Throttle,
    /// Reference for the publishers of certificates.
    own: Weak<Self>,
    /// QUIC, if the configuration at the start has HTTP/3.
    pub(crate) quic: OnceLock<Arc<Quic>>,
    ids: AtomicU64,
}

/// The state for another configuration.
pub(crate) struct Prepared {
    live: Live,
    access_log: Option<Arc<AccessLog>>,
    keys: Option<PreparedKeys>,
    beacons: Option<Arc<Beacons>>,
    keystore: Arc<Keystore>,
    certificates: CertificateSettings,
    http3: bool,
    token_keys: Vec<Arc<KeySource>>,
}

impl Shared {
    /// Prepares everything that `settings` requires, without serving anything yet.
    pub(crate) fn new(
        settings: &GatewaySettings,
        environment: &Environment,
        pressure: Arc<Pressure>,
    ) -> Result<Arc<Self>, GatewayError> {
        let Environment { engines, metrics, challenges, gathers, .. } = environment;
        let resumption = Resumption::new(&settings.sessions, metrics)?;
        if let Some(redis) = resumption.redis() {
            environment.limits.share_through(redis.clone());
        }
        let access_log = open_access_log(settings)?;
        let limits = ClientLimits::new(settings, &**engines, metrics, &pressure);
        let resources = resumption.resources(limits.key_gate(settings, None), Arc::clone(challenges));
        let receiver = BeaconReceiver::new(environment.visits.clone(), metrics);
        let beacons = receiver.prepare(&settings.service);
        let live = Live::new(settings, resources, beacons.clone(), metrics, None)?;
        let budgets = Arc::new(Budgets::new(&settings.protocol.limits()));
        metrics.register(BudgetMetrics(Arc::clone(&budgets)));
        metrics.register(CompressionMetrics(Arc::clone(&budgets)));
        metrics.register(RewritingMetrics);
        metrics.register(Arc::clone(&pressure));
        // On the page from the start, not only after the first use.
        metrics.collector::<FloodMetrics>();
        metrics.collector::<MirrorMetrics>();
        metrics.collector::<Upstreams>();
        metrics.collector::<LostLines>();
        metrics.collector::<TcpMetrics>();
        let certificates = Certificates::new(&settings.certificates, environment)?;
        certificates.start_catalogues(settings)?;
        let shared = Arc::new_cyclic(|own| Self {
            sink: Sink::new(Arc::clone(metrics)),
            live: Current::new(live),
            limits,
            budgets,
            pressure,
            certificates,
            resumption,
            beacons: receiver,
            gathers: *gathers,
            handshake_warnings: Throttle::new(WARNING_INTERVAL),
            variation_warnings: Throttle::new(WARNING_INTERVAL),
            own: Weak::clone(own),
            quic: OnceLock::new(),
            ids: AtomicU64::new(1),
            metrics: Arc::clone(metrics),
        });
        if settings.http3 {
            shared.prepare_quic(settings)?;
        }
        shared.beacons.commit(beacons);
        shared.replace_access_log(access_log);
        let (checks, own) = (&shared.certificates.checks, Weak::clone(&shared.own));
        let shown = move |slots: &[Arc<Slot>]| {
            if let Some(shared) = own.upgrade() {
                shared.shown(slots);
            }
        };
        let asking = key_checks::run(Arc::downgrade(checks), Arc::clone(&checks.wake), shown);
        shared.certificates.maintenance.spawn(asking);
        let live = shared.live.load();
        // After the task that asks keys was spawned: the publication waits for its answers.
        shared.certificates.publish(&live.tls, &settings.keystore, &settings.certificates, None);
        shared.metrics.set_certificates(live.tls.expiries());
        shared.certificates.show_obtainer(&live.tls, &shared.own);
        drop(live);
        start_token_keys(&settings.service.token_keys());
        Ok(shared)
    }

    fn prepare_quic(&self, settings: &GatewaySettings) -> Result<(), GatewayError> {
        let own = Weak::clone(&self.own);
        // Looked up for each handshake, since a reload may replace the acceptor. Weak,
        // because `Shared` owns QUIC.
        let acceptor = move || {
            let shared = own.upgrade().expect("workers hold the shared state");
            Arc::clone(&shared.live.load().tls.acceptor)
        };
        // Called once, at the start.
        let quic = Quic::new(settings, acceptor)?;
        self.metrics.register(QuicMetrics(Arc::clone(quic.endpoints().counters())));
        let _ = self.quic.set(Arc::new(quic));
        Ok(())
    }

    /// Begins the variation of the first configuration. Called before anything is served and after everything that can
    /// fail.
    pub(crate) fn begin_variation(&self) {
        self.live.load().begin_variation(self.beacons.visits());
    }

    /// The state for `settings`, which has no effect before [`commit`](Self::commit).
    pub(crate) fn prepare(&self, settings: &GatewaySettings) -> Result<Prepared, GatewayError> {
        let before = self.live.load();
        let gate = self.limits.key_gate(settings, before.rates.as_ref());
        let resources = self.resumption.resources(gate, Arc::clone(&self.certificates.challenges));
        let beacons = self.beacons.prepare(&settings.service);
        let live = Live::new(settings, resources, beacons.clone(), &self.metrics, Some(&before))?;
        self.certificates.start_catalogues(settings)?;
        Ok(Prepared {
            live,
            access_log: open_access_log(settings)?,
            keys: self.resumption.prepare(&settings.sessions)?,
            beacons,
            keystore: Arc::clone(&settings.keystore),
            certificates: settings.certificates.clone(),
            http3: settings.http3,
            token_keys: settings.service.token_keys(),
        })
    }

    /// Applies `prepared` to new connections and requests. Waits for the first staples of new certificates and for the
    /// answers of their keys.
    pub(crate) fn commit(&self, prepared: Prepared) {
        let Prepared { live, access_log, keys, beacons, keystore, certificates, http3, token_keys } =
            prepared;
        start_token_keys(&token_keys);
        if http3 && !live.has_http3 {
            tracing::warn!(key = "server.http3", "changed, but takes effect only after a restart");
        }
        self.resumption.commit(keys);
        self.replace_access_log(access_log);
        self.beacons.commit(beacons);
        live.begin_variation(self.beacons.visits());
        // Before `live` is replaced, so that no handshake finds a host without certificates.
        let before = self.live.load();
        self.certificates.publish(&live.tls, &keystore, &certificates, Some(&before.tls));
        drop(before);
        self.metrics.set_certificates(live.tls.expiries());
        self.budgets.set_limits(&live.http.limits());
        if let Some(quic) = self.quic.get() {
            quic.follow(&live);
        }
        self.live.replace(live);
        self.certificates.show_obtainer(&self.live.load().tls, &self.own);
    }

    /// Publishes other certificates of the files of `hosts`, after one wait for the first staples of all.
    pub(crate) fn renew(&self, hosts: Vec<HostCertificates>) {
        let live = self.live.load();
        self.certificates.renew(&live.tls, hosts);
        self.metrics.set_certificates(live.tls.expiries());
    }

    /// Makes new handshakes use the certificates that `slots` show now.
    pub(crate) fn shown(&self, slots: &[Arc<Slot>]) {
        if !slots.is_empty() {
            let live = self.live.load();
            self.certificates.shown(&live.tls, slots);
            self.metrics.set_certificates(live.tls.expiries());
        }
    }

    /// Sets the sources of overload that belong to the gateway.
    pub(crate) fn measure(&self, sample: &mut Sample) {
        let engines = &self.certificates.engines;
        sample.set_part(Source::KeyQueue, engines.figures().waiting, engines.queue().get() as u64);
        // Without the others, a response is sent uncompressed or a request is not mirrored.
        let needed = [Resource::Responses, Resource::Requests, Resource::Heads, Resource::Bodies];
        let shares = needed.map(|resource| {
            let budget = self.budgets.of(resource);
            budget.held() as f64 / budget.limit() as f64
        });
        sample.set(Source::Budgets, shares.into_iter().fold(0.0, f64::max));
    }

    fn replace_access_log(&self, log: Option<Arc<AccessLog>>) {
        if let Some(log) = &log {
            self.metrics.collector::<LostLines>().attach(log);
        }
        self.sink.set_access_log(log.map(|log| log as _));
    }

    /// Receivers of the services' request reports.
    pub(crate) fn telemetry(&self) -> Telemetry {
        Telemetry { metrics: Arc::clone(&self.metrics), access_log: self.sink.access_log() }
    }

    pub(crate) fn next_connection_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// Fetches the keys of tokens before the first request needs them.
fn start_token_keys(sources: &[Arc<KeySource>]) {
    for source in sources {
        source.start();
    }
}

fn open_access_log(settings: &GatewaySettings) -> Result<Option<Arc<AccessLog>>, GatewayError> {
    Ok(AccessLog::open(&settings.access_log, connect_exporter)?.map(Arc::new))
}
