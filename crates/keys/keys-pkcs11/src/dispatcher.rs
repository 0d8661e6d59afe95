//! Queue of a token: operations, free sessions, and reconnection.
//!
//! Nothing here calls the module, so nothing blocks longer than a lock is held.

mod inner;

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use brisk_keys::{Completion, KeyError};

use self::inner::{Inner, State, UnderWay, overdue, task};
use crate::{
    PERFORMER,
    connection::{Connection, OpenSession},
    error::TokenError,
    task::{ConnectionChange, Job, SessionQuery, WorkerTask},
};

/// Shortest and longest pause before the next attempt to connect.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// Maximum delay of a failure after its deadline, when the module does not return.
const TICK: Duration = Duration::from_millis(100);

const NOT_THERE: KeyError = KeyError::Failed("the token cannot be reached");
const SILENT: KeyError = KeyError::Failed("the token did not answer in time");
const ENDED: KeyError = KeyError::Failed("the engine of the token has ended");

#[derive(Debug)]
pub(crate) struct Dispatcher {
    inner: Mutex<Inner>,
    /// Signals work for the threads, and the result of the first connection.
    work: Condvar,
    /// Signals operations for the clock thread.
    watched: Condvar,
    queue: usize,
}

impl Dispatcher {
    /// A [`Dispatcher`] for `threads` threads with a queue of `queue` operations. The first task is to connect.
    pub(crate) fn new(threads: usize, queue: usize) -> Self {
        let inner = Inner::new(threads);
        Self { inner: Mutex::new(inner), work: Condvar::new(), watched: Condvar::new(), queue }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues an operation.
    ///
    /// # Errors
    ///
    /// The failure of the operation: stopped, token unreachable, or queue full.
    pub(crate) fn submit(&self, job: Job) -> Result<(), KeyError> {
        let mut inner = self.lock();
        if inner.stopped {
            return Err(ENDED);
        }
        // Refused at once, so that handshakes fail fast instead of waiting for their deadline.
        if inner.refuses() {
            return Err(NOT_THERE);
        }
        if inner.is_silent() {
            return Err(SILENT);
        }
        if inner.jobs.len() >= self.queue {
            return Err(KeyError::Overloaded);
        }
        inner.jobs.push_back(job);
        self.wake(inner);
        Ok(())
    }

    /// Queues a query, or drops it if the token is unreachable.
    pub(crate) fn ask(&self, query: SessionQuery) {
        let mut inner = self.lock();
        if !inner.stopped && !inner.refuses() {
            inner.queries.push_back(query);
            self.wake(inner);
        }
    }

    fn wake(&self, inner: MutexGuard<'_, Inner>) {
        let clock_sleeps = inner.clock_sleeps;
        drop(inner);
        self.work.notify_one();
        if clock_sleeps {
            self.watched.notify_one();
        }
    }

    /// Blocks until there is a task.
    pub(crate) fn next(&self) -> WorkerTask {
        let mut inner = self.lock();
        loop {
            if inner.stopped {
                // The first thread that ends closes the free sessions. Each session in use is closed by its
                // own thread, because `give_back` hands it back.
                let mut sessions = std::mem::take(&mut inner.free);
                sessions.append(&mut inner.stale);
                return WorkerTask::Stop(sessions);
            }
            let now = Instant::now();
            inner = match inner.state {
                State::Down(due) if due <= now => {
                    inner.state = State::Connecting;
                    // Every attempt has a number of its own, by which sessions and handles of earlier
                    // connections are recognized.
                    inner.epoch += 1;
                    return WorkerTask::Connect {
                        epoch: inner.epoch,
                        stale: std::mem::take(&mut inner.stale),
                    };
                }
                State::Down(due) => {
                    let waited = self.work.wait_timeout(inner, due - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                _ => {
                    if let Some(task) = task(&mut inner) {
                        return task;
                    }
                    self.work.wait(inner).unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }

    /// Records that thread `number` has begun an operation in a session of connection `epoch`.
    pub(crate) fn begin(&self, number: usize, epoch: u64, deadline: Instant, completion: Completion) {
        let mut inner = self.lock();
        inner.under_way[number] = Some(UnderWay { epoch, deadline, completion: Some(completion) });
        if inner.clock_sleeps {
            self.watched.notify_one();
        }
    }

    /// Records the end of that operation. `None` if it has already failed at its deadline.
    pub(crate) fn end(&self, number: usize) -> Option<Completion> {
        self.lock().under_way[number].take().and_then(|operation| operation.completion)
    }

    /// Returns an [`OpenSession`] for further use. Hands it back if it belongs to a former connection and must be
    /// closed.
    pub(crate) fn give_back(&self, session: OpenSession) -> Option<OpenSession> {
        let mut inner = self.lock();
        if session.epoch != inner.epoch || inner.state != State::Up || inner.stopped {
            return Some(session);
        }
        inner.free.push(session);
        drop(inner);
        self.work.notify_one();
        None
    }

    /// Reports that connection `epoch` is lost. An unfinished operation is queued for the next connection.
    pub(crate) fn lose(&self, epoch: u64, unfinished: Option<Job>) {
        let mut inner = self.lock();
        // Several threads may report the loss of one connection; only the first report changes the state.
        if inner.state == State::Up && inner.epoch == epoch {
            inner.state = State::Down(Instant::now());
            inner.failures = 0;
            inner.lost = Some(Instant::now());
            let mut sessions = std::mem::take(&mut inner.free);
            inner.stale.append(&mut sessions);
        }
        if let Some(job) = unfinished {
            if inner.refuses() || inner.stopped {
                drop(inner);
                job.completion.complete(Err(NOT_THERE), PERFORMER);
                return;
            }
            // In front, because the operation is older than all that wait.
            inner.jobs.push_front(job);
        }
        drop(inner);
        self.work.notify_all();
    }

    /// Reports a new connection.
    pub(crate) fn connected(&self, connection: Connection) -> ConnectionChange {
        let mut inner = self.lock();
        inner.state = State::Up;
        inner.failures = 0;
        inner.connections += 1;
        inner.facts = Some(connection.facts);
        inner.sessions = connection.sessions.len();
        inner.free = connection.sessions;
        inner.loss_reported = false;
        let lost = inner.lost.take();
        drop(inner);
        self.work.notify_all();
        lost.map_or(ConnectionChange::Found, |lost| ConnectionChange::Back(lost.elapsed()))
    }

    /// Reports a failed attempt. Waiting operations fail, and further ones are refused until a [`Connection`] succeeds.
    pub(crate) fn not_connected(&self, error: TokenError) -> ConnectionChange {
        let mut inner = self.lock();
        inner.failures += 1;
        let pause = PAUSES[0].saturating_mul(1 << (inner.failures - 1).min(16)).min(PAUSES[1]);
        inner.state = State::Down(Instant::now() + spread(pause));
        inner.queries.clear();
        let jobs = std::mem::take(&mut inner.jobs);
        let change = match &mut *inner {
            // Not repeated if the first attempt fails: another wrong PIN might lock the token.
            Inner { connections: 0, first_error, stopped, .. } => {
                *first_error = Some(error);
                *stopped = true;
                ConnectionChange::None
            }
            Inner { loss_reported: reported @ false, .. } => {
                *reported = true;
                ConnectionChange::Lost
            }
            _ => ConnectionChange::None,
        };
        drop(inner);
        self.work.notify_all();
        jobs.into_iter().for_each(refuse);
        change
    }

    /// Blocks until the first connection succeeds or fails; `None` after `limit`.
    pub(crate) fn first_connection(&self, limit: Duration) -> Option<Result<(), TokenError>> {
        let until = Instant::now() + limit;
        let mut inner = self.lock();
        loop {
            if inner.connections > 0 {
                return Some(Ok(()));
            }
            if let Some(error) = inner.first_error.take() {
                return Some(Err(error));
            }
            let left = until.checked_duration_since(Instant::now())?;
            inner = self.work.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Fails operations at their deadline, until the [`Dispatcher`] is stopped. Calls `silent` when the module has not
    /// returned from one in time.
    pub(crate) fn keep_time(&self, mut silent: impl FnMut()) {
        let mut inner = self.lock();
        // Operations within the module fail in time even if the engine has been dropped.
        while !inner.stopped || inner.has_work() {
            inner = if inner.has_work() {
                self.watched.wait_timeout(inner, TICK).unwrap_or_else(PoisonError::into_inner).0
            } else {
                inner.clock_sleeps = true;
                self.watched.wait(inner).unwrap_or_else(PoisonError::into_inner)
            };
            inner.clock_sleeps = false;
            let (jobs, stuck) = overdue(&mut inner);
            if jobs.is_empty() && stuck.is_empty() {
                continue;
            }
            drop(inner);
            if !stuck.is_empty() {
                silent();
            }
            for job in jobs {
                // `begin` completes an operation whose deadline has passed with `DeadlinePassed`.
                drop(job.completion.begin());
            }
            for completion in stuck {
                completion.complete(Err(SILENT), PERFORMER);
            }
            inner = self.lock();
        }
    }

    /// Stops all threads.
    pub(crate) fn stop(&self) {
        let mut inner = self.lock();
        inner.stopped = true;
        inner.queries.clear();
        let jobs = std::mem::take(&mut inner.jobs);
        drop(inner);
        self.work.notify_all();
        self.watched.notify_all();
        // Without the lock, because the drop of a completion wakes the worker that waits for the operation.
        drop(jobs);
    }

    /// Counts a thread that calls the module.
    pub(crate) fn started(&self) {
        self.lock().running += 1;
    }

    /// Uncounts such a thread.
    pub(crate) fn ended(&self) {
        self.lock().running -= 1;
        self.work.notify_all();
    }

    /// Blocks until all threads have ended, or until `limit`.
    pub(crate) fn wait_for_end(&self, limit: Instant) {
        let mut inner = self.lock();
        while inner.running > 0
            && let Some(left) = limit.checked_duration_since(Instant::now())
        {
            inner = self.work.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns whether the token is reachable.
    pub(crate) fn is_up(&self) -> bool {
        let inner = self.lock();
        inner.state == State::Up && !inner.is_silent()
    }

    /// Number of waiting operations.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().jobs.len()
    }

    /// Number of sessions.
    pub(crate) fn sessions(&self) -> usize {
        self.lock().sessions
    }

    /// Number of successful connections.
    pub(crate) fn connections(&self) -> u64 {
        self.lock().connections
    }

    /// Label of the token; `None` before the first connection.
    pub(crate) fn label(&self) -> Option<String> {
        self.lock().facts.as_ref().map(|facts| facts.label.clone())
    }
}

fn refuse(job: Job) {
    job.completion.complete(Err(NOT_THERE), PERFORMER);
}

/// Adds up to a quarter to `pause` at random, so that several processes do not reconnect at the same moment.
fn spread(pause: Duration) -> Duration {
    let mut random = [0];
    // Without randomness only this spread is lost.
    let _ = aws_lc_rs::rand::fill(&mut random);
    pause + pause * u32::from(random[0]) / 1024
}
