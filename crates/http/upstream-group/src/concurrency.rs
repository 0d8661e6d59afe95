//! Concurrent requests to one server, of all workers: [`Concurrency`], whose limit adapts to the server.

mod limiter;
mod window;

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::features::pool::places::Places;
use limiter::{Change, Limit, Limiter};
use window::Observed;

/// Requests of one worker since its last [`Concurrency::report`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Requests whose response has begun.
    pub answered: u64,
    /// Sum of their times to the head of the response, in microseconds.
    pub micros: u64,
    /// Requests that ended before.
    pub lost: u64,
    /// Change of the number of requests that wait for the head of a response, by requests without a permit.
    pub in_flight: i64,
}

/// Requests of all workers that wait for the head of a response of one server, and their limit.
///
/// Without an overload there is no limit: a request costs no operation here, and workers report their counts at most ten times a
/// second. With a limit, each request holds a permit.
#[derive(Debug)]
pub struct Concurrency {
    is_limited: AtomicBool,
    /// Made for the first limit: most servers never have one.
    permits: OnceLock<Arc<Places>>,
    /// The limit in force; 0 for none.
    in_force: AtomicUsize,
    /// Longest wait for a permit in microseconds; 0 for that of `pool.queue`.
    wait: AtomicU64,
    /// Whether the limit is a first trial, which refuses no request.
    is_first_trial: AtomicBool,
    /// `pool.queue.size`.
    queue: usize,
    answered: AtomicU64,
    micros: AtomicU64,
    lost: AtomicU64,
    /// Requests in flight that began without a limit.
    without_permit: AtomicI64,
    limiter: Mutex<Limiter>,
}

/// A change of the limit, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitChange {
    /// The server is overloaded: at most this number of requests at a time.
    Limited(usize),
    /// The overload of the server has ended.
    Ended,
}

impl Concurrency {
    /// No limit. While there is one, at most `queue` requests wait for a permit.
    pub fn new(queue: usize) -> Self {
        Self {
            is_limited: AtomicBool::new(false),
            permits: OnceLock::new(),
            in_force: AtomicUsize::new(0),
            wait: AtomicU64::new(0),
            is_first_trial: AtomicBool::new(false),
            queue,
            answered: AtomicU64::new(0),
            micros: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            without_permit: AtomicI64::new(0),
            limiter: Mutex::new(Limiter::new()),
        }
    }

    /// Whether a request needs one of [`Self::permits`]. Costs one load.
    pub fn is_limited(&self) -> bool {
        self.is_limited.load(Ordering::Relaxed)
    }

    /// The permits, as many as the limit.
    pub fn permits(&self) -> &Arc<Places> {
        self.permits.get_or_init(|| Places::shared(usize::MAX, self.queue))
    }

    /// Longest wait for a permit; `None` is that of `pool.queue`.
    pub fn wait(&self) -> Option<Duration> {
        let micros = self.wait.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    /// Whether a request without a permit in time is sent nevertheless, because no overload was found.
    pub fn refuses_none(&self) -> bool {
        self.is_first_trial.load(Ordering::Relaxed)
    }

    /// Adds the counts of a worker.
    pub fn report(&self, counts: RequestCounts) {
        // Relaxed: the sums guard no other memory, and are read ten times a second.
        for (sum, count) in
            [(&self.answered, counts.answered), (&self.micros, counts.micros), (&self.lost, counts.lost)]
        {
            if count > 0 {
                sum.fetch_add(count, Ordering::Relaxed);
            }
        }
        if counts.in_flight != 0 {
            self.without_permit.fetch_add(counts.in_flight, Ordering::Relaxed);
        }
    }

    /// Adapts the limit to the counts since the last call, `passed` ago, and to the `delay` of the event loops meanwhile. Called by
    /// the main thread ten times a second.
    pub(crate) fn adapt(&self, passed: Duration, delay: Duration) -> Option<LimitChange> {
        let without_permit = usize::try_from(self.without_permit.load(Ordering::Relaxed)).unwrap_or(0);
        let permits = self.permits.get();
        let observed = Observed {
            answered: self.answered.swap(0, Ordering::Relaxed),
            latency: Duration::from_micros(self.micros.swap(0, Ordering::Relaxed)),
            lost: self.lost.swap(0, Ordering::Relaxed),
            in_flight: (without_permit + permits.map_or(0, |permits| permits.taken())) as u64,
            without_permit: without_permit as u64,
            delay,
            has_queue: permits.is_some_and(|permits| permits.take_refused() || permits.waiting() > 0),
        };
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let change = limiter.tick(passed, &observed);
        let limit = limiter.limit();
        let in_force = limit.filter(|_| limiter.is_in_force()).map_or(0, |limit| limit.requests);
        drop(limiter);
        self.in_force.store(in_force, Ordering::Relaxed);
        self.apply(limit, without_permit);
        match change? {
            Change::Limited => limit.map(|limit| LimitChange::Limited(limit.requests)),
            Change::Opened => Some(LimitChange::Ended),
        }
    }

    fn apply(&self, limit: Option<Limit>, without_permit: usize) {
        let Some(Limit { requests, queue, wait }) = limit else {
            return self.open();
        };
        self.wait.store(wait.map_or(0, |wait| wait.as_micros() as u64), Ordering::Relaxed);
        // Requests that began without a limit count too. At least as many permits as any limit has, because some of those requests
        // may never end.
        let permits = requests.saturating_sub(without_permit).max(limiter::FLOOR.min(requests));
        self.is_first_trial.store(queue.is_none(), Ordering::Relaxed);
        // Without a trial, the requests would wait in the server.
        self.permits().set_limits(permits, queue.map_or(usize::MAX, |queue| queue.min(self.queue)));
        // After the limits, so that no request takes a permit of the time before.
        self.is_limited.store(true, Ordering::Relaxed);
    }

    /// Ends a limit, and admits all requests that wait.
    fn open(&self) {
        if self.is_limited.swap(false, Ordering::Relaxed) {
            self.wait.store(0, Ordering::Relaxed);
            self.is_first_trial.store(false, Ordering::Relaxed);
            self.permits().set_limits(usize::MAX, self.queue);
        }
    }

    /// Ends a limit and forgets its reasons, because `server.overload` is off. Returns whether there was one in force.
    pub(crate) fn reset(&self) -> bool {
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let was_in_force = limiter.is_in_force();
        if self.is_limited() || was_in_force {
            *limiter = Limiter::new();
        }
        drop(limiter);
        // Later counts begin with the next call of `adapt`.
        for sum in [&self.answered, &self.micros, &self.lost] {
            sum.store(0, Ordering::Relaxed);
        }
        self.in_force.store(0, Ordering::Relaxed);
        self.open();
        was_in_force
    }

    /// The limit in force; `None` without an overload, and during a first trial.
    pub(crate) fn limit(&self) -> Option<usize> {
        Some(self.in_force.load(Ordering::Relaxed)).filter(|limit| *limit > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers `rate` requests per second of any number, at the end of each tenth of a second.
    fn overload(concurrency: &Concurrency, rate: u64, in_flight: i64) -> Option<LimitChange> {
        let answered = rate / 10;
        let micros = answered * (in_flight as u64 * 1_000_000 / rate);
        concurrency.report(RequestCounts { answered, micros, lost: 0, in_flight: 0 });
        concurrency.adapt(Duration::from_millis(100), Duration::ZERO)
    }

    #[test]
    fn an_overloaded_server_gets_permits_and_an_idle_one_none() {
        let concurrency = Concurrency::new(100);
        let mut in_flight = 0;
        let mut grow = |concurrency: &Concurrency, by: i64| {
            concurrency.report(RequestCounts { in_flight: by, ..RequestCounts::default() });
            in_flight += by;
            in_flight
        };
        let now = grow(&concurrency, 10);
        (0..10).for_each(|_| assert!(overload(&concurrency, 1000, now).is_none()));
        assert!(!concurrency.is_limited());
        // Requests accumulate in the server until a trial begins.
        let began = (0..100).find(|_| {
            let now = grow(&concurrency, 40);
            overload(&concurrency, 1000, now);
            concurrency.is_limited()
        });
        assert!(began.is_some() && concurrency.limit().is_none(), "a trial is no limit in force");
        assert!(concurrency.refuses_none());
        assert_eq!(concurrency.wait(), None);
        // The throughput stays while all of the requests end.
        let limited = (0..100).find_map(|_| {
            let now = grow(&concurrency, -20).max(4);
            overload(&concurrency, 1000, now)
        });
        assert!(matches!(limited, Some(LimitChange::Limited(_))), "{limited:?}");
        assert!(concurrency.limit().is_some() && concurrency.wait().is_some() && !concurrency.refuses_none());
        assert!(concurrency.reset() && !concurrency.is_limited());
        assert!(concurrency.permits().try_take_for(None).is_some());
    }
}
