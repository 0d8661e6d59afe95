//! What all workers share, what a reload replaces, and how a worker begins.

use std::fmt;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::ArcSwap;
use brisk_keys::{Engines, Keystore, PrivateKeyEngine};
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
    pub(crate) acceptor: MutualAcceptor,
    pub(crate) keystore: Arc<Keystore>,
    pub(crate) engine: Arc<dyn PrivateKeyEngine>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) operations: u16,
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

impl Shared {
    pub(crate) fn new(
        settings: &KeyServerSettings,
        environment: Environment,
    ) -> Result<Arc<Self>, KeyServerError> {
        let Environment { engines, gathers, metrics } = environment;
        let live = live(settings, &*engines, &Policy::new())?;
        Ok(Arc::new(Self {
            live: ArcSwap::from_pointee(live),
            figures: Arc::default(),
            metrics,
            handshake_lines: Throttle::new(HANDSHAKE_LINES),
            engines,
            gathers,
        }))
    }

    /// The engines of the process.
    pub(crate) fn engines(&self) -> &Arc<dyn Engines> {
        &self.engines
    }

    /// Puts new settings in force, for connections that are open too. On an error nothing changes.
    pub(crate) fn apply(&self, settings: &KeyServerSettings) -> Result<(), KeyServerError> {
        let before = Arc::clone(&self.live.load().policy);
        self.live.store(Arc::new(live(settings, &*self.engines, &before)?));
        Ok(())
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

fn live(
    settings: &KeyServerSettings,
    engines: &dyn Engines,
    before: &Policy,
) -> Result<Live, KeyServerError> {
    let mut policy = Policy::clone(&settings.policy);
    policy.go_on_from(before);
    let acceptor = MutualAcceptor::new(&settings.tls)?;
    Ok(Live {
        acceptor,
        keystore: Arc::clone(&settings.keystore),
        engine: engines.for_keys(Arc::clone(&settings.keystore)),
        policy: Arc::new(policy),
        operations: settings.operations,
    })
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
        Ok(Rc::new(Worker { shared: self, wheel: context.wheel.clone(), drain: context.drain.clone() }))
    }

    fn serve(worker: &Rc<Worker>, connection: Accepted<()>) {
        spawn_local(connection::serve(Rc::clone(worker), connection));
    }

    fn refused(worker: &Worker) {
        worker.shared.figures.shed.fetch_add(1, Ordering::Relaxed);
    }
}
