//! The thread that looks after certificates, so that no worker ever waits for an authority.

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

/// Publications and hooks that go on at a time: a hook for each order, and enough beside them.
const BLOCKING: usize = 32;

/// A host whose certificates are looked after.
#[derive(Clone, Debug)]
pub struct WantedHost {
    /// What it wants.
    pub wanted: Wanted,
    /// Shows its certificates.
    pub publish: Arc<dyn Publish>,
}

/// Looks after the certificates of hosts, on a thread of its own. The thread ends with the last copy of this.
#[derive(Clone, Debug)]
pub struct Keeper {
    orders: mpsc::UnboundedSender<Following>,
    jobs: mpsc::UnboundedSender<Job>,
    records: Records,
    statuses: Statuses,
    /// Started with the first host that has names on demand.
    demands: Arc<OnceLock<Demands>>,
}

/// The hosts from now on.
struct Following {
    settings: AcmeSettings,
    hosts: Vec<WantedHost>,
}

impl Keeper {
    /// Starts the thread. What it obtains is kept in `store`, and replaced when it is `revoked`; authorities are answered by
    /// `challenges`.
    pub fn start(store: Arc<dyn Store>, challenges: &Arc<Challenges>, revoked: &Revoked) -> io::Result<Self> {
        // A reload is not that frequent.
        let (orders, following) = mpsc::unbounded_channel();
        // As many as names on demand are being decided.
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

    /// Looks after these hosts from now on, and no longer after others. What goes on for a host that wants the same as before
    /// goes on. Settings have an authority and a challenge at least.
    pub fn look_after(
        &self,
        settings: AcmeSettings,
        hosts: Vec<WantedHost>,
        demanded: Vec<DemandedHost>,
    ) -> io::Result<()> {
        assert!(!settings.authorities.is_empty() && !settings.challenges.is_empty(), "settings are checked");
        // An error means that the thread has panicked, which the log says.
        let _ = self.orders.send(Following { settings, hosts });
        if self.demands.get().is_none() && !demanded.is_empty() {
            // Only one thread calls this.
            let _ = self.demands.set(Demands::start(self.records.clone(), self.jobs.clone())?);
        }
        if let Some(demands) = self.demands.get() {
            demands.follow(demanded);
        }
        Ok(())
    }

    /// How each host stands.
    pub fn statuses(&self) -> Vec<HostStatus> {
        self.statuses.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Following").field("hosts", &self.hosts.len()).finish_non_exhaustive()
    }
}

/// The thread.
struct Life {
    records: Records,
    answers: Answers,
    revoked: Revoked,
    statuses: Statuses,
    following: mpsc::UnboundedReceiver<Following>,
    jobs: mpsc::UnboundedReceiver<Job>,
}

/// A host that is looked after now.
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
                    // Without settings there is no authority to ask: the sender of the job hears that it was dropped.
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
