//! State of a dispatcher, and selection of due and overdue work.

use std::{collections::VecDeque, time::Instant};

use brisk_keys::Completion;

use crate::{
    connection::{OpenSession, TokenProperties},
    error::TokenError,
    task::{Job, SessionQuery, WorkerTask},
};

/// State under the lock of a dispatcher.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) state: State,
    /// Failed attempts since the last connection.
    pub(super) failures: u32,
    /// Start of the present outage.
    pub(super) lost: Option<Instant>,
    /// Whether the outage has been logged.
    pub(super) loss_reported: bool,
    /// Number of successful connections.
    pub(super) connections: u64,
    pub(super) epoch: u64,
    pub(super) facts: Option<TokenProperties>,
    /// Number of sessions at the start of the connection.
    pub(super) sessions: usize,
    pub(super) jobs: VecDeque<Job>,
    pub(super) queries: VecDeque<SessionQuery>,
    pub(super) free: Vec<OpenSession>,
    pub(super) stale: Vec<OpenSession>,
    /// By thread: its present operation.
    pub(super) under_way: Vec<Option<UnderWay>>,
    /// Error of the first attempt, for the caller that opens the token.
    pub(super) first_error: Option<TokenError>,
    pub(super) clock_sleeps: bool,
    pub(super) stopped: bool,
    /// Threads that may be within the module.
    pub(super) running: usize,
}

/// An operation within the module.
#[derive(Debug)]
pub(super) struct UnderWay {
    /// Number of the connection whose session it uses.
    pub(super) epoch: u64,
    pub(super) deadline: Instant,
    /// `None` once the clock thread has taken it at the deadline: the thread is stuck.
    pub(super) completion: Option<Completion>,
}

/// State of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Up,
    /// To be connected from this time on.
    Down(Instant),
    /// A thread is connecting.
    Connecting,
}

impl Inner {
    /// Initial state for `threads` threads.
    pub(super) fn new(threads: usize) -> Self {
        Self {
            state: State::Down(Instant::now()),
            failures: 0,
            lost: None,
            loss_reported: false,
            connections: 0,
            epoch: 0,
            facts: None,
            sessions: 0,
            jobs: VecDeque::new(),
            queries: VecDeque::new(),
            free: Vec::new(),
            stale: Vec::new(),
            under_way: (0..threads).map(|_| None).collect(),
            first_error: None,
            clock_sleeps: false,
            stopped: false,
            running: 0,
        }
    }

    /// Returns whether operations are refused at once instead of waiting for a reconnection.
    pub(super) fn refuses(&self) -> bool {
        self.state != State::Up && self.failures > 0
    }

    /// Returns whether the module has not returned from any session of the connection, or to any thread.
    pub(super) fn is_silent(&self) -> bool {
        let is_stuck = |operation: &&UnderWay| operation.completion.is_none();
        let stuck = self.under_way.iter().flatten().filter(is_stuck);
        // A thread that is stuck in a session of an earlier connection occupies none of the present one.
        let sessions = stuck.clone().filter(|operation| operation.epoch == self.epoch).count();
        self.sessions > 0 && (sessions >= self.sessions || stuck.count() == self.under_way.len())
    }

    pub(super) fn has_work(&self) -> bool {
        let is_watched = |operation: &UnderWay| operation.completion.is_some();
        !self.jobs.is_empty() || self.under_way.iter().flatten().any(is_watched)
    }
}

/// The next task that a free session can perform.
pub(super) fn task(inner: &mut Inner) -> Option<WorkerTask> {
    if inner.state != State::Up || inner.free.is_empty() {
        return None;
    }
    // Queries first: there are few, and a reload blocks until each has its result.
    if let Some(query) = inner.queries.pop_front() {
        let (session, facts) = (inner.free.pop()?, inner.facts.clone()?);
        return Some(WorkerTask::Ask(query, session, facts));
    }
    let job = inner.jobs.pop_front()?;
    Some(WorkerTask::Perform(job, inner.free.pop()?))
}

/// Removes operations past their deadline: waiting ones, and those within the module.
pub(super) fn overdue(inner: &mut Inner) -> (VecDeque<Job>, Vec<Completion>) {
    let now = Instant::now();
    let late = inner.jobs.iter().any(|job| job.deadline <= now);
    let mut jobs = VecDeque::new();
    if late {
        let (over, kept) = std::mem::take(&mut inner.jobs).into_iter().partition(|job| job.deadline <= now);
        (jobs, inner.jobs) = (over, kept);
        // The reconnection takes longer than a deadline; new operations are refused instead of waiting for it too.
        if inner.state == State::Connecting && inner.failures == 0 {
            inner.failures = 1;
        }
    }
    let late = inner.under_way.iter_mut().flatten().filter(|operation| operation.deadline <= now);
    (jobs, late.filter_map(|operation| operation.completion.take()).collect())
}

#[cfg(test)]
mod tests {
    use brisk_keys::PendingOperation;

    use super::*;

    /// Lets `thread` stay within the module beyond the deadline of an operation of connection `epoch`.
    fn stick(inner: &mut Inner, thread: usize, epoch: u64) {
        let deadline = Instant::now();
        let (_, completion) = PendingOperation::with_completion(deadline);
        inner.under_way[thread] = Some(UnderWay { epoch, deadline, completion: Some(completion) });
        assert!(inner.has_work());
        assert_eq!(overdue(inner).1.len(), 1);
        assert!(!inner.has_work());
    }

    #[test]
    fn a_thread_stuck_in_an_earlier_connection_does_not_silence_the_present_one() {
        let mut inner = Inner::new(3);
        (inner.epoch, inner.sessions) = (1, 1);
        stick(&mut inner, 0, 1);
        assert!(inner.is_silent());
        inner.epoch = 2;
        assert!(!inner.is_silent());
        stick(&mut inner, 1, 2);
        assert!(inner.is_silent());
        inner.epoch = 3;
        assert!(!inner.is_silent());
        stick(&mut inner, 2, 2);
        assert!(inner.is_silent(), "no thread is left");
    }
}
