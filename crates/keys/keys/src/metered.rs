//! [`Metered`], an engine that reports operations of another engine and their durations to an observer.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use crate::{KeyError, KeyOperation, KeyResult, PendingOperation, Performer, PrivateKeyEngine};

/// Receives one report for each operation of a [`Metered`] engine. Called on the threads that serve connections: it
/// must not block, and should cost no more than a few atomic additions.
pub trait OperationObserver: Send + Sync + 'static {
    /// Called when an operation ends.
    fn observe(&self, report: &OperationReport);
}

impl<F: Fn(&OperationReport) + Send + Sync + 'static> OperationObserver for F {
    fn observe(&self, report: &OperationReport) {
        self(report);
    }
}

/// Result and duration of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationReport {
    /// The algorithm label of the key: `ecdsa-p256`, `ecdsa-p384`, `rsa`, `ed25519`.
    pub algorithm: &'static str,
    /// Performer of the operation; `None` if it was refused, expired or was abandoned.
    pub performer: Option<Performer>,
    /// Time outside the work: in the queue, on the way to another machine and back, and until the result was read.
    pub wait: Duration,
    /// Duration of the work; for a batch, of the whole batch. Zero if the operation was not performed.
    pub compute: Duration,
    /// Outcome of the operation.
    pub outcome: OperationOutcome,
}

/// Outcome of an operation, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationOutcome {
    /// The operation has a result.
    Done,
    /// Refused with [`KeyError::Overloaded`].
    Overloaded,
    /// Ended with [`KeyError::DeadlinePassed`].
    DeadlinePassed,
    /// Ended with another [`KeyError`].
    Failed,
    /// Dropped by the caller before it ended.
    Abandoned,
}

/// Engine that delegates to another engine and reports each operation to an [`OperationObserver`].
///
/// Costs two clock readings for an operation that completes at once, and one allocation for any other.
pub struct Metered<E> {
    engine: E,
    observer: Arc<dyn OperationObserver>,
}

impl<E: PrivateKeyEngine> Metered<E> {
    /// Creates an engine that reports the operations of `engine` to `observer`.
    pub fn new(engine: E, observer: Arc<dyn OperationObserver>) -> Self {
        Self { engine, observer }
    }

    /// The wrapped engine.
    pub const fn engine(&self) -> &E {
        &self.engine
    }
}

impl<E: PrivateKeyEngine> PrivateKeyEngine for Metered<E> {
    fn submit(&self, operation: KeyOperation) -> PendingOperation {
        let algorithm = operation.kind.algorithm_label();
        let submitted = Instant::now();
        let pending = self.engine.submit(operation);
        if let Some(result) = pending.result() {
            let (performer, outcome) = (pending.work().performer, OperationOutcome::of(result));
            // A refused operation caused no work, so its time is neither waiting nor computing in the
            // metrics.
            let compute = performer.map_or(Duration::ZERO, |_| submitted.elapsed());
            let report = OperationReport { algorithm, performer, wait: Duration::ZERO, compute, outcome };
            self.observer.observe(&report);
            return pending;
        }
        let observer = Arc::clone(&self.observer);
        PendingOperation::from_future(Watched { pending, algorithm, submitted, observer: Some(observer) })
    }
}

impl<E: fmt::Debug> fmt::Debug for Metered<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Metered").field(&self.engine).finish()
    }
}

impl OperationOutcome {
    const fn of(result: &KeyResult) -> Self {
        match result {
            Ok(_) => Self::Done,
            Err(KeyError::Overloaded) => Self::Overloaded,
            Err(KeyError::DeadlinePassed) => Self::DeadlinePassed,
            Err(_) => Self::Failed,
        }
    }
}

/// An operation that is reported when it ends, or when it is dropped before.
struct Watched {
    pending: PendingOperation,
    algorithm: &'static str,
    submitted: Instant,
    /// `None` once the report is made.
    observer: Option<Arc<dyn OperationObserver>>,
}

impl Watched {
    fn report(&mut self, outcome: OperationOutcome) {
        let Some(observer) = self.observer.take() else {
            return;
        };
        let (total, work) = (self.submitted.elapsed(), self.pending.work());
        // An engine that does not report when it began is assumed to have worked all the time.
        let compute = work.time.or(work.performer.map(|_| total)).unwrap_or_default();
        let wait = total.saturating_sub(compute);
        let (algorithm, performer) = (self.algorithm, work.performer);
        observer.observe(&OperationReport { algorithm, performer, wait, compute, outcome });
    }
}

impl Future for Watched {
    type Output = KeyResult;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<KeyResult> {
        let result = ready!(Pin::new(&mut self.pending).poll(context));
        self.report(OperationOutcome::of(&result));
        Poll::Ready(result)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        // No effect after an operation has ended, since the report of its end has taken the observer.
        self.report(OperationOutcome::Abandoned);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use brisk_wire::registry::SignatureScheme;
    use bytes::Bytes;

    use super::*;
    use crate::{Completion, KeyId};

    /// Answers at once, if it has something to answer; else hands the completion to the test.
    #[derive(Debug, Default)]
    struct Scripted {
        answer: Option<KeyResult>,
        completions: Mutex<Vec<Completion>>,
    }

    impl PrivateKeyEngine for Scripted {
        fn submit(&self, operation: KeyOperation) -> PendingOperation {
            match self.answer.clone() {
                Some(Ok(result)) => return PendingOperation::ready(Ok(result), Performer::AWS_LC),
                Some(Err(error)) => return PendingOperation::refused(error),
                None => {}
            }
            let (pending, completion) = PendingOperation::with_completion(operation.deadline);
            self.completions.lock().unwrap().push(completion);
            pending
        }
    }

    type Reports = Arc<Mutex<Vec<OperationReport>>>;

    fn metered(answer: Option<KeyResult>) -> (Metered<Scripted>, Reports) {
        let reports = Reports::default();
        let seen = Arc::clone(&reports);
        let observer = move |report: &OperationReport| seen.lock().unwrap().push(*report);
        let engine = Scripted { answer, ..Scripted::default() };
        (Metered::new(engine, Arc::new(observer)), reports)
    }

    fn operation() -> KeyOperation {
        let deadline = Instant::now() + Duration::from_hours(1);
        KeyOperation::sign(KeyId([0; 32]), SignatureScheme::RSA_PSS_RSAE_SHA256, Bytes::new(), deadline)
    }

    #[test]
    fn what_is_done_at_once_is_reported_at_once_and_stays_ready() {
        let (engine, reports) = metered(Some(Ok(vec![1].into())));
        let mut pending = engine.submit(operation());
        let [report] = reports.lock().unwrap()[..] else { panic!("one report") };
        assert_eq!((report.algorithm, report.outcome), ("rsa", OperationOutcome::Done));
        assert_eq!(report.performer, Some(Performer::AWS_LC));
        assert_eq!(report.wait, Duration::ZERO);
        assert_eq!(pending.try_take(), Some(Ok(vec![1].into())));
    }

    #[test]
    fn a_refusal_is_reported_as_such() {
        let (engine, reports) = metered(Some(Err(KeyError::Overloaded)));
        drop(engine.submit(operation()));
        let [report] = reports.lock().unwrap()[..] else { panic!("one report") };
        assert_eq!((report.outcome, report.performer), (OperationOutcome::Overloaded, None));
    }

    #[tokio::test]
    async fn what_takes_time_is_reported_when_it_ends() {
        let (engine, reports) = metered(None);
        let pending = engine.submit(operation());
        assert_eq!(reports.lock().unwrap().len(), 0);
        let completion = engine.engine().completions.lock().unwrap().pop().unwrap();
        completion.begin().expect("it is wanted").complete(Ok(vec![2].into()), Performer::IFMA);
        assert_eq!(pending.await, Ok(vec![2].into()));
        let [report] = reports.lock().unwrap()[..] else { panic!("one report") };
        assert_eq!((report.outcome, report.performer), (OperationOutcome::Done, Some(Performer::IFMA)));
        assert!(report.wait > Duration::ZERO);
    }

    #[test]
    fn what_is_dropped_is_reported_as_abandoned() {
        let (engine, reports) = metered(None);
        drop(engine.submit(operation()));
        let [report] = reports.lock().unwrap()[..] else { panic!("one report") };
        assert_eq!(report.outcome, OperationOutcome::Abandoned);
        assert_eq!((report.performer, report.compute), (None, Duration::ZERO));
        assert!(engine.engine().completions.lock().unwrap()[0].is_abandoned());
    }
}
