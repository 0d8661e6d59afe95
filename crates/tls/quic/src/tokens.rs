//! The used tokens of `NEW_TOKEN` frames (RFC 9000 section 8.1.3).

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quinn_proto::{TokenLog, TokenReuseError};

/// Used tokens of one period that [`UsedTokens`] remembers: about 2 MiB for each of two periods. The addresses of clients with
/// further ones count as not validated.
const LARGEST: usize = 1 << 17;

/// Accepts each token once. Periods are as long as the lifetime of tokens, so that those which are valid were issued in two of
/// them.
#[derive(Debug, Default)]
pub(crate) struct UsedTokens(Mutex<Periods>);

#[derive(Debug, Default)]
struct Periods {
    /// Number of the last period, from [`UNIX_EPOCH`].
    last: u128,
    used: HashSet<u64>,
    used_before: HashSet<u64>,
}

impl TokenLog for UsedTokens {
    fn check_and_insert(
        &self,
        nonce: u128,
        issued: SystemTime,
        lifetime: Duration,
    ) -> Result<(), TokenReuseError> {
        let since = issued.duration_since(UNIX_EPOCH).map_err(|_| TokenReuseError)?;
        let period = since.as_nanos().checked_div(lifetime.as_nanos()).ok_or(TokenReuseError)?;
        let mut periods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if period > periods.last {
            let used = std::mem::take(&mut periods.used);
            periods.used_before = if period == periods.last + 1 { used } else { HashSet::new() };
            periods.last = period;
        }
        // A token of an earlier period than these two has expired, or its use would not be remembered.
        let used = match periods.last - period {
            0 => &mut periods.used,
            1 => &mut periods.used_before,
            _ => return Err(TokenReuseError),
        };
        // The nonce is random, so half of it is enough.
        if used.len() < LARGEST && used.insert(nonce as u64) { Ok(()) } else { Err(TokenReuseError) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_hours(1);

    fn accepts(log: &UsedTokens, nonce: u128, minutes: u64) -> bool {
        log.check_and_insert(nonce, UNIX_EPOCH + Duration::from_mins(minutes), LIFETIME).is_ok()
    }

    #[test]
    fn each_token_is_accepted_once_while_it_is_valid() {
        let log = UsedTokens::default();
        for minutes in [600, 659, 660, 719] {
            assert!(accepts(&log, minutes.into(), minutes));
            assert!(!accepts(&log, minutes.into(), minutes));
        }
        assert!(!accepts(&log, 659, 659), "of the period before");
        assert!(accepts(&log, 1, 659));
        assert!(accepts(&log, 720, 720));
        assert!(!accepts(&log, 2, 659), "no longer valid");
        assert!(accepts(&log, 3, 6000));
        assert!(!accepts(&log, 4, 720));
    }

    #[test]
    fn the_memory_for_used_tokens_is_limited() {
        let log = UsedTokens::default();
        let number = LARGEST as u128;
        assert!((0..number).all(|nonce| accepts(&log, nonce, 600)));
        assert!(!accepts(&log, number, 600));
        assert!(accepts(&log, number, 660));
    }
}
