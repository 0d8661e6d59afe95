//! [`Sampler`]: turns samples of all sources into the level and the shares of refused work.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::ladder::{Change, Ladder};
use crate::level::{Level, Mode, SOURCES, Source, Work};
use crate::memory::MemoryProbe;
use crate::pressure::Pressure;
use crate::shedding::{Handshakes, KINDS, Shedding};

/// Interval at which [`Sampler::tick`] is to be called.
pub const INTERVAL: Duration = Duration::from_millis(100);

/// Weight of a new value in the smoothed one, so that a single value causes no level.
const WEIGHT: f64 = 0.3;

/// Number of samples after which limits of control groups are read again: a minute.
const PROBE_AGE: u32 = 600;

/// Values of the sources at one time. Sources that are not set are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample([f64; SOURCES]);

impl Sample {
    /// Sets the value of `source`, at most 1: a longer delay would keep its level for long after its end. Values that are no number
    /// count as 0.
    pub fn set(&mut self, source: Source, value: f64) {
        self.0[source as usize] = if value.is_finite() { value.clamp(0.0, 1.0) } else { 0.0 };
    }

    /// Sets the value of `source` to `part` of `whole`; 0 if there is no whole.
    pub fn set_part(&mut self, source: Source, part: u64, whole: u64) {
        self.set(source, part as f64 / whole as f64);
    }
}

/// Writer of a [`Pressure`]. Belongs to the main thread.
#[derive(Debug)]
pub struct Sampler {
    pressure: Arc<Pressure>,
    smoothed: [f64; SOURCES],
    all: Ladder,
    held: Ladder,
    /// Of the queue of keys alone, which refuses no request.
    keys: Ladder,
    shedding: Shedding,
    handshakes: Handshakes,
    probe: Option<MemoryProbe>,
    probe_age: u32,
    /// Time of the last read of the probe.
    probed: Instant,
    mode: Mode,
}

impl Sampler {
    /// A sampler of `pressure` that measures [`Source::Memory`] and [`Source::Stalls`] itself.
    pub fn new(pressure: Arc<Pressure>) -> Self {
        Self { probe: MemoryProbe::of_process(), ..Self::without_memory(pressure) }
    }

    fn without_memory(pressure: Arc<Pressure>) -> Self {
        Self {
            pressure,
            smoothed: [0.0; SOURCES],
            all: Ladder::new(),
            held: Ladder::new(),
            keys: Ladder::new(),
            shedding: Shedding::default(),
            handshakes: Handshakes::default(),
            probe: None,
            probe_age: 0,
            probed: Instant::now(),
            mode: Mode::Shed,
        }
    }

    /// The figures that the sampler writes.
    pub fn pressure(&self) -> &Arc<Pressure> {
        &self.pressure
    }

    /// Takes one sample, of which the caller measures the other sources. With [`Mode::Observe`], the level is [`Level::Normal`].
    /// Logs one line for each change of the level. Reads two small files if the process has a limit of memory.
    pub fn tick(&mut self, mut sample: Sample, mode: Mode) {
        self.measure_memory(&mut sample);
        for (smoothed, value) in self.smoothed.iter_mut().zip(sample.0) {
            *smoothed += WEIGHT * (value - *smoothed);
        }
        self.pressure.set_values(&self.smoothed);
        if mode == Mode::Shed {
            let of_keys = self.keys.step(&self.smoothed, Source::concerns_keys);
            let of_requests = self.all.step(&self.smoothed, Source::concerns_requests);
            of_keys.into_iter().chain(of_requests).for_each(|change| self.log(change));
            self.held.step(&self.smoothed, Source::is_held_by_connections);
            self.shedding.step(self.all.level());
            self.handshakes.step(self.keys.level());
        } else if self.mode == Mode::Shed {
            (self.all, self.held, self.keys) = (Ladder::new(), Ladder::new(), Ladder::new());
            (self.shedding, self.handshakes) = (Shedding::default(), Handshakes::default());
        }
        self.mode = mode;
        let level = Level::of(self.all.level().number().max(self.keys.level().number()));
        self.pressure.set_levels(level, self.held.level());
        for (index, kind) in KINDS.iter().enumerate() {
            let of_keys = if *kind == Work::FullHandshake { self.handshakes.share() } else { 0.0 };
            self.pressure.set_share(index, self.shedding.share(index).max(of_keys));
        }
    }

    fn measure_memory(&mut self, sample: &mut Sample) {
        let Some(probe) = &mut self.probe else { return };
        sample.set(Source::Memory, probe.used());
        sample.set(Source::Stalls, probe.stalled(self.probed.elapsed().max(INTERVAL)));
        self.probed = Instant::now();
        self.probe_age += 1;
        if self.probe_age >= PROBE_AGE {
            // A container may get another limit while it runs.
            self.probe = MemoryProbe::of_process();
            self.probe_age = 0;
        }
    }

    fn log(&self, change: Change) {
        let Change { before, now, source } = change;
        let value = self.pressure.value(source);
        if now == Level::Normal {
            tracing::info!(level = now.name(), source = source.name(), value, "the overload has ended");
        } else if now.is_at_least(before) {
            tracing::warn!(
                level = now.name(),
                source = source.name(),
                value,
                "overload: the level has risen"
            );
        } else {
            tracing::info!(
                level = now.name(),
                source = source.name(),
                value,
                "overload: the level has fallen"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(source: Source, value: f64) -> Sample {
        let mut sample = Sample::default();
        sample.set(source, value);
        sample
    }

    fn ticks(sampler: &mut Sampler, sample: Sample, number: u32) -> Level {
        (0..number).for_each(|_| sampler.tick(sample, Mode::Shed));
        sampler.pressure().level()
    }

    #[test]
    fn a_single_value_causes_no_severe_level_and_a_lasting_one_does() {
        let mut sampler = Sampler::without_memory(Pressure::new());
        sampler.tick(sample(Source::LoopDelay, 1.0), Mode::Shed);
        for _ in 0..30 {
            assert!(!ticks(&mut sampler, Sample::default(), 1).is_at_least(Level::Severe));
        }
        assert_eq!(sampler.pressure().level(), Level::Normal);
        assert_eq!(ticks(&mut sampler, sample(Source::LoopDelay, 1.0), 10), Level::Critical);
    }

    #[test]
    fn a_long_delay_has_no_longer_effect_than_a_short_one() {
        let mut sampler = Sampler::without_memory(Pressure::new());
        sampler.tick(sample(Source::LoopDelay, 30.0), Mode::Shed);
        assert_eq!(ticks(&mut sampler, Sample::default(), 30), Level::Normal);
    }

    #[test]
    fn work_is_refused_by_its_priority_and_admitted_again_within_five_seconds() {
        let mut sampler = Sampler::without_memory(Pressure::new());
        let pressure = Arc::clone(sampler.pressure());
        ticks(&mut sampler, sample(Source::Descriptors, 0.95), 50);
        assert!(pressure.refuses(Work::Low));
        assert!(!pressure.refuses(Work::FullHandshake) && !pressure.refuses(Work::Normal));
        assert_eq!(pressure.idle_time(Duration::from_mins(1)), Duration::from_secs(10));
        ticks(&mut sampler, sample(Source::LoopDelay, 1.0), 100);
        assert!(Work::ALL.iter().all(|work| pressure.refuses(*work)));
        assert_eq!(ticks(&mut sampler, Sample::default(), 50), Level::Normal);
        assert!(!Work::ALL.iter().any(|work| pressure.refuses(*work)));
        assert_eq!(pressure.idle_time(Duration::from_mins(1)), Duration::from_mins(1));
    }

    #[test]
    fn a_sampler_that_is_off_shows_values_and_refuses_nothing() {
        let mut sampler = Sampler::without_memory(Pressure::new());
        let pressure = Arc::clone(sampler.pressure());
        ticks(&mut sampler, sample(Source::KeyQueue, 1.0), 50);
        assert_eq!(pressure.level(), Level::High);
        // Other work needs no key.
        assert!(pressure.refuses(Work::FullHandshake));
        assert!(!pressure.refuses(Work::Low) && !pressure.refuses(Work::Normal));
        sampler.tick(sample(Source::KeyQueue, 1.0), Mode::Observe);
        assert!(pressure.level() == Level::Normal && !pressure.refuses(Work::FullHandshake));
        assert!(pressure.value(Source::KeyQueue) > 0.99);
    }

    #[test]
    fn values_without_a_limit_count_as_zero() {
        let mut sample = Sample::default();
        sample.set_part(Source::KeyQueue, 0, 0);
        sample.set_part(Source::Budgets, 3, 0);
        sample.set(Source::Memory, -1.0);
        assert_eq!(sample, Sample::default());
        sample.set_part(Source::Budgets, 1, 4);
        assert!((sample.0[Source::Budgets as usize] - 0.25).abs() < 1e-9);
    }
}
