//! Ticket keys that pass from a process to its successor, so that sessions are resumed across an upgrade.
//!
//! Sessions of the store are not passed: each is for one use, as early data requires, and the predecessor may still use it. A
//! successor thus accepts no early data of a session that its predecessor has issued.

use std::sync::Arc;
use std::time::SystemTime;

use zeroize::Zeroizing;

use super::TicketKeyring;
use crate::KeyOrigin;
use crate::ring::Entry;
use crate::rotation::{Seconds, Validity, seconds};
use crate::ticket_key::{KeyMaterial, MATERIAL_LEN, TicketKey};

const EDITION: u8 = 1;

/// Length of [`KeyOrigin`], [`Validity`], number of sealed tickets, and [`KeyMaterial`].
const RECORD: usize = 1 + 5 * size_of::<u64>() + MATERIAL_LEN;

/// Maximum number of keys. A ring has fewer unless rotations are forced without end.
const MOST: usize = 128;

/// Latest time of a key in seconds since 1970. Sums of times are far below the range of their type then.
const LATEST: Seconds = 1 << 40;

/// Tickets that a predecessor seals at most after it has exported its keys, until it has drained.
const STILL_SEALED: u64 = 1 << 20;

impl TicketKeyring {
    /// The keys for a successor of this process, not encrypted. Without keys from files, which the successor reads itself.
    pub fn export(&self, now: SystemTime) -> Zeroizing<Vec<u8>> {
        let ring = self.ring.load();
        let live = ring.entries().iter().filter(|entry| entry.validity.is_live(seconds(now)));
        let keys = live.filter_map(|entry| Some((number_of(entry.origin)?, entry))).take(MOST);
        // Allocated in full, because a growing vector leaves copies of the keys behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(1 + MOST * RECORD));
        bytes.push(EDITION);
        for (origin, entry) in keys {
            let Validity { opens_from, seals_from, seals_until, opens_until } = entry.validity;
            bytes.push(origin);
            for number in [opens_from, seals_from, seals_until, opens_until, entry.key.sealed_ever()] {
                bytes.extend_from_slice(&number.to_be_bytes());
            }
            bytes.extend_from_slice(entry.key.material().as_bytes());
        }
        bytes
    }

    /// Continues with the keys of a predecessor that [`export`](Self::export) has returned, and returns their number. `None`,
    /// without a change, for another edition or damaged bytes.
    ///
    /// Keys of the same kind of [`KeySource`](crate::KeySource) keep their times, so that the key that seals there seals here too.
    /// Keys of another source open tickets for one more lifetime, as after [`configure`](Self::configure). To be called before the
    /// first ticket is sealed.
    pub fn import(&self, bytes: &[u8], now: SystemTime) -> Option<usize> {
        let (&EDITION, rest) = bytes.split_first()? else { return None };
        let (records, []) = rest.as_chunks::<RECORD>() else { return None };
        if records.len() > MOST {
            return None;
        }
        let now = seconds(now);
        let passed = records.iter().map(|record| entry_of(record, now)).collect::<Option<Vec<_>>>()?;
        let (source, count) = (self.lock(), passed.len());
        self.ring.store(Arc::new(self.ring.load().with_passed(passed, &source, now)));
        Some(count)
    }
}

fn entry_of(record: &[u8; RECORD], now: Seconds) -> Option<Entry> {
    let (&origin, mut rest) = record.split_first()?;
    let mut numbers = [0; 5];
    for number in &mut numbers {
        let (first, others) = rest.split_first_chunk()?;
        (*number, rest) = (u64::from_be_bytes(*first), others);
    }
    let [opens_from, seals_from, seals_until, opens_until, sealed] = numbers;
    let validity = Validity { opens_from, seals_from, seals_until, opens_until };
    if opens_from > opens_until || seals_from.max(seals_until).max(opens_until) > LATEST {
        return None;
    }
    let material = KeyMaterial::from(Zeroizing::new(<[u8; MATERIAL_LEN]>::try_from(rest).ok()?));
    let key = TicketKey::passed(&material, sealed.saturating_add(STILL_SEALED));
    Some(Entry { key: Arc::new(key), validity, origin: origin_of(origin)?, added: now })
}

/// The number of a [`KeyOrigin`] in the encoding; `None` for keys that are not passed.
const fn number_of(origin: KeyOrigin) -> Option<u8> {
    match origin {
        KeyOrigin::Generated => Some(0),
        KeyOrigin::Derived => Some(1),
        KeyOrigin::Shared => Some(2),
        KeyOrigin::File => None,
    }
}

const fn origin_of(number: u8) -> Option<KeyOrigin> {
    match number {
        0 => Some(KeyOrigin::Generated),
        1 => Some(KeyOrigin::Derived),
        2 => Some(KeyOrigin::Shared),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{FleetSecret, KeySource, RotationSettings, TicketKeyFile};

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn rotation() -> RotationSettings {
        let [lifetime, interval, lead] = [120, 60, 10].map(Duration::from_secs);
        RotationSettings::new(lifetime, interval, lead).unwrap()
    }

    fn generated(now: u64) -> TicketKeyring {
        TicketKeyring::new(KeySource::Generated(rotation()), at(now))
    }

    fn sealing(keyring: &TicketKeyring, now: u64) -> Vec<String> {
        let keys = keyring.keys(at(now));
        keys.iter().filter(|key| key.seals).map(|key| key.id.to_string()).collect()
    }

    #[test]
    fn a_successor_opens_the_tickets_of_its_predecessor_and_seals_with_the_same_key() {
        let (old, new) = (generated(1000), generated(1030));
        let ticket = old.seal(b"session", at(1010)).unwrap();
        assert!(new.open_ticket(&ticket, at(1030)).is_err());
        assert_eq!(new.import(&old.export(at(1030)), at(1030)), Some(1));
        assert_eq!(new.open_ticket(&ticket, at(1030)).unwrap().session, b"session");
        assert_eq!(sealing(&new, 1030), sealing(&old, 1030));
        assert_eq!(new.statistics().keys, 1, "an upgrade adds no keys");
        let back = new.seal(b"later", at(1031)).unwrap();
        assert_eq!(old.open_ticket(&back, at(1031)).unwrap().session, b"later");
        // The times stay too.
        let before = sealing(&new, 1031);
        new.seal(b"", at(1061)).unwrap();
        assert_ne!(sealing(&new, 1061), before, "the rotation goes on");
        assert!(new.open_ticket(&ticket, at(1129)).is_ok());
        assert!(new.open_ticket(&ticket, at(1130)).is_err());
    }

    #[test]
    fn keys_of_another_source_open_for_one_more_lifetime_and_no_longer_seal() {
        let old = generated(1000);
        let ticket = old.seal(b"session", at(1050)).unwrap();
        let secret = FleetSecret::from_bytes(&[1; 32]).unwrap();
        let new = TicketKeyring::new(KeySource::Derived { secret, rotation: rotation() }, at(1050));
        let before = sealing(&new, 1050);
        assert_eq!(new.import(&old.export(at(1050)), at(1050)), Some(2));
        assert_eq!(sealing(&new, 1050), before);
        assert!(new.open_ticket(&ticket, at(1050)).is_ok());
        assert!(new.open_ticket(&ticket, at(1170)).is_err());
    }

    #[test]
    fn keys_from_files_are_not_passed() {
        let keys = vec![TicketKeyFile::from_bytes(&[1; 80]).unwrap()];
        let lifetime = Duration::from_mins(2);
        let old = TicketKeyring::new(KeySource::Files { keys, lifetime }, at(1000));
        assert_eq!(generated(1000).import(&old.export(at(1000)), at(1000)), Some(0));
    }

    #[test]
    fn many_keys_are_passed_within_the_limit() {
        let old = generated(1000);
        for _ in 0..2 * MOST {
            old.seal(b"session", at(1000)).unwrap();
            old.force_rotation(at(1000)).unwrap();
        }
        let bytes = old.export(at(1000));
        assert_eq!((bytes.len(), bytes.capacity()), (1 + MOST * RECORD, 1 + MOST * RECORD));
        let new = generated(1000);
        assert_eq!(new.import(&bytes, at(1000)), Some(MOST));
    }

    #[test]
    fn damaged_keys_change_nothing() {
        let (old, new) = (generated(1000), generated(1000));
        let bytes = old.export(at(1000));
        let before = sealing(&new, 1000);
        for length in (0..bytes.len()).filter(|length| *length != 1) {
            assert_eq!(new.import(&bytes[..length], at(1000)), None, "{length} bytes");
        }
        // Edition, origin, and times beyond all others.
        for place in [0, 1, 2, 10, 18, 26] {
            let mut damaged = bytes.clone();
            damaged[place] = 0xff;
            assert_eq!(new.import(&damaged, at(1000)), None, "byte {place}");
        }
        assert_eq!(new.import(&vec![EDITION; 1 + (MOST + 1) * RECORD], at(1000)), None);
        assert_eq!(sealing(&new, 1000), before);
    }
}
