//! Where operations wait for a launch: gathered until there is a wave of them, or until the first has waited long enough.
//!
//! One thread at a time sits here. It goes off with what it gathered, and the next one, if it is back from the GPU,
//! takes its place. While all of them are away the queue fills, so that under load waves are as large as they can be.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use brisk_keys::device::{Job, Width};
use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::statistics::CudaStatistics;

/// How long a thread sits without anything to do before it looks after its keys.
const IDLE: Duration = Duration::from_secs(1);

/// What a thread is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Perform the operations that were handed out.
    Launch(Width),
    /// Nothing; there is time for what can wait.
    Rest,
    /// Nothing is left, and nothing will come.
    End,
}

/// The receiving end of the queue, and what was taken from it and has not gone yet.
pub(super) struct Desk {
    queue: Receiver<Job>,
    lists: [Vec<Job>; Width::ALL.len()],
    /// How long an operation waits for others at most.
    wait: Duration,
    statistics: Arc<CudaStatistics>,
}

impl Desk {
    pub(super) fn new(queue: Receiver<Job>, wait: Duration, statistics: Arc<CudaStatistics>) -> Self {
        Self { queue, lists: Default::default(), wait, statistics }
    }

    /// Waits until operations should go, at most `waves` of a width, and moves them to `jobs`.
    pub(super) fn next(&mut self, waves: [usize; Width::ALL.len()], jobs: &mut Vec<Job>) -> Task {
        let mut open = true;
        loop {
            self.take_waiting(waves);
            let now = Instant::now();
            if let Some(width) = self.ready(waves, now, open) {
                self.hand_out(width, waves, jobs);
                return Task::Launch(width);
            }
            let until = self.oldest().map(|(arrived, _)| arrived + self.wait);
            match self.queue.recv_deadline(until.unwrap_or(now + IDLE)) {
                Ok(job) => self.add(job),
                Err(RecvTimeoutError::Timeout) if until.is_none() => return Task::Rest,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) if until.is_none() => return Task::End,
                Err(RecvTimeoutError::Disconnected) => open = false,
            }
        }
    }

    /// The width that should go: one of which there is a wave, or the one that has waited longest, if that is long enough.
    fn ready(&self, waves: [usize; Width::ALL.len()], now: Instant, open: bool) -> Option<Width> {
        let (arrived, longest) = self.oldest()?;
        if !open || now >= arrived + self.wait {
            return Some(longest);
        }
        Width::ALL.into_iter().find(|width| self.lists[*width as usize].len() >= waves[*width as usize])
    }

    /// When the operation that waits longest arrived.
    fn oldest(&self) -> Option<(Instant, Width)> {
        let first = |width: Width| Some((self.lists[width as usize].first()?.arrived(), width));
        Width::ALL.into_iter().filter_map(first).min_by_key(|(arrived, _)| *arrived)
    }

    /// Takes what is there, up to a wave.
    fn take_waiting(&mut self, waves: [usize; Width::ALL.len()]) {
        let is_full = |lists: &[Vec<Job>]| lists.iter().zip(waves).any(|(list, wave)| list.len() >= wave);
        while !is_full(&self.lists)
            && let Ok(job) = self.queue.try_recv()
        {
            self.add(job);
        }
    }

    fn add(&mut self, job: Job) {
        if let Some(width) = job.key().width().filter(|_| job.is_wanted(Instant::now())) {
            self.lists[width as usize].push(job);
        } else {
            self.statistics.left(1);
            job.dismiss();
        }
    }

    /// Moves up to a wave of those that are still wanted.
    fn hand_out(&mut self, width: Width, waves: [usize; Width::ALL.len()], jobs: &mut Vec<Job>) {
        let list = &mut self.lists[width as usize];
        let count = list.len().min(waves[width as usize]);
        for mut job in list.drain(..count) {
            if job.begin() {
                jobs.push(job);
            } else {
                self.statistics.left(1);
            }
        }
    }
}
