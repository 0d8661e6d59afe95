//! The schedule: when operations start, and when a run ends. Pure computation, without a clock.
//!
//! All times are relative to the start of the run, which begins with the warm-up.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use brisk_compare::duration;

/// The schedule of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    pace: Pace,
    warmup: Duration,
    /// Measured time after which nothing starts.
    time: Option<Duration>,
    /// Measured operations after which none starts.
    count: Option<u64>,
}

/// Trigger of the next operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// Closed loop: the end of the previous operation. The steps give the number of concurrent operations.
    Closed(Steps),
    /// Open loop: the clock. Operations start at a fixed rate, independent of responses. At most `concurrency` run at
    /// once; the others wait.
    Fixed {
        /// Operations per second.
        rate: Steps,
        /// Maximum number of concurrent operations.
        concurrency: usize,
    },
}

/// A constant value, or one that rises in steps: `50:200:50/60s` starts at 50, rises by 50 every 60 seconds, and stays
/// at 200.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steps {
    first: f64,
    last: f64,
    by: f64,
    every: Duration,
}

/// Invalid text of [`Steps`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a number of steps, such as \"50:200:50/60s\": from 50, 50 more each 60 seconds, to 200"
)]
pub struct StepsError(String);

impl Schedule {
    /// A schedule that ends after `time` or after `count` operations, whichever comes first; both exclude the warm-up.
    /// With neither it ends with its steps, and without steps it is endless.
    pub fn new(pace: Pace, warmup: Duration, time: Option<Duration>, count: Option<u64>) -> Self {
        let steps = pace.steps();
        // A number of operations may end the run within the steps, so only without one do the steps set its
        // end.
        let time = time.or_else(|| (count.is_none() && steps.count() > 1).then(|| steps.length()));
        Self { pace, warmup, time, count }
    }

    /// The pace.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }

    /// End of the warm-up.
    pub fn warmup(&self) -> Duration {
        self.warmup
    }

    /// Time after which no operation starts; `None` if only their number ends the run.
    pub fn end(&self) -> Option<Duration> {
        self.time.map(|time| self.warmup + time)
    }

    /// Maximum number of measured operations.
    pub fn count(&self) -> Option<u64> {
        self.count
    }

    /// Whether time and number are unlimited.
    pub fn is_endless(&self) -> bool {
        self.time.is_none() && self.count.is_none()
    }

    /// At a fixed rate, the start of operation number `index`; `None` after the end of the run, and in a closed loop.
    pub fn start_of(&self, index: u64) -> Option<Duration> {
        let Pace::Fixed { rate, .. } = &self.pace else { return None };
        let start = arrival(rate, self.warmup, index);
        let late = self.end().is_some_and(|end| start >= end);
        let beyond = self.count.is_some_and(|count| index >= self.first_measured(rate) + count);
        (!late && !beyond).then_some(start)
    }

    /// The first operation whose start is not in the warm-up.
    fn first_measured(&self, rate: &Steps) -> u64 {
        // The search begins near the result: from 0, each call would compute every arrival of the warm-up.
        // One less, because the product of floats may be too large.
        let estimate = (rate.first * self.warmup.as_secs_f64()) as u64;
        let near = estimate.saturating_sub(1)..;
        near.into_iter()
            .find(|index| arrival(rate, self.warmup, *index) >= self.warmup)
            .expect("arrivals never end")
    }

    /// Maximum number of concurrent operations at `at`.
    pub fn concurrency(&self, at: Duration) -> usize {
        match &self.pace {
            Pace::Closed(steps) => steps.at(at.saturating_sub(self.warmup)).round() as usize,
            Pace::Fixed { concurrency, .. } => *concurrency,
        }
    }

    /// Maximum number of concurrent operations during the whole run.
    pub fn most(&self) -> usize {
        self.pace.most()
    }

    /// When slot number `slot` of [`most`](Self::most) becomes available.
    pub fn opening(&self, slot: usize) -> Duration {
        match &self.pace {
            Pace::Closed(steps) if slot as f64 >= steps.first.round() => {
                let missing = (slot + 1) as f64 - steps.first;
                self.warmup + steps.every.mul_f64((missing / steps.by).ceil())
            }
            _ => Duration::ZERO,
        }
    }

    /// Scheduled operations per second at `at`; `None` in a closed loop.
    pub fn offered(&self, at: Duration) -> Option<f64> {
        match &self.pace {
            Pace::Closed(_) => None,
            Pace::Fixed { rate, .. } => Some(rate.at(at.saturating_sub(self.warmup))),
        }
    }
}

/// The start of operation `index` if the first step is longer by `warmup`.
fn arrival(rate: &Steps, warmup: Duration, index: u64) -> Duration {
    // Each arrival is computed from the begin: intervals that are added up would add up their rounding
    // errors.
    let mut before = 0.0;
    let mut began = 0.0;
    let mut value = rate.first;
    let mut length = (warmup + rate.every).as_secs_f64();
    for _ in 1..rate.count() {
        if (index as f64) < before + value * length {
            break;
        }
        before += value * length;
        began += length;
        value = (value + rate.by).min(rate.last);
        length = rate.every.as_secs_f64();
    }
    Duration::from_secs_f64(began + (index as f64 - before) / value)
}

impl Pace {
    /// Maximum number of concurrent operations.
    pub fn most(&self) -> usize {
        match self {
            Self::Closed(steps) => steps.most().round() as usize,
            Self::Fixed { concurrency, .. } => *concurrency,
        }
    }

    fn steps(&self) -> &Steps {
        match self {
            Self::Closed(steps) | Self::Fixed { rate: steps, .. } => steps,
        }
    }
}

impl Steps {
    /// A constant. `value` must be greater than 0.
    pub fn constant(value: f64) -> Self {
        Self { first: value, last: value, by: 0.0, every: Duration::ZERO }
    }

    /// Steps from `first` to `last`, which rise by `by` every `every`. `None` unless `0 < first <= last`, and `by` and
    /// `every` are greater than 0.
    pub fn new(first: f64, last: f64, by: f64, every: Duration) -> Option<Self> {
        // Comparisons with `NaN` are false, and a finite `last` bounds `first`.
        let right = first > 0.0 && last >= first && by > 0.0 && !every.is_zero() && last.is_finite();
        right.then_some(Self { first, last, by, every })
    }

    /// Multiplies each value by `factor`.
    #[must_use]
    pub fn times(self, factor: u32) -> Self {
        let factor = f64::from(factor);
        Self { first: self.first * factor, last: self.last * factor, by: self.by * factor, every: self.every }
    }

    /// Number of steps.
    pub fn count(&self) -> u32 {
        if self.by > 0.0 { 1 + ((self.last - self.first) / self.by).ceil() as u32 } else { 1 }
    }

    /// Duration of all steps; zero for a constant.
    pub fn length(&self) -> Duration {
        self.every * self.count()
    }

    /// The value at `at`, relative to the start of the first step.
    pub fn at(&self, at: Duration) -> f64 {
        if self.every.is_zero() {
            return self.first;
        }
        let step = (at.as_secs_f64() / self.every.as_secs_f64()).floor();
        (self.first + step * self.by).min(self.last)
    }

    /// The highest value.
    pub fn most(&self) -> f64 {
        self.last
    }

    /// Whether the values of all steps are whole numbers.
    pub fn is_whole(&self) -> bool {
        [self.first, self.last, self.by].iter().all(|value| value.fract() == 0.0)
    }
}

impl FromStr for Steps {
    type Err = StepsError;

    /// Parses `50:200:50/60s`.
    fn from_str(text: &str) -> Result<Self, StepsError> {
        let read = || {
            let (values, every) = text.split_once('/')?;
            let mut values = values.split(':').map(|value| value.parse().ok());
            let (first, last, by) = (values.next()??, values.next()??, values.next()??);
            let every = duration(every)?;
            values.next().is_none().then(|| Self::new(first, last, by, every)).flatten()
        };
        read().ok_or_else(|| StepsError(text.to_owned()))
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.by > 0.0 {
            write!(f, "{}:{}:{}/{:?}", self.first, self.last, self.by, self.every)
        } else {
            write!(f, "{}", self.first)
        }
    }
}

#[cfg(test)]
mod tests;
