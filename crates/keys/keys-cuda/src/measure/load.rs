//! Load generator for engines: several threads, with a fixed number of operations in progress or at a fixed rate.

use std::collections::VecDeque;
use std::future::Future;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use brisk_keys::{KeyResult, PendingOperation, PrivateKeyEngine};
use hdrhistogram::Histogram;

use super::MeasureError;
use super::keys::Pool;

/// Maximum number of submitting threads. One thread submits about 500,000 operations per second.
const SUBMITTERS: usize = 8;

/// Divisor of the duration of a measurement that gives the warm-up before it.
const WARM_UP: u32 = 4;

/// Longest duration that is distinguished, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;

/// Result of a measurement at one load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Number of operations in progress; `None` at a fixed rate.
    pub under_way: Option<usize>,
    /// The fixed rate in operations per second.
    pub offered: Option<f64>,
    /// Throughput in operations per second.
    pub rate: f64,
    /// Median latency in microseconds, from the planned start until the result was noticed.
    pub median: f64,
    /// 99th percentile of latency, in microseconds.
    pub p99: f64,
}

/// Load generator with the operations of a pool.
pub(super) struct Loader<'a> {
    pool: &'a Pool,
    submitters: usize,
    time: Duration,
}

/// Results of one thread.
struct ThreadResults {
    times: Histogram<u64>,
    count: u64,
}

/// Operations in progress, with their planned start.
type PendingQueue = VecDeque<(Instant, PendingOperation)>;

impl<'a> Loader<'a> {
    /// A generator that submits from half of the cores and leaves the others to the engine.
    pub(super) fn new(pool: &'a Pool, cores: NonZeroUsize, time: Duration) -> Self {
        Self { pool, submitters: (cores.get() / 2).clamp(1, SUBMITTERS), time }
    }

    /// Measures with `under_way` operations in progress.
    pub(super) fn closed(
        &mut self,
        engine: &dyn PrivateKeyEngine,
        under_way: usize,
    ) -> Result<Point, MeasureError> {
        let submitters = self.submitters.min(under_way);
        let point = self.load(submitters, |thread, clock, results| {
            let share = under_way / submitters + usize::from(thread < under_way % submitters);
            closed(engine, self.pool, (thread, share), clock, results)
        })?;
        Ok(Point { under_way: Some(under_way), ..point })
    }

    /// Measures at a fixed `rate` per second, independent of results (open loop).
    pub(super) fn paced(&mut self, engine: &dyn PrivateKeyEngine, rate: f64) -> Result<Point, MeasureError> {
        let interval = Duration::from_secs_f64(self.submitters as f64 / rate.max(1.0));
        let point = self.load(self.submitters, |thread, clock, results| {
            let first = clock.begin + interval.mul_f64(thread as f64 / self.submitters as f64);
            paced(engine, self.pool, (thread, first, interval), clock, results)
        })?;
        Ok(Point { offered: Some(rate), ..point })
    }

    fn load(
        &self,
        submitters: usize,
        submit: impl Fn(usize, &Clock, &mut ThreadResults) -> Result<(), MeasureError> + Sync,
    ) -> Result<Point, MeasureError> {
        let clock = Clock::new(self.time);
        let mut all = ThreadResults::new();
        thread::scope(|scope| {
            let (submit, clock) = (&submit, &clock);
            let threads: Vec<_> = (0..submitters)
                .map(|thread| {
                    scope.spawn(move || {
                        let mut results = ThreadResults::new();
                        submit(thread, clock, &mut results).map(|()| results)
                    })
                })
                .collect();
            for results in threads.into_iter().map(super::join) {
                let results = results?;
                all.count += results.count;
                all.times.add(&results.times).expect("bounds are the same");
            }
            Ok::<_, MeasureError>(())
        })?;
        let time = |quantile| all.times.value_at_quantile(quantile) as f64 / 1e3;
        let rate = all.count as f64 / (clock.end - clock.counted).as_secs_f64();
        Ok(Point { under_way: None, offered: None, rate, median: time(0.5), p99: time(0.99) })
    }
}

/// Start, end of the warm-up, and end of a measurement.
struct Clock {
    begin: Instant,
    counted: Instant,
    end: Instant,
}

impl Clock {
    fn new(time: Duration) -> Self {
        let begin = Instant::now();
        let counted = begin + time / WARM_UP;
        Self { begin, counted, end: counted + time }
    }
}

impl ThreadResults {
    fn new() -> Self {
        let times = Histogram::new_with_bounds(1, LONGEST, 3);
        Self { times: times.expect("bounds that are apart"), count: 0 }
    }

    /// Records a result at the present time.
    fn answer(&mut self, since: Instant, clock: &Clock) {
        let now = Instant::now();
        if now >= clock.counted && now < clock.end {
            self.count += 1;
            self.times.saturating_record((now - since).as_nanos() as u64);
        }
    }
}

fn closed(
    engine: &dyn PrivateKeyEngine,
    pool: &Pool,
    (thread, share): (usize, usize),
    clock: &Clock,
    results: &mut ThreadResults,
) -> Result<(), MeasureError> {
    // The threads begin at different operations, so that they do not use the same keys in step.
    let (mut pending_queue, mut number) = (PendingQueue::with_capacity(share), thread * 37);
    loop {
        let open = Instant::now() < clock.end;
        while open && pending_queue.len() < share {
            pending_queue.push_back((Instant::now(), engine.submit(pool.operation(number))));
            number += 1;
        }
        let Some((since, pending)) = pending_queue.pop_front() else { return Ok(()) };
        wait(pending)?;
        results.answer(since, clock);
        take_answered(&mut pending_queue, clock, results)?;
    }
}

fn paced(
    engine: &dyn PrivateKeyEngine,
    pool: &Pool,
    (thread, mut due, interval): (usize, Instant, Duration),
    clock: &Clock,
    results: &mut ThreadResults,
) -> Result<(), MeasureError> {
    let (mut pending_queue, mut number) = (PendingQueue::new(), thread * 37);
    while due < clock.end {
        while due < clock.end && due <= Instant::now() {
            pending_queue.push_back((due, engine.submit(pool.operation(number))));
            number += 1;
            due += interval;
        }
        take_answered(&mut pending_queue, clock, results)?;
        // A sleeping thread wakes about as late as this, so it yields instead for shorter waits.
        let left = due.saturating_duration_since(Instant::now());
        if left > Duration::from_micros(200) {
            thread::sleep(Duration::from_micros(100));
        } else {
            thread::yield_now();
        }
    }
    pending_queue.into_iter().try_for_each(|(since, pending)| {
        wait(pending)?;
        results.answer(since, clock);
        Ok(())
    })
}

/// Takes results from the front of the queue. A result that overtook others is noticed after them.
fn take_answered(
    pending_queue: &mut PendingQueue,
    clock: &Clock,
    results: &mut ThreadResults,
) -> Result<(), MeasureError> {
    while let Some((since, pending)) = pending_queue.front_mut()
        && let Some(result) = pending.try_take()
    {
        result?;
        results.answer(*since, clock);
        pending_queue.pop_front();
    }
    Ok(())
}

/// Blocks until the operation has ended.
pub(super) fn wait(pending: PendingOperation) -> KeyResult {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let (mut context, mut pending) = (Context::from_waker(&waker), pin!(pending));
    loop {
        match pending.as_mut().poll(&mut context) {
            Poll::Ready(result) => return result,
            Poll::Pending => thread::park(),
        }
    }
}

#[cfg(test)]
mod tests {
    use brisk_keys::{BatchEngine, BatchSettings, device};

    use super::*;

    #[test]
    fn an_engine_is_loaded_by_number_and_by_rate() {
        let two = NonZeroUsize::new(2).unwrap();
        let pool = Pool::new(device::Width::Rsa2048, 2, two).unwrap();
        let engine = BatchEngine::new(Arc::clone(pool.keystore()), &BatchSettings::default()).unwrap();
        let mut loader = Loader::new(&pool, two, Duration::from_millis(200));
        // Each measurement is short, and a busy machine may leave it no time: it is repeated until it succeeds.
        let tried = (0..50).any(|_| {
            let alone = loader.closed(&engine, 1).unwrap();
            assert_eq!((alone.under_way, alone.offered), (Some(1), None));
            let many = loader.closed(&engine, 16).unwrap();
            assert_eq!(many.under_way, Some(16));
            alone.rate > 0.0 && alone.median > 10.0 && alone.p99 >= alone.median && many.median > alone.median
        });
        assert!(tried, "sixteen at a time take no longer than one");
        let tried = (0..50).any(|_| {
            let paced = loader.paced(&engine, 100.0).unwrap();
            assert_eq!((paced.under_way, paced.offered), (None, Some(100.0)));
            (60.0..140.0).contains(&paced.rate)
        });
        assert!(tried, "an offered rate of 100 is not met");
    }
}
