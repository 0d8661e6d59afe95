//! The slots of each certificate, and how their contents are updated.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::maintained::Origin;
use super::{MaintenanceSettings, Shared, lock};
use crate::certificate::{Certificate, Fingerprint};
use crate::slot::Slot;

/// The slots that contained each certificate at the last [`survey`](Shared::survey), or were added since.
#[derive(Default)]
pub(super) struct SlotIndex {
    pub(super) slots: HashMap<Fingerprint, Vec<Weak<Slot>>>,
    /// Slots added since the survey began; they are merged into its result.
    fresh: Vec<(Fingerprint, Weak<Slot>)>,
}

impl SlotIndex {
    fn add(&mut self, fingerprint: Fingerprint, slot: &Weak<Slot>) {
        self.slots.entry(fingerprint).or_default().push(Weak::clone(slot));
    }
}

impl Shared {
    pub(super) fn maintain(&self, slot: &Arc<Slot>) -> bool {
        let (shown, weak) = (slot.load_full(), Arc::downgrade(slot));
        // Regardless of the current settings, which a reload may change.
        let anything = MaintenanceSettings { staples: true, completes: true, ..self.settings() };
        if !shown.iter().any(|served| needs_maintenance(anything, &served.certificate)) {
            return true;
        }
        // Registered before the states are created, so that neither is removed as unused and no update is missed.
        lock(&self.names).push(Weak::clone(&weak));
        let mut is_ready = true;
        for certificate in shown.iter().map(|served| &served.certificate) {
            let mut slot_index = lock(&self.slot_index);
            slot_index.add(certificate.fingerprint, &weak);
            slot_index.fresh.push((certificate.fingerprint, Weak::clone(&weak)));
            drop(slot_index);
            if needs_maintenance(self.settings(), certificate) {
                let maintained = self.maintain_loaded(certificate, Origin::Folder);
                is_ready &= maintained.is_tried() || !certificate.services.must_staple;
                // The error means that the maintenance thread has ended, with the whole process.
                let _ = self.loaded.send(maintained);
            }
        }
        self.refresh(slot);
        is_ready
    }

    pub(super) async fn until_stapled(&self, slot: &Slot) {
        let mut tried = self.tried_tasks.subscribe();
        // By fingerprint, not by state: a state may be replaced meanwhile.
        let is_done = || {
            let (all, shown) = (lock(&self.certificates), slot.load());
            let mut waits = shown.iter().filter(|served| served.certificate.services.must_staple);
            waits.all(|served| {
                all.get(&served.certificate.fingerprint).is_none_or(|maintained| maintained.is_tried())
            })
        };
        while !is_done() && tried.changed().await.is_ok() {}
    }

    /// Updates the slots that contain the certificate with `fingerprint`.
    pub(super) fn apply(&self, fingerprint: Fingerprint) {
        let slots = lock(&self.slot_index).slots.get(&fingerprint).cloned().unwrap_or_default();
        slots.iter().filter_map(Weak::upgrade).for_each(|slot| self.refresh(&slot));
    }

    /// Replaces chain and staple in `slot` if newer ones are known.
    pub(super) fn refresh(&self, slot: &Slot) {
        slot.update(|shown| {
            let best = self.served(&shown.certificate, &shown.engine);
            // Every survey refreshes all slots, and nearly all are unchanged.
            let same = best.staple == shown.staple && best.certificate.chain == shown.certificate.chain;
            (!same).then_some(best)
        });
    }

    /// Updates all slots and records their certificates, which are returned.
    pub(super) fn survey(&self) -> HashMap<Fingerprint, (Arc<Certificate>, Origin)> {
        lock(&self.slot_index).fresh.clear();
        let mut slots: Vec<_> =
            lock(&self.slots).iter().map(|slot| (Arc::clone(slot), Origin::Host)).collect();
        lock(&self.names).retain(|slot| match slot.upgrade() {
            Some(slot) => {
                slots.push((slot, Origin::Folder));
                true
            }
            None => false,
        });
        let (mut found, mut slot_index) = (HashMap::new(), HashMap::<_, Vec<_>>::new());
        for (slot, origin) in slots {
            self.refresh(&slot);
            for served in slot.load().iter() {
                let fingerprint = served.certificate.fingerprint;
                // Slots of hosts come first in `slots`, so `Origin::Host` wins.
                found.entry(fingerprint).or_insert_with(|| (Arc::clone(&served.certificate), origin));
                slot_index.entry(fingerprint).or_default().push(Arc::downgrade(&slot));
            }
        }
        let mut shown = lock(&self.slot_index);
        shown.slots = slot_index;
        for (fingerprint, slot) in std::mem::take(&mut shown.fresh) {
            shown.add(fingerprint, &slot);
        }
        found
    }
}

/// Whether a catalogue's certificate needs maintenance under `settings`.
pub(super) fn needs_maintenance(settings: MaintenanceSettings, certificate: &Certificate) -> bool {
    (settings.staples && !certificate.services.responders.is_empty())
        || (settings.completes && !certificate.is_complete)
}
