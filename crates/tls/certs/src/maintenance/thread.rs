//! The maintenance thread: one task for each certificate in use.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::maintained::{MaintainedCertificate, Origin};
use super::{Shared, issuers, lists, lock, staples};
use crate::certificate::Fingerprint;

/// Interval of the surveys, which find certificates that were published without
/// [`Maintenance::prepare`](super::Maintenance::prepare).
const LOOK: Duration = Duration::from_secs(10);

/// Interval at which expired staples are removed from the store.
const SWEEP: Duration = Duration::from_hours(24);

/// How long a prepared certificate is maintained before it is published.
const PREPARED: Duration = Duration::from_mins(10);

/// Maintenance of one certificate, aborted when dropped.
struct Task {
    maintained: Arc<MaintainedCertificate>,
    life: JoinHandle<()>,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.life.abort();
    }
}

/// Runs until `dropped` is closed.
pub(super) async fn run(
    shared: Arc<Shared>,
    mut loaded: mpsc::UnboundedReceiver<Arc<MaintainedCertificate>>,
    mut dropped: watch::Receiver<()>,
) {
    let mut tasks = Tasks::default();
    let mut last = HashSet::new();
    let mut swept = None;
    loop {
        let shown = shared.survey();
        for (certificate, origin) in shown.values() {
            shared.found(certificate, *origin);
        }
        let shown = shown.into_keys().collect();
        forget(&shared, &shown, &last);
        last = shown;
        shared.lists.forget_old();
        shared.permits.forget_unused();
        if shared.starts_anew.swap(false, Ordering::Relaxed) {
            tasks.0.clear();
        }
        tasks.follow(&shared);
        if swept.is_none_or(|at: Instant| at.elapsed() > SWEEP) {
            swept = Some(Instant::now());
            tokio::task::spawn_blocking({
                let shared = Arc::clone(&shared);
                move || staples::sweep(&shared)
            });
        }
        let look = tokio::time::sleep(LOOK);
        tokio::pin!(look);
        loop {
            tokio::select! {
                // There may be thousands of catalogue names, so one of them does not trigger a survey.
                Some(maintained) = loaded.recv() => tasks.look_after(&shared, maintained),
                () = shared.wake.notified() => break,
                () = &mut look => break,
                _ = dropped.changed() => return,
            }
        }
    }
}

/// The tasks by certificate.
#[derive(Default)]
struct Tasks(HashMap<Fingerprint, Task>);

impl Tasks {
    /// Starts tasks for new certificates and aborts those of removed ones.
    fn follow(&mut self, shared: &Arc<Shared>) {
        let certificates = lock(&shared.certificates).clone();
        self.0.retain(|fingerprint, _| certificates.contains_key(fingerprint));
        for maintained in certificates.into_values() {
            self.look_after(shared, maintained);
        }
    }

    fn look_after(&mut self, shared: &Arc<Shared>, maintained: Arc<MaintainedCertificate>) {
        let fingerprint = maintained.certificate().fingerprint;
        // Compared by state: a certificate that was loaded with another chain or staple file needs a new
        // task.
        if self.0.get(&fingerprint).is_some_and(|task| Arc::ptr_eq(&task.maintained, &maintained)) {
            return;
        }
        let life = tokio::spawn(look_after(Arc::clone(shared), Arc::clone(&maintained)));
        self.0.insert(fingerprint, Task { maintained, life });
    }
}

/// Removes certificates that have left all slots since the last survey, and those that were prepared more than
/// ten minutes ago and never published.
fn forget(shared: &Shared, shown: &HashSet<Fingerprint>, last: &HashSet<Fingerprint>) {
    let gone: Vec<_> = {
        let mut certificates = lock(&shared.certificates);
        // Slots added since the survey count too.
        let slot_index = lock(&shared.slot_index);
        let is_gone = |fingerprint: &Fingerprint, maintained: &MaintainedCertificate| {
            let is_shown = shown.contains(fingerprint) || slot_index.slots.contains_key(fingerprint);
            !is_shown && (last.contains(fingerprint) || maintained.age() > PREPARED)
        };
        certificates.extract_if(|fingerprint, maintained| is_gone(fingerprint, maintained)).collect()
    };
    // Staples of catalogue names stay in the store: an evicted name may be loaded again.
    let of_hosts = gone.into_iter().filter(|(_, maintained)| maintained.origin() == Origin::Host);
    of_hosts.for_each(|(gone, _)| staples::forget(shared, gone));
}

async fn look_after(shared: Arc<Shared>, maintained: Arc<MaintainedCertificate>) {
    let Some((issuer, is_whole)) = issuers::complete(&shared, &maintained).await else {
        staples::warn_of_issuer(&shared, &maintained);
        lists::warn_of_issuer(&shared, &maintained);
        maintained.set_tried();
        shared.notify_tried();
        return;
    };
    tokio::join!(
        staples::keep(&shared, &maintained, &issuer),
        lists::watch(&shared, &maintained, &issuer),
        issuers::complete_rest(&shared, &maintained, is_whole),
    );
}
