//! Plausibility of the system clock, checked before data is removed because of its age.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Interval between two removals.
const REMOVAL: Duration = Duration::from_mins(10);
/// Tolerated adjustment of the clock within [`REMOVAL`], in seconds.
const SET: u64 = 300;
/// Limits of a plausible clock, in seconds: behind the last removal, and ahead of it beyond the time that has passed.
const BEHIND: i64 = 3_600;
const AHEAD: i64 = 2 * 86_400;
/// Time for which a doubted clock must run evenly before [`Removal::ByAge`]: a gateway that was off for weeks has a
/// correct clock.
const SETTLED: Duration = Duration::from_hours(72);

/// Data that may be removed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    /// Data beyond its age limit and beyond the size limit.
    ByAge,
    /// Data beyond the size limit only.
    BySize,
}

/// Decides when data is removed. Measures durations since the start of the process, which an adjustment of the clock
/// does not affect.
#[derive(Debug)]
pub(crate) struct Clock {
    looked: Duration,
    /// Unix seconds at the last check.
    at: i64,
    doubted: Option<Duration>,
}

impl Clock {
    pub(crate) fn new(at: i64) -> Self {
        Self { looked: Duration::ZERO, at, doubted: None }
    }

    /// The [`Removal`] due at `now`, `uptime` after the start of the process, if the database was last cleared at
    /// `latest`; `None` if none is due.
    pub(crate) fn removal(&mut self, uptime: Duration, now: i64, latest: Option<i64>) -> Option<Removal> {
        let passed = uptime.saturating_sub(self.looked);
        if passed < REMOVAL {
            return None;
        }
        let seconds = passed.as_secs() as i64;
        let is_even = (now - self.at).abs_diff(seconds) < SET;
        (self.looked, self.at) = (uptime, now);
        // The last removal may be of an earlier process: a machine that has just started may have another
        // time.
        let is_plausible = latest.is_none_or(|latest| (-BEHIND..=seconds + AHEAD).contains(&(now - latest)));
        if is_even && is_plausible {
            self.doubted = None;
            return Some(Removal::ByAge);
        }
        // Each jump begins the 72 hours anew.
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

/// The current time in Unix seconds.
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
