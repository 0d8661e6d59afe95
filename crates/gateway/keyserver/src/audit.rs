//! Rate limit of audit log lines about refusals, because clients of an honest gateway can cause any number of them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use brisk_keyless::ErrorCode;
use brisk_keys::KeyId;

/// Minimum interval between two lines about the same refusal.
const INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of distinct refusals within [`INTERVAL`]. A client can request any number of unknown keys.
const MOST: usize = 256;

/// Identity of a refusal: refusals with equal values share a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Refusal {
    pub(crate) client: String,
    pub(crate) code: ErrorCode,
    pub(crate) key: Option<KeyId>,
}

#[derive(Clone, Copy, Debug)]
struct LoggedRefusal {
    at: Instant,
    held_back: u64,
}

/// Refusals of the last [`INTERVAL`].
#[derive(Debug, Default)]
pub(crate) struct AuditLimiter {
    kinds: HashMap<Refusal, LoggedRefusal>,
    /// Suppressed lines about refusals that are no longer stored.
    held_back: u64,
}

impl AuditLimiter {
    /// Decides whether to log a refusal. `Some` with the number of lines suppressed before it.
    pub(crate) fn pass(&mut self, refusal: Refusal, now: Instant) -> Option<u64> {
        if let Some(line) = self.kinds.get_mut(&refusal) {
            if now.duration_since(line.at) < INTERVAL {
                line.held_back += 1;
                return None;
            }
            line.at = now;
            return Some(std::mem::take(&mut line.held_back));
        }
        // Only at the limit, so that not every refusal scans the table.
        if self.kinds.len() >= MOST {
            self.forget(now);
        }
        if self.kinds.len() >= MOST {
            self.held_back += 1;
            return None;
        }
        self.kinds.insert(refusal, LoggedRefusal { at: now, held_back: 0 });
        Some(std::mem::take(&mut self.held_back))
    }

    /// Removes refusals without a recent line; the numbers of their suppressed lines are kept.
    fn forget(&mut self, now: Instant) {
        let old = self.kinds.extract_if(|_, line| now.duration_since(line.at) >= INTERVAL);
        self.held_back += old.map(|(_, line)| line.held_back).sum::<u64>();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(key: u8) -> Refusal {
        Refusal { client: "gateway".to_owned(), code: ErrorCode::UnknownKey, key: Some(KeyId([key; 32])) }
    }

    #[test]
    fn one_line_a_second_for_each_kind_with_the_number_of_the_others() {
        let (mut lines, start) = (AuditLimiter::default(), Instant::now());
        assert_eq!(lines.pass(refusal(1), start), Some(0));
        assert_eq!(lines.pass(refusal(2), start), Some(0));
        assert!((0..5).all(|_| lines.pass(refusal(1), start).is_none()));
        assert_eq!(lines.pass(refusal(1), start + INTERVAL), Some(5));
        assert_eq!(lines.pass(refusal(1), start + INTERVAL), None);
    }

    #[test]
    fn any_number_of_kinds_is_a_bounded_number_of_lines() {
        let (mut lines, start) = (AuditLimiter::default(), Instant::now());
        let of = |number: u16| Refusal { client: number.to_string(), ..refusal(0) };
        assert_eq!((0..1000).filter(|number| lines.pass(of(*number), start).is_some()).count(), MOST);
        assert_eq!(lines.kinds.len(), MOST);
        assert_eq!(lines.pass(of(2000), start + INTERVAL), Some(1000 - MOST as u64));
        assert_eq!(lines.kinds.len(), 1);
    }
}
