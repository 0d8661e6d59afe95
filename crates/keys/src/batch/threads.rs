//! The threads of a batch engine, and the queue between them and the threads that submit.
//!
//! One thread at a time looks at the queue and gathers, so that two of them do not split a batch. It goes off with what it
//! gathered, and the next one takes its place.

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

/// How much nicer than the others the threads are. Where they share a core with a worker, what it has to do takes some 10 us
/// and should not wait for a batch to end. If the worker never stops, this still leaves a quarter of the core to them.
const NICENESS: i32 = 5;

/// Starts the threads; they end when the queue is empty and all its sending ends are dropped.
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
            // An error means that another thread could not be started, and all of them end.
            drop(report.send(pinned));
            drop(report);
            if runs {
                // Of this thread alone, and never refused, since it only gives way.
                nice(NICENESS).ok();
                work(&shared.0, &shared.1);
            }
        })?;
    }
    drop(report);
    reports.iter().collect::<io::Result<()>>()?;
    Ok(sender)
}

/// Keeps the calling thread on these cores. None is all.
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
    // The system passes over the cores that there are not.
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

/// The receiving end of the queue, and what was taken from it and has not gone yet.
pub(super) struct Desk {
    queue: Receiver<Job>,
    gather: Gather<Job>,
    statistics: Arc<BatchStatistics>,
}

impl Desk {
    /// Takes what is in `queue`.
    pub(super) fn new(queue: Receiver<Job>, statistics: Arc<BatchStatistics>) -> Self {
        Self { queue, gather: Gather::new(), statistics }
    }

    /// Waits until operations should go to `performing`, and moves them to `jobs`. `None`: nothing is left and nothing will
    /// come.
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

    /// Takes what is there, up to a full batch, and removes operations that are no longer wanted.
    fn take_waiting(&mut self, performing: &Performing) {
        let now = Instant::now();
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
