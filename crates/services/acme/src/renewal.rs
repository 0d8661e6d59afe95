//! Renewal times: the authority's suggestion (RFC 9773), otherwise a share of the lifetime; and pauses after failures.

use std::time::{Duration, SystemTime};

use aws_lc_rs::rand;

use crate::records::{AttemptStatus, PausedAuthority, RenewalAdvice, moment, seconds};

/// Certificates with a shorter lifetime are renewed after half of it, which leaves time for several attempts.
const SHORT: Duration = Duration::from_hours(10 * 24);

/// Interval of requests for renewal information without `Retry-After`, and the bounds of `Retry-After` (RFC 9773
/// section 4.3).
pub(crate) const ASK_AGAIN: Duration = Duration::from_hours(6);
const SOONEST: Duration = Duration::from_mins(1);
const LATEST: Duration = Duration::from_hours(24);

/// Minimum time between two successful orders for the same certificate. A shorter time that the authority
/// suggests is ignored.
const APART: Duration = Duration::from_hours(1);

/// Maximum of the growing pause between replacements of revoked certificates.
const LONGEST_APART: Duration = Duration::from_hours(24);

/// Longest plausible pause: a `Retry-After` of 24 hours, and a tenth more.
const LONGEST_PAUSE: Duration = Duration::from_hours(27);

/// Renewal time without renewal information: after two thirds of the lifetime, or after half of a short one.
pub(crate) fn by_lifetime(not_before: SystemTime, not_after: SystemTime) -> SystemTime {
    let lifetime = not_after.duration_since(not_before).unwrap_or_default();
    let share = if lifetime < SHORT { lifetime / 2 } else { lifetime * 2 / 3 };
    not_before + share
}

/// Renewal time: the moment chosen from the suggested window, or that of [`by_lifetime`] if the certificate would
/// expire first.
pub(crate) fn due(
    not_before: SystemTime,
    not_after: SystemTime,
    advice: Option<&RenewalAdvice>,
) -> SystemTime {
    match advice {
        Some(advice) if moment(advice.chosen) < not_after => moment(advice.chosen),
        _ => by_lifetime(not_before, not_after),
    }
}

/// Earliest renewal of a certificate obtained at `obtained`. A time in the future was written with a wrong clock and is
/// ignored.
pub(crate) fn floor(obtained: u64, lifetime: Duration, now: SystemTime) -> SystemTime {
    let obtained = moment(obtained);
    if obtained > now { moment(0) } else { obtained + APART.min(lifetime / 2) }
}

/// Earliest replacement of a revoked certificate after `before` consecutive replacements. Doubles each time: an
/// authority that reports each of its certificates as revoked is not flooded with orders.
pub(crate) fn after_revocation(
    obtained: u64,
    lifetime: Duration,
    before: u32,
    now: SystemTime,
) -> SystemTime {
    let first = floor(obtained, lifetime, now);
    let apart = first.duration_since(moment(obtained)).unwrap_or_default();
    first + (apart * (2_u32.pow(before.min(8)) - 1)).min(LONGEST_APART)
}

/// Earliest next attempt. Implausible values, written or read with a wrong clock, are ignored.
pub(crate) fn retry(status: &AttemptStatus, now: SystemTime) -> SystemTime {
    let longest = status.failed.saturating_add(LONGEST_PAUSE.as_secs());
    let is_sane = status.failed <= seconds(now) && status.retry <= longest;
    if is_sane { moment(status.retry) } else { moment(0) }
}

/// End of the pause that an authority requested. Implausibly long pauses are ignored.
pub(crate) fn held_until(status: &AttemptStatus, directory: &str) -> SystemTime {
    let held = status.held.iter().find(|held| held.authority == directory);
    let as_retry = |held: &PausedAuthority| {
        retry(&AttemptStatus { retry: held.until, ..status.clone() }, SystemTime::now())
    };
    held.map_or(moment(0), as_retry)
}

/// A uniformly random moment of the window (RFC 9773 section 4.2); its start if the window is empty.
pub(crate) fn choose(start: u64, end: u64) -> u64 {
    start + random_below(end.saturating_sub(start).max(1))
}

/// Time of the next request for renewal information.
pub(crate) fn ask_again(now: SystemTime, retry_after: Option<Duration>) -> SystemTime {
    now + retry_after.unwrap_or(ASK_AGAIN).clamp(SOONEST, LATEST)
}

/// Pause after `failures` consecutive failures: exactly `retry_after` if the authority has requested one, but at least
/// [`SOONEST`]. Otherwise 1 minute, doubled each time up to 6 hours, and up to a tenth more at random, so that the names
/// of a fleet do not retry at the same moment.
pub(crate) fn pause(failures: u32, retry_after: Option<Duration>) -> Duration {
    if let Some(retry_after) = retry_after {
        return retry_after.max(SOONEST);
    }
    let doubled = Duration::from_mins(1) * 2_u32.pow(failures.saturating_sub(1).min(9));
    let pause = doubled.min(Duration::from_hours(6));
    pause + Duration::from_secs(random_below(pause.as_secs() / 10 + 1))
}

/// A random number below `bound`, which must be at least 1.
pub(crate) fn random_below(bound: u64) -> u64 {
    let mut bytes = [0; 8];
    rand::fill(&mut bytes).expect("the system's randomness");
    // The bias of the remainder is below 2^-40 for a window of half a year.
    u64::from_le_bytes(bytes) % bound
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400;

    fn advice(chosen: u64) -> RenewalAdvice {
        RenewalAdvice { certificate: String::new(), start: 0, end: 0, chosen, again: 0, explanation: None }
    }

    #[test]
    fn without_advice_the_lifetime_decides() {
        let lived = |days: u64| by_lifetime(moment(0), moment(days * DAY));
        assert_eq!(lived(90), moment(60 * DAY));
        assert_eq!(lived(45), moment(30 * DAY));
        assert_eq!(lived(6), moment(3 * DAY));
    }

    #[test]
    fn advice_goes_before_the_lifetime_unless_the_certificate_would_end() {
        let due = |advice: Option<&RenewalAdvice>| due(moment(0), moment(90 * DAY), advice);
        assert_eq!(due(Some(&advice(10 * DAY))), moment(10 * DAY));
        assert_eq!(due(Some(&advice(80 * DAY))), moment(80 * DAY));
        assert_eq!(due(Some(&advice(91 * DAY))), moment(60 * DAY));
        assert_eq!(due(None), moment(60 * DAY));
    }

    #[test]
    fn a_certificate_that_was_just_obtained_is_not_renewed() {
        let now = moment(1_000_000);
        let floor = |obtained, days: u64| floor(obtained, Duration::from_secs(days * DAY), now);
        assert_eq!(floor(999_999, 90), moment(999_999 + 3600));
        assert_eq!(super::floor(999_999, Duration::from_mins(10), now), moment(999_999 + 300));
        assert_eq!(floor(1_000_001, 90), moment(0), "of a clock that was wrong");
    }

    #[test]
    fn one_revoked_certificate_after_another_is_replaced_ever_more_slowly() {
        let now = moment(1_000_000);
        let hours = |before| {
            let at = after_revocation(900_000, Duration::from_secs(90 * DAY), before, now);
            at.duration_since(moment(900_000)).unwrap().as_secs() / 3600
        };
        assert_eq!([0, 1, 2, 3, 4, 5, 40].map(hours), [1, 2, 4, 8, 16, 25, 25]);
        assert_eq!(
            after_revocation(1_000_001, Duration::from_secs(DAY), 3, now),
            moment(0),
            "of a clock that was wrong"
        );
    }

    #[test]
    fn pauses_of_a_wrong_clock_do_not_count() {
        let now = moment(1_000_000);
        let until = |failed, pause| {
            retry(&AttemptStatus { failed, retry: failed + pause, ..AttemptStatus::default() }, now)
        };
        assert_eq!(until(999_000, 2000), moment(1_001_000));
        assert_eq!(until(999_000, DAY), moment(999_000 + DAY), "as an authority asked for");
        assert_eq!(until(999_000, 2 * DAY), moment(0));
        assert_eq!(until(2_000_000, 60), moment(0), "the clock was ahead");
    }

    #[test]
    fn moments_of_a_window_are_spread_over_it() {
        let chosen: Vec<_> = (0..200).map(|_| choose(1000, 2000)).collect();
        assert!(chosen.iter().all(|moment| (1000..2000).contains(moment)));
        assert!(chosen.iter().any(|moment| *moment < 1300) && chosen.iter().any(|moment| *moment > 1700));
        assert_eq!((choose(5, 5), choose(5, 4)), (5, 5));
    }

    #[test]
    fn pauses_grow_and_respect_the_authority() {
        let minutes = |failures| pause(failures, None).as_secs() / 60;
        assert_eq!(minutes(1), 1);
        assert_eq!(minutes(2), 2);
        assert!((32..36).contains(&minutes(6)));
        assert!((360..397).contains(&minutes(40)));
        for failures in [1, 40] {
            assert_eq!(pause(failures, Some(Duration::from_hours(3))), Duration::from_hours(3));
            assert_eq!(pause(failures, Some(Duration::from_secs(1))), SOONEST);
        }
    }

    #[test]
    fn an_authority_is_asked_again_when_it_says_within_reason() {
        let again = |seconds| ask_again(moment(0), Some(Duration::from_secs(seconds)));
        assert_eq!(again(0), moment(60));
        assert_eq!(again(7200), moment(7200));
        assert_eq!(again(1_000_000), moment(DAY));
        assert_eq!(ask_again(moment(0), None), moment(6 * 3600));
    }
}
