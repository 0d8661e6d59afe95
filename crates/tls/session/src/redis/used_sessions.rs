//! [`UsedSessions`], the sessions that were claimed exclusively while Redis could not confirm the claim.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use redis::Cmd;

use super::sealing::Name;
use crate::rotation::Seconds;

/// Lifetime of the mark of a taken session in Redis. Until then a second take returns [`Miss::Used`](crate::Miss::Used), and a
/// delayed write does not restore the session.
const TOMBSTONE: Duration = Duration::from_mins(1);

/// Maximum number of names. Beyond it the oldest are forgotten, and [`UsedSessions::covers`] all sessions put until then.
const MOST: usize = 10_000;

/// Maximum difference in seconds between the clocks of two gateways, which [`UsedSessions::covers`] allows for.
const CLOCKS: Seconds = 60;

/// Marks a session as taken for [`TOMBSTONE`], whether it exists or not.
pub(super) fn tombstone(key: &[u8]) -> Cmd {
    let mut command = redis::cmd("SET");
    command.arg(key).arg("").arg("PX").arg(TOMBSTONE.as_millis() as u64);
    command
}

/// Names of spent sessions. The client of such a session sends its request again after a full handshake, so its early
/// data must not be accepted when Redis works again.
///
/// An attacker can fill the list with made-up IDs, so that the name of a session whose early data he has recorded is
/// forgotten. Therefore, once names are forgotten, no session that was put before is returned for an exclusive claim:
/// its client gets one full handshake.
#[derive(Debug, Default)]
pub(super) struct UsedSessions {
    names: Mutex<VecDeque<Name>>,
    /// Sessions put until this time may have been forgotten.
    forgotten_until: AtomicU64,
}

impl UsedSessions {
    /// Adds a session that was put before `now`.
    pub(super) fn add(&self, name: Name, now: Seconds) {
        let mut names = self.lock();
        if names.len() >= MOST {
            names.pop_front();
            // The latest time: an earlier one would return sessions that may have been forgotten.
            self.forgotten_until.fetch_max(now.saturating_add(CLOCKS), Ordering::Relaxed);
        }
        names.push_back(name);
    }

    /// Whether a session that was put at the time `put` may be one of those forgotten.
    pub(super) fn covers(&self, put: Seconds) -> bool {
        put <= self.forgotten_until.load(Ordering::Relaxed)
    }

    /// Removes and returns all names.
    pub(super) fn take(&self) -> Vec<Name> {
        self.lock().drain(..).collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Name>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_names_are_kept() {
        let used_sessions = UsedSessions::default();
        for number in 0..MOST as u128 + 5 {
            used_sessions.add(number.to_be_bytes(), 1000);
        }
        let names = used_sessions.take();
        assert_eq!((names.len(), names[0]), (MOST, 5_u128.to_be_bytes()));
        assert!(used_sessions.take().is_empty());
    }

    #[test]
    fn once_names_are_forgotten_all_sessions_of_before_are_spent() {
        let used_sessions = UsedSessions::default();
        for number in 0..MOST as u128 {
            used_sessions.add(number.to_be_bytes(), 1000);
        }
        assert!(!used_sessions.covers(999), "all of them are remembered");
        used_sessions.add([0xff; 16], 1000);
        assert!(
            used_sessions.covers(999)
                && used_sessions.covers(1000 + CLOCKS)
                && !used_sessions.covers(1001 + CLOCKS)
        );
    }
}
