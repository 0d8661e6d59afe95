//! Times of renewals and retries.

use std::time::{Duration, Instant, SystemTime};

/// Upper bound of a sleep: the system clock may be changed meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_mins(5);

/// The time at which a staple is renewed: between 40 and 60 % of its validity, chosen by `random` (0 to 1), so that
/// gateways do not renew at the same time.
pub(super) fn refresh(this_update: SystemTime, next_update: SystemTime, random: f64) -> SystemTime {
    let life = next_update.duration_since(this_update).unwrap_or_default();
    this_update + life.mul_f64(0.4 + 0.2 * random.clamp(0.0, 1.0))
}

/// The pause after `failures` consecutive failures: `first`, doubled by each failure up to `most`, varied by ±25 % with
/// `random` (0 to 1).
pub(super) fn pause(failures: u32, first: Duration, most: Duration, random: f64) -> Duration {
    let doubled = first.saturating_mul(1 << failures.saturating_sub(1).min(16));
    doubled.min(most).mul_f64(0.75 + 0.5 * random.clamp(0.0, 1.0))
}

/// A random number from 0 to 1.
pub(super) fn random() -> f64 {
    let mut bytes = [0; 4];
    // The error is ignored: without variation all gateways retry at the same time, which is harmless.
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX)
}

/// Sleeps until `at`, but at most five minutes; the caller then compares `at` with the clock again.
pub(super) async fn sleep_towards(at: SystemTime) {
    let left = at.duration_since(SystemTime::now()).unwrap_or_default();
    tokio::time::sleep(left.clamp(Duration::from_millis(100), LONGEST_SLEEP)).await;
}

/// A deadline by the system clock, and by the monotonic clock as computed when it was set. The earlier one counts, so
/// that setting back a wrong clock does not postpone it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    moment: SystemTime,
    /// `None` if the time is out of the range of `Instant`.
    by: Option<Instant>,
}

impl Due {
    pub(super) fn at(moment: SystemTime) -> Self {
        let left = moment.duration_since(SystemTime::now()).unwrap_or_default();
        Self { moment, by: Instant::now().checked_add(left) }
    }

    pub(super) fn after(pause: Duration) -> Self {
        Self { moment: SystemTime::now() + pause, by: Instant::now().checked_add(pause) }
    }

    pub(super) fn is_past(&self) -> bool {
        self.moment <= SystemTime::now() || self.by.is_some_and(|by| by <= Instant::now())
    }

    pub(super) fn moment(&self) -> SystemTime {
        self.moment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_staple_is_refreshed_around_half_of_its_life() {
        let day = Duration::from_hours(24);
        let start = SystemTime::UNIX_EPOCH + 1000 * day;
        let at = |random| refresh(start, start + 10 * day, random).duration_since(start).unwrap();
        assert_eq!((at(0.0), at(0.5), at(1.0)), (4 * day, 5 * day, 6 * day));
        assert_eq!(refresh(start, start - day, 0.3), start);
    }

    #[test]
    fn a_clock_that_was_ahead_leaves_nothing_due_far_off() {
        let year = Duration::from_hours(365 * 24);
        // As after a pause of an hour during which the clock was set back by a year.
        let due = Due { moment: SystemTime::now() + year, by: Some(Instant::now()) };
        assert!(due.is_past());
        assert!(!Due::at(due.moment()).is_past() && !Due::after(year).is_past());
        assert!(Due::at(SystemTime::now()).is_past());
    }

    #[test]
    fn pauses_double_up_to_a_limit() {
        let (first, most) = (Duration::from_secs(4), Duration::from_mins(1));
        let seconds = |failures| pause(failures, first, most, 0.5).as_secs();
        assert_eq!([1, 2, 3, 4, 5, 6, 100].map(seconds), [4, 8, 16, 32, 60, 60, 60]);
        assert!(pause(1, first, most, 0.0) == Duration::from_secs(3));
        assert!((0.0..=1.0).contains(&random()));
    }
}
