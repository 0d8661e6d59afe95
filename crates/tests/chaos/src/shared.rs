//! The state that visitors and the runner share: records of requests that did not succeed, counts, and pauses.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use brisk_testkit::process::wait_until;
use tokio::time::timeout;

use crate::fault::Failure;

/// Number of gateways.
pub(crate) const GATEWAYS: usize = 2;

/// Time within which each request ends: above the sum of the timeouts in the configuration of the gateways.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// Interval of the thread that notices pauses of the machine, and the delay from which one counts.
const BEAT: Duration = Duration::from_millis(50);
const LATE: Duration = Duration::from_millis(200);

/// End of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The right response.
    Right,
    /// The connection had ended before the request was sent, so the request is no operation.
    Unsent,
    /// A failure that a fault may permit.
    Failed(Failure),
    /// A defect in any case.
    Wrong(String),
}

/// A request that did not succeed.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) begun: Instant,
    pub(crate) ended: Instant,
    pub(crate) gateway: usize,
    /// Habit of the client, and path of the request.
    pub(crate) request: String,
    pub(crate) outcome: Outcome,
}

/// Counts of the requests to a gateway.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Requests that may have reached the gateway.
    pub(crate) sent: AtomicU64,
    /// Requests with a response, which have reached it.
    pub(crate) answered: AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Shared {
    pub(crate) counts: [Counts; GATEWAYS],
    records: Mutex<Vec<Record>>,
    /// Right responses.
    rights: AtomicU64,
    next: AtomicU64,
    is_paused: AtomicBool,
    has_ended: AtomicBool,
    /// Visitors with a request.
    busy: AtomicUsize,
    /// Ends and durations of pauses of the machine.
    stalls: Mutex<Vec<(Instant, Duration)>>,
}

impl Shared {
    /// The state of a run, with a thread that notices pauses of the machine until [`Self::end`].
    pub(crate) fn start() -> Arc<Self> {
        let shared = Arc::<Self>::default();
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            while !own.has_ended() {
                let begun = Instant::now();
                thread::sleep(BEAT);
                let late = begun.elapsed().saturating_sub(BEAT);
                if late >= LATE {
                    lock(&own.stalls).push((Instant::now(), late));
                }
            }
        });
        shared
    }

    /// An id that no other request of the run has.
    pub(crate) fn id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Counts a request that is about to be sent.
    pub(crate) fn sent(&self, gateway: usize) {
        self.counts[gateway].sent.fetch_add(1, Ordering::SeqCst);
    }

    /// Counts the head of a response.
    pub(crate) fn answered(&self, gateway: usize) {
        self.counts[gateway].answered.fetch_add(1, Ordering::SeqCst);
    }

    /// Records the end of a request.
    pub(crate) fn note(&self, begun: Instant, gateway: usize, request: String, outcome: Outcome) {
        match outcome {
            Outcome::Right => {
                self.rights.fetch_add(1, Ordering::Relaxed);
            }
            Outcome::Unsent => {}
            outcome => {
                lock(&self.records).push(Record { begun, ended: Instant::now(), gateway, request, outcome });
            }
        }
    }

    /// The records since the last call.
    pub(crate) fn take_records(&self) -> Vec<Record> {
        std::mem::take(&mut *lock(&self.records))
    }

    /// Number of right responses.
    pub(crate) fn rights(&self) -> u64 {
        self.rights.load(Ordering::Relaxed)
    }

    /// Waits until `count` further requests have succeeded.
    pub(crate) fn await_rights(&self, count: u64) {
        let before = self.rights();
        wait_until("right responses", || (self.rights() >= before + count).then_some(()));
    }

    /// Permits a visitor to send requests until [`Self::leave`]; `false` in a pause.
    pub(crate) fn enter(&self) -> bool {
        // Before the look at the pause, which waits for the busy ones after it began.
        self.busy.fetch_add(1, Ordering::SeqCst);
        let may_enter = !self.is_paused.load(Ordering::SeqCst);
        if !may_enter {
            self.leave();
        }
        may_enter
    }

    /// Ends the requests of a visitor.
    pub(crate) fn leave(&self) {
        self.busy.fetch_sub(1, Ordering::SeqCst);
    }

    /// Begins a pause, and waits until all requests have ended.
    pub(crate) fn pause(&self) {
        self.is_paused.store(true, Ordering::SeqCst);
        wait_until("the ends of all requests", || (self.busy.load(Ordering::SeqCst) == 0).then_some(()));
    }

    /// Ends a pause.
    pub(crate) fn resume(&self) {
        self.is_paused.store(false, Ordering::SeqCst);
    }

    /// Ends the visitors.
    pub(crate) fn end(&self) {
        self.has_ended.store(true, Ordering::SeqCst);
    }

    /// Whether [`Self::end`] was called.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::SeqCst)
    }

    /// Duration of the pauses of the machine that ended after `begun`.
    pub(crate) fn stalled_since(&self, begun: Instant) -> Duration {
        lock(&self.stalls).iter().filter(|(end, _)| *end > begun).map(|(_, time)| *time).sum()
    }

    /// The result of `exchange`; `None` if it has none within [`DEADLINE`], of which pauses of the machine are no part.
    pub(crate) async fn within<T>(&self, exchange: impl Future<Output = T>) -> Option<T> {
        let begun = Instant::now();
        let mut exchange = pin!(exchange);
        loop {
            let left = (DEADLINE + self.stalled_since(begun)).checked_sub(begun.elapsed())?;
            if let Ok(done) = timeout(left, exchange.as_mut()).await {
                return Some(done);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_keeps_visitors_out() {
        let shared = Shared::default();
        assert!(shared.enter());
        shared.leave();
        shared.pause();
        assert!(!shared.enter());
        shared.resume();
        assert!(shared.enter());
    }

    #[test]
    fn right_responses_leave_no_record() {
        let shared = Shared::default();
        let outcomes =
            [Outcome::Right, Outcome::Unsent, Outcome::Failed(Failure::Cut), Outcome::Wrong(String::new())];
        for outcome in outcomes {
            shared.note(Instant::now(), 0, "GET /".to_owned(), outcome);
        }
        assert_eq!((shared.rights(), shared.take_records().len(), shared.take_records().len()), (1, 2, 0));
    }
}
