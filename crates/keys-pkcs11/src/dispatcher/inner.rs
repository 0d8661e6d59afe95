//! What a dispatcher holds, and what of it is next or too late.

use std::{collections::VecDeque, time::Instant};

use brisk_keys::Completion;

use crate::{
    connection::{Facts, OpenSession},
    error::TokenError,
    task::{Job, Question, Task},
};

/// What a dispatcher holds under its lock.
#[derive(Debug)]
pub(super) struct Inner {
    pub(super) state: State,
    /// Attempts to reach the token since it was last reached, each without success.
    pub(super) failures: u32,
    /// Since when it cannot be reached.
    pub(super) lost: Option<Instant>,
    /// Whether that has been reported.
    pub(super) loss_reported: bool,
    /// How often it was reached.
    pub(super) connections: u64,
    pub(super) epoch: u64,
    pub(super) facts: Option<Facts>,
    /// How many the connection had at its beginning.
    pub(super) sessions: usize,
    pub(super) jobs: VecDeque<Job>,
    pub(super) questions: VecDeque<Question>,
    pub(super) free: Vec<OpenSession>,
    pub(super) stale: Vec<OpenSession>,
    /// By thread: the operation that it is at. Taken by the clock when its time is over.
    pub(super) under_way: Vec<Option<(Instant, Completion)>>,
    /// Threads whose operation was taken so: the module has not returned.
    pub(super) stuck: usize,
    /// Why it could not be reached the first time, for who opened it.
    pub(super) first_error: Option<TokenError>,
    pub(super) clock_sleeps: bool,
    pub(super) stopped: bool,
    /// Threads that may be within the module.
    pub(super) running: usize,
}

/// Whether the token can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Up,
    /// To be reached from this time on.
    Down(Instant),
    /// A thread is at it.
    Connecting,
}

impl Inner {
    /// For `threads` threads; nothing is known of the token yet.
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
            questions: VecDeque::new(),
            free: Vec::new(),
            stale: Vec::new(),
            under_way: (0..threads).map(|_| None).collect(),
            stuck: 0,
            first_error: None,
            clock_sleeps: false,
            stopped: false,
            running: 0,
        }
    }

    /// Whether operations are refused rather than kept for a token that may be back in a moment.
    pub(super) fn refuses(&self) -> bool {
        self.state != State::Up && self.failures > 0
    }

    /// Whether the module has not returned from any session.
    pub(super) fn is_silent(&self) -> bool {
        self.sessions > 0 && self.stuck >= self.sessions
    }

    pub(super) fn has_work(&self) -> bool {
        !self.jobs.is_empty() || self.under_way.iter().any(Option::is_some)
    }
}

/// The next thing that a session is free for.
pub(super) fn task(inner: &mut Inner) -> Option<Task> {
    if inner.state != State::Up || inner.free.is_empty() {
        return None;
    }
    if let Some(question) = inner.questions.pop_front() {
        let (session, facts) = (inner.free.pop()?, inner.facts.clone()?);
        return Some(Task::Ask(question, session, facts));
    }
    let job = inner.jobs.pop_front()?;
    Some(Task::Perform(job, inner.free.pop()?))
}

/// Takes what is too late: operations that wait, and those that the module has not returned from.
pub(super) fn overdue(inner: &mut Inner) -> (VecDeque<Job>, Vec<Completion>) {
    let now = Instant::now();
    let late = inner.jobs.iter().any(|job| job.deadline <= now);
    let mut jobs = VecDeque::new();
    if late {
        let (over, kept) = std::mem::take(&mut inner.jobs).into_iter().partition(|job| job.deadline <= now);
        (jobs, inner.jobs) = (over, kept);
        // They waited for a connection that does not come about: those that come now need not.
        if inner.state == State::Connecting && inner.failures == 0 {
            inner.failures = 1;
        }
    }
    let late =
        inner.under_way.iter_mut().filter(|place| place.as_ref().is_some_and(|(until, _)| *until <= now));
    let stuck: Vec<_> = late.filter_map(Option::take).map(|(_, completion)| completion).collect();
    inner.stuck += stuck.len();
    (jobs, stuck)
}
