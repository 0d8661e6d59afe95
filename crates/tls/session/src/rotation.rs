//! Calculation of the times at which ticket keys begin and end, without keys and clock.

use std::time::{Duration, SystemTime};

use crate::RotationError;

/// RFC 8446 section 4.6.1: "Servers MUST NOT use any value greater than 604800 seconds (7 days)."
const LONGEST_LIFETIME: Duration = Duration::from_hours(7 * 24);

/// Maximum number of rotation intervals per ticket lifetime, which limits the number of keys on a ring.
const MOST_INTERVALS: u64 = 30;

/// Seconds since 1970.
pub(crate) type Seconds = u64;

/// `now` in whole seconds; a clock set before 1970 counts as 1970.
pub(crate) fn seconds(now: SystemTime) -> Seconds {
    now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Lifetime of tickets and rotation of their keys, in whole seconds; fractions are truncated.
///
/// Keys of a single process rotate one interval after the first was created. Keys of a fleet rotate when the Unix time
/// is a multiple of the interval, so at the same time on all gateways.
///
/// Default: tickets live for 12 hours, each key seals for 4 hours and is created 10 minutes before that. At 250,000
/// tickets per second this is within the limit of one AES-GCM key with random nonces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotationSettings {
    lifetime: Seconds,
    interval: Seconds,
    lead: Seconds,
}

impl RotationSettings {
    /// Tickets live for `lifetime`, and each key seals for `interval`.
    ///
    /// A key is on the ring for `lead` before it seals, so that all gateways have it by then. An attacker who obtains
    /// the keys in memory can open the tickets of the last `lifetime + interval`, but no older ones.
    pub fn new(lifetime: Duration, interval: Duration, lead: Duration) -> Result<Self, RotationError> {
        if lifetime > LONGEST_LIFETIME {
            return Err(RotationError::LifetimeTooLong(lifetime));
        }
        let settings =
            Self { lifetime: lifetime.as_secs(), interval: interval.as_secs(), lead: lead.as_secs() };
        if settings.lifetime == 0 || settings.interval == 0 {
            return Err(RotationError::TooShort);
        }
        let least = settings.lifetime.div_ceil(MOST_INTERVALS);
        if settings.interval < least {
            return Err(RotationError::TooManyKeys { lifetime, least: Duration::from_secs(least) });
        }
        if settings.lead >= settings.interval {
            return Err(RotationError::LeadTooLong { lead, interval });
        }
        Ok(settings)
    }

    /// Lifetime of a ticket from its sealing.
    pub const fn lifetime(&self) -> Duration {
        Duration::from_secs(self.lifetime)
    }

    /// The [`Validity`] of a key that seals at once, because no other does.
    fn immediate(&self, now: Seconds) -> Validity {
        self.starting(now, now)
    }

    /// The [`Validity`] of a key created at `now` that seals from `seals_from`.
    fn starting(&self, now: Seconds, seals_from: Seconds) -> Validity {
        let seals_until = seals_from + self.interval;
        // The last ticket that the key seals can be opened for a whole lifetime.
        Validity { opens_from: now, seals_from, seals_until, opens_until: seals_until + self.lifetime }
    }

    /// The times of a key that a fleet shares: it seals from `slot` to the end of the interval that contains `slot`,
    /// and is known one interval before, so that clocks may differ by as much.
    pub(crate) const fn validity_from(&self, slot: Seconds) -> Validity {
        let seals_until = self.next_start(slot);
        Validity {
            opens_from: slot.saturating_sub(self.interval),
            seals_from: slot,
            seals_until,
            opens_until: seals_until.saturating_add(self.lifetime),
        }
    }

    /// Start of the interval after the one that contains `now`.
    pub(crate) const fn next_start(&self, now: Seconds) -> Seconds {
        (now / self.interval).saturating_add(1).saturating_mul(self.interval)
    }

    /// Starts of the intervals, counted from 1970, whose keys open tickets at `now`: past ones with unexpired tickets,
    /// the current and the next. Oldest first.
    pub(crate) fn live_slots(&self, now: Seconds) -> impl Iterator<Item = Seconds> {
        let oldest = now.saturating_sub(self.lifetime) / self.interval;
        let next = now / self.interval + 1;
        (oldest..=next).map(|number| number.saturating_mul(self.interval))
    }

    /// Adapts the times of a key that was created under other settings; its start stays.
    pub(crate) fn refit(&self, validity: Validity) -> Validity {
        // Never later than before: a longer interval applies from the next key on.
        let seals_until = validity.seals_until.min(validity.seals_from.saturating_add(self.interval));
        Validity { seals_until, opens_until: seals_until.saturating_add(self.lifetime), ..validity }
    }

    /// Duration of sealing of a shared key in seconds: with the start it determines the key.
    pub(crate) const fn interval(&self) -> Seconds {
        self.interval
    }

    /// The keys to create at `now`, given keys with the times `existing`.
    pub(crate) fn plan(&self, existing: &[Validity], now: Seconds) -> Plan {
        let live = || existing.iter().copied().filter(|key| key.is_live(now));
        let mut create = Vec::new();
        if !live().any(|key| key.seals(now)) {
            create.push(self.immediate(now));
        }
        let seals_until =
            live().chain(create.iter().copied()).map(|key| key.seals_until).max().unwrap_or(now);
        let mut successor_due = seals_until.saturating_sub(self.lead);
        if successor_due <= now {
            create.push(self.starting(now, seals_until));
            successor_due += self.interval;
        }
        let first_end = live().chain(create.iter().copied()).map(|key| key.opens_until).min().unwrap_or(now);
        Plan { create, next: successor_due.min(first_end) }
    }
}

impl Default for RotationSettings {
    fn default() -> Self {
        Self { lifetime: 12 * 3600, interval: 4 * 3600, lead: 600 }
    }
}

/// A rotation, apart from the removal of expired keys; see [`RotationSettings::plan`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Times of the keys to create.
    pub(crate) create: Vec<Validity>,
    /// Time of the next rotation.
    pub(crate) next: Seconds,
}

/// The times of one key; each `until` is exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) opens_from: Seconds,
    pub(crate) seals_from: Seconds,
    pub(crate) seals_until: Seconds,
    pub(crate) opens_until: Seconds,
}

impl Validity {
    pub(crate) const fn seals(&self, now: Seconds) -> bool {
        self.seals_from <= now && now < self.seals_until
    }

    /// Whether the key is kept. `opens_from` is not compared with `now`: an earlier ticket was sealed by a machine
    /// whose clock is ahead. But a key that begins later than its whole life ahead was created before this clock was
    /// set back, and would stay for that time.
    pub(crate) const fn is_live(&self, now: Seconds) -> bool {
        let span = self.opens_until - self.opens_from;
        now < self.opens_until && self.opens_from <= now.saturating_add(span)
    }

    /// The times of a key that stops sealing at `now`, and whose last ticket opens for `lifetime`.
    pub(crate) fn retired(self, now: Seconds, lifetime: Seconds) -> Self {
        // Not before `opens_from`, because `is_live` uses the difference.
        let opens_until = self.opens_until.min(now.saturating_add(lifetime)).max(self.opens_from);
        Self { seals_until: self.seals_until.min(now), opens_until, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(lifetime: u64, interval: u64, lead: u64) -> RotationSettings {
        let [lifetime, interval, lead] = [lifetime, interval, lead].map(Duration::from_secs);
        RotationSettings::new(lifetime, interval, lead).expect("the test wants right settings")
    }

    #[test]
    fn the_first_key_seals_at_once_and_its_successor_comes_the_lead_before_its_end() {
        let plan = settings(120, 60, 10).plan(&[], 1000);
        let first = Validity { opens_from: 1000, seals_from: 1000, seals_until: 1060, opens_until: 1180 };
        assert_eq!(plan, Plan { create: vec![first], next: 1050 });
    }

    #[test]
    fn a_successor_opens_before_it_seals_and_takes_over_without_a_gap() {
        let settings = settings(120, 60, 10);
        let first = settings.plan(&[], 1000).create;
        assert_eq!(settings.plan(&first, 1049).create, []);
        let plan = settings.plan(&first, 1050);
        let second = Validity { opens_from: 1050, seals_from: 1060, seals_until: 1120, opens_until: 1240 };
        assert_eq!(plan, Plan { create: vec![second], next: 1110 });
    }

    #[test]
    fn the_end_of_a_key_is_a_time_to_rotate() {
        let settings = settings(120, 60, 10);
        let keys = [settings.starting(1000, 1000), settings.starting(1110, 1160)];
        assert_eq!(settings.plan(&keys, 1165).next, 1180);
    }

    #[test]
    fn after_a_long_sleep_there_is_a_key_that_seals_now() {
        let settings = settings(120, 60, 10);
        let old = settings.plan(&[], 1000).create;
        let plan = settings.plan(&old, 9000);
        assert_eq!(plan.create, [settings.immediate(9000)]);
        assert!(plan.next > 9000);
    }

    #[test]
    fn keys_from_before_the_clock_was_set_back_a_year_are_dropped() {
        let settings = settings(120, 60, 10);
        let key = settings.immediate(40_000_000);
        assert!(key.is_live(40_000_000 - 100), "a small step back keeps the key");
        assert!(!key.is_live(8_000_000));
    }

    #[test]
    fn keys_of_a_fleet_begin_and_end_at_multiples_of_the_interval() {
        let settings = settings(120, 60, 0);
        let slots: Vec<_> = settings.live_slots(1000).collect();
        assert_eq!(slots, [840, 900, 960, 1020]);
        let validity = Validity { opens_from: 900, seals_from: 960, seals_until: 1020, opens_until: 1140 };
        assert_eq!(settings.validity_from(960), validity);
        let validity = Validity { opens_from: 940, seals_from: 1000, seals_until: 1020, opens_until: 1140 };
        assert_eq!(settings.validity_from(1000), validity, "one that begins within an interval ends with it");
        for now in 200..700 {
            let live: Vec<_> = settings.live_slots(now).map(|slot| settings.validity_from(slot)).collect();
            assert!(live.iter().all(|key| key.is_live(now)), "at {now}");
            assert_eq!(live.iter().filter(|key| key.seals(now)).count(), 1, "at {now}");
            assert!(live[0].opens_until <= now + 60, "at {now}: the one before it is gone");
        }
    }

    #[test]
    fn other_settings_never_let_a_key_seal_longer() {
        let key = settings(120, 60, 10).immediate(1000);
        let validity = Validity { seals_until: 1060, opens_until: 1560, ..key };
        assert_eq!(settings(500, 100, 10).refit(key), validity);
        let validity = Validity { seals_until: 1020, opens_until: 1040, ..key };
        assert_eq!(settings(20, 20, 0).refit(key), validity);
        assert_eq!(settings(20, 20, 0).refit(key.retired(1005, 120)).seals_until, 1005);
    }

    #[test]
    fn a_key_that_is_retired_opens_for_one_lifetime_more() {
        let key = settings(120, 60, 10).immediate(1000);
        let validity = Validity { seals_until: 1030, opens_until: 1150, ..key };
        assert_eq!(key.retired(1030, 120), validity);
        assert_eq!(validity.retired(1090, 120), validity);
    }

    #[test]
    fn the_settings_refuse_what_cannot_work() {
        let [second, minute, day] = [1, 60, 86_400].map(Duration::from_secs);
        let refused = |lifetime, interval, lead| RotationSettings::new(lifetime, interval, lead).unwrap_err();
        assert_eq!(refused(day * 8, day, minute), RotationError::LifetimeTooLong(day * 8));
        assert_eq!(refused(day, Duration::ZERO, Duration::ZERO), RotationError::TooShort);
        let least = Duration::from_mins(48);
        assert_eq!(refused(day, minute, second), RotationError::TooManyKeys { lifetime: day, least });
        assert_eq!(
            refused(minute, minute, minute),
            RotationError::LeadTooLong { lead: minute, interval: minute }
        );
    }
}
