//! The thread that looks after certificates: a task for each, from the first look that finds it to the one that does not.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::ward::{Origin, Ward};
use super::{Shared, issuers, lists, lock, staples};
use crate::certificate::Fingerprint;

/// How often the slots are looked at for certificates that others than the configuration published.
const LOOK: Duration = Duration::from_secs(10);

/// How often staples that have expired are removed from the store.
const SWEEP: Duration = Duration::from_hours(24);

/// How long a certificate is looked after that was prepared and has never been shown.
const PREPARED: Duration = Duration::from_mins(10);

/// What is done for a certificate.
struct Task {
    ward: Arc<Ward>,
    life: JoinHandle<()>,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.life.abort();
    }
}

/// The thread.
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
                // Names are many: nothing else is looked at for one.
                Some(ward) = loaded.recv() => tasks.look_after(&shared, ward),
                () = shared.wake.notified() => break,
                () = &mut look => break,
                _ = dropped.changed() => return,
            }
        }
    }
}

/// What is done for each certificate.
#[derive(Default)]
struct Tasks(HashMap<Fingerprint, Task>);

impl Tasks {
    /// Does what there is to do for the wards that there are, and nothing for others.
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

/// Forgets the certificates that were shown at the look before this one and are not any more. Those that are about to be
/// shown stay.
fn forget(shared: &Shared, shown: &HashSet<Fingerprint>, last: &HashSet<Fingerprint>) {
    let gone: Vec<_> = {
        let mut wards = lock(&shared.wards);
        // What was tended since the look is shown too.
        let showing = lock(&shared.showing);
        let is_gone = |fingerprint: &Fingerprint, ward: &Ward| {
            let is_shown = shown.contains(fingerprint) || showing.slots.contains_key(fingerprint);
            !is_shown && (last.contains(fingerprint) || ward.age() > PREPARED)
        };
        wards.extract_if(|fingerprint, ward| is_gone(fingerprint, ward)).collect()
    };
    // A name that has left memory may come back: its staple stays.
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
