//! The ticket keys between two changes, each with its times: which seals, which open, and when the next change is due.

use std::{cmp::Reverse, sync::Arc};

use crate::{
    FleetSecret, KeyOrigin, KeySource, RotationSettings, SharedKey, TicketKeyFile,
    rotation::{Seconds, Validity},
    ticket_key::{KeyMaterial, TicketKey},
};

/// Replaced whole at each change, and read without a lock.
#[derive(Default)]
pub(crate) struct Ring {
    /// Those that seal latest come first, and by name where that is the same: of several that seal, the first is taken,
    /// which is then the same on all machines. Most tickets are of the first keys.
    entries: Vec<Entry>,
    next_change: Seconds,
    lifetime: Seconds,
    /// Whether a change, though not due, would make a key that seals.
    makes_keys: bool,
}

/// A key on the ring.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: Arc<TicketKey>,
    pub(crate) validity: Validity,
    pub(crate) origin: KeyOrigin,
    /// When it came on this ring.
    pub(crate) added: Seconds,
}

impl Ring {
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    pub(crate) const fn next_change(&self) -> Seconds {
        self.next_change
    }

    /// How long a ticket opens.
    pub(crate) const fn lifetime(&self) -> Seconds {
        self.lifetime
    }

    pub(crate) const fn is_due(&self, now: Seconds) -> bool {
        now >= self.next_change
    }

    /// Whether it is due, or no key seals and one could be made: the clock was set back.
    pub(crate) fn is_due_for_sealing(&self, now: Seconds) -> bool {
        self.is_due(now) || (self.makes_keys && self.sealing(now).is_none())
    }

    pub(crate) fn sealing(&self, now: Seconds) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.validity.seals(now))
    }

    /// The key of `ticket`, if its time is not over: a change may be late.
    pub(crate) fn naming(&self, ticket: &[u8], now: Seconds) -> Option<&TicketKey> {
        let entry = self.entries.iter().find(|entry| entry.key.is_named_by(ticket))?;
        entry.validity.is_live(now).then_some(&*entry.key)
    }

    /// With the keys of `source` that are needed at `now`, without those whose time is over.
    pub(crate) fn renewed(&self, source: &KeySource, now: Seconds) -> Self {
        Self::of(self.entries.clone(), source, now)
    }

    /// With the keys of another source, or of the same with other settings. Those of the former open, and seal no more.
    pub(crate) fn turned_to(&self, source: &KeySource, now: Seconds) -> Self {
        let lifetime = source.lifetime().as_secs();
        let mut entries = self.entries.clone();
        for entry in &mut entries {
            entry.validity = match source {
                KeySource::Generated(rotation) if entry.origin == KeyOrigin::Generated => {
                    rotation.refit(entry.validity)
                }
                // Their times are what the gateways have agreed on.
                KeySource::Shared { .. } if entry.origin == KeyOrigin::Shared => entry.validity,
                _ => entry.validity.retired(now, lifetime),
            };
        }
        Self::of(entries, source, now)
    }

    /// With a new key that seals at once, if `source` makes them here; the others seal no more.
    pub(crate) fn forced(&self, source: &KeySource, now: Seconds) -> Self {
        let lifetime = source.lifetime().as_secs();
        // One that was to seal later has sealed nothing, so that nothing is lost with it.
        let begun = self.entries.iter().filter(|entry| entry.validity.seals_from <= now);
        let retired =
            begun.map(|entry| Entry { validity: entry.validity.retired(now, lifetime), ..entry.clone() });
        Self::of(retired.collect(), source, now)
    }

    /// With the shared keys `keys`, and no other shared key that seals: who starts now would not have it.
    pub(crate) fn with_shared(&self, keys: &[SharedKey], source: &KeySource, now: Seconds) -> Self {
        let lifetime = source.lifetime().as_secs();
        let mut entries = self.entries.clone();
        for entry in entries.iter_mut().filter(|entry| entry.origin == KeyOrigin::Shared) {
            entry.validity = entry.validity.retired(now, lifetime);
        }
        for key in keys {
            put(&mut entries, key.material(), key.validity(), KeyOrigin::Shared, now);
        }
        Self::of(entries, source, now)
    }

    fn of(mut entries: Vec<Entry>, source: &KeySource, now: Seconds) -> Self {
        entries.retain(|entry| entry.validity.is_live(now));
        let due = match source {
            KeySource::Generated(rotation) => generate(&mut entries, rotation, now),
            KeySource::Derived { secret, rotation } => derive(&mut entries, secret, rotation, now),
            KeySource::Files { keys, .. } => take_from_files(&mut entries, keys, now),
            KeySource::Shared { .. } => Seconds::MAX,
        };
        // One that was retired in the second in which another began comes after that.
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

/// Makes the keys that are needed at `now`; when one will be needed again.
fn generate(entries: &mut Vec<Entry>, rotation: &RotationSettings, now: Seconds) -> Seconds {
    let validities: Vec<Validity> = entries.iter().map(|entry| entry.validity).collect();
    let plan = rotation.plan(&validities, now);
    for validity in plan.create {
        put(entries, &KeyMaterial::generate(), validity, KeyOrigin::Generated, now);
    }
    plan.next
}

/// Derives the keys of the intervals that matter at `now`; when that changes.
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

/// The keys that the operator gave, and no other that he once gave.
fn take_from_files(entries: &mut Vec<Entry>, keys: &[TicketKeyFile], now: Seconds) -> Seconds {
    let is_given = |entry: &Entry| keys.iter().any(|key| key.material().name() == entry.key.name());
    entries.retain(|entry| entry.origin != KeyOrigin::File || is_given(entry));
    let opens = Validity { opens_from: 0, seals_from: 0, seals_until: 0, opens_until: Seconds::MAX };
    let seals = Validity { seals_until: Seconds::MAX, ..opens };
    // The first comes last, so that it seals even if it is there twice.
    for (position, key) in keys.iter().enumerate().rev() {
        let validity = if position == 0 { seals } else { opens };
        put(entries, key.material(), validity, KeyOrigin::File, now);
    }
    Seconds::MAX
}

/// Puts a key on the ring, or gives the one of this name, with its counts, these times.
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
