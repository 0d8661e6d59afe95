//! Work that the ACME thread does for on-demand names, with the same orders and store as for configured hosts.

use std::rc::Rc;
use std::time::{Duration, SystemTime};

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::AcmeError;
use crate::attempt::Attempt;
use crate::context::AcmeContext;
use crate::host::fitting;
use crate::settings::CertificateSpec;

/// Longest time that a job waits for an order of another gateway.
const LIMIT: Duration = Duration::from_mins(15);

/// Pauses up to this length are waited for within a job: another gateway orders, or an order continues.
const SHORT: Duration = Duration::from_secs(5);

/// Kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DemandTask {
    /// Update the renewal information; order nothing.
    Look,
    /// Order certificates that are missing or due.
    Obtain,
}

/// Work for one name. The result is sent through `done`.
pub(crate) struct DemandJob {
    pub(crate) wanted: CertificateSpec,
    pub(crate) task: DemandTask,
    pub(crate) done: oneshot::Sender<Outcome>,
}

/// Result of a [`DemandJob`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// All certificates are stored; the first is due at this time.
    Due(SystemTime),
    /// A certificate is missing or no longer satisfies the configuration. The next attempt is possible at this time.
    Missing(SystemTime),
    /// The store or the authority failed. The next attempt is possible at this time.
    Failed(SystemTime),
}

impl DemandJob {
    /// Runs the job and sends its outcome.
    pub(crate) async fn run(self, context: Rc<AcmeContext>) {
        let outcome = match self.task {
            DemandTask::Look => look(&context, &self.wanted).await,
            DemandTask::Obtain => obtain(&context, &self.wanted).await,
        };
        let outcome = outcome.unwrap_or_else(|error| {
            tracing::warn!(host = self.wanted.name(), %error, "cannot maintain certificates");
            Outcome::Failed(SystemTime::now() + SHORT)
        });
        // The receiver may have ended with a reload.
        let _ = self.done.send(outcome);
    }
}

async fn look(context: &AcmeContext, wanted: &CertificateSpec) -> Result<Outcome, AcmeError> {
    let mut due = None;
    for kind in wanted.keys.iter().copied() {
        let at = Attempt::on_demand(context, wanted, kind).next_renewal().await?;
        due = Some(due.map_or(at, |before: SystemTime| before.min(at)));
    }
    Ok(outcome(context, wanted, due.unwrap_or_else(SystemTime::now)))
}

/// The outcome with `next` as the time of the next step.
fn outcome(context: &AcmeContext, wanted: &CertificateSpec, next: SystemTime) -> Outcome {
    let mut kinds = wanted.keys.iter();
    let has_all = kinds.all(|kind| matches!(fitting(context, wanted, *kind), Ok(Some(_))));
    if has_all { Outcome::Due(next) } else { Outcome::Missing(next) }
}

async fn obtain(context: &AcmeContext, wanted: &CertificateSpec) -> Result<Outcome, AcmeError> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let mut next = None;
        for kind in wanted.keys.iter().copied() {
            let at = Attempt::on_demand(context, wanted, kind).obtain_if_due().await?;
            next = Some(next.map_or(at, |before: SystemTime| before.min(at)));
        }
        let next = next.unwrap_or_else(SystemTime::now);
        let wait = next.duration_since(SystemTime::now()).unwrap_or_default();
        if wait > SHORT || Instant::now() > deadline {
            return Ok(outcome(context, wanted, next));
        }
        // `next` may be in the past, for example after a trial order; the minimum prevents a busy loop.
        sleep(wait.max(Duration::from_millis(100))).await;
    }
}
