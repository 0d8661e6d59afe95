//! Sampling loop of a [`Profile`](crate::Profile).

use std::thread;
use std::time::{Duration, Instant};

use crate::ProfileError;
use crate::handler::{Sample, SampleBuffer};
use crate::timers::Timers;

/// Intervals of the loop: draining of samples, and search for new threads.
const ROUND: Duration = Duration::from_millis(10);
const NEW_THREADS: Duration = Duration::from_millis(250);

/// Samples and threads that the profile lacks, and its actual duration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MissedSamples {
    pub(crate) lost: u64,
    pub(crate) left_out: usize,
    /// Actual duration; on a busy machine longer than requested.
    pub(crate) length: Duration,
}

/// Samples all other threads `frequency` times per second of their processor time, and passes samples with the thread's
/// name to `take` on this thread.
pub(crate) fn sample(
    length: Duration,
    frequency: u32,
    is_unwanted: impl Fn() -> bool,
    mut take: impl FnMut(&str, &Sample<'_>),
) -> Result<MissedSamples, ProfileError> {
    let room = SampleBuffer::open()?;
    let mut timers = Timers::new(Duration::from_secs(1) / frequency);
    timers.follow()?;
    let begun = Instant::now();
    let mut looked = begun;
    while begun.elapsed() < length {
        if is_unwanted() {
            return Err(ProfileError::GivenUp);
        }
        if looked.elapsed() >= NEW_THREADS {
            // If no file descriptor is available, the known threads suffice until the next attempt.
            let _ = timers.follow();
            looked = Instant::now();
        }
        thread::sleep(ROUND);
        drain(&room, &mut timers, &mut take);
    }
    let (left_out, length) = (timers.left_out(), begun.elapsed());
    drain(&room, &mut timers, &mut take);
    drop(timers);
    Ok(MissedSamples { lost: room.lost(), left_out, length })
}

fn drain(room: &SampleBuffer, timers: &mut Timers, take: &mut impl FnMut(&str, &Sample<'_>)) {
    let mut without_stack = Vec::new();
    room.drain(&mut |sample| match sample.stack {
        Some(_) => take(timers.name(sample.thread), &sample),
        None => without_stack.push(sample.thread),
    });
    for thread in without_stack {
        timers.has_no_stack(thread);
    }
}
