//! The maintenance thread: one task for each certificate in use.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::ward::{Origin, Ward};
use super::{Shared, issuers, lists, lock, staples};
use crate::certificate::Fingerprint;

/// Interval of the surveys, which find certificates that were published without
/// [`Care::prepare`](super::Care::prepare).
const LOOK: Duration = Duration::from_secs(10);

/// Interval at which expired staples are removed from the store.
const SWEEP: Duration = Duration::from_hours(24);

/// How long a prepared certificate is maintained before it is published.
const PREPARED: Duration = Duration::from_mins(10);

/// Maintenance of one certificate, aborted when dropped.
struct Task {
    ward: Arc<Ward>,
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
    mut loaded: mpsc::UnboundedReceiver<Arc<Ward>>,
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
        shared.places.forget_unused();
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
                Some(ward) = loaded.recv() => tasks.look_after(&shared, ward),
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
    /// Starts tasks for new wards and aborts those of removed wards.
    fn follow(&mut self, shared: &Arc<Shared>) {
        let wards = lock(&shared.wards).clone();
        self.0.retain(|fingerprint, _| wards.contains_key(fingerprint));
        for ward in wards.into_values() {
            self.look_after(shared, ward);
        }
    }

    fn look_after(&mut self, shared: &Arc<Shared>, ward: Arc<Ward>) {
        let fingerprint = ward.certificate().fingerprint;
        if self.0.get(&fingerprint).is_some_and(|task| Arc::ptr_eq(&task.ward, &ward)) {
            return;
        }
        let life = tokio::spawn(look_after(Arc::clone(shared), Arc::clone(&ward)));
        self.0.insert(fingerprint, Task { ward, life });
    }
}

/// Removes wards whose certificates have left all slots since the last survey, and those that were prepared more than
/// ten minutes ago and never published.
fn forget(shared: &Shared, shown: &HashSet<Fingerprint>, last: &HashSet<Fingerprint>) {
    let gone: Vec<_> = {
        let mut wards = lock(&shared.wards);
        // Slots added since the survey count too.
        let showing = lock(&shared.showing);
        let is_gone = |fingerprint: &Fingerprint, ward: &Ward| {
            let is_shown = shown.contains(fingerprint) || showing.slots.contains_key(fingerprint);
            !is_shown && (last.contains(fingerprint) || ward.age() > PREPARED)
        };
        wards.extract_if(|fingerprint, ward| is_gone(fingerprint, ward)).collect()
    };
    // Staples of catalogue names stay in the store: an evicted name may be loaded again.
    let of_hosts = gone.into_iter().filter(|(_, ward)| ward.origin() == Origin::Host);
    of_hosts.for_each(|(gone, _)| staples::forget(shared, gone));
}

async fn look_after(shared: Arc<Shared>, ward: Arc<Ward>) {
    let Some((issuer, is_whole)) = issuers::complete(&shared, &ward).await else {
        staples::complain_of_issuer(&shared, &ward);
        lists::complain_of_issuer(&shared, &ward);
        ward.set_tried();
        shared.notify_tried();
        return;
    };
    tokio::join!(
        staples::keep(&shared, &ward, &issuer),
        lists::watch(&shared, &ward, &issuer),
        issuers::complete_rest(&shared, &ward, is_whole),
    );
}
