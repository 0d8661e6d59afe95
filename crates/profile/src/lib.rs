//! Where a running process spends its processor time: it samples the stacks of its own threads, by timers that count
//! the processor time of each.
//!
//! What interrupts a thread allocates nothing, takes no lock and unwinds nothing. On the thread's stack for signals
//! it copies registers and the innermost part of the interrupted stack into memory that was prepared, by a system
//! call that fails where memory ends: so it does not matter whose stack it is, a coroutine's included, nor what was
//! going on. All else is done by the thread that takes the profile, from the unwind tables of the program; frame
//! pointers are not needed. While no profile is taken there is neither a timer nor memory for samples.

mod flame;
mod folded;
mod gathered;
mod handler;
mod modules;
mod pprof;
mod sampler;
mod symbols;
mod threads;
mod timers;

use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use thiserror::Error;

use gathered::Gathered;
use modules::Modules;

/// How long a profile may take, in seconds.
pub const SECONDS: RangeInclusive<u64> = 1..=60;

/// How often a thread may be sampled, in each second of its processor time.
pub const FREQUENCIES: RangeInclusive<u32> = 1..=1000;

/// Unless another is asked for. No divisor of anything that happens at regular times.
pub const FREQUENCY: u32 = 99;

/// Whether a profile is being taken.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Why there is no profile.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The caller no longer wants it.
    #[error("the profile was given up")]
    GivenUp,
    /// The system refuses a step.
    #[error("the system refuses a profile, by {0}: {1}")]
    System(&'static str, io::Error),
}

impl ProfileError {
    /// Whether it will be refused the next time as well: by a filter of system calls, or by a kernel that has no such call.
    pub fn is_for_good(&self) -> bool {
        let code = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS));
        matches!(self, Self::System(_, error) if code(error))
    }
}

/// What the system refused in this step.
fn refused(step: &'static str) -> impl Fn(io::Error) -> ProfileError {
    move |error| ProfileError::System(step, error)
}

/// What is to be sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Seconds, of [`SECONDS`]: what is outside is taken for the nearest bound.
    pub seconds: u64,
    /// Samples of each second of processor time, of [`FREQUENCIES`] likewise. The system interrupts no thread more
    /// often than its own clock ticks; a sample counts for as many as were due.
    pub frequency: u32,
}

/// The right to take a profile. One process has one.
#[derive(Debug)]
pub struct Turn(());

impl Turn {
    /// `None` while another has it.
    pub fn claim() -> Option<Self> {
        (!TAKEN.swap(true, Ordering::Acquire)).then_some(Self(()))
    }

    /// Samples all threads of this process but the calling one, which waits as long. Gives up soon after `is_unwanted`.
    pub fn take(self, order: Order, is_unwanted: impl Fn() -> bool) -> Result<Profile, ProfileError> {
        let seconds = order.seconds.clamp(*SECONDS.start(), *SECONDS.end());
        let frequency = order.frequency.clamp(*FREQUENCIES.start(), *FREQUENCIES.end());
        let mut modules = Modules::of_this_process()?;
        let mut gathered = Gathered::default();
        let begun = SystemTime::now();
        let seen =
            sampler::sample(Duration::from_secs(seconds), frequency, &is_unwanted, |thread, sample| {
                gathered.add(thread, &mut modules, sample);
            })?;
        if is_unwanted() {
            return Err(ProfileError::GivenUp);
        }
        let (names, stacks) = gathered.named(&modules);
        let sampler::Unseen { lost, left_out, length } = seen;
        Ok(Profile { begun, length, frequency, lost, left_out, unread: modules.unread, names, stacks })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::Release);
    }
}

/// What was sampled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    begun: SystemTime,
    length: Duration,
    frequency: u32,
    /// Samples that were lost for want of room.
    lost: u64,
    /// Threads that were not sampled.
    left_out: usize,
    /// Libraries that could not be read: their functions have no names.
    unread: Vec<String>,
    /// Of threads and functions.
    names: Vec<String>,
    /// Stacks with the number of their samples: the name of the thread first, then functions from the outermost one on.
    stacks: Vec<(Box<[u32]>, u64)>,
}

impl Profile {
    /// Samples in all.
    pub fn samples(&self) -> u64 {
        self.stacks.iter().map(|(_, samples)| samples).sum()
    }

    /// What it does not show: a sentence for each reason.
    pub fn gaps(&self) -> Vec<String> {
        let mut gaps = Vec::new();
        if self.lost > 0 {
            gaps.push(format!("{} samples were lost for want of room.", self.lost));
        }
        if self.left_out > 0 {
            gaps.push(format!("{} threads could not be sampled.", self.left_out));
        }
        gaps.extend(
            self.unread.iter().map(|name| format!("{name} could not be read: its functions have no names.")),
        );
        gaps
    }

    /// A flame graph: SVG without scripts. `notes` are lines of text above it.
    pub fn flame_graph(&self, notes: &[String]) -> String {
        flame::graph(self, notes)
    }

    /// For pprof: `profile.proto`, compressed by gzip.
    pub fn pprof(&self) -> Vec<u8> {
        pprof::compressed(&pprof::encoded(self))
    }

    /// A line for each stack: the thread and its functions from the outermost one on, with `;` between them, and the
    /// number of samples.
    pub fn folded(&self) -> String {
        folded::lines(self)
    }

    fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }

    /// Processor time that a sample stands for.
    fn period(&self) -> Duration {
        Duration::from_secs(1) / self.frequency
    }

    #[cfg(test)]
    fn of(stacks: &[(&[&str], u64)]) -> Self {
        let mut names: Vec<String> = Vec::new();
        let mut number = |name: &&str| {
            let known = names.iter().position(|known| known == name);
            known.unwrap_or_else(|| {
                names.push((*name).to_owned());
                names.len() - 1
            }) as u32
        };
        let stacks =
            stacks.iter().map(|(stack, samples)| (stack.iter().map(&mut number).collect(), *samples));
        let stacks = stacks.collect();
        let length = Duration::from_secs(2);
        let begun = SystemTime::UNIX_EPOCH;
        Self { begun, length, frequency: 100, lost: 0, left_out: 0, unread: Vec::new(), names, stacks }
    }
}

#[cfg(test)]
mod tests;
