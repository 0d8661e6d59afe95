//! Which slots show which certificates, and how what they show is brought up to date.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::ward::Origin;
use super::{CareSettings, Shared, lock};
use crate::certificate::{Certificate, Fingerprint};
use crate::slot::Slot;

/// The slots that showed each certificate at the last look, or were tended since.
#[derive(Default)]
pub(super) struct Showing {
    pub(super) slots: HashMap<Fingerprint, Vec<Weak<Slot>>>,
    /// Those that were tended since the look began.
    fresh: Vec<(Fingerprint, Weak<Slot>)>,
}

impl Showing {
    fn add(&mut self, fingerprint: Fingerprint, slot: &Weak<Slot>) {
        self.slots.entry(fingerprint).or_default().push(Weak::clone(slot));
    }
}

impl Shared {
    pub(super) fn tend(&self, slot: &Arc<Slot>) -> bool {
        let (shown, weak) = (slot.load_full(), Arc::downgrade(slot));
        // Whatever the settings are: they may be others later.
        let anything = CareSettings { staples: true, completes: true, ..self.settings() };
        if !shown.iter().any(|served| is_tended(anything, &served.certificate)) {
            return true;
        }
        // Before the wards: what is shown is not forgotten, and is brought up to date from here on.
        lock(&self.names).push(Weak::clone(&weak));
        let mut is_ready = true;
        for certificate in shown.iter().map(|served| &served.certificate) {
            let mut showing = lock(&self.showing);
            showing.add(certificate.fingerprint, &weak);
            showing.fresh.push((certificate.fingerprint, Weak::clone(&weak)));
            drop(showing);
            if is_tended(self.settings(), certificate) {
                let ward = self.ward_of_load(certificate, Origin::Folder);
                is_ready &= ward.is_tried() || !certificate.services.must_staple;
                // An error means that the thread is gone, and so is everything.
                let _ = self.loaded.send(ward);
            }
        }
        self.refresh(slot);
        is_ready
    }

    pub(super) async fn until_stapled(&self, slot: &Slot) {
        let mut tried = self.tried_tasks.subscribe();
        // By what they are of: a ward may be replaced meanwhile.
        let is_done = || {
            let (all, shown) = (lock(&self.wards), slot.load());
            let mut waits = shown.iter().filter(|served| served.certificate.services.must_staple);
            waits.all(|served| all.get(&served.certificate.fingerprint).is_none_or(|ward| ward.is_tried()))
        };
        while !is_done() && tried.changed().await.is_ok() {}
    }

    /// Brings what is shown of a certificate up to date, in the slots that showed it at the last look.
    pub(super) fn apply(&self, fingerprint: Fingerprint) {
        let slots = lock(&self.showing).slots.get(&fingerprint).cloned().unwrap_or_default();
        slots.iter().filter_map(Weak::upgrade).for_each(|slot| self.refresh(&slot));
    }

    /// Brings what `slot` shows up to date.
    pub(super) fn refresh(&self, slot: &Slot) {
        slot.update(|shown| {
            let best = self.served(&shown.certificate, &shown.engine);
            let same = best.staple == shown.staple && best.certificate.chain == shown.certificate.chain;
            (!same).then_some(best)
        });
    }

    /// Brings all slots up to date, notes which of them show what, and returns the certificates.
    pub(super) fn survey(&self) -> HashMap<Fingerprint, (Arc<Certificate>, Origin)> {
        lock(&self.showing).fresh.clear();
        let mut slots: Vec<_> =
            lock(&self.slots).iter().map(|slot| (Arc::clone(slot), Origin::Host)).collect();
        lock(&self.names).retain(|slot| match slot.upgrade() {
            Some(slot) => {
                slots.push((slot, Origin::Folder));
                true
            }
            None => false,
        });
        let (mut found, mut showing) = (HashMap::new(), HashMap::<_, Vec<_>>::new());
        for (slot, origin) in slots {
            self.refresh(&slot);
            for served in slot.load().iter() {
                let fingerprint = served.certificate.fingerprint;
                // Hosts are the first.
                found.entry(fingerprint).or_insert_with(|| (Arc::clone(&served.certificate), origin));
                showing.entry(fingerprint).or_default().push(Arc::downgrade(&slot));
            }
        }
        let mut shown = lock(&self.showing);
        shown.slots = showing;
        for (fingerprint, slot) in std::mem::take(&mut shown.fresh) {
            shown.add(fingerprint, &slot);
        }
        found
    }
}

/// Whether a certificate of a folder is looked after under `settings`.
pub(super) fn is_tended(settings: CareSettings, certificate: &Certificate) -> bool {
    (settings.staples && !certificate.services.responders.is_empty())
        || (settings.completes && !certificate.is_complete)
}
