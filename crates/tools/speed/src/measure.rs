//! Measures operations alternately: each has a slice of every round. A temporary disturbance therefore affects all
//! operations equally, and medians exclude it.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use crate::result::{Figure, Operation, Row};
use crate::settings::Pace;
use crate::work::{Call, Work};
use crate::{Progress, SpeedError};

/// Minimum duration of a sample, so that reading the clock (about 30 ns) does not matter. Shorter operations are
/// repeated within a sample, up to [`MOST_CALLS`] times.
const SAMPLE: Duration = Duration::from_micros(20);

/// Maximum number of calls for one sample.
const MOST_CALLS: u32 = 1 << 16;

/// Maximum duration of a sample in histograms; a longer one counts as [`LONGEST`].
const LONGEST: Duration = Duration::from_mins(1);

/// Measures all available operations. The result has a [`Row`] for the [`Missing`](crate::result::Missing) ones too.
pub(crate) fn measure(
    works: Vec<Work>,
    pace: Pace,
    progress: &mut Progress<'_>,
) -> Result<Vec<Row>, SpeedError> {
    let mut meters = Vec::with_capacity(works.len());
    // Before the first round, so that the determination of `calls` does not fall into the slice of another
    // operation.
    for Work { operation, act } in works {
        let meter = match act {
            Ok(act) => Ok(Meter::new(operation, act)?),
            Err(missing) => Err(missing),
        };
        meters.push((operation, meter));
    }
    for _ in 0..pace.rounds {
        for (operation, meter) in &mut meters {
            if let Ok(meter) = meter {
                let rate = meter.round(pace.slice)?;
                progress.step(&operation.to_string(), rate);
            }
        }
    }
    let rows = meters.into_iter();
    Ok(rows.map(|(operation, meter)| Row { operation, figure: meter.map(Meter::figure) }).collect())
}

/// The measurements of one operation.
struct Meter {
    act: Call,
    /// Calls per sample.
    calls: u32,
    /// Operations per sample.
    operations: u64,
    /// Durations of samples in nanoseconds.
    samples: Histogram<u64>,
    /// Operations per second of processor time, for each round.
    rates: Vec<f64>,
}

impl Meter {
    /// Determines `calls`, a power of two with which a sample takes at least [`SAMPLE`].
    fn new(operation: Operation, mut act: Call) -> Result<Self, SpeedError> {
        // One-time initialisation must not be part of a sample.
        act()?;
        let mut calls = 1;
        while calls < MOST_CALLS && fastest(&mut act, calls)? < SAMPLE {
            calls *= 2;
        }
        let samples = Histogram::new_with_bounds(1, LONGEST.as_nanos() as u64, 3);
        Ok(Self {
            act,
            calls,
            operations: u64::from(calls) * operation.batch as u64,
            samples: samples.expect("bounds that are apart"),
            rates: Vec::new(),
        })
    }

    /// Repeats the operation for the given time, at least once. Returns operations per second of processor time, which
    /// excludes time taken by other processes.
    fn round(&mut self, time: Duration) -> Result<f64, SpeedError> {
        // Fills the caches, which contain data of the previously measured operation.
        perform(&mut self.act, self.calls)?;
        let (cpu, started) = (thread_cpu(), Instant::now());
        let mut last = started;
        let mut samples = 0;
        // One call may take longer than the slice.
        while samples == 0 || last - started < time {
            perform(&mut self.act, self.calls)?;
            // The end of a sample is the begin of the next one: one reading of the clock for each.
            let now = Instant::now();
            self.samples.saturating_record((now - last).as_nanos() as u64);
            last = now;
            samples += 1;
        }
        // Processor time, as in `openssl speed`; the histogram has the time of the clock.
        let rate = (samples * self.operations) as f64 / thread_cpu().saturating_sub(cpu).as_secs_f64();
        self.rates.push(rate);
        Ok(rate)
    }

    fn figure(self) -> Figure {
        let each = |quantile| self.samples.value_at_quantile(quantile) as f64 / 1e3 / self.operations as f64;
        Figure {
            count: self.samples.len() * self.operations,
            median: each(0.5),
            p99: each(0.99),
            rate: median(self.rates).expect("there is a round at least"),
        }
    }
}

fn perform(act: &mut Call, calls: u32) -> Result<(), SpeedError> {
    (0..calls).try_for_each(|_| act())
}

/// The shortest of three samples, since the others may have been interrupted.
fn fastest(act: &mut Call, calls: u32) -> Result<Duration, SpeedError> {
    let mut shortest = Duration::MAX;
    for _ in 0..3 {
        let started = Instant::now();
        perform(act, calls)?;
        shortest = shortest.min(started.elapsed());
    }
    Ok(shortest)
}

/// Processor time of the calling thread, user and system.
pub(crate) fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("processor time is not negative")
}

/// The median; for an even number of values, the mean of the two in the middle.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let first = values.len().checked_sub(1)? / 2;
    Some(f64::midpoint(values[first], values[values.len() / 2]))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::result::{Action, Missing};
    use crate::subject::Algorithm;
    use crate::{Observer, Step};

    struct Steps(Vec<(u32, String)>);

    impl Observer for Steps {
        fn step(&mut self, step: &Step<'_>) {
            assert_eq!(step.of, 6);
            assert!(step.rate > 0.0);
            self.0.push((step.done, step.what.to_owned()));
        }
    }

    fn work(algorithm: Algorithm, batch: usize, act: Result<Call, Missing>) -> Work {
        Work { operation: Operation { algorithm, action: Action::Sign, batch, bytes: None }, act }
    }

    #[test]
    fn operations_take_turns_and_are_counted() {
        let calls = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&calls);
        let count: Call = Box::new(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            let started = Instant::now();
            while started.elapsed() < Duration::from_micros(50) {}
            Ok(())
        });
        let works = vec![
            work(Algorithm::Rsa2048, 4, Ok(count)),
            work(Algorithm::Rsa3072, 4, Err(Missing::Lanes)),
            work(Algorithm::P256, 1, Ok(Box::new(|| Ok(())))),
        ];
        let mut steps = Steps(Vec::new());
        let mut progress = Progress { observer: &mut steps, done: 0, of: 6 };
        let pace = Pace { rounds: 3, slice: Duration::from_millis(1) };
        let rows = measure(works, pace, &mut progress).unwrap();

        let figure = rows[0].figure.unwrap();
        // One call at first, three to determine the number per sample, one before each round.
        assert_eq!(figure.count, 4 * (calls.load(Ordering::Relaxed) - 1 - 3 - 3));
        assert!(figure.median >= 50.0 / 4.0 && figure.p99 >= figure.median, "{figure:?}");
        assert_eq!(rows[1].figure, Err(Missing::Lanes));
        assert!(rows[2].figure.unwrap().rate > figure.rate);
        let turns = ["RSA-2048 sign, batches of 4", "P-256 sign"].into_iter().cycle().map(str::to_owned);
        assert!((1..).zip(turns).take(6).eq(steps.0));
    }

    #[test]
    fn an_operation_that_fails_ends_the_run() {
        let works = vec![work(Algorithm::P256, 1, Ok(Box::new(|| Err(SpeedError::Library))))];
        let mut steps = Steps(Vec::new());
        let mut progress = Progress { observer: &mut steps, done: 0, of: 6 };
        let pace = Pace { rounds: 3, slice: Duration::from_millis(1) };
        assert!(matches!(measure(works, pace, &mut progress), Err(SpeedError::Library)));
    }

    #[test]
    fn medians() {
        assert_eq!(median(Vec::new()), None);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
