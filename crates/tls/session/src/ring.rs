//! [`Ring`], an immutable set of ticket keys with their times, valid until the next change.

use std::{cmp::Reverse, sync::Arc};

use crate::{
    FleetSecret, KeyOrigin, KeySource, RotationSettings, SharedKey, TicketKeyFile,
    rotation::{Seconds, Validity},
    ticket_key::{KeyMaterial, TicketKey},
};

/// The keys of a [`TicketKeyring`](crate::TicketKeyring). Replaced as a whole at each change and read without a lock.
#[derive(Default)]
pub(crate) struct Ring {
    /// Ordered by the start of sealing, latest first, then by name. Of several keys that may seal, the first does, so
    /// all machines choose the same one. Most tickets were sealed with the first keys.
    entries: Vec<Entry>,
    next_change: Seconds,
    lifetime: Seconds,
    /// Whether a change that is not due yet would create a sealing key.
    makes_keys: bool,
}

/// A key on the [`Ring`].
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Arc<TicketKey>,
    pub(crate) validity: Validity,
    pub(crate) origin: KeyOrigin,
    /// Time at which the key was added to this [`Ring`].
    pub(crate) added: Seconds,
}

impl Ring {
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(crate) const fn next_change(&self) -> Seconds {
        self.next_change
    }

    /// Lifetime of a ticket: [`KeySource::lifetime`].
    pub(crate) const fn lifetime(&self) -> Seconds {
        self.lifetime
    }

    pub(crate) const fn is_due(&self, now: Seconds) -> bool {
        now >= self.next_change
    }

    /// Whether a change is due, or no key seals and one could be created, as after the clock was set back.
    pub(crate) fn is_due_for_sealing(&self, now: Seconds) -> bool {
        self.is_due(now) || (self.makes_keys && self.sealing(now).is_none())
    }

    pub(crate) fn sealing(&self, now: Seconds) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.validity.seals(now))
    }

    /// The key that `ticket` names, unless it is expired: the change that removes it may be late.
    pub(crate) fn naming(&self, ticket: &[u8], now: Seconds) -> Option<&TicketKey> {
        let entry = self.entries.iter().find(|entry| entry.key.is_named_by(ticket))?;
        entry.validity.is_live(now).then_some(&*entry.key)
    }

    /// A ring with the keys of `source` that are needed at `now`, without expired ones.
    pub(crate) fn renewed(&self, source: &KeySource, now: Seconds) -> Self {
        Self::of(self.entries.clone(), source, now)
    }

    /// A ring with the keys of another source, or of the same source with other settings. Former keys open and no
    /// longer seal.
    pub(crate) fn turned_to(&self, source: &KeySource, now: Seconds) -> Self {
        let lifetime = source.lifetime().as_secs();
        let mut entries = self.entries.clone();
        for entry in &mut entries {
            entry.validity = match source {
                KeySource::Generated(rotation) if entry.origin == KeyOrigin::Generated => {
                    rotation.refit(entry.validity)
                }
                // The gateways have agreed on the times of shared keys, so a reload of one gateway does not change
                // them.
                KeySource::Shared { .. } if entry.origin == KeyOrigin::Shared => entry.validity,
                _ => entry.validity.retired(now, lifetime),
            };
        }
        Self::of(entries, source, now)
    }

    /// A ring with a new key that seals at once, if `source` generates keys; all others stop sealing.
    pub(crate) fn forced(&self, source: &KeySource, now: Seconds) -> Self {
        let lifetime = source.lifetime().as_secs();
        // Keys that have not begun to seal are dropped: they have sealed no tickets.
        let begun = self.entries.iter().filter(|entry| entry.validity.seals_from <= now);
        let retired =
            begun.map(|entry| Entry { validity: entry.validity.retired(now, lifetime), ..entry.clone() });
        Self::of(retired.collect(), source, now)
    }

    /// A ring with the shared keys `keys`. Other shared keys stop sealing, because gateways that start now do not have
    /// them.
    pub(crate) fn with_shared(&self, keys: &[SharedKey], source: &KeySource, now: Seconds) -> Self {
        let lifetime = source.lifetime().as_secs();
        let mut entries = self.entries.clone();
        // All are retired first; `put` restores the times of keys that are still published.
        for entry in entries.iter_mut().filter(|entry| entry.origin == KeyOrigin::Shared) {
            entry.validity = entry.validity.retired(now, lifetime);
        }
        for key in keys {
            put(&mut entries, key.material(), key.validity(), KeyOrigin::Shared, now);
        }
        Self::of(entries, source, now)
    }

    /// A [`Ring`] that continues with the `passed` keys of a predecessor, by the rules of [`turned_to`](Self::turned_to). Generated
    /// keys take the place of own ones that have sealed no tickets, so that one key seals in both processes.
    pub(crate) fn with_passed(&self, passed: Vec<Entry>, source: &KeySource, now: Seconds) -> Self {
        let is_generated = |entry: &Entry| entry.origin == KeyOrigin::Generated;
        let mut entries = self.entries.clone();
        if passed.iter().any(is_generated) {
            entries.retain(|entry| !is_generated(entry) || entry.key.sealed() > 0);
        }
        for entry in passed {
            // Keys of a secret or of a fleet are the same in both processes.
            if entries.iter().all(|own| own.key.name() != entry.key.name()) {
                entries.push(entry);
            }
        }
        Self { entries, ..Self::default() }.turned_to(source, now)
    }

    fn of(mut entries: Vec<Entry>, source: &KeySource, now: Seconds) -> Self {
        entries.retain(|entry| entry.validity.is_live(now));
        let due = match source {
            KeySource::Generated(rotation) => generate(&mut entries, rotation, now),
            KeySource::Derived { secret, rotation } => derive(&mut entries, secret, rotation, now),
            KeySource::Files { keys, .. } => take_from_files(&mut entries, keys, now),
            KeySource::Shared { .. } => Seconds::MAX,
        };
        // A key that was retired in the second in which another began is sorted after that one.
        entries.sort_unstable_by_key(|entry| {
            let Validity { seals_from, seals_until, .. } = entry.validity;
            (Reverse((seals_from, seals_until)), *entry.key.name())
        });
        let first_end = entries.iter().map(|entry| entry.validity.opens_until).min();
        Self {
            next_change: first_end.map_or(due, |end| end.min(due)),
            lifetime: source.lifetime().as_secs(),
            makes_keys: matches!(source, KeySource::Generated(_) | KeySource::Derived { .. }),
            entries,
        }
    }
}

/// Generates the keys of [`RotationSettings::plan`] that are needed at `now`. Returns the time of the next change.
fn generate(entries: &mut Vec<Entry>, rotation: &RotationSettings, now: Seconds) -> Seconds {
    let validities: Vec<Validity> = entries.iter().map(|entry| entry.validity).collect();
    let plan = rotation.plan(&validities, now);
    for validity in plan.create {
        put(entries, &KeyMaterial::generate(), validity, KeyOrigin::Generated, now);
    }
    plan.next
}

/// Derives the keys of the periods that are needed at `now`. Returns the time of the next change.
fn derive(
    entries: &mut Vec<Entry>,
    secret: &FleetSecret,
    rotation: &RotationSettings,
    now: Seconds,
) -> Seconds {
    for slot in rotation.live_slots(now) {
        let material = secret.ticket_key(rotation.interval(), slot).into();
        put(entries, &material, rotation.validity_from(slot), KeyOrigin::Derived, now);
    }
    rotation.next_start(now)
}

/// Replaces the keys from files by `keys`.
fn take_from_files(entries: &mut Vec<Entry>, keys: &[TicketKeyFile], now: Seconds) -> Seconds {
    let is_given = |entry: &Entry| keys.iter().any(|key| key.material().name() == entry.key.name());
    entries.retain(|entry| entry.origin != KeyOrigin::File || is_given(entry));
    let opens = Validity { opens_from: 0, seals_from: 0, seals_until: 0, opens_until: Seconds::MAX };
    let seals = Validity { seals_until: Seconds::MAX, ..opens };
    // In reverse order, so that the first key seals even if it is listed twice.
    for (position, key) in keys.iter().enumerate().rev() {
        let validity = if position == 0 { seals } else { opens };
        put(entries, key.material(), validity, KeyOrigin::File, now);
    }
    Seconds::MAX
}

/// Adds a key, or sets the times of an existing key of the same name, which keeps its counters.
fn put(
    entries: &mut Vec<Entry>,
    material: &KeyMaterial,
    validity: Validity,
    origin: KeyOrigin,
    now: Seconds,
) {
    if let Some(entry) = entries.iter_mut().find(|entry| entry.key.name() == material.name()) {
        (entry.validity, entry.origin) = (validity, origin);
        return;
    }
    let key = Arc::new(TicketKey::new(material));
    entries.push(Entry { key, validity, origin, added: now });
}
