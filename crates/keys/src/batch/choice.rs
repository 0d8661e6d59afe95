//! How RSA operations of one width are performed fastest on this machine: measured, not assumed.
//!
//! Processors differ in what vector instructions are worth, and a compiler can spoil a kernel without an error. So each
//! kind of batch is performed here beside single operations, with keys that serve no other purpose, before the first
//! handshake needs one. That takes some milliseconds for a width, once in the life of the process.

use std::{fmt, sync::OnceLock, time::Duration};

use brisk_lanes::rsa_lanes::{Instructions, Lane, OPERATIONS, Verdict, Width, private_transform};
use brisk_wire::registry::SignatureScheme;
use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use rustls_pki_types::PrivatePkcs8KeyDer;

use crate::{OperationKind, Performer, rsa::RsaPrivateKey};

/// How often each way is measured at most; the fastest run counts, since everything else on the machine only adds time.
/// The first batch of a key also draws blinding factors, and finds cold caches.
const RUNS: usize = 4;

/// A way that takes this many times as long for an operation as the best one so far is not run again. First runs of the
/// fastest way were seen to take three times as long as the later ones.
const HOPELESS: u32 = 8;

/// Batches are used if they gain at least this factor: less is within the error of the measurement.
const WORTHWHILE: f64 = 1.05;

const SCHEME: SignatureScheme = SignatureScheme::RSA_PSS_RSAE_SHA256;

/// What is signed: the length of what a server signs in TLS 1.3.
const MESSAGE: &[u8] = &[0x20; 130];

/// Performs the operations in `lanes`, which share a width and instructions; see [`private_transform`].
pub(super) type Perform = fn(lanes: &mut [Lane<'_>]) -> [Verdict; OPERATIONS];

/// The fastest way to perform RSA operations of one width on this machine, and what the measurement of it showed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchChoice {
    width: Width,
    /// Processor time of an operation that AWS-LC performs by itself.
    alone: Duration,
    /// The instructions whose batches perform the most operations in a given time, and the processor time of a full batch.
    /// `None`: this processor has no instructions for batches, or they computed a wrong result.
    fastest: Option<(Instructions, Duration)>,
}

/// What was measured, once for all engines: it is a fact of the machine.
static CHOICES: [OnceLock<BatchChoice>; Width::ALL.len()] = [const { OnceLock::new() }; Width::ALL.len()];

impl BatchChoice {
    /// What is true of this machine: measured by the first call for each width.
    pub fn of_this_machine(width: Width) -> Self {
        *CHOICES[width as usize].get_or_init(|| Self::measure(width, private_transform))
    }

    /// All that this process has measured so far: of the sizes of keys that it has met.
    pub fn measured() -> impl Iterator<Item = Self> {
        CHOICES.iter().filter_map(|choice| choice.get().copied())
    }

    /// A choice as if it had been measured.
    #[cfg(test)]
    pub(super) const fn of(width: Width, alone: Duration, fastest: Option<(Instructions, Duration)>) -> Self {
        Self { width, alone, fastest }
    }

    fn measure(width: Width, perform: Perform) -> Self {
        let key = key(width);
        let alone = (0..RUNS).map(|_| time(|| key.sign(SCHEME, MESSAGE))).min().unwrap_or_default();
        let operation = OperationKind::Sign { scheme: SCHEME, message: Bytes::from_static(MESSAGE) };
        let input = key.representative(&operation).expect("the key is large enough for the scheme");
        let (mut fastest, mut least) = (None, Duration::MAX);
        for kind in Instructions::ALL.into_iter().filter(|kind| kind.are_supported()) {
            let Some(time) = batch_time(&key, &input, kind, least.min(alone), perform) else { continue };
            let each = time / kind.operations() as u32;
            if each < least {
                (fastest, least) = (Some((kind, time)), each);
            }
        }
        Self { width, alone, fastest }
    }

    /// Bits of the modulus of the keys that it holds for.
    pub const fn bits(&self) -> usize {
        self.width.bits()
    }

    /// Operations in a full batch; 1 if they are performed one by one.
    pub fn operations(&self) -> usize {
        self.instructions().map_or(1, Instructions::operations)
    }

    /// How many times as many operations full batches perform as AWS-LC does one by one, with the fastest instructions;
    /// below 1 if they are slower. `None`: there are no batches on this processor.
    pub fn gain(&self) -> Option<f64> {
        let (instructions, batch) = self.fastest?;
        Some(self.alone.as_secs_f64() * instructions.operations() as f64 / batch.as_secs_f64())
    }

    /// Processor time of an operation performed in the way that was chosen, in a full batch if there are batches.
    pub fn time(&self) -> Duration {
        let batch = self.fastest.filter(|_| self.instructions().is_some());
        batch.map_or(self.alone, |(instructions, batch)| batch / instructions.operations() as u32)
    }

    /// The fastest instructions, whether or not they are used: `ifma` or `fma`.
    pub fn instructions_name(&self) -> Option<&'static str> {
        self.fastest.map(|(instructions, _)| Performer::from(instructions).name())
    }

    /// The instructions of batches. `None`: operations are performed one by one.
    pub(crate) fn instructions(&self) -> Option<Instructions> {
        let (instructions, _) = self.fastest?;
        (self.gain()? >= WORTHWHILE).then_some(instructions)
    }

    /// The least number of operations that a batch performs sooner than AWS-LC does one by one; at least 2, since a single
    /// operation has nothing to share. Meaningless without batches.
    pub(crate) fn break_even(&self) -> usize {
        let batch = self.fastest.map_or(Duration::MAX, |(_, batch)| batch);
        (2..OPERATIONS).find(|count| self.alone * *count as u32 > batch).unwrap_or(OPERATIONS)
    }
}

impl fmt::Display for BatchChoice {
    /// What is chosen for keys of this width, and why: `2048 bits in batches of four with AVX-512 IFMA, 3.2 times as fast
    /// as one by one`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bits ", self.bits())?;
        match (self.fastest.zip(self.gain()), self.instructions()) {
            (Some(((instructions, _), gain)), Some(_)) => {
                write!(f, "in {instructions}, {gain:.1} times as fast as one by one")
            }
            (Some(((instructions, _), gain)), None) => {
                write!(f, "one by one with AWS-LC, since {instructions} are {gain:.2} times as fast here")
            }
            (None, _) => write!(f, "one by one with AWS-LC, since this processor has no AVX2 and FMA"),
        }
    }
}

/// The processor time of a full batch; `best` is the least that an operation took so far. `None`: a result was wrong.
fn batch_time(
    key: &RsaPrivateKey,
    input: &[u8],
    instructions: Instructions,
    best: Duration,
    perform: Perform,
) -> Option<Duration> {
    let prepared = key.prepared(instructions)?;
    let mut outputs = vec![vec![0; input.len()]; instructions.operations()];
    let mut least = Duration::MAX;
    for _ in 0..RUNS {
        let mut lanes: Vec<_> =
            outputs.iter_mut().map(|output| Lane { key: prepared, input, output }).collect();
        let mut verdicts = [Verdict::Fault; OPERATIONS];
        least = least.min(time(|| verdicts = perform(&mut lanes)));
        if verdicts[..lanes.len()].iter().any(|verdict| *verdict != Verdict::Done) {
            tracing::warn!(
                "RSA: {instructions} computed a wrong result for {} bits in a trial; they are not used. The processor or the \
                 memory of this machine is not to be trusted",
                prepared.width().bits()
            );
            return None;
        }
        if least > best * instructions.operations() as u32 * HOPELESS {
            break;
        }
    }
    Some(least)
}

/// Processor time of this thread, so that what others do in the meantime does not count.
fn time<T>(operation: impl FnOnce() -> T) -> Duration {
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32)
    };
    let began = now();
    std::hint::black_box(operation());
    now().saturating_sub(began)
}

/// The key with which a width is measured. It is public, and so protects nothing.
fn key(width: Width) -> RsaPrivateKey {
    let der: &[u8] = match width {
        Width::Rsa2048 => include_bytes!("choice/rsa2048.der"),
        Width::Rsa3072 => include_bytes!("choice/rsa3072.der"),
        Width::Rsa4096 => include_bytes!("choice/rsa4096.der"),
    };
    RsaPrivateKey::from_der(&PrivatePkcs8KeyDer::from(der).into()).expect("the file is a key of this width")
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const fn micros(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    const fn choice(alone: u64, instructions: Instructions, batch: u64) -> BatchChoice {
        BatchChoice::of(Width::Rsa2048, micros(alone), Some((instructions, micros(batch))))
    }

    /// Batches that take 20 ms longer than they have to.
    fn slowed(lanes: &mut [Lane<'_>]) -> [Verdict; OPERATIONS] {
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(20) {}
        private_transform(lanes)
    }

    /// Only batches of four take longer.
    fn slowed_by_fours(lanes: &mut [Lane<'_>]) -> [Verdict; OPERATIONS] {
        if lanes.len() == 4 { slowed(lanes) } else { private_transform(lanes) }
    }

    fn wrong(lanes: &mut [Lane<'_>]) -> [Verdict; OPERATIONS] {
        private_transform(lanes);
        [Verdict::Done, Verdict::Fault, Verdict::Done, Verdict::Done]
    }

    #[test]
    fn batches_are_chosen_where_they_are_faster() {
        let fast = choice(200, Instructions::Ifma, 240);
        assert_eq!((fast.instructions(), fast.operations()), (Some(Instructions::Ifma), 4));
        assert_eq!(
            fast.to_string(),
            "2048 bits in batches of four with AVX-512 IFMA, 3.3 times as fast as one by one"
        );
        let slow = choice(200, Instructions::Ifma, 10_000);
        assert_eq!((slow.instructions(), slow.operations()), (None, 1));
        assert_eq!(
            slow.to_string(),
            "2048 bits one by one with AWS-LC, since batches of four with AVX-512 IFMA are 0.08 times as fast here"
        );
        let equal = choice(200, Instructions::Fma, 395);
        assert_eq!(equal.instructions(), None, "a gain of 1 % may be an error of the measurement");
    }

    #[test]
    fn a_batch_pays_from_the_number_on_that_takes_longer_one_by_one() {
        for (batch, expected) in [(100, 2), (399, 2), (400, 3), (599, 3), (600, 4), (799, 4)] {
            assert_eq!(choice(200, Instructions::Ifma, batch).break_even(), expected, "{batch}");
        }
    }

    #[test]
    fn instructions_that_are_slow_here_are_not_chosen() {
        let choice = BatchChoice::measure(Width::Rsa2048, slowed);
        assert_eq!(choice.instructions(), None, "{choice}");
        let choice = BatchChoice::measure(Width::Rsa2048, slowed_by_fours);
        assert_ne!(choice.instructions(), Some(Instructions::Ifma), "{choice}");
    }

    #[test]
    fn instructions_that_compute_wrong_results_are_not_chosen() {
        let choice = BatchChoice::measure(Width::Rsa2048, wrong);
        assert_eq!((choice.instructions(), choice.gain()), (None, None));
    }

    #[test]
    fn every_width_can_be_measured() {
        for width in Width::ALL {
            let choice = BatchChoice::measure(width, private_transform);
            assert!(choice.alone > Duration::ZERO, "{choice:?}");
            assert_eq!(choice.fastest.is_some(), Instructions::ALL.iter().any(|kind| kind.are_supported()));
        }
    }
}
