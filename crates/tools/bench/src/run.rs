//! Runs a load: connects to the target, starts the threads and merges their measurements.

use std::io;
use std::panic::resume_unwind;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use brisk_tls_client::{Client, SessionUse};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

use crate::contact::{self, ReachedTarget};
use crate::error::{BenchError, Failure};
use crate::feed::Plan;
use crate::gathering::Gathering;
use crate::measure::{Recorder, Report};
use crate::process::Family;
use crate::result::{Cause, Interval, RunResult};
use crate::settings::Settings;
use crate::worker::{self, Setup};

/// Interval at which the run checks whether it is to be stopped.
const TICK: Duration = Duration::from_millis(100);

/// Time from the last preparation to the first operation, so that all threads begin at the same time.
const LEAD: Duration = Duration::from_millis(5);

/// Maximum number of sessions fetched before the start per thread and kind: if each can be resumed repeatedly, and if
/// not.
const MANY_SESSIONS: usize = 16;
const MOST_SESSIONS: usize = 1024;

/// Observes [`run`]. Implemented by functions of an [`Interval`].
pub trait Observer {
    /// Called after each second of the measured time.
    fn second(&mut self, interval: &Interval);

    /// Whether to end the run now and report the measurements so far. Called ten times a second.
    fn is_stopped(&self) -> bool {
        false
    }
}

impl<F: FnMut(&Interval)> Observer for F {
    fn second(&mut self, interval: &Interval) {
        self(interval);
    }
}

/// Runs the load on its own threads and returns the result. An unreachable target is [`BenchError::Target`]. Later failures
/// are part of [`RunResult::errors`].
pub fn run(settings: &Settings, observer: &mut impl Observer) -> Result<RunResult, BenchError> {
    let server = settings.server.map(Family::of);
    if let Some(missing) = server.filter(|server| !server.exists()) {
        return Err(BenchError::settings(format!("--server-pid: there is no process {}", missing.id())));
    }
    // On a runtime of its own, so that no connection of the test is left when the load begins.
    let found = runtime()?.block_on(contact::reach(settings))?;
    let mut workers = WorkerThreads::start(settings, &found)?;
    workers.wait_until_ready(settings)?;
    let begin = Instant::now() + LEAD;
    for thread in &workers.begins {
        // A thread that has ended reports the reason through its handle.
        let _ = thread.send(begin);
    }
    let measured = begin + settings.schedule.warmup();
    let mut gathering = Gathering::new(settings, server, measured);
    workers.listen(Some(measured), &mut gathering, observer);
    // At the begin of the measured time, so that the processor time of the warm-up does not count.
    gathering.start();
    workers.listen(None, &mut gathering, observer);
    workers.join();
    Ok(gathering.result())
}

fn runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread().enable_all().build_local(LocalOptions::default())
}

/// The threads of a run.
struct WorkerThreads {
    reports: Receiver<Report>,
    begins: Vec<Sender<Instant>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl WorkerThreads {
    fn start(settings: &Settings, found: &ReachedTarget) -> Result<Self, BenchError> {
        let (sender, reports) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let threads = settings.threads;
        let plan =
            Plan { schedule: settings.schedule.clone(), threads: threads as u64, taken: AtomicU64::new(0) };
        let (plan, workload) = (Arc::new(plan), Arc::new(settings.workload.clone()));
        let mut workers = Self { reports, begins: Vec::new(), stop, threads: Vec::new() };
        for thread in 0..threads {
            let setup = Setup {
                thread,
                plan: Arc::clone(&plan),
                workload: Arc::clone(&workload),
                timeout: settings.timeout,
                room: settings.backlog / threads,
                stop: Arc::clone(&workers.stop),
            };
            // Threads wait for a common begin: fetching sessions takes each of them a different time.
            let (begin, begins) = channel();
            workers.begins.push(begin);
            let (settings, found, sender) = (settings.clone(), found.clone(), sender.clone());
            let work = move || work(&settings, &found, setup, sender, begins);
            workers.threads.push(thread::Builder::new().name(format!("bench-{thread}")).spawn(work)?);
        }
        Ok(workers)
    }

    fn wait_until_ready(&mut self, settings: &Settings) -> Result<(), BenchError> {
        for _ in 0..settings.threads {
            match self.reports.recv() {
                Ok(Report::Failed(failure)) => {
                    return Err(BenchError::Target { target: settings.url.clone(), failure });
                }
                Ok(_) => {}
                // No sender is left, so a thread has panicked, and `join` passes the panic on.
                Err(_) => self.join(),
            }
        }
        Ok(())
    }

    /// Processes reports until `until`, or until all threads have finished.
    fn listen(&self, until: Option<Instant>, gathering: &mut Gathering<'_>, observer: &mut impl Observer) {
        while !gathering.is_complete() {
            let left = until.map_or(TICK, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return;
            }
            match self.reports.recv_timeout(left.min(TICK)) {
                Ok(report) => gathering.take(report, observer),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // Relaxed: the flag publishes no other data. The swap lets only the first notice count as the
            // interrupt.
            if observer.is_stopped() && !self.stop.swap(true, Ordering::Relaxed) {
                gathering.interrupt();
            }
        }
    }

    /// Waits for the threads; propagates a panic.
    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            thread.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    }
}

/// The main function of a thread.
fn work(
    settings: &Settings,
    found: &ReachedTarget,
    setup: Setup,
    reports: Sender<Report>,
    begin: Receiver<Instant>,
) {
    let slots = settings.schedule.most().div_ceil(settings.threads);
    let sessions = |client: &Client| match client.settings().session_use {
        SessionUse::Many => slots.min(MANY_SESSIONS),
        SessionUse::Once => slots.min(MOST_SESSIONS),
    };
    let recorder = Rc::new(Recorder::new(reports));
    if settings.keeps_records {
        recorder.keep_records();
    }
    // A runtime for each thread: a connection never changes its thread, and its state needs no locks.
    match runtime() {
        Ok(runtime) => {
            let opener = found.opener(settings, Rc::clone(&recorder), setup.thread, sessions);
            runtime.block_on(worker::run(setup, opener, begin));
        }
        Err(error) => {
            recorder.report(Report::Failed(Failure::new(
                Cause::Exhausted,
                format!("cannot start a thread: {error}"),
            )));
        }
    }
}
