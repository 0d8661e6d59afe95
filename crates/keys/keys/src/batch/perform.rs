//! Execution of a batch: performs its operations and completes each one.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use brisk_lanes::rsa_lanes::{Instructions, Lane, Verdict, Width, private_transform};
use zeroize::Zeroizing;

use super::{
    choice::{BatchChoice, Perform},
    class::Class,
    statistics::BatchStatistics,
};
use crate::{
    Completion, KeyError, KeyResult, OperationKind, Performer, private_key::PrivateKey, rsa::RsaPrivateKey,
};

/// Functions that choose and perform batches for [`Performing`]; tests replace them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transform {
    /// [`BatchChoice::of_this_machine`] outside tests.
    pub(super) choose: fn(Width) -> BatchChoice,
    /// [`private_transform`] outside tests.
    pub(super) perform: Perform,
}

impl Transform {
    /// The implementation for this processor; `None` if it has no instructions for batches.
    pub(crate) fn supported() -> Option<Self> {
        let some = Instructions::ALL.into_iter().any(Instructions::are_supported);
        some.then_some(Self { choose: BatchChoice::of_this_machine, perform: private_transform })
    }

    /// The class of operations with `key`.
    pub(super) fn class(self, key: &PrivateKey) -> Class {
        let width = key.rsa().and_then(RsaPrivateKey::width);
        let width = width.filter(|width| (self.choose)(*width).instructions().is_some());
        width.map_or(Class::Alone, Class::of_width)
    }

    /// Maximum number of operations of `class` per batch.
    pub(super) fn together(self, class: Class) -> usize {
        class.width().map_or(1, |width| (self.choose)(width).operations())
    }
}

/// Minimum time between two log messages about faults; metrics count every fault.
const FAULT_LOG_INTERVAL: Duration = Duration::from_mins(1);

/// One operation with everything that a thread or a device needs to perform it. If it is dropped without completion,
/// the operation fails.
pub struct Job {
    key: Arc<PrivateKey>,
    kind: OperationKind,
    class: Class,
    arrived: Instant,
    /// `None` once the operation is completed or abandoned.
    completion: Option<Completion>,
    /// Input and output of the private operation in a lane; empty before.
    input: Vec<u8>,
    output: Zeroizing<Vec<u8>>,
}

impl Job {
    pub(super) fn new(
        key: &Arc<PrivateKey>,
        kind: OperationKind,
        class: Class,
        completion: Completion,
    ) -> Self {
        let (key, arrived, completion) = (Arc::clone(key), Instant::now(), Some(completion));
        Self { key, kind, class, arrived, completion, input: Vec::new(), output: Zeroizing::default() }
    }

    pub(super) const fn class(&self) -> Class {
        self.class
    }

    /// Time of submission.
    pub const fn arrived(&self) -> Instant {
        self.arrived
    }

    /// Whether the caller still waits for the result and the deadline has not passed.
    pub fn is_wanted(&self, now: Instant) -> bool {
        self.completion.as_ref().is_some_and(|completion| completion.is_wanted(now))
    }

    /// Starts the work. Returns `false` if the caller has gone or the deadline has passed; in the latter case the
    /// operation fails with [`KeyError::DeadlinePassed`].
    pub fn begin(&mut self) -> bool {
        self.completion = self.completion.take().and_then(Completion::begin);
        self.completion.is_some()
    }

    /// Completes an operation whose result is no longer wanted, with [`KeyError::DeadlinePassed`] for a caller that still
    /// waits.
    pub fn dismiss(mut self) {
        self.begin();
    }

    /// Completes the operation. A second call is ignored.
    pub fn complete(&mut self, result: KeyResult, performer: Performer) {
        if let Some(completion) = self.completion.take() {
            completion.complete(result, performer);
        }
    }

    /// Performs the operation with AWS-LC.
    pub(super) fn perform_alone(&mut self) {
        let result = self.key.perform(&self.kind);
        self.complete(result, Performer::AWS_LC);
    }

    /// Prepares input and output for a lane. On failure, completes the operation with the error and returns `false`.
    fn fill_lane(&mut self) -> bool {
        let rsa = self.key.rsa().expect("only RSA keys have lanes");
        // Present already if the job was created for a device.
        if self.input.is_empty() {
            match rsa.representative(&self.kind) {
                Ok(input) => self.input = input,
                Err(error) => {
                    self.complete(Err(error), Performer::AWS_LC);
                    return false;
                }
            }
        }
        // Allocated here, because operations that are performed alone need no such buffer.
        self.output = vec![0; self.input.len()].into();
        true
    }

    fn lane(&mut self, instructions: Instructions) -> Lane<'_> {
        let key = self.key.rsa().and_then(|rsa| rsa.prepared(instructions)).expect("only keys with a width");
        Lane { key, input: &self.input, output: &mut self.output }
    }

    /// Completes the operation with the output of its lane.
    fn complete_from_lane(&mut self, performer: Performer) {
        let output = std::mem::take(&mut self.output);
        self.complete(Ok(output), performer);
    }
}

/// Parts of an operation that a device needs.
impl Job {
    /// Sets the input of the private operation, which the submitting thread has computed already.
    pub(super) fn with_input(self, input: Vec<u8>) -> Self {
        Self { input, ..self }
    }

    /// Input of the private operation: a big-endian number as long as the modulus. The number may be greater than or
    /// equal to the modulus.
    pub fn input(&self) -> &[u8] {
        &self.input
    }

    /// The private key.
    pub const fn key(&self) -> &Arc<PrivateKey> {
        &self.key
    }
}

/// Executes batches; shared by the threads.
#[derive(Debug)]
pub(super) struct Performing {
    transform: Option<Transform>,
    statistics: Arc<BatchStatistics>,
    fault_logged: Mutex<Option<Instant>>,
}

impl Performing {
    /// Creates the executor; without `transform` every operation is performed alone.
    pub(super) fn new(transform: Option<Transform>, statistics: Arc<BatchStatistics>) -> Self {
        Self { transform, statistics, fault_logged: Mutex::new(None) }
    }

    /// Maximum number of operations of `class` per batch.
    pub(super) fn together(&self, class: Class) -> usize {
        self.transform.map_or(1, |transform| transform.together(class))
    }

    /// Performs and completes `jobs`, all of one class, and empties the list. Returns the duration of the first one
    /// if they were performed one by one.
    pub(super) fn perform(&self, class: Class, jobs: &mut Vec<Job>) -> Option<Duration> {
        // The queue outlives its threads: if a panic ended them all, operations in the queue would never complete.
        let performed = catch_unwind(AssertUnwindSafe(|| self.choose(class, jobs)));
        // After a panic, the callers get an error instead of waiting until their deadline.
        for job in &mut *jobs {
            job.complete(Err(KeyError::Failed("the engine panicked")), Performer::AWS_LC);
        }
        jobs.clear();
        performed.ok().flatten()
    }

    fn choose(&self, class: Class, jobs: &mut [Job]) -> Option<Duration> {
        let now = Instant::now();
        // Counted again: clients may have left since the decision, and then one by one may be faster.
        let wanted = jobs.iter().filter(|job| job.is_wanted(now)).count();
        let choice = self.transform.zip(class.width()).map(|(transform, width)| (transform.choose)(width));
        match choice.and_then(|choice| choice.instructions().filter(|_| wanted >= choice.break_even())) {
            Some(instructions) => {
                self.in_lanes(instructions, jobs);
                None
            }
            None => self.one_by_one(jobs),
        }
    }

    fn one_by_one(&self, jobs: &mut [Job]) -> Option<Duration> {
        let mut first = None;
        for job in jobs {
            let began = Instant::now();
            if job.begin() {
                self.statistics.perform(1);
                job.perform_alone();
                first.get_or_insert_with(|| began.elapsed());
            }
        }
        first
    }

    fn in_lanes(&self, instructions: Instructions, jobs: &mut [Job]) {
        let Some(transform) = self.transform else { return };
        let begun = jobs.iter_mut().filter_map(|job| (job.begin() && job.fill_lane()).then_some(job));
        let mut jobs: Vec<_> = begun.collect();
        if jobs.is_empty() {
            return;
        }
        self.statistics.perform(jobs.len());
        let mut lanes: Vec<_> = jobs.iter_mut().map(|job| job.lane(instructions)).collect();
        let verdicts = (transform.perform)(&mut lanes);
        drop(lanes);
        // Correct results are returned first: their callers do not wait until faulty ones are computed again.
        for (job, _) in jobs.iter_mut().zip(verdicts).filter(|(_, verdict)| *verdict == Verdict::Done) {
            job.complete_from_lane(instructions.into());
        }
        for (job, verdict) in jobs.iter_mut().zip(verdicts).filter(|(_, verdict)| *verdict != Verdict::Done) {
            if verdict == Verdict::Fault {
                self.log_fault();
            }
            // Also after `OutOfRange`, since AWS-LC returns the error of such an input.
            job.perform_alone();
        }
    }

    fn log_fault(&self) {
        let (faults, now) = (self.statistics.fault(), Instant::now());
        let mut logged = self.fault_logged.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.is_none_or(|logged| now.duration_since(logged) >= FAULT_LOG_INTERVAL) {
            *logged = Some(now);
            tracing::warn!(
                faults,
                "a result of an RSA batch did not stand its check; it was not used but computed again with AWS-LC. \
                 If this happens again, the processor or the memory of this machine is not to be trusted"
            );
        }
    }
}
