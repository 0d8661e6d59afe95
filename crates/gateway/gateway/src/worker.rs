//! State of one worker: services of the current configuration, and upstream connections.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use brisk_http_server::{CurrentService, HttpSettings};
use brisk_net::{DeadlineWheel, Drain};
use brisk_server::WorkerContext;
use brisk_tls::gather;
use tokio::task::JoinSet;

use crate::configuration::upstreams::WorkerGroups;
use crate::configuration::{Live, Replacements};
use crate::shared::Shared;

/// State shared by the tasks of a worker.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) service: Rc<CurrentService>,
    pub(crate) groups: WorkerGroups,
    pub(crate) http: RefCell<Rc<HttpSettings>>,
    pub(crate) wheel: DeadlineWheel,
    pub(crate) drain: Drain,
    pub(crate) context: WorkerContext,
}

impl Worker {
    /// Prepares a worker, and starts the task that takes new configurations over.
    pub(crate) fn start(
        shared: Arc<Shared>,
        context: &WorkerContext,
        tasks: &mut JoinSet<()>,
    ) -> io::Result<Rc<Self>> {
        // Before the configuration is loaded, so that a concurrent reload is not missed.
        let replacements = shared.live.follow();
        let wheel = context.wheel.clone();
        let live = shared.live.load_full();
        let groups = WorkerGroups::new(&wheel);
        let worker = Rc::new(Self {
            service: CurrentService::new(
                live.service(shared.telemetry(), &groups).map_err(io::Error::other)?,
                Arc::clone(&shared.budgets),
                Arc::clone(&shared.pressure),
            ),
            groups,
            http: RefCell::new(Rc::new(live.http.clone())),
            shared,
            wheel,
            drain: context.drain.clone(),
            context: context.clone(),
        });
        tasks.spawn_local(follow(Rc::clone(&worker), replacements));
        tasks.spawn_local(worker.service.divide_work());
        if let Some(wait) = worker.shared.gathers {
            tasks.spawn_local(gather::turns(wait));
            tasks.spawn_local(drop_old_key_pairs());
        }
        Ok(worker)
    }
}

async fn drop_old_key_pairs() {
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    loop {
        seconds.tick().await;
        gather::drop_old_key_pairs();
    }
}

/// Applies each new configuration and reports it with [`Replacements::followed`]. If a service cannot be created, the
/// worker keeps its previous routes and limits and reports nothing.
async fn follow(worker: Rc<Worker>, mut replacements: Replacements) {
    while let Some(replacement) = replacements.next().await {
        // The latest configuration, which may be newer than `replacement`: the next turn
        // then applies it once more.
        let live: Arc<Live> = worker.shared.live.load_full();
        match live.service(worker.shared.telemetry(), &worker.groups) {
            Ok(service) => worker.service.replace(service),
            Err(error) => {
                tracing::error!(%error, "a worker keeps its old routes");
                continue;
            }
        }
        worker.http.replace(Rc::new(live.http.clone()));
        replacements.followed(replacement);
    }
}
