//! How operations that go together are performed and answered.

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

/// How batches are chosen and performed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transform {
    /// [`BatchChoice::of_this_machine`], or what a test has in its place.
    pub(super) choose: fn(Width) -> BatchChoice,
    /// [`private_transform`], or what a test has in its place.
    pub(super) perform: Perform,
}

impl Transform {
    /// `None`: this processor has no instructions for batches.
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

    /// How many operations of `class` go together at most.
    pub(super) fn together(self, class: Class) -> usize {
        class.width().map_or(1, |width| (self.choose)(width).operations())
    }
}

/// The least time between two faults in the log; the metrics count them all.
const FAULT_LOG_INTERVAL: Duration = Duration::from_mins(1);

/// One operation, with all that a thread or a device needs for it. Dropped without an answer, it is answered as failed.
pub struct Job {
    key: Arc<PrivateKey>,
    kind: OperationKind,
    class: Class,
    arrived: Instant,
    /// Gone once it is answered, or need not be.
    completion: Option<Completion>,
    /// What the key is applied to in a lane, and what comes of it; empty before.
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

    /// When it was submitted.
    pub const fn arrived(&self) -> Instant {
        self.arrived
    }

    /// Whether the caller still waits for the result, and the deadline has not passed.
    pub fn is_wanted(&self, now: Instant) -> bool {
        self.completion.as_ref().is_some_and(|completion| completion.is_wanted(now))
    }

    /// Begins the work, if it is still wanted; if its deadline has passed, answers it with that error.
    pub fn begin(&mut self) -> bool {
        self.completion = self.completion.take().and_then(Completion::begin);
        self.completion.is_some()
    }

    /// Answers an operation that is not wanted any more.
    pub fn dismiss(mut self) {
        self.begin();
    }

    /// Answers it. A second answer is ignored.
    pub fn complete(&mut self, result: KeyResult, performer: Performer) {
        if let Some(completion) = self.completion.take() {
            completion.complete(result, performer);
        }
    }

    /// Performs it with aws-lc.
    pub(super) fn perform_alone(&mut self) {
        let result = self.key.perform(&self.kind);
        self.complete(result, Performer::AWS_LC);
    }

    /// Makes ready what a lane needs. Where that fails the operation is answered.
    fn fill_lane(&mut self) -> bool {
        let rsa = self.key.rsa().expect("only RSA keys have lanes");
        // It is there already if a device was to have the operation.
        if self.input.is_empty() {
            match rsa.representative(&self.kind) {
                Ok(input) => self.input = input,
                Err(error) => {
                    self.complete(Err(error), Performer::AWS_LC);
                    return false;
                }
            }
        }
        self.output = vec![0; self.input.len()].into();
        true
    }

    fn lane(&mut self, instructions: Instructions) -> Lane<'_> {
        let key = self.key.rsa().and_then(|rsa| rsa.prepared(instructions)).expect("only keys with a width");
        Lane { key, input: &self.input, output: &mut self.output }
    }

    /// Takes the result out of its lane.
    fn complete_from_lane(&mut self, performer: Performer) {
        let output = std::mem::take(&mut self.output);
        self.complete(Ok(output), performer);
    }
}

/// What a device needs of an operation.
impl Job {
    /// With what the key is applied to, which the caller had the time for.
    pub(super) fn with_input(self, input: Vec<u8>) -> Self {
        Self { input, ..self }
    }

    /// What the key is applied to: a number in as many bytes as the modulus has, big-endian. It may not be below the
    /// modulus.
    pub fn input(&self) -> &[u8] {
        &self.input
    }

    /// The key.
    pub const fn key(&self) -> &Arc<PrivateKey> {
        &self.key
    }
}

/// Performs batches; shared by the threads.
#[derive(Debug)]
pub(super) struct Performing {
    transform: Option<Transform>,
    statistics: Arc<BatchStatistics>,
    fault_logged: Mutex<Option<Instant>>,
}

impl Performing {
    /// Without `transform` everything is performed alone.
    pub(super) fn new(transform: Option<Transform>, statistics: Arc<BatchStatistics>) -> Self {
        Self { transform, statistics, fault_logged: Mutex::new(None) }
    }

    /// How many operations of `class` go together at most.
    pub(super) fn together(&self, class: Class) -> usize {
        self.transform.map_or(1, |transform| transform.together(class))
    }

    /// Performs and answers `jobs`, which are of one class, and leaves the list empty. Says what the first of them took if
    /// they were performed alone.
    pub(super) fn perform(&self, class: Class, jobs: &mut Vec<Job>) -> Option<Duration> {
        // The queue outlives its threads: if they died of a panic, what waits in it would never be answered.
        let performed = catch_unwind(AssertUnwindSafe(|| self.choose(class, jobs)));
        for job in &mut *jobs {
            job.complete(Err(KeyError::Failed("the engine panicked")), Performer::AWS_LC);
        }
        jobs.clear();
        performed.ok().flatten()
    }

    fn choose(&self, class: Class, jobs: &mut [Job]) -> Option<Duration> {
        let now = Instant::now();
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
        // Results that are ready are returned first: their callers do not wait while others are computed again.
        for (job, _) in jobs.iter_mut().zip(verdicts).filter(|(_, verdict)| *verdict == Verdict::Done) {
            job.complete_from_lane(instructions.into());
        }
        for (job, verdict) in jobs.iter_mut().zip(verdicts).filter(|(_, verdict)| *verdict != Verdict::Done) {
            if verdict == Verdict::Fault {
                self.log_fault();
            }
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
