//! Background thread that obtains, renews and publishes certificates.

use std::fmt;
use std::io;
use std::mem;
use std::rc::Rc;
use std::sync::{Arc, OnceLock, PoisonError};
use std::thread;

use brisk_certs::{Challenges, Publish, Store};
use tokio::runtime;
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};

use crate::answers::Answers;
use crate::common::{Common, HostStatus, Statuses};
use crate::demand::job::Job;
use crate::demand::{DemandedHost, Demands};
use crate::host::Host;
use crate::records::Records;
use crate::revoked::Revoked;
use crate::running::Running;
use crate::settings::{AcmeSettings, Wanted};

/// Blocking threads, for publications and DNS hooks: one per order in progress, and a reserve.
const BLOCKING: usize = 32;

/// A host whose certificates are obtained by ACME.
#[derive(Clone, Debug)]
pub struct WantedHost {
    /// The certificates to obtain.
    pub wanted: Wanted,
    /// Receiver of its certificates.
    pub publish: Arc<dyn Publish>,
}

/// Handle of the ACME thread, which ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Keeper {
    orders: mpsc::UnboundedSender<Following>,
    jobs: mpsc::UnboundedSender<Job>,
    records: Records,
    statuses: Statuses,
    /// Started with the first host that has on-demand names.
    demands: Arc<OnceLock<Demands>>,
}

/// The thread for names on demand, if a configuration is the first to need it.
#[derive(Debug)]
pub struct PreparedDemands(Option<Demands>);

/// A new configuration.
struct Following {
    settings: AcmeSettings,
    hosts: Vec<WantedHost>,
}

impl Keeper {
    /// Starts the thread. Certificates are kept in `store` and replaced when `revoked` contains them; `challenges`
    /// publishes responses at the listeners.
    ///
    /// # Errors
    ///
    /// The error of the system if a thread cannot be started.
    pub fn start(store: Arc<dyn Store>, challenges: &Arc<Challenges>, revoked: &Revoked) -> io::Result<Self> {
        // Unbounded: one message per reload.
        let (orders, following) = mpsc::unbounded_channel();
        // Unbounded: the number of pending on-demand names limits it.
        let (jobs, asked) = mpsc::unbounded_channel();
        let (records, statuses) = (Records::new(store), Statuses::default());
        let answers = Answers::new(challenges, &records);
        let runtime =
            runtime::Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING).build()?;
        let look = answers.look_elsewhere();
        thread::Builder::new().name("acme-answers".to_owned()).spawn(look)?;
        let life = Life {
            records: records.clone(),
            answers,
            revoked: revoked.clone(),
            statuses: Arc::clone(&statuses),
            following,
            jobs: asked,
        };
        let run = move || LocalSet::new().block_on(&runtime, life.run());
        thread::Builder::new().name("acme".to_owned()).spawn(run)?;
        Ok(Self { orders, jobs, records, statuses, demands: Arc::default() })
    }

    /// Replaces the configuration: `hosts` and `demanded` are the only hosts from now on. Orders in progress for
    /// unchanged hosts continue. `settings` must have at least one authority and one challenge, and `prepared` be the
    /// result of [`prepare`](Self::prepare) for `demanded`.
    pub fn look_after(
        &self,
        settings: AcmeSettings,
        hosts: Vec<WantedHost>,
        demanded: Vec<DemandedHost>,
        PreparedDemands(prepared): PreparedDemands,
    ) {
        assert!(!settings.authorities.is_empty() && !settings.challenges.is_empty(), "settings are checked");
        // An error means that the thread has panicked; the panic is in the log.
        let _ = self.orders.send(Following { settings, hosts });
        if let Some(prepared) = prepared {
            self.demands.get_or_init(|| prepared);
        }
        if let Some(demands) = self.demands.get() {
            demands.follow(demanded);
        }
    }

    /// Starts the thread for names on demand, if `demanded` is the first configuration to need it. The thread is idle before
    /// [`look_after`](Self::look_after), and ends if the value is dropped.
    pub fn prepare(&self, demanded: &[DemandedHost]) -> io::Result<PreparedDemands> {
        let is_needed = self.demands.get().is_none() && !demanded.is_empty();
        let start = || Demands::start(self.records.clone(), self.jobs.clone());
        is_needed.then(start).transpose().map(PreparedDemands)
    }

    /// Status of all configured hosts.
    pub fn statuses(&self) -> Vec<HostStatus> {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Following").field("hosts", &self.hosts.len()).finish_non_exhaustive()
    }
}

/// State of the thread.
struct Life {
    records: Records,
    answers: Answers,
    revoked: Revoked,
    statuses: Statuses,
    following: mpsc::UnboundedReceiver<Following>,
    jobs: mpsc::UnboundedReceiver<Job>,
}

/// A host with its running task.
struct Task {
    wanted: Wanted,
    _life: Running,
}

impl Life {
    async fn run(mut self) {
        let mut common: Option<Rc<Common>> = None;
        let mut tasks: Vec<Task> = Vec::new();
        loop {
            let Following { settings, hosts } = tokio::select! {
                following = self.following.recv() => match following {
                    Some(following) => following,
                    None => return,
                },
                Some(job) = self.jobs.recv() => {
                    // Without a configuration there is no authority: the job is dropped, and its sender receives an
                    // error.
                    if let Some(common) = &common {
                        spawn_local(job.run(Rc::clone(common)));
                    }
                    continue;
                }
            };
            let same = common.take().filter(|common| common.settings == settings);
            if same.is_none() {
                tasks.clear();
            }
            let now = same.unwrap_or_else(|| Rc::new(self.common(settings)));
            let mut before = mem::take(&mut tasks);
            for host in hosts {
                let kept = before.iter().position(|task| task.wanted == host.wanted);
                tasks.push(match kept {
                    Some(index) => before.swap_remove(index),
                    None => start(host, &now),
                });
            }
            drop(before);
            self.forget_others(&tasks);
            common = Some(now);
        }
    }

    fn common(&self, settings: AcmeSettings) -> Common {
        let (records, answers) = (self.records.clone(), self.answers.clone());
        Common::new(settings, records, answers, self.revoked.clone(), Arc::clone(&self.statuses))
    }

    fn forget_others(&self, tasks: &[Task]) {
        let mut statuses = self.statuses.lock().unwrap_or_else(PoisonError::into_inner);
        statuses.retain(|name, _| tasks.iter().any(|task| task.wanted.name() == name));
    }
}

fn start(host: WantedHost, common: &Rc<Common>) -> Task {
    let WantedHost { wanted, publish } = host;
    let host = Rc::new(Host::new(wanted.clone(), publish, Rc::clone(common)));
    let life = Running::keeping(wanted.name(), move || Rc::clone(&host).look_after());
    Task { wanted, _life: life }
}
