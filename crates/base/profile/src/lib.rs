//! CPU profiler for the running process: samples the stacks of its threads by timers that count the processor time of
//! each thread.
//!
//! The signal handler allocates nothing, takes no lock and unwinds nothing. On the thread's alternate signal stack it
//! copies the registers and the innermost part of the interrupted stack into preallocated memory, with
//! `process_vm_readv`, which fails instead of faulting at the end of mapped memory. Any stack can therefore be sampled
//! at any instruction, including those of coroutines. The thread that takes the profile unwinds the copies afterwards
//! with the unwind tables of the program, so frame pointers are not needed. While no profile is taken, there are
//! neither timers nor memory for samples.
//!
//! The crate `pprof` is not used because it unwinds inside the signal handler.

mod flame;
mod folded;
mod handler;
mod modules;
mod pprof;
mod sample_counts;
mod sampler;
mod symbols;
mod threads;
mod timers;

use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use thiserror::Error;

pub use flame::SCRIPT_SOURCE;
use modules::Modules;
use sample_counts::SampleCounts;

/// Permitted duration of a `Profile`, in seconds.
pub const SECONDS: RangeInclusive<u64> = 1..=60;

/// Permitted sampling frequency of each thread, in samples per second of its processor time.
pub const FREQUENCIES: RangeInclusive<u32> = 1..=1000;

/// Default sampling frequency. Not a divisor of common timer frequencies, so that samples do not coincide with periodic
/// work.
pub const FREQUENCY: u32 = 99;

/// Whether a [`Profile`] is being taken.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Reasons for which there is no profile.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The caller has cancelled it.
    #[error("the profile was cancelled")]
    GivenUp,
    /// A system call failed.
    #[error("cannot take a profile: {0}: {1}")]
    System(&'static str, io::Error),
}

impl ProfileError {
    /// Returns whether a repetition would fail too: a seccomp filter forbids the system call (`EPERM`), or the kernel
    /// lacks it (`ENOSYS`).
    pub fn is_permanent(&self) -> bool {
        let code = |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS));
        matches!(self, Self::System(_, error) if code(error))
    }
}

/// Maps an error of the system call `step`.
fn refused(step: &'static str) -> impl Fn(io::Error) -> ProfileError {
    move |error| ProfileError::System(step, error)
}

/// Parameters of a `Profile`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileOptions {
    /// Duration, clamped to [`SECONDS`].
    pub seconds: u64,
    /// Samples per second of processor time, clamped to [`FREQUENCIES`]. The kernel interrupts a thread at most once
    /// per clock tick; a sample then counts for all expiries since the last one.
    pub frequency: u32,
}

/// The exclusive right to take a `Profile`. A process takes one at a time.
#[derive(Debug)]
pub struct ProfileRight(());

impl ProfileRight {
    /// Claims the right. `None` while another profile is being taken.
    pub fn claim() -> Option<Self> {
        (!TAKEN.swap(true, Ordering::Acquire)).then_some(Self(()))
    }

    /// Samples all threads of the process except the calling one, and blocks for the duration. Ends early when
    /// `is_unwanted` returns `true`.
    ///
    /// # Errors
    ///
    /// [`ProfileError::GivenUp`] if cancelled, [`ProfileError::System`] if a system call fails.
    pub fn take(
        self,
        order: ProfileOptions,
        is_unwanted: impl Fn() -> bool,
    ) -> Result<Profile, ProfileError> {
        let seconds = order.seconds.clamp(*SECONDS.start(), *SECONDS.end());
        let frequency = order.frequency.clamp(*FREQUENCIES.start(), *FREQUENCIES.end());
        let mut modules = Modules::of_this_process()?;
        let mut counts = SampleCounts::default();
        let begun = SystemTime::now();
        let seen =
            sampler::sample(Duration::from_secs(seconds), frequency, &is_unwanted, |thread, sample| {
                counts.add(thread, &mut modules, sample);
            })?;
        if is_unwanted() {
            return Err(ProfileError::GivenUp);
        }
        let (names, stacks) = counts.named(&modules);
        let sampler::MissedSamples { lost, left_out, length } = seen;
        Ok(Profile { begun, length, frequency, lost, left_out, unread: modules.unread, names, stacks })
    }
}

impl Drop for ProfileRight {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::Release);
    }
}

/// Result of [`ProfileRight::take`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    begun: SystemTime,
    length: Duration,
    frequency: u32,
    /// Number of samples that were lost because all slots were full.
    lost: u64,
    /// Number of threads that were not sampled.
    left_out: usize,
    /// Libraries that could not be read; their functions have no names.
    unread: Vec<String>,
    /// Names of threads and functions.
    names: Vec<String>,
    /// Stacks with their number of samples: index of the thread's name, then of the functions, the outermost first.
    stacks: Vec<(Box<[u32]>, u64)>,
}

impl Profile {
    /// Total number of samples.
    pub fn samples(&self) -> u64 {
        self.stacks.iter().map(|(_, samples)| samples).sum()
    }

    /// Incomplete parts of the `Profile`, one sentence for each.
    pub fn gaps(&self) -> Vec<String> {
        let mut gaps = Vec::new();
        if self.lost > 0 {
            gaps.push(format!("{} samples were lost because all slots were full.", self.lost));
        }
        if self.left_out > 0 {
            gaps.push(format!("{} threads could not be sampled.", self.left_out));
        }
        gaps.extend(
            self.unread.iter().map(|name| format!("{name} could not be read: its functions have no names.")),
        );
        gaps
    }

    /// Renders a flame graph as SVG without scripts. `notes` are lines of text above it.
    pub fn flame_graph(&self, notes: &[String]) -> String {
        flame::graph(self, notes)
    }

    /// Encodes the `Profile` for pprof: `profile.proto`, compressed with gzip.
    pub fn pprof(&self) -> Vec<u8> {
        pprof::compressed(&pprof::encoded(self))
    }

    /// Formats one line per stack: names of thread and functions, the outermost first, separated by `;`, and the number
    /// of samples.
    pub fn folded(&self) -> String {
        folded::lines(self)
    }

    fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("", String::as_str)
    }

    /// Processor time that one sample represents.
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
