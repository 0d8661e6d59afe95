//! Threads of a batch engine, and the queue between them and the threads that submit.
//!
//! One thread at a time watches the queue and gathers operations, so that two threads do not split a batch. It leaves
//! with its batch, and the next thread takes over the watch.

use std::{
    io,
    num::NonZeroUsize,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Instant,
};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use rustix::{
    process::nice,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

use super::{
    BatchSettings,
    class::Class,
    gather::{Decision, Gather},
    perform::{Job, Performing},
    statistics::BatchStatistics,
};
use brisk_lanes::rsa_lanes::OPERATIONS;

/// Niceness of the threads relative to the rest of the process. On a shared core, a worker's task takes about 10 µs
/// and should not wait until a batch ends. Even beside a worker that is always busy, the threads keep a quarter of
/// the core.
const NICENESS: i32 = 5;

/// Starts the threads; they end when the queue is empty and all its senders are dropped.
pub(super) fn start(
    settings: &BatchSettings,
    threads: NonZeroUsize,
    performing: Performing,
    statistics: &Arc<BatchStatistics>,
) -> io::Result<Sender<Job>> {
    let (sender, queue) = crossbeam_channel::bounded(settings.queue.get());
    let shared = Arc::new((Mutex::new(Desk::new(queue, Arc::clone(statistics))), performing));
    let (report, reports) = crossbeam_channel::bounded(threads.get());
    for number in 0..threads.get() {
        let (shared, report, cores) = (Arc::clone(&shared), report.clone(), settings.cores.clone());
        thread::Builder::new().name(format!("keys-{number}")).spawn(move || {
            let pinned = pin(&cores);
            let runs = pinned.is_ok();
            // The send fails if another thread could not be started; then all of them end.
            drop(report.send(pinned));
            // `reports` ends when all senders are dropped, so a thread must not keep its sender while it
            // works.
            drop(report);
            if runs {
                // On Linux this changes the calling thread only. Raising the niceness is never refused.
                nice(NICENESS).ok();
                work(&shared.0, &shared.1);
            }
        })?;
    }
    drop(report);
    // Waits for all threads: a core that does not exist is an error of the start, not of the first
    // handshake.
    reports.iter().collect::<io::Result<()>>()?;
    Ok(sender)
}

/// Pins the calling thread to `cores`; an empty list means all cores.
fn pin(cores: &[usize]) -> io::Result<()> {
    if cores.is_empty() {
        return Ok(());
    }
    let wrong = |core: &usize| io::Error::other(format!("this process may not use core {core}"));
    let mut set = CpuSet::new();
    for core in cores {
        if *core >= CpuSet::MAX_CPU {
            return Err(wrong(core));
        }
        set.set(*core);
    }
    if let Err(error) = sched_setaffinity(None, &set) {
        return Err(cores.first().map_or_else(|| error.into(), wrong));
    }
    // The system silently ignores cores that do not exist, so the result is read back.
    let allowed = sched_getaffinity(None)?;
    cores.iter().find(|core| !allowed.is_set(**core)).map_or(Ok(()), |core| Err(wrong(core)))
}

pub(super) fn work(desk: &Mutex<Desk>, performing: &Performing) {
    let mut jobs = Vec::with_capacity(OPERATIONS);
    let mut alone = None;
    loop {
        let class = {
            let mut desk = desk.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((class, time)) = alone {
                desk.gather.performed_alone(class, time);
            }
            desk.next(performing, &mut jobs)
        };
        let Some(class) = class else { return };
        alone = performing.perform(class, &mut jobs).map(|time| (class, time));
    }
}

/// Receiving end of the queue, with the [`Job`]s that were taken from it and not dispatched yet.
pub(super) struct Desk {
    queue: Receiver<Job>,
    gather: Gather<Job>,
    statistics: Arc<BatchStatistics>,
}

impl Desk {
    /// Creates the receiving end for `queue`.
    pub(super) fn new(queue: Receiver<Job>, statistics: Arc<BatchStatistics>) -> Self {
        Self { queue, gather: Gather::new(), statistics }
    }

    /// Blocks until operations should be dispatched and moves them to `jobs`. Returns `None` once the queue is empty
    /// and closed.
    fn next(&mut self, performing: &Performing, jobs: &mut Vec<Job>) -> Option<Class> {
        self.gather.watch(Instant::now());
        loop {
            self.take_waiting(performing);
            let now = Instant::now();
            match self.gather.decide(now) {
                Decision::Go(class) => {
                    self.gather.take(class, jobs, now);
                    self.statistics.left(jobs.len());
                    return Some(class);
                }
                Decision::Wait(until) => match self.queue.recv_deadline(until) {
                    Ok(job) => self.add(job, performing),
                    // Decided again: arrivals may have completed the batch at the last moment.
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => self.gather.close(),
                },
                Decision::Sleep => {
                    let job = self.queue.recv().ok()?;
                    self.add(job, performing);
                }
            }
        }
    }

    /// Takes operations from the queue, up to a full batch, and removes operations that are no longer wanted.
    fn take_waiting(&mut self, performing: &Performing) {
        let now = Instant::now();
        // Before the decision: operations of clients that have left must not fill a batch.
        for job in self.gather.remove(&|job: &Job| !job.is_wanted(now)) {
            self.statistics.left(1);
            job.dismiss();
        }
        while !self.gather.is_full()
            && let Ok(job) = self.queue.try_recv()
        {
            self.add(job, performing);
        }
    }

    fn add(&mut self, job: Job, performing: &Performing) {
        let now = Instant::now();
        if job.is_wanted(now) {
            let (class, arrived) = (job.class(), job.arrived());
            self.gather.push(class, performing.together(class), job, arrived, now);
        } else {
            self.statistics.left(1);
            job.dismiss();
        }
    }
}
