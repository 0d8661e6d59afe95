//! What the keeper's thread does for a name on demand: the same orders, over the same store, as for other hosts.

use std::rc::Rc;
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::AcmeError;
use crate::attempt::Attempt;
use crate::common::Common;
use crate::host::fitting;
use crate::settings::Wanted;

/// The longest that anyone waits for another gateway that orders.
const LIMIT: Duration = Duration::from_mins(15);

/// A pause that is no failure: another gateway orders, or the same is gone on with.
const SHORT: Duration = Duration::from_secs(5);

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// The authority is asked when to renew.
    Look,
    /// What is missing or due is ordered.
    Obtain,
}

/// What is to be done for whom.
pub(crate) struct Job {
    pub(crate) wanted: Wanted,
    pub(crate) task: Task,
    pub(crate) done: oneshot::Sender<Outcome>,
}

/// The result of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// There are certificates, which are due then.
    Due(SystemTime),
    /// One of a kind of key is missing, or not what is wanted now. Nothing is tried before then.
    Missing(SystemTime),
    /// It cannot be said, or done: of what is stored, or of the authority's. Nothing is tried before then.
    Failed(SystemTime),
}

impl Job {
    /// Does it.
    pub(crate) async fn run(self, common: Rc<Common>) {
        let outcome = match self.task {
            Task::Look => look(&common, &self.wanted).await,
            Task::Obtain => obtain(&common, &self.wanted).await,
        };
        let outcome = outcome.unwrap_or_else(|error| {
            tracing::warn!(host = self.wanted.name(), %error, "certificates are not looked after");
            Outcome::Failed(SystemTime::now() + SHORT)
        });
        // The intake that asked may have gone with a reload.
        let _ = self.done.send(outcome);
    }
}

async fn look(common: &Common, wanted: &Wanted) -> Result<Outcome, AcmeError> {
    let mut due = None;
    for kind in wanted.keys.iter().copied() {
        let at = Attempt::on_demand(common, wanted, kind).look().await?;
        due = Some(due.map_or(at, |before: SystemTime| before.min(at)));
    }
    Ok(outcome(common, wanted, due.unwrap_or_else(SystemTime::now)))
}

/// What is due then: a renewal, or what is missing.
fn outcome(common: &Common, wanted: &Wanted, next: SystemTime) -> Outcome {
    let mut kinds = wanted.keys.iter();
    let has_all = kinds.all(|kind| matches!(fitting(common, wanted, *kind), Ok(Some(_))));
    if has_all { Outcome::Due(next) } else { Outcome::Missing(next) }
}

async fn obtain(common: &Common, wanted: &Wanted) -> Result<Outcome, AcmeError> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let mut next = None;
        for kind in wanted.keys.iter().copied() {
            let at = Attempt::on_demand(common, wanted, kind).turn().await?;
            next = Some(next.map_or(at, |before: SystemTime| before.min(at)));
        }
        let next = next.unwrap_or_else(SystemTime::now);
        let wait = next.duration_since(SystemTime::now()).unwrap_or_default();
        if wait > SHORT || Instant::now() > deadline {
            return Ok(outcome(common, wanted, next));
        }
        sleep(wait.max(Duration::from_millis(100))).await;
    }
}
