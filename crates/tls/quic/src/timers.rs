//! Timers of the connections of one driver, in ticks of one millisecond.
//!
//! `brisk_net::DeadlineWheel` has ticks of 100 ms, which is too long for lost packets.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// At most one timer for each slot. A timer that is replaced is removed, so that it causes no wake-up.
#[derive(Debug)]
pub(crate) struct Timers {
    base: Instant,
    due: BTreeSet<(u64, u32)>,
    of_slot: Vec<Option<u64>>,
}

impl Timers {
    pub(crate) fn new(base: Instant) -> Self {
        Self { base, due: BTreeSet::new(), of_slot: Vec::new() }
    }

    /// Sets the timer of a slot, or removes it if `at` is `None`. Costs a comparison if it does not change.
    pub(crate) fn set(&mut self, slot: u32, at: Option<Instant>) {
        let index = slot as usize;
        if self.of_slot.len() <= index {
            self.of_slot.resize(index + 1, None);
        }
        let tick = at.map(|at| self.tick(at));
        let old = std::mem::replace(&mut self.of_slot[index], tick);
        if old == tick {
            return;
        }
        if let Some(old) = old {
            self.due.remove(&(old, slot));
        }
        if let Some(tick) = tick {
            self.due.insert((tick, slot));
        }
    }

    /// The first tick that is not before `at`, so that a timer is never early.
    fn tick(&self, at: Instant) -> u64 {
        let after = at.saturating_duration_since(self.base);
        u64::try_from(after.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)
    }

    /// Removes the next timer that is due at `now`, and returns its slot.
    pub(crate) fn expire(&mut self, now: Instant) -> Option<u32> {
        let elapsed = now.saturating_duration_since(self.base).as_millis();
        let (tick, slot) = *self.due.first()?;
        if u128::from(tick) > elapsed {
            return None;
        }
        self.due.pop_first();
        self.of_slot[slot as usize] = None;
        Some(slot)
    }

    /// The time of the next timer; `None` without timers.
    pub(crate) fn next(&self) -> Option<Instant> {
        let (tick, _) = self.due.first()?;
        self.base.checked_add(Duration::from_millis(*tick))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_expire_in_order_and_never_early() {
        let base = Instant::now();
        let at = |micros| base + Duration::from_micros(micros);
        let mut timers = Timers::new(base);
        timers.set(3, Some(at(2500)));
        timers.set(1, Some(at(1000)));
        assert_eq!(timers.next(), Some(at(1000)));
        assert_eq!(timers.expire(at(999)), None);
        assert_eq!(timers.expire(at(2999)), Some(1));
        assert_eq!(timers.expire(at(2999)), None, "2.5 ms are rounded up");
        assert_eq!(timers.expire(at(3000)), Some(3));
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn a_replaced_timer_does_not_expire() {
        let base = Instant::now();
        let at = |millis| base + Duration::from_millis(millis);
        let mut timers = Timers::new(base);
        timers.set(0, Some(at(1)));
        timers.set(0, Some(at(9)));
        timers.set(5, Some(at(2)));
        timers.set(5, None);
        assert_eq!(timers.expire(at(8)), None);
        assert_eq!((timers.expire(at(9)), timers.due.len()), (Some(0), 0));
    }
}
