//! When ticket keys come and go: a pure calculation of times, without keys and without a clock.

use std::time::{Duration, SystemTime};

use crate::RotationError;

/// RFC 8446 section 4.6.1: "Servers MUST NOT use any value greater than 604800 seconds (7 days)."
const LONGEST_LIFETIME: Duration = Duration::from_hours(7 * 24);

/// Intervals of sealing that one ticket lifetime may span, so that a keyring stays short.
const MOST_INTERVALS: u64 = 30;

/// Seconds since 1970.
pub(crate) type Seconds = u64;

/// `now` in whole seconds; a clock set before 1970 counts as 1970.
pub(crate) fn seconds(now: SystemTime) -> Seconds {
    now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// How long tickets live and how often their keys change. Whole seconds; fractions are cut off.
///
/// The default: tickets live for 12 hours, each key seals for 4 hours, and is made 10 minutes before it first does.
/// At a rate of 250,000 tickets a second that is within what one AES-GCM key may seal with random nonces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotationSettings {
    lifetime: Seconds,
    interval: Seconds,
    lead: Seconds,
}

impl RotationSettings {
    /// Tickets that open for `lifetime` after they were sealed, by keys that each seal for `interval`.
    ///
    /// A key opens from `lead` before it seals, so that all who share the keyring have it by then. Whoever steals the
    /// keys in memory can open the tickets of the last `lifetime + interval`, no older ones.
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

    /// How long a ticket opens after it was sealed.
    pub const fn lifetime(&self) -> Duration {
        Duration::from_secs(self.lifetime)
    }

    /// The times of a key that is needed at once, because there is none that seals.
    fn immediate(&self, now: Seconds) -> Validity {
        self.starting(now, now)
    }

    /// The times of a key made at `now` that seals from `seals_from`.
    fn starting(&self, now: Seconds, seals_from: Seconds) -> Validity {
        let seals_until = seals_from + self.interval;
        // The last ticket it seals opens for a whole lifetime.
        Validity { opens_from: now, seals_from, seals_until, opens_until: seals_until + self.lifetime }
    }

    /// What is to be done at `now` with keys that have the times `existing`.
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

/// What a rotation does besides dropping the keys that are no longer live.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The times of the keys to make.
    pub(crate) create: Vec<Validity>,
    /// When there will be something to do again.
    pub(crate) next: Seconds,
}

/// The times of one key; each `until` is the first moment at which it no longer holds.
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

    /// Whether the key is to be kept. `opens_from` is not looked at: a ticket that comes before it comes from a
    /// machine whose clock is ahead of ours. But a key from further ahead than it will live stems from before our
    /// clock was set back, and would stay for as long.
    pub(crate) const fn is_live(&self, now: Seconds) -> bool {
        let span = self.opens_until - self.opens_from;
        now < self.opens_until && self.opens_from <= now + span
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
