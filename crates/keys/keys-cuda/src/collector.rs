//! [`LaunchCollector`], the collection of operations into launches: a launch starts when it is full, or when its oldest
//! operation has waited long enough.
//!
//! One GPU thread at a time collects. It leaves with its operations, and the next thread that has returned from the GPU
//! takes over. While all threads are busy the queue grows, so launches are as large as possible under load.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use brisk_keys::device::{Job, Width};
use crossbeam_channel::{Receiver, RecvTimeoutError};

use super::statistics::CudaStatistics;

/// Time without operations after which a thread removes unused keys.
const IDLE: Duration = Duration::from_secs(1);

/// Next task of a GPU thread, from [`LaunchCollector::next`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CollectorTask {
    /// Perform the collected operations.
    Launch(Width),
    /// No operations; do maintenance.
    Rest,
    /// The queue is closed and empty.
    End,
}

/// Receiver of the queue, and operations that are collected for a launch.
pub(super) struct LaunchCollector {
    queue: Receiver<Job>,
    lists: [Vec<Job>; Width::ALL.len()],
    /// Longest time that a [`Job`] waits for others.
    wait: Duration,
    statistics: Arc<CudaStatistics>,
}

impl LaunchCollector {
    pub(super) fn new(queue: Receiver<Job>, wait: Duration, statistics: Arc<CudaStatistics>) -> Self {
        Self { queue, lists: Default::default(), wait, statistics }
    }

    /// Blocks until a launch is due, and moves its operations, at most `waves` of their width, to `jobs`.
    pub(super) fn next(&mut self, waves: [usize; Width::ALL.len()], jobs: &mut Vec<Job>) -> CollectorTask {
        let mut open = true;
        loop {
            self.take_waiting(waves);
            let now = Instant::now();
            if let Some(width) = self.ready(waves, now, open) {
                self.hand_out(width, waves, jobs);
                return CollectorTask::Launch(width);
            }
            let until = self.oldest().map(|(arrived, _)| arrived + self.wait);
            match self.queue.recv_deadline(until.unwrap_or(now + IDLE)) {
                Ok(job) => self.add(job),
                Err(RecvTimeoutError::Timeout) if until.is_none() => return CollectorTask::Rest,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) if until.is_none() => return CollectorTask::End,
                Err(RecvTimeoutError::Disconnected) => open = false,
            }
        }
    }

    /// The [`Width`] whose launch is due: one with a full wave, or that of the oldest operation if it has waited long
    /// enough.
    fn ready(&self, waves: [usize; Width::ALL.len()], now: Instant, open: bool) -> Option<Width> {
        let (arrived, longest) = self.oldest()?;
        // Before full waves: under load of one width, the oldest operation of another must not wait longer
        // than `wait`.
        if !open || now >= arrived + self.wait {
            return Some(longest);
        }
        Width::ALL.into_iter().find(|width| self.lists[*width as usize].len() >= waves[*width as usize])
    }

    /// Arrival of the oldest operation.
    fn oldest(&self) -> Option<(Instant, Width)> {
        let first = |width: Width| Some((self.lists[width as usize].first()?.arrived(), width));
        Width::ALL.into_iter().filter_map(first).min_by_key(|(arrived, _)| *arrived)
    }

    /// Collects each queued [`Job`] until a wave is full.
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

    /// Moves up to a wave of operations that are still wanted to `jobs`.
    fn hand_out(&mut self, width: Width, waves: [usize; Width::ALL.len()], jobs: &mut Vec<Job>) {
        let list = &mut self.lists[width as usize];
        let count = list.len().min(waves[width as usize]);
        for mut job in list.drain(..count) {
            // Operations that have expired meanwhile take no place in the launch.
            if job.begin() {
                jobs.push(job);
            } else {
                self.statistics.left(1);
            }
        }
    }
}
