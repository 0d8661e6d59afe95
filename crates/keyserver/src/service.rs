//! What all workers share, what a reload replaces, and how a worker begins.

use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use brisk_keys::{Engines, Keystore, PremasterEngine, PrivateKeyEngine};
use brisk_net::{DeadlineWheel, Drain};
use brisk_server::{Accepted, Service, WorkerContext};
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

/// The least time between two lines about failed handshakes: strangers can make handshakes fail.
const HANDSHAKE_LINES: std::time::Duration = std::time::Duration::from_secs(1);

/// What the composing program gives a key server for its whole life.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The engines that perform operations.
    pub engines: Arc<dyn Engines>,
    /// Whether each worker performs P-256 signatures of all its connections together, where the processor is faster that way.
    pub gathers: bool,
    /// The metrics of the process, shared with the engines.
    pub metrics: Arc<Metrics>,
}

/// Everything made from one configuration. Replaced whole on reload.
pub(crate) struct Live {
    /// `None` in a key process, which has no listeners.
    pub(crate) acceptor: Option<MutualAcceptor>,
    pub(crate) keys: Keys,
    pub(crate) policy: Arc<Policy>,
    pub(crate) operations: u16,
}

/// Keys, and the engine for them.
#[derive(Clone)]
pub(crate) struct Keys {
    pub(crate) keystore: Arc<Keystore>,
    pub(crate) engine: Arc<dyn PrivateKeyEngine>,
}

impl Keys {
    /// Those of `keystore`; if `before` has the same, they and their engine stay.
    fn new(keystore: &Arc<Keystore>, engines: &dyn Engines, before: Option<&Self>) -> Self {
        if let Some(before) = before.filter(|before| before.keystore.is_same(keystore)) {
            return before.clone();
        }
        let engine = engines.for_keys(Arc::clone(keystore));
        let engine = Arc::new(PremasterEngine::new(Arc::clone(keystore), engine));
        Self { keystore: Arc::clone(keystore), engine }
    }
}

/// What all workers share.
pub(crate) struct Shared {
    pub(crate) live: ArcSwap<Live>,
    pub(crate) figures: Arc<Figures>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) handshake_lines: Throttle,
    engines: Arc<dyn Engines>,
    gathers: bool,
}

impl Live {
    const fn new(acceptor: Option<MutualAcceptor>, keys: Keys, policy: Arc<Policy>, operations: u16) -> Self {
        Self { acceptor, keys, policy, operations }
    }

    /// Whether the clients of both are verified by the same authorities.
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
        let live = Live::new(acceptor, keys, Arc::clone(&settings.policy), settings.operations);
        Ok(Self::with(live, Environment { engines, gathers, metrics }))
    }

    fn with(live: Live, environment: Environment) -> Arc<Self> {
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

    /// What serves one gateway, which `policy` knows, with these keys, and listens nowhere.
    pub(crate) fn beside(
        keystore: &Arc<Keystore>,
        policy: Policy,
        operations: u16,
        environment: Environment,
    ) -> Arc<Self> {
        let keys = Keys::new(keystore, &*environment.engines, None);
        Self::with(Live::new(None, keys, Arc::new(policy), operations), environment)
    }

    /// Puts other keys in force, for connections that are open too.
    pub(crate) fn hold(&self, keystore: &Arc<Keystore>) {
        let before = self.live.load();
        let keys = Keys::new(keystore, &*self.engines, Some(&before.keys));
        let live = Live::new(before.acceptor.clone(), keys, Arc::clone(&before.policy), before.operations);
        self.live.store(Arc::new(live));
    }

    /// The engines of the process.
    pub(crate) fn engines(&self) -> &Arc<dyn Engines> {
        &self.engines
    }

    /// Puts new settings in force, for connections that are open too. On an error nothing changes.
    pub(crate) fn apply(&self, settings: &KeyServerSettings) -> Result<(), KeyServerError> {
        let acceptor = Some(MutualAcceptor::new(&settings.tls)?);
        let before = self.live.load();
        let mut policy = Policy::clone(&settings.policy);
        policy.go_on_from(&before.policy);
        let keys = Keys::new(&settings.keystore, &*self.engines, Some(&before.keys));
        self.live.store(Arc::new(Live::new(acceptor, keys, Arc::new(policy), settings.operations)));
        Ok(())
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// What the connections of a worker share.
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
            tasks.spawn_local(gather::turns());
        }
        // Answers may wait for a batch in progress: the one that runs is what others wait for.
        if let Err(error) = brisk_server::wait_for_turns() {
            tracing::debug!(%error, "a worker interrupts batches");
        }
        Ok(Rc::new(Worker { shared: self, wheel: context.wheel.clone(), drain: context.drain.clone() }))
    }

    fn serve(worker: &Rc<Worker>, connection: Accepted<()>) {
        spawn_local(connection::serve(Rc::clone(worker), connection));
    }

    fn refused(worker: &Worker) {
        worker.shared.figures.shed.fetch_add(1, Ordering::Relaxed);
    }
}
