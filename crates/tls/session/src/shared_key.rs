//! Ticket keys that gateways exchange: their schedule, and their encoding.

use std::{
    fmt,
    time::{Duration, SystemTime},
};

use zeroize::Zeroizing;

use crate::{
    RotationSettings, TicketKeyId,
    rotation::{Seconds, Validity, seconds},
    ticket_key::{KeyMaterial, MATERIAL_LEN},
};

const EDITION: u8 = 1;
const ENCODED_LEN: usize = 1 + 4 * size_of::<Seconds>() + MATERIAL_LEN;

/// A random ticket key that the gateways of a fleet exchange through a store they share.
///
/// The store is not trusted: the result of [`to_bytes`](Self::to_bytes) must be encrypted before it leaves the process.
#[derive(Clone)]
pub struct SharedKey {
    validity: Validity,
    material: KeyMaterial,
}

impl SharedKey {
    /// A new random key for `slot`: the second since 1970 from which it seals.
    ///
    /// It seals until the end of the rotation interval that contains the slot, counted from 1970 so that all gateways
    /// agree, and opens for one more lifetime.
    pub fn generate(slot: u64, rotation: &RotationSettings) -> Self {
        Self { validity: rotation.validity_from(slot), material: KeyMaterial::generate() }
    }

    /// The slots for which keys must be published now, given the `published` ones: the start of the next interval, so
    /// that every gateway has its key long before it seals, and an earlier slot if no key seals.
    ///
    /// `settle` is the time in which a published key reaches every gateway. No key seals earlier than that after its
    /// publication; a fleet that starts with an empty store sends its first tickets after at most twice that time.
    /// Gateways that call this within one `settle` of each other mostly get the same slots.
    pub fn missing(
        published: &[Self],
        rotation: &RotationSettings,
        settle: Duration,
        now: SystemTime,
    ) -> Vec<u64> {
        let [soon, next] = [Self::soon(settle, now), rotation.next_start(seconds(now))];
        let seals = |when| published.iter().any(|key| key.validity.seals(when));
        let mut missing = Vec::new();
        // A key for the rest of this interval, unless one seals now or soon, or the next interval is as close.
        if !seals(seconds(now)) && !seals(soon) && soon < next {
            missing.push(soon);
        }
        let next = next.max(soon);
        if !seals(next) {
            missing.push(next);
        }
        missing
    }

    /// The next slot that a key published now may have, for a forced rotation. See [`missing`](Self::missing) for
    /// `settle`.
    pub fn soon(settle: Duration, now: SystemTime) -> u64 {
        let step = settle.as_secs().max(1);
        // A multiple of the step, so that gateways that add a key at about the same time choose the same slot.
        (seconds(now).div_ceil(step) + 1) * step
    }

    /// The second since 1970 from which it seals.
    pub const fn slot(&self) -> u64 {
        self.validity.seals_from
    }

    /// Whether the key is kept, because its last ticket may not have expired.
    pub fn is_live(&self, now: SystemTime) -> bool {
        self.validity.is_live(seconds(now))
    }

    /// ID of the key, as in metrics.
    pub fn id(&self) -> TicketKeyId {
        self.material.id()
    }

    pub(crate) const fn validity(&self) -> Validity {
        self.validity
    }

    pub(crate) const fn material(&self) -> &KeyMaterial {
        &self.material
    }

    /// The encoding for [`from_bytes`](Self::from_bytes) on another gateway, not encrypted.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let Validity { opens_from, seals_from, seals_until, opens_until } = self.validity;
        // Allocated in full, because a growing vector leaves copies of the key behind.
        let mut bytes = Zeroizing::new(Vec::with_capacity(ENCODED_LEN));
        bytes.push(EDITION);
        for time in [opens_from, seals_from, seals_until, opens_until] {
            bytes.extend_from_slice(&time.to_be_bytes());
        }
        bytes.extend_from_slice(self.material.as_bytes());
        bytes
    }

    /// Decodes the result of [`to_bytes`](Self::to_bytes). `None` for another edition or damaged bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (&[EDITION], mut rest) = bytes.split_first_chunk()? else { return None };
        let mut times = [0; 4];
        for time in &mut times {
            let (first, others) = rest.split_first_chunk()?;
            (*time, rest) = (Seconds::from_be_bytes(*first), others);
        }
        let [opens_from, seals_from, seals_until, opens_until] = times;
        let material = KeyMaterial::from(Zeroizing::new(rest.try_into().ok()?));
        // `Validity::is_live` subtracts the times: unsorted ones would overflow there.
        times.is_sorted().then_some(Self {
            validity: Validity { opens_from, seals_from, seals_until, opens_until },
            material,
        })
    }
}

impl fmt::Debug for SharedKey {
    /// Prints ID and times.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedKey")
            .field("id", &self.id())
            .field("validity", &self.validity)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTLE: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// Tickets live 7200 s, a key seals for 3600 s.
    fn rotation() -> RotationSettings {
        RotationSettings::new(Duration::from_hours(2), Duration::from_hours(1), Duration::ZERO).unwrap()
    }

    fn missing(published: &[SharedKey], now: u64) -> Vec<u64> {
        SharedKey::missing(published, &rotation(), SETTLE, at(now))
    }

    #[test]
    fn a_key_comes_back_from_its_bytes() {
        let key = SharedKey::generate(7300, &rotation());
        let back = SharedKey::from_bytes(&key.to_bytes()).unwrap();
        assert_eq!((back.slot(), back.id(), back.validity()), (7300, key.id(), key.validity()));
        assert_eq!(back.material().as_bytes(), key.material().as_bytes());
        let validity =
            Validity { opens_from: 3700, seals_from: 7300, seals_until: 10_800, opens_until: 18_000 };
        assert_eq!(key.validity(), validity);
    }

    #[test]
    fn bytes_that_are_no_key_are_refused() {
        let bytes = SharedKey::generate(7200, &rotation()).to_bytes();
        for length in 0..bytes.len() {
            assert!(SharedKey::from_bytes(&bytes[..length]).is_none(), "{length} bytes");
        }
        assert!(SharedKey::from_bytes(&[&bytes[..], b"x"].concat()).is_none());
        let mut other = bytes.clone();
        other[0] = 2;
        assert!(SharedKey::from_bytes(&other).is_none(), "another edition");
        let mut disordered = bytes;
        disordered[1] = 1;
        assert!(SharedKey::from_bytes(&disordered).is_none(), "ends before it begins");
    }

    #[test]
    fn a_fleet_that_starts_needs_a_key_soon_and_one_for_the_next_interval() {
        assert_eq!(missing(&[], 7395), [7410, 10_800]);
        assert_eq!(missing(&[], 7400), [7410, 10_800], "asked a little later, the same");
        let keys = [7410, 10_800].map(|slot| SharedKey::generate(slot, &rotation()));
        for now in [7400, 7410, 10_799] {
            assert_eq!(missing(&keys, now), [0; 0], "at {now}");
        }
        assert_eq!(missing(&keys, 10_800), [14_400]);
    }

    #[test]
    fn just_before_an_interval_begins_its_key_still_gets_time_to_settle() {
        assert_eq!(missing(&[], 10_795), [10_810]);
        assert_eq!(missing(&[], 10_785), [10_800]);
    }

    #[test]
    fn no_key_is_published_less_than_the_settling_time_before_it_seals() {
        for now in 7200..14_400 {
            for slot in missing(&[], now) {
                assert!(slot >= now + 10, "{slot} at {now}");
            }
        }
    }

    #[test]
    fn debug_shows_no_key() {
        let key = SharedKey::generate(7200, &rotation());
        let shown = format!("{key:?}");
        assert!(shown.starts_with("SharedKey { id: ") && !shown.contains("material"), "{shown}");
    }
}
