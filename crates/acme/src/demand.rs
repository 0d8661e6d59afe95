//! Names that are decided at run time: whether they are served is asked, certificates are obtained, kept and renewed while used.
//!
//! A thread of its own looks at what handshakes ask for, so that one who waits for a certificate that is kept already never
//! waits for an authority, or for the orders of others. It orders nothing itself: [jobs](job) are the keeper's.

mod ask;
mod intake;
pub(crate) mod job;
mod limits;
mod load;
mod table;

use std::fmt;
use std::io;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use brisk_certs::OnDemand;
use tokio::runtime::Builder;
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use crate::records::Records;
use crate::running::Running;
use crate::settings::{KeyKind, Wanted};
use intake::Intake;
use job::Job;

/// Blocking look-ups in the store at a time.
const LOOK_UPS: usize = 8;

/// How often certificates on demand may be ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The time for one order.
    pub interval: Duration,
    /// Orders at once; at least 1.
    pub burst: u32,
}

/// How names are decided, and what is obtained for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemandSettings {
    /// The address, http or https, that is asked with `domain=NAME`. Status 200 means that the name is served.
    pub ask: String,
    /// How often certificates are ordered; renewals do not count.
    pub orders: Pace,
    /// Names that have certificates at most.
    pub most: usize,
    /// The kinds of keys; at least one.
    pub keys: Vec<KeyKind>,
    /// Instead of the profile of the authority.
    pub profile: Option<String>,
}

impl DemandSettings {
    /// What is wanted for `name`.
    pub fn wanted(&self, name: &str) -> Wanted {
        Wanted { names: vec![name.to_owned()], keys: self.keys.clone(), profile: self.profile.clone() }
    }
}

/// A host with names on demand.
#[derive(Clone, Debug)]
pub struct DemandedHost {
    /// What handshakes ask, and where certificates are shown.
    pub names: Arc<OnDemand>,
    /// What decides.
    pub settings: DemandSettings,
}

impl DemandedHost {
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.names, &other.names) && self.settings == other.settings
    }
}

/// Hands hosts to the thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Demands(mpsc::UnboundedSender<Vec<DemandedHost>>);

impl Demands {
    /// Starts the thread. `jobs` takes what is to be ordered.
    pub(crate) fn start(records: Records, jobs: mpsc::UnboundedSender<Job>) -> io::Result<Self> {
        // A reload is not that frequent.
        let (sender, following) = mpsc::unbounded_channel();
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(LOOK_UPS).build()?;
        let life = run(records, jobs, following);
        let run = move || LocalSet::new().block_on(&runtime, life);
        thread::Builder::new().name("acme-on-demand".to_owned()).spawn(run)?;
        Ok(Self(sender))
    }

    /// These are the hosts from now on. What goes on for one that is the same as before goes on.
    pub(crate) fn follow(&self, hosts: Vec<DemandedHost>) {
        // An error means that the thread has panicked, which the log says.
        let _ = self.0.send(hosts);
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

async fn run(
    records: Records,
    jobs: mpsc::UnboundedSender<Job>,
    mut following: mpsc::UnboundedReceiver<Vec<DemandedHost>>,
) {
    let mut running: Vec<(DemandedHost, Running)> = Vec::new();
    while let Some(hosts) = following.recv().await {
        let mut before = mem::take(&mut running);
        for host in hosts {
            if let Some(index) = before.iter().position(|(own, _)| own.is_same(&host)) {
                running.push(before.swap_remove(index));
                continue;
            }
            // The one before first: two would share its questions.
            before.retain(|(own, _)| !Arc::ptr_eq(&own.names, &host.names));
            let intake = Rc::new(Intake::new(host.clone(), records.clone(), jobs.clone()));
            running.push((host, Running::keeping("names on demand", move || intake.clone().run())));
        }
    }
}
