//! On-demand certificates: names that the operator's server accepts at run time.
//!
//! A thread of its own answers handshakes from the store. A handshake that waits for a stored certificate therefore
//! never waits for an authority or for orders of other names. The thread orders nothing itself; it sends a
//! [`DemandJob`] to the ACME thread.

mod ask;
mod decider;
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

use crate::owned_task::OwnedTask;
use crate::records::Records;
use crate::settings::{CertificateSpec, KeyKind};
use decider::NameDecider;
use job::DemandJob;

/// Concurrent blocking look-ups in the store.
const LOOK_UPS: usize = 8;

/// Token bucket for on-demand orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderRate {
    /// Time in which one token is added.
    pub interval: Duration,
    /// Capacity: orders that may begin at once; at least 1.
    pub burst: u32,
}

/// Rules for on-demand names of one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemandSettings {
    /// URL, http or https, that is requested with `domain=NAME` in the query. Status 200 accepts the name.
    pub ask: String,
    /// Rate of first orders. Renewals are not limited.
    pub orders: OrderRate,
    /// Maximum number of names with certificates.
    pub most: usize,
    /// Kinds of keys; at least one.
    pub keys: Vec<KeyKind>,
    /// Certificate profile; replaces the profile of the authority.
    pub profile: Option<String>,
}

impl DemandSettings {
    /// The certificates that are ordered for `name`.
    pub fn wanted(&self, name: &str) -> CertificateSpec {
        CertificateSpec {
            names: vec![name.to_owned()],
            keys: self.keys.clone(),
            profile: self.profile.clone(),
        }
    }
}

/// A host with on-demand names.
#[derive(Clone, Debug)]
pub struct OnDemandHost {
    /// Queue of names from handshakes, and the certificates that handshakes present.
    pub names: Arc<OnDemand>,
    /// Rules for its names.
    pub settings: DemandSettings,
}

impl OnDemandHost {
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.names, &other.names) && self.settings == other.settings
    }
}

/// Handle of the on-demand thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct DemandThread(mpsc::UnboundedSender<Vec<OnDemandHost>>);

impl DemandThread {
    /// Starts the thread. `jobs` leads to the ACME thread.
    pub(crate) fn start(records: Records, jobs: mpsc::UnboundedSender<DemandJob>) -> io::Result<Self> {
        // Unbounded: one message per reload.
        let (sender, following) = mpsc::unbounded_channel();
        let runtime = Builder::new_current_thread().enable_all().max_blocking_threads(LOOK_UPS).build()?;
        let life = run(records, jobs, following);
        let run = move || LocalSet::new().block_on(&runtime, life);
        thread::Builder::new().name("acme-on-demand".to_owned()).spawn(run)?;
        Ok(Self(sender))
    }

    /// Replaces the list of hosts. Work in progress of unchanged hosts continues.
    pub(crate) fn follow(&self, hosts: Vec<OnDemandHost>) {
        // An error means that the thread has panicked; the panic is in the log.
        let _ = self.0.send(hosts);
    }
}

impl fmt::Debug for DemandJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}

async fn run(
    records: Records,
    jobs: mpsc::UnboundedSender<DemandJob>,
    mut following: mpsc::UnboundedReceiver<Vec<OnDemandHost>>,
) {
    let mut running: Vec<(OnDemandHost, OwnedTask)> = Vec::new();
    while let Some(hosts) = following.recv().await {
        let mut before = mem::take(&mut running);
        for host in hosts {
            if let Some(index) = before.iter().position(|(own, _)| own.is_same(&host)) {
                running.push(before.swap_remove(index));
                continue;
            }
            // The previous task is dropped first: two tasks would take names from the same queue.
            before.retain(|(own, _)| !Arc::ptr_eq(&own.names, &host.names));
            let decider = Rc::new(NameDecider::new(host.clone(), records.clone(), jobs.clone()));
            running.push((host, OwnedTask::supervise("names on demand", move || decider.clone().run())));
        }
    }
}
