//! [`Ladder`]: the level that a set of sources causes, with hysteresis.

use crate::level::{Level, SOURCES, Source};

/// Part of a threshold below which a value must fall before its [`Level`] ends.
const LEAVE: f64 = 0.8;

/// Number of consecutive calm samples after which the level falls by one.
const CALM: u32 = 5;

/// A level that rises by at most one per sample, and falls by one after [`CALM`] samples below [`LEAVE`] of its threshold, or below
/// the threshold of the level under it, if the thresholds of the source are close together.
#[derive(Debug)]
pub(crate) struct Ladder {
    level: Level,
    calm: u32,
}

/// A change of the level by one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Change {
    pub(crate) before: Level,
    pub(crate) now: Level,
    /// The [`Source`] with the largest value, in proportion to the threshold of the higher level.
    pub(crate) source: Source,
}

impl Ladder {
    pub(crate) const fn new() -> Self {
        Self { level: Level::Normal, calm: 0 }
    }

    pub(crate) const fn level(&self) -> Level {
        self.level
    }

    /// Takes one sample of the [`Source`]s that `counts` includes.
    pub(crate) fn step(&mut self, values: &[f64; SOURCES], counts: fn(Source) -> bool) -> Option<Change> {
        let before = self.level;
        if let Some((source, share)) = foremost(values, Level::of(before.number() + 1), counts)
            && before != Level::Critical
            && share >= 1.0
        {
            self.calm = 0;
            self.level = Level::of(before.number() + 1);
            return Some(Change { before, now: self.level, source });
        }
        let (source, share) = foremost(values, before, counts)?;
        let below = foremost(values, Level::of(before.number() - 1), counts).map(|(_, share)| share);
        if share >= LEAVE && below.is_none_or(|below| below >= 1.0) {
            self.calm = 0;
            return None;
        }
        self.calm += 1;
        if self.calm < CALM {
            return None;
        }
        self.calm = 0;
        self.level = Level::of(before.number() - 1);
        Some(Change { before, now: self.level, source })
    }
}

/// The source with the largest value in proportion to its threshold for `level`, and that proportion; `None` for
/// [`Level::Normal`], which has no threshold.
fn foremost(values: &[f64; SOURCES], level: Level, counts: fn(Source) -> bool) -> Option<(Source, f64)> {
    let index = usize::from(level.number().checked_sub(1)?);
    let sources = Source::ALL.iter().copied().filter(|source| counts(*source));
    let shares = sources.map(|source| (source, values[source as usize] / source.thresholds()[index]));
    shares.max_by(|(_, one), (_, other)| one.total_cmp(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(source: Source, value: f64) -> [f64; SOURCES] {
        let mut values = [0.0; SOURCES];
        values[source as usize] = value;
        values
    }

    fn steps(ladder: &mut Ladder, values: &[f64; SOURCES], samples: u32) -> Vec<Level> {
        (0..samples).filter_map(|_| ladder.step(values, |_| true)).map(|change| change.now).collect()
    }

    #[test]
    fn a_level_rises_by_one_for_each_sample_up_to_that_of_the_value() {
        let mut ladder = Ladder::new();
        let values = values(Source::Memory, 0.95);
        assert_eq!(steps(&mut ladder, &values, 9), [Level::Elevated, Level::High, Level::Severe]);
    }

    #[test]
    fn a_value_between_the_thresholds_changes_nothing() {
        let mut ladder = Ladder::new();
        assert_eq!(steps(&mut ladder, &values(Source::LoopDelay, 0.1), 4), [Level::Elevated, Level::High]);
        // Below the threshold of the level, and above the part of it that ends the level.
        assert_eq!(steps(&mut ladder, &values(Source::LoopDelay, 0.085), 50), [Level::Normal; 0]);
        assert_eq!(steps(&mut ladder, &values(Source::LoopDelay, 0.0), 4), [Level::Normal; 0]);
        assert_eq!(
            steps(&mut ladder, &values(Source::LoopDelay, 0.085), 1),
            [Level::Normal; 0],
            "the calm begins anew"
        );
        let fallen = steps(&mut ladder, &values(Source::LoopDelay, 0.0), 10);
        assert_eq!(fallen, [Level::Elevated, Level::Normal]);
        assert_eq!(steps(&mut ladder, &values(Source::LoopDelay, 0.0), 50), [Level::Normal; 0]);
    }

    #[test]
    fn a_level_of_memory_falls_with_the_memory() {
        let mut ladder = Ladder::new();
        steps(&mut ladder, &values(Source::Memory, 0.98), 9);
        assert_eq!(ladder.level(), Level::Critical);
        // Between the thresholds of the level and of the one under it.
        assert_eq!(steps(&mut ladder, &values(Source::Memory, 0.95), 50), [Level::Normal; 0]);
        let fallen = steps(&mut ladder, &values(Source::Memory, 0.8), 50);
        assert_eq!(fallen, [Level::Severe, Level::High, Level::Elevated]);
        assert_eq!(steps(&mut ladder, &values(Source::Memory, 0.6), 5), [Level::Normal]);
    }

    #[test]
    fn the_change_names_the_source_of_the_higher_level() {
        let mut ladder = Ladder::new();
        let mut both = values(Source::KeyQueue, 0.6);
        both[Source::Stalls as usize] = 0.15;
        let change = ladder.step(&both, |_| true).expect("a change");
        assert_eq!(
            (change.before, change.now, change.source),
            (Level::Normal, Level::Elevated, Source::Stalls)
        );
        let calm = [0.0; SOURCES];
        assert!(
            (0..CALM).filter_map(|_| ladder.step(&calm, |_| true)).all(|change| change.now == Level::Normal)
        );
    }

    #[test]
    fn sources_that_do_not_count_have_no_effect() {
        let mut ladder = Ladder::new();
        let values = values(Source::LoopDelay, 10.0);
        assert!((0..9).all(|_| ladder.step(&values, Source::is_held_by_connections).is_none()));
        // A full queue of keys refuses no request.
        let values = self::values(Source::KeyQueue, 10.0);
        assert!((0..9).all(|_| ladder.step(&values, Source::concerns_requests).is_none()));
        assert_eq!(steps(&mut ladder, &values, 9).last(), Some(&Level::High));
    }
}
