//! State that all workers share, its replacement on reload, and the start of a worker.

use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::ArcSwap;
use brisk_keys::{Engines, Keystore, PremasterEngine, PrivateKeyEngine};
use brisk_net::{DeadlineWheel, Drain};
use brisk_server::{Accepted, NoService, Service, WorkerContext};
use brisk_telemetry::Throttle;
use brisk_telemetry::metrics::Metrics;
use brisk_tls::gather;
use brisk_tls::mutual::MutualAcceptor;
use tokio::task::{JoinSet, spawn_local};

use crate::KeyServerError;
use crate::connection;
use crate::metrics::Figures;
use crate::policy::Policy;
use crate::settings::KeyServerSettings;

/// Minimum interval between two lines about failed handshakes, because unknown clients can cause them.
const HANDSHAKE_LINES: Duration = Duration::from_secs(1);

/// Dependencies that the composing program provides for the life of a key server.
#[derive(Clone, Debug)]
pub struct Environment {
    /// Engines that perform key operations.
    pub engines: Arc<dyn Engines>,
    /// Whether each worker combines P-256 signatures of its connections into batches, where the processor is faster
    /// that way.
    pub gathers: bool,
    /// Metrics of the process, shared with the `Engines`.
    pub metrics: Arc<Metrics>,
}

/// State of one configuration, replaced as a whole on reload.
pub(crate) struct ActiveConfig {
    /// `None` in a key process, which has no listeners.
    pub(crate) acceptor: Option<MutualAcceptor>,
    pub(crate) keys: Keys,
    pub(crate) policy: Arc<Policy>,
    pub(crate) operations: u16,
}

/// Keys with their engine.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) keystore: Arc<Keystore>,
    pub(crate) engine: Arc<dyn PrivateKeyEngine>,
}

impl Keys {
    /// Keys of `keystore`. If `before` has equal keys, it is kept with its engine.
    fn new(keystore: &Arc<Keystore>, engines: &dyn Engines, before: Option<&Self>) -> Self {
        if let Some(before) = before.filter(|before| before.keystore.is_same(keystore)) {
            return before.clone();
        }
        let engine = engines.for_keys(Arc::clone(keystore));
        // Around all engines, so that none of them can respond to a ciphertext with an error about its
        // padding (Bleichenbacher's attack).
        let engine = Arc::new(PremasterEngine::new(Arc::clone(keystore), engine));
        Self { keystore: Arc::clone(keystore), engine }
    }
}

/// State that all workers share.
pub(crate) struct Shared {
    pub(crate) live: ArcSwap<ActiveConfig>,
    pub(crate) figures: Arc<Figures>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) handshake_lines: Throttle,
    engines: Arc<dyn Engines>,
    gathers: bool,
}

impl ActiveConfig {
    const fn new(acceptor: Option<MutualAcceptor>, keys: Keys, policy: Arc<Policy>, operations: u16) -> Self {
        Self { acceptor, keys, policy, operations }
    }

    /// Returns whether clients of both are verified with the same trust anchors.
    pub(crate) fn has_authorities_of(&self, other: &Self) -> bool {
        match (&self.acceptor, &other.acceptor) {
            (Some(own), Some(other)) => own.has_authorities_of(other),
            (own, other) => own.is_none() && other.is_none(),
        }
    }
}

impl Shared {
    pub(crate) fn new(
        settings: &KeyServerSettings,
        environment: Environment,
    ) -> Result<Arc<Self>, KeyServerError> {
        let Environment { engines, gathers, metrics } = environment;
        let acceptor = Some(MutualAcceptor::new(&settings.tls)?);
        let keys = Keys::new(&settings.keystore, &*engines, None);
        let live = ActiveConfig::new(acceptor, keys, Arc::clone(&settings.policy), settings.operations);
        Ok(Self::with(live, Environment { engines, gathers, metrics }))
    }

    fn with(live: ActiveConfig, environment: Environment) -> Arc<Self> {
        let Environment { engines, gathers, metrics } = environment;
        Arc::new(Self {
            live: ArcSwap::from_pointee(live),
            figures: Arc::default(),
            metrics,
            handshake_lines: Throttle::new(HANDSHAKE_LINES),
            engines,
            gathers,
        })
    }

    /// State of a key process with these keys, which serves one client and has no listeners.
    pub(crate) fn for_key_process(
        keystore: &Arc<Keystore>,
        policy: Policy,
        operations: u16,
        environment: Environment,
    ) -> Arc<Self> {
        let keys = Keys::new(keystore, &*environment.engines, None);
        Self::with(ActiveConfig::new(None, keys, Arc::new(policy), operations), environment)
    }

    /// Replaces the keys, for open connections too.
    pub(crate) fn hold(&self, keystore: &Arc<Keystore>) {
        let before = self.live.load();
        let keys = Keys::new(keystore, &*self.engines, Some(&before.keys));
        let live =
            ActiveConfig::new(before.acceptor.clone(), keys, Arc::clone(&before.policy), before.operations);
        self.live.store(Arc::new(live));
    }

    /// Engines of the process.
    pub(crate) fn engines(&self) -> &Arc<dyn Engines> {
        &self.engines
    }

    /// Builds the state for new settings, without effect. The only error is [`KeyServerError::Tls`].
    pub(crate) fn prepare(&self, settings: &KeyServerSettings) -> Result<ActiveConfig, KeyServerError> {
        let acceptor = Some(MutualAcceptor::new(&settings.tls)?);
        let before = self.live.load();
        let mut policy = Policy::clone(&settings.policy);
        policy.keep_buckets_of(&before.policy);
        let keys = Keys::new(&settings.keystore, &*self.engines, Some(&before.keys));
        Ok(ActiveConfig::new(acceptor, keys, Arc::new(policy), settings.operations))
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// State that the connections of a worker share.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) wheel: DeadlineWheel,
    pub(crate) drain: Drain,
}

impl Service for Shared {
    type Listener = ();
    type Worker = Worker;

    fn start_worker(
        self: Arc<Self>,
        context: &WorkerContext,
        tasks: &mut JoinSet<()>,
    ) -> io::Result<Rc<Worker>> {
        if self.gathers {
            tasks.spawn_local(gather::turns(Duration::ZERO));
        }
        // A batch in progress delays responses less than its interruption would, because other operations wait for its
        // result.
        if let Err(error) = brisk_server::wait_for_turns() {
            tracing::debug!(%error, "a worker interrupts batches");
        }
        Ok(Rc::new(Worker { shared: self, wheel: context.wheel.clone(), drain: context.drain.clone() }))
    }

    fn serve(worker: &Rc<Worker>, connection: Accepted<()>) {
        spawn_local(connection::serve(Rc::clone(worker), connection));
    }

    fn refused(worker: &Worker, _reason: NoService) {
        worker.shared.figures.shed.fetch_add(1, Ordering::Relaxed);
    }
}
