//! Limit on useless frames from a server: frames without content consume an [`Allowance`] that requests, data and time
//! replenish.
//!
//! Servers reply to data with `WINDOW_UPDATE` and measure round trips with `PING`, several for each frame that they
//! receive. A server that sends far more loses the connection with `ENHANCE_YOUR_CALM`.

use std::time::Duration;

/// Maximum allowance in frames.
const MOST: u32 = 4000;

/// Frames earned per second.
const SECOND: u64 = 200;

/// Remaining allowance.
#[derive(Debug)]
pub(super) struct Allowance {
    left: u32,
    /// Time up to which the allowance was earned.
    until: Duration,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { left: MOST, until: Duration::ZERO }
    }
}

impl Allowance {
    /// Consumes `frames`.
    pub(super) fn spend(&mut self, frames: u32) {
        self.left = self.left.saturating_sub(frames);
    }

    /// Earns `frames` for useful traffic.
    pub(super) fn earn(&mut self, frames: u32) {
        // An exhausted allowance stays exhausted: the connection is about to be closed.
        if self.left > 0 {
            self.left = (self.left + frames).min(MOST);
        }
    }

    /// Earns the allowance for the time up to `now`, counted from any fixed instant.
    pub(super) fn tick(&mut self, now: Duration) {
        let millis = u64::try_from(now.saturating_sub(self.until).as_millis()).unwrap_or(u64::MAX);
        let earned = millis.saturating_mul(SECOND) / 1000;
        // `until` moves with whole frames only, because short intervals would lose their fractions.
        if earned > 0 {
            self.until = now;
            self.earn(u32::try_from(earned).unwrap_or(MOST).min(MOST));
        }
    }

    /// Whether the allowance is exhausted.
    pub(super) fn is_used_up(&self) -> bool {
        self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_without_use_are_allowed_for_a_while_and_as_often_as_time_passes() {
        let mut allowance = Allowance::default();
        allowance.spend(MOST - 1);
        assert!(!allowance.is_used_up());
        allowance.tick(Duration::from_secs(1));
        allowance.spend(SECOND as u32);
        assert!(!allowance.is_used_up());
        allowance.spend(1);
        allowance.earn(10);
        allowance.tick(Duration::from_secs(100));
        assert!(allowance.is_used_up());
    }
}
