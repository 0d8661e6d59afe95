//! [`Shedding`]: the share of each kind of work that is refused.

use crate::level::{Level, Work};

/// Kinds of work of which a share is refused.
pub(crate) const KINDS: [Work; 3] = [Work::Low, Work::FullHandshake, Work::Normal];

/// Shares of refused work, controlled by the level. One number determines all of them: it passes through the kinds one after the
/// other, so that a kind is refused only after all of the kinds before it.
///
/// The share follows the level instead of jumping to all or nothing: otherwise the load, and with it the level, would swing.
#[derive(Debug, Default)]
pub(crate) struct Shedding(f64);

impl Shedding {
    /// Takes the [`Level`] of one sample.
    pub(crate) fn step(&mut self, level: Level) {
        let (needed, rise) = match self.0 {
            ..1.0 => (Level::High, 1.0 / 4.0),
            ..2.0 => (Level::Severe, 1.0 / 4.0),
            // Slower than the delay of the measured effect.
            _ => (Level::Critical, 1.0 / 16.0),
        };
        // Refused kinds stay refused at the level that refuses them, and are admitted again below it.
        let kept = match level {
            Level::Normal | Level::Elevated => 0.0,
            Level::High => 1.0,
            Level::Severe => 2.0,
            Level::Critical => 3.0,
        };
        let fall = match level {
            Level::Normal => 1.0 / 8.0,
            Level::Elevated => 1.0 / 16.0,
            Level::High => 1.0 / 32.0,
            Level::Severe | Level::Critical => 1.0 / 64.0,
        };
        if level.is_at_least(needed) {
            self.0 = (self.0 + rise).min(kept);
        } else if self.0 > kept {
            self.0 = (self.0 - fall).max(kept);
        }
    }

    /// The refused share of the kind at `index` of [`KINDS`], from 0 to 1.
    pub(crate) fn share(&self, index: usize) -> f64 {
        (self.0 - index as f64).clamp(0.0, 1.0)
    }
}

/// The share of full handshakes that is refused because of the queue of keys, from 0 to 1.
#[derive(Debug, Default)]
pub(crate) struct Handshakes(f64);

impl Handshakes {
    /// Takes the level of the queue of one sample.
    pub(crate) fn step(&mut self, level: Level) {
        let change = if level.is_at_least(Level::High) { 1.0 / 4.0 } else { -1.0 / 16.0 };
        self.0 = (self.0 + change).clamp(0.0, 1.0);
    }

    pub(crate) const fn share(&self) -> f64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The shares in ten-thousandths.
    fn after(shedding: &mut Shedding, level: Level, samples: u32) -> [u32; 3] {
        (0..samples).for_each(|_| shedding.step(level));
        [0, 1, 2].map(|index| (1e4 * shedding.share(index)).round() as u32)
    }

    #[test]
    fn kinds_are_refused_in_their_order_and_as_far_as_the_level_permits() {
        let mut shedding = Shedding::default();
        assert_eq!(after(&mut shedding, Level::Elevated, 9), [0, 0, 0]);
        assert_eq!(after(&mut shedding, Level::High, 2), [5000, 0, 0]);
        assert_eq!(after(&mut shedding, Level::High, 90), [10000, 0, 0]);
        assert_eq!(after(&mut shedding, Level::Severe, 90), [10000, 10000, 0]);
        assert_eq!(after(&mut shedding, Level::Critical, 4), [10000, 10000, 2500]);
        assert_eq!(after(&mut shedding, Level::Critical, 90), [10000, 10000, 10000]);
    }

    #[test]
    fn a_lower_level_admits_a_growing_share_again() {
        let mut shedding = Shedding::default();
        after(&mut shedding, Level::Critical, 90);
        assert_eq!(after(&mut shedding, Level::Severe, 16), [10000, 10000, 7500]);
        assert_eq!(after(&mut shedding, Level::Critical, 1), [10000, 10000, 8125]);
        assert_eq!(after(&mut shedding, Level::Severe, 90), [10000, 10000, 0]);
        // Within 3 s after the end of the overload.
        after(&mut shedding, Level::Critical, 90);
        assert_eq!(after(&mut shedding, Level::Normal, 24), [0, 0, 0]);
    }
}
