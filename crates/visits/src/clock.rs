//! Whether the clock can be believed before things are removed for their age.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Between two removals of what is too old.
const REMOVAL: Duration = Duration::from_mins(10);
/// By how much the clock may have been set in that time, in seconds.
const SET: u64 = 300;
/// How far, in seconds, the clock may be behind the last removal, and ahead of it beyond the time that has passed: more is doubted.
const BEHIND: i64 = 3_600;
const AHEAD: i64 = 2 * 86_400;
/// How long a clock that is doubted must go evenly until it is believed: a gateway that was off for weeks has a clock that is right.
const SETTLED: Duration = Duration::from_hours(72);

/// What may be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    /// What is too old, and what is too much.
    ByAge,
    /// What is too much.
    BySize,
}

/// When things are removed. All of its times are those since the start of the process, which cannot be set.
#[derive(Debug)]
pub(crate) struct Clock {
    looked: Duration,
    /// In Unix seconds.
    at: i64,
    doubted: Option<Duration>,
}

impl Clock {
    pub(crate) fn new(at: i64) -> Self {
        Self { looked: Duration::ZERO, at, doubted: None }
    }

    /// What is to be removed at `now`, `uptime` after the start, if the database was last cleared at `latest`.
    pub(crate) fn removal(&mut self, uptime: Duration, now: i64, latest: Option<i64>) -> Option<Removal> {
        let passed = uptime.saturating_sub(self.looked);
        if passed < REMOVAL {
            return None;
        }
        let seconds = passed.as_secs() as i64;
        let is_even = (now - self.at).abs_diff(seconds) < SET;
        (self.looked, self.at) = (uptime, now);
        let is_plausible = latest.is_none_or(|latest| (-BEHIND..=seconds + AHEAD).contains(&(now - latest)));
        if is_even && is_plausible {
            self.doubted = None;
            return Some(Removal::ByAge);
        }
        if !is_even || self.doubted.is_none() {
            tracing::warn!(
                "the clock was set, or differs by far from the last time that visits were removed: nothing is removed \
                 for its age until it has gone evenly for a while"
            );
            self.doubted = Some(uptime);
        }
        let doubted = self.doubted.unwrap_or(uptime);
        if uptime.saturating_sub(doubted) < SETTLED {
            return Some(Removal::BySize);
        }
        self.doubted = None;
        Some(Removal::ByAge)
    }
}

/// Now.
pub(crate) fn unix_seconds() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000;
    const TEN: Duration = Duration::from_mins(10);

    #[test]
    fn nothing_is_removed_for_its_age_when_the_clock_was_set() {
        let after = |seconds| Clock::new(NOW).removal(TEN, NOW + seconds, None);
        assert_eq!(after(600), Some(Removal::ByAge));
        assert_eq!(after(600 + 86_400), Some(Removal::BySize), "set forward");
        assert_eq!(after(600 - 86_400), Some(Removal::BySize), "set back");
        assert_eq!(Clock::new(NOW).removal(TEN / 2, NOW + 300, None), None, "too early");
    }

    #[test]
    fn nothing_is_removed_for_its_age_by_a_clock_that_was_wrong_from_the_start() {
        for (started, latest) in [(0, NOW), (NOW - 7_200, NOW), (NOW, NOW - 5 * 86_400), (NOW * 2, NOW)] {
            let mut clock = Clock::new(started);
            // It goes evenly, for a day and two hours.
            for round in 1..=150_u32 {
                let removal = clock.removal(TEN * round, started + i64::from(round) * 600, Some(latest));
                let is_behind_by_little = started + i64::from(round) * 600 >= latest - BEHIND;
                let expected =
                    if started < latest && is_behind_by_little { Removal::ByAge } else { Removal::BySize };
                assert_eq!(removal, Some(expected), "{started} {latest} {round}");
            }
        }
    }

    #[test]
    fn a_clock_that_goes_evenly_for_days_is_believed() {
        let mut clock = Clock::new(NOW);
        let mut rounds = 1..1_000_u32;
        let believed = rounds.find(|round| {
            let removal = clock.removal(TEN * *round, NOW + i64::from(*round) * 600, Some(NOW - 90 * 86_400));
            removal == Some(Removal::ByAge)
        });
        assert_eq!(believed, Some(1 + 72 * 6));
    }
}
