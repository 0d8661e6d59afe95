//! Background thread that obtains, renews and publishes certificates.

use std::fmt;
use std::io;
use std::mem;
use std::rc::Rc;
use std::sync::{Arc, OnceLock, mpsc as std_mpsc};
use std::thread;
use std::time::Duration;

use brisk_certs::challenge::ChallengeLookup;
use brisk_certs::{Challenges, Publish, Store};
use tokio::runtime;
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};

use crate::context::AcmeContext;
use crate::demand::job::DemandJob;
use crate::demand::{DemandThread, OnDemandHost};
use crate::host::Host;
use crate::owned_task::OwnedTask;
use crate::records::Records;
use crate::responses::ChallengeResponses;
use crate::revoked::Revoked;
use crate::settings::{AcmeSettings, CertificateSpec};

/// Blocking threads, for publications and DNS hooks: one per order in progress, and a reserve.
const BLOCKING: usize = 32;

/// A host whose certificates are obtained by ACME.
#[derive(Clone, Debug)]
pub struct AcmeHost {
    /// The certificates to obtain.
    pub wanted: CertificateSpec,
    /// Receiver of its certificates.
    pub publish: Arc<dyn Publish>,
}

/// Handle of the ACME thread, which ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct AcmeThread {
    orders: mpsc::UnboundedSender<HostsUpdate>,
    jobs: mpsc::UnboundedSender<DemandJob>,
    challenges: Arc<Challenges>,
    /// Queue of challenges that the listeners do not know.
    lookups: mpsc::Sender<ChallengeLookup>,
    records: Records,
    /// Started with the first host that has on-demand names.
    demands: Arc<OnceLock<DemandThread>>,
}

/// A started on-demand thread, if this configuration is the first with on-demand names.
#[derive(Debug)]
pub struct PreparedDemandThread(Option<DemandThread>);

/// A new configuration.
struct HostsUpdate {
    settings: AcmeSettings,
    hosts: Vec<AcmeHost>,
    /// Dropped by each new host after its first publication.
    published: std_mpsc::Sender<()>,
}

/// Publication of the stored certificates of a new configuration.
#[derive(Debug)]
#[must_use = "a start waits for the publication"]
pub struct StoredPublication(std_mpsc::Receiver<()>);

impl StoredPublication {
    /// Blocks until all new hosts have read the store and published its certificates, but not longer than `limit`.
    pub fn wait(self, limit: Duration) {
        // Nothing is sent: the end of the last sender is the end of the publication.
        let _ = self.0.recv_timeout(limit);
    }
}

impl AcmeThread {
    /// Starts the thread, which is idle before [`look_after`](Self::look_after). Certificates are kept in `store` and
    /// replaced when `revoked` contains them; `challenges` publishes responses at the listeners.
    ///
    /// # Errors
    ///
    /// The error of the system if a thread cannot be started.
    pub fn start(store: Arc<dyn Store>, challenges: &Arc<Challenges>, revoked: &Revoked) -> io::Result<Self> {
        // Unbounded: one message per reload.
        let (orders, following) = mpsc::unbounded_channel();
        // Unbounded: the number of pending on-demand names limits it.
        let (jobs, asked) = mpsc::unbounded_channel();
        let records = Records::new(store);
        let answers = ChallengeResponses::new(challenges, &records);
        let runtime =
            runtime::Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING).build()?;
        let (lookups, serve) = answers.serve_from_store();
        thread::Builder::new().name("acme-answers".to_owned()).spawn(serve)?;
        let state =
            AcmeLoop { records: records.clone(), answers, revoked: revoked.clone(), following, jobs: asked };
        let run = move || LocalSet::new().block_on(&runtime, state.run());
        thread::Builder::new().name("acme".to_owned()).spawn(run)?;
        let challenges = Arc::clone(challenges);
        Ok(Self { orders, jobs, challenges, lookups, records, demands: Arc::default() })
    }

    /// Replaces the configuration: `hosts` and `demanded` are the only hosts from now on. Orders in progress for
    /// unchanged hosts continue. `settings` must have at least one authority and one challenge, and `prepared` be the
    /// result of [`prepare`](Self::prepare) for `demanded`.
    pub fn look_after(
        &self,
        settings: AcmeSettings,
        hosts: Vec<AcmeHost>,
        demanded: Vec<OnDemandHost>,
        PreparedDemandThread(prepared): PreparedDemandThread,
    ) -> StoredPublication {
        assert!(!settings.authorities.is_empty() && !settings.challenges.is_empty(), "settings are checked");
        // Not in `start`, because only the first connection counts: after a refused reload, challenges
        // would be looked up in the store of the refused configuration for the life of the process.
        self.challenges.look_elsewhere(self.lookups.clone());
        // An error means that the thread has panicked; the panic is in the log.
        let (published, ends) = std_mpsc::channel();
        let _ = self.orders.send(HostsUpdate { settings, hosts, published });
        if let Some(prepared) = prepared {
            self.demands.get_or_init(|| prepared);
        }
        if let Some(demands) = self.demands.get() {
            demands.follow(demanded);
        }
        StoredPublication(ends)
    }

    /// Starts the thread for names on demand, if `demanded` is the first configuration to need it. The thread is idle before
    /// [`look_after`](Self::look_after), and ends if the value is dropped.
    pub fn prepare(&self, demanded: &[OnDemandHost]) -> io::Result<PreparedDemandThread> {
        let is_needed = self.demands.get().is_none() && !demanded.is_empty();
        let start = || DemandThread::start(self.records.clone(), self.jobs.clone());
        is_needed.then(start).transpose().map(PreparedDemandThread)
    }
}

impl fmt::Debug for HostsUpdate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Following").field("hosts", &self.hosts.len()).finish_non_exhaustive()
    }
}

/// State of the thread.
struct AcmeLoop {
    records: Records,
    answers: ChallengeResponses,
    revoked: Revoked,
    following: mpsc::UnboundedReceiver<HostsUpdate>,
    jobs: mpsc::UnboundedReceiver<DemandJob>,
}

/// A host with its running task.
struct HostTask {
    wanted: CertificateSpec,
    _task: OwnedTask,
}

impl AcmeLoop {
    async fn run(mut self) {
        let mut context: Option<Rc<AcmeContext>> = None;
        let mut tasks: Vec<HostTask> = Vec::new();
        loop {
            let HostsUpdate { settings, hosts, published } = tokio::select! {
                following = self.following.recv() => match following {
                    Some(following) => following,
                    None => return,
                },
                Some(job) = self.jobs.recv() => {
                    // Without a configuration there is no authority: the job is dropped, and its sender receives an
                    // error.
                    if let Some(context) = &context {
                        spawn_local(job.run(Rc::clone(context)));
                    }
                    continue;
                }
            };
            let same = context.take().filter(|context| context.settings == settings);
            // Every order uses these settings, so a change starts all tasks again.
            if same.is_none() {
                tasks.clear();
            }
            let now = same.unwrap_or_else(|| Rc::new(self.context(settings)));
            let mut before = mem::take(&mut tasks);
            for host in hosts {
                let kept = before.iter().position(|task| task.wanted == host.wanted);
                tasks.push(match kept {
                    Some(index) => before.swap_remove(index),
                    None => start(host, &now, &published),
                });
            }
            drop(before);
            context = Some(now);
        }
    }

    fn context(&self, settings: AcmeSettings) -> AcmeContext {
        let (records, answers) = (self.records.clone(), self.answers.clone());
        AcmeContext::new(settings, records, answers, self.revoked.clone())
    }
}

fn start(host: AcmeHost, context: &Rc<AcmeContext>, published: &std_mpsc::Sender<()>) -> HostTask {
    let AcmeHost { wanted, publish } = host;
    let host = Rc::new(Host::new(wanted.clone(), publish, Rc::clone(context), Some(published.clone())));
    let state = OwnedTask::supervise(wanted.name(), move || Rc::clone(&host).look_after());
    HostTask { wanted, _task: state }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use brisk_certs::challenge::HTTP_PATH;
    use brisk_certs::store::Folder;
    use tempfile::TempDir;

    use super::*;
    use crate::settings::{AuthoritySettings, ChallengeKind};

    #[tokio::test]
    async fn a_thread_of_a_refused_configuration_answers_no_challenge() {
        let [refused, in_force] = ["refused", "in force"].map(|response| {
            let (folder, records) = Records::of_test();
            records.put_answer("http", "token", response, SystemTime::now()).unwrap();
            folder
        });
        let challenges = Challenges::new();
        let start = |folder: &TempDir| {
            AcmeThread::start(Arc::new(Folder::new(folder.path())), &challenges, &Revoked::default())
        };
        let path = format!("{HTTP_PATH}token");
        let response = || challenges.http(&path);

        let thread = start(&refused).unwrap();
        assert_eq!(response().await, None);
        drop(thread);
        let thread = start(&in_force).unwrap();
        let demands = thread.prepare(&[]).unwrap();
        assert_eq!(response().await, None);
        let settings = AcmeSettings {
            authorities: vec![AuthoritySettings::new("https://authority.test")],
            contact: Vec::new(),
            challenges: vec![ChallengeKind::Http01],
            dns: None,
            allow_private: Arc::default(),
        };
        thread.look_after(settings, Vec::new(), Vec::new(), demands).wait(Duration::from_mins(1));
        assert_eq!(response().await.as_deref(), Some("in force"));
    }
}
