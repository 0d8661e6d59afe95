//! The fastest method for RSA operations of each size on this machine, found by measurement.
//!
//! Processors differ in the speed of their vector instructions, and a compiler can make a kernel slow without an
//! error. So each kind of batch is measured against single operations, with public test keys, before the first
//! handshake needs it. A size takes some tens of milliseconds, once per process.
//!
//! Some processors lower their clock for about a millisecond after wide vector instructions. The work that follows pays for it,
//! so each method is measured together with scalar work of the handshakes.

use std::{fmt, sync::OnceLock, time::Duration};

use aws_lc_rs::{
    agreement::{EphemeralPrivateKey, X25519},
    rand::SystemRandom,
};
use brisk_lanes::rsa_lanes::{Instructions, Lane, OPERATIONS, Verdict, Width, private_transform};
use brisk_wire::registry::SignatureScheme;
use bytes::Bytes;
use rustix::time::{ClockId, clock_gettime};
use rustls_pki_types::PrivatePkcs8KeyDer;

use crate::{OperationKind, Performer, rsa::RsaPrivateKey};

/// Maximum number of runs of each method. The fastest counts, since other load on the machine only adds time; the
/// first batch of a key also computes blinding factors and finds cold caches.
const RUNS: usize = 4;

/// A method that takes this many times as long per operation as the best so far is not run again. First runs of the
/// fastest method took up to three times as long as later ones.
const HOPELESS: u32 = 8;

/// Minimum gain for which batches are used: a smaller one is within the error of the measurement.
const WORTHWHILE: f64 = 1.05;

const SCHEME: SignatureScheme = SignatureScheme::RSA_PSS_RSAE_SHA256;

/// Message to sign, as long as the signed content of a TLS 1.3 server (RFC 8446 section 4.4.3).
const MESSAGE: &[u8] = &[0x20; 130];

/// Function that performs the operations in `lanes`, which share a width and instructions; see [`private_transform`].
pub(super) type Perform = fn(lanes: &mut [Lane<'_>]) -> [Verdict; OPERATIONS];

/// The fastest method for RSA operations of one size on this machine, with the measured times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchChoice {
    width: Width,
    /// Processor time of a single operation with AWS-LC.
    alone: Duration,
    /// The instructions with the highest throughput and the processor time of their full batch. `None`: the processor
    /// has no instructions for batches, or they computed a wrong result.
    fastest: Option<(Instructions, Duration)>,
    /// Processor time of a batch of two, for which [`Instructions::Fma512`] use half of their lanes.
    pair: Option<Duration>,
}

/// Each [`BatchChoice`] of the process, shared by all engines because it depends on the machine only.
static CHOICES: [OnceLock<BatchChoice>; Width::ALL.len()] = [const { OnceLock::new() }; Width::ALL.len()];

impl BatchChoice {
    /// The choice for this machine. The first call for each width measures it.
    pub fn of_this_machine(width: Width) -> Self {
        *CHOICES[width as usize].get_or_init(|| Self::measure(width, private_transform))
    }

    /// All choices that this process has measured so far.
    pub fn measured() -> impl Iterator<Item = Self> {
        CHOICES.iter().filter_map(|choice| choice.get().copied())
    }

    /// Creates a choice from given times, as if they had been measured.
    #[cfg(test)]
    pub(super) const fn of(width: Width, alone: Duration, fastest: Option<(Instructions, Duration)>) -> Self {
        Self { width, alone, fastest, pair: None }
    }

    fn measure(width: Width, perform: Perform) -> Self {
        let key = key(width);
        // Measured before the first batch: after wide instructions, the clock of some processors is lower.
        let beside = (0..RUNS).map(|_| time(|| scalar_work(1))).min().unwrap_or_default();
        let run = || time_beside(1, beside, || drop(key.sign(SCHEME, MESSAGE)));
        let alone = (0..RUNS).map(|_| run()).min().unwrap_or_default();
        let operation = OperationKind::Sign { scheme: SCHEME, message: Bytes::from_static(MESSAGE) };
        let input = key.representative(&operation).expect("the key is large enough for the scheme");
        let trial = Trial { key: &key, input: &input, beside, perform };
        let (mut fastest, mut least, mut pair) = (None, Duration::MAX, None);
        for kind in Instructions::ALL.into_iter().filter(|kind| kind.are_supported()) {
            let Some(time) = trial.batch_time(kind, least.min(alone)) else {
                // Small batches of these instructions are performed by those that are wrong.
                fastest =
                    fastest.filter(|(other, _)| (*other, kind) != (Instructions::Fma512, Instructions::Fma));
                continue;
            };
            if kind == Instructions::Fma {
                pair = Some(time);
            }
            let each = time / kind.operations() as u32;
            if each < least {
                (fastest, least) = (Some((kind, time)), each);
            }
        }
        pair = pair.filter(|_| fastest.is_some_and(|(kind, _)| kind == Instructions::Fma512));
        Self { width, alone, fastest, pair }
    }

    /// Size of the modulus in bits.
    pub const fn bits(&self) -> usize {
        self.width.bits()
    }

    /// Operations per full batch; 1 if operations are performed one by one.
    pub fn operations(&self) -> usize {
        self.instructions().map_or(1, Instructions::operations)
    }

    /// Throughput of full batches relative to AWS-LC, with the fastest instructions; below 1 if batches are slower.
    /// `None` if the processor has no instructions for batches.
    pub fn gain(&self) -> Option<f64> {
        let (instructions, batch) = self.fastest?;
        Some(self.alone.as_secs_f64() * instructions.operations() as f64 / batch.as_secs_f64())
    }

    /// Processor time per operation with the chosen method, in a full batch if batches were chosen.
    pub fn time(&self) -> Duration {
        let batch = self.fastest.filter(|_| self.instructions().is_some());
        batch.map_or(self.alone, |(instructions, batch)| batch / instructions.operations() as u32)
    }

    /// Name of the fastest instructions, even if batches are not used: `ifma`, `fma512` or `fma`.
    pub fn instructions_name(&self) -> Option<&'static str> {
        self.fastest.map(|(instructions, _)| Performer::from(instructions).name())
    }

    /// Instructions of batches; `None` if operations are performed one by one.
    pub(crate) fn instructions(&self) -> Option<Instructions> {
        let (instructions, _) = self.fastest?;
        (self.gain()? >= WORTHWHILE).then_some(instructions)
    }

    /// Smallest number of operations that a batch performs faster than AWS-LC performs them one by one; at least 2.
    /// Meaningless without batches.
    pub(crate) fn break_even(&self) -> usize {
        let full = self.fastest.map_or(Duration::MAX, |(_, batch)| batch);
        let batch = |count| self.pair.filter(|_| count == 2).unwrap_or(full);
        (2..OPERATIONS).find(|count| self.alone * *count as u32 > batch(*count)).unwrap_or(OPERATIONS)
    }
}

impl fmt::Display for BatchChoice {
    /// Writes the choice and its reason:
    /// `2048 bits in batches of four with AVX-512 IFMA, 3.2 times as fast as one by one`.
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

/// A measurement of batches with one key.
struct Trial<'a> {
    key: &'a RsaPrivateKey,
    input: &'a [u8],
    /// Processor time of the scalar work of one handshake at full clock.
    beside: Duration,
    perform: Perform,
}

impl Trial<'_> {
    /// Processor time of a full batch, or `None` if a result was wrong. `best` is the shortest time per operation so far.
    fn batch_time(&self, instructions: Instructions, best: Duration) -> Option<Duration> {
        let prepared = self.key.prepared(instructions)?;
        let operations = instructions.operations() as u32;
        let mut outputs = vec![vec![0; self.input.len()]; instructions.operations()];
        let mut least = Duration::MAX;
        for _ in 0..RUNS {
            let mut lanes: Vec<_> =
                outputs.iter_mut().map(|output| Lane { key: prepared, input: self.input, output }).collect();
            let mut verdicts = [Verdict::Fault; OPERATIONS];
            let run = || verdicts = (self.perform)(&mut lanes);
            least = least.min(time_beside(operations, self.beside, run));
            if verdicts[..outputs.len()].iter().any(|verdict| *verdict != Verdict::Done) {
                tracing::warn!(
                    "RSA: {instructions} computed a wrong result for {} bits in a trial; they are not used. The processor or \
                     the memory of this machine is not to be trusted",
                    prepared.width().bits()
                );
                return None;
            }
            if least > best * operations * HOPELESS {
                break;
            }
        }
        Some(least)
    }
}

/// Processor time of `operation`, which serves as many `handshakes`, and of the delay that it causes: scalar work of the handshakes
/// behind it, above the time `beside` of this work for each at full clock.
fn time_beside(handshakes: u32, beside: Duration, operation: impl FnOnce()) -> Duration {
    let both = time(|| {
        operation();
        scalar_work(handshakes);
    });
    both.saturating_sub(beside * handshakes)
}

/// Work without wide vectors, about as much as that of a handshake beside its RSA operation: exchanges of keys.
fn scalar_work(handshakes: u32) {
    let rng = SystemRandom::new();
    for _ in 0..4 * handshakes {
        let secret = EphemeralPrivateKey::generate(&X25519, &rng).expect("randomness");
        std::hint::black_box(secret.compute_public_key()).expect("a public key");
    }
}

/// Processor time of `operation` on this thread. Time of other threads and processes does not count.
fn time<T>(operation: impl FnOnce() -> T) -> Duration {
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32)
    };
    let began = now();
    std::hint::black_box(operation());
    now().saturating_sub(began)
}

/// Private key for measurements of `width`. It is published with the source and protects nothing.
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
    fn two_operations_have_a_break_even_of_their_own() {
        let whole = choice(200, Instructions::Fma512, 500);
        let half = BatchChoice { pair: Some(micros(350)), ..whole };
        assert_eq!((whole.break_even(), half.break_even()), (3, 2));
        assert_eq!(half.operations(), 4);
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
