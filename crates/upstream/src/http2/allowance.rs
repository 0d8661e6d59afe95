//! What a server may send without use: frames that carry nothing cost it an allowance, which requests, data and time earn
//! back.
//!
//! Servers answer data with windows and measure round trips with PINGs, several for each frame that they get. One that sends
//! far more than that has the connection closed.

use std::time::Duration;

/// Frames that are allowed at once.
const MOST: u32 = 4000;

/// What a second earns.
const SECOND: u64 = 200;

/// The frames that a server may still send.
#[derive(Debug)]
pub(super) struct Allowance {
    left: u32,
    /// The time up to which it was earned.
    until: Duration,
}

impl Default for Allowance {
    fn default() -> Self {
        Self { left: MOST, until: Duration::ZERO }
    }
}

impl Allowance {
    /// Costs that many frames.
    pub(super) fn spend(&mut self, frames: u32) {
        self.left = self.left.saturating_sub(frames);
    }

    /// Something of use passed.
    pub(super) fn earn(&mut self, frames: u32) {
        // What is used up stays so.
        if self.left > 0 {
            self.left = (self.left + frames).min(MOST);
        }
    }

    /// The time, counted from any start, has come.
    pub(super) fn tick(&mut self, now: Duration) {
        let millis = u64::try_from(now.saturating_sub(self.until).as_millis()).unwrap_or(u64::MAX);
        let earned = millis.saturating_mul(SECOND) / 1000;
        if earned > 0 {
            self.until = now;
            self.earn(u32::try_from(earned).unwrap_or(MOST).min(MOST));
        }
    }

    /// Whether nothing is left of it.
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
