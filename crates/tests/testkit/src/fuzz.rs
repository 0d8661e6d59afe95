//! Runs fuzz targets in ordinary tests: on the seeds in `fuzz/seeds`, then on reproducible mutations of them.
//!
//! A target is a plain function that panics if a property is violated. The same functions run under libFuzzer, which
//! observes the code that an input reaches and so finds more; see `docs/fuzzing.md`.

use std::env;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::random::Random;

/// Maximum number of runs and maximum time in an ordinary test; some targets read files.
const RUNS: u64 = 3000;
const TIME: Duration = Duration::from_secs(3);

/// Longer inputs are truncated, since they would not reach other code.
const LONGEST: usize = 4096;

/// Runs `target` on the seeds of `name` and on mutations of them. `words` are building blocks of inputs: names,
/// separators, whole lines. Runs for `BRISK_FUZZ_SECONDS` if set, otherwise for 3000 runs or 3 seconds, whichever ends
/// first.
///
/// Panics if the target does, after writing the input to standard error as a Rust literal.
pub fn drive(name: &str, words: &[&[u8]], target: impl Fn(&[u8])) {
    let seeds = seeds(name);
    let seconds = env::var("BRISK_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let limit = seconds.map(Duration::from_secs);
    let started = Instant::now();
    for seed in &seeds {
        run(name, seed, &target);
    }
    let mut runs = 0;
    // A fixed start, so that a failure of one machine is one of all machines.
    let mut random = Random::default();
    loop {
        let (most, time) = limit.map_or((RUNS, TIME), |limit| (u64::MAX, limit));
        if runs >= most || started.elapsed() >= time {
            break;
        }
        // In groups of 20, because reading the clock costs more than some targets.
        for _ in 0..20 {
            run(name, &mutated(&seeds, words, &mut random), &target);
        }
        runs += 20;
    }
    eprintln!("fuzz {name}: {runs} runs and {} seeds in {:.1?}", seeds.len(), started.elapsed());
}

fn run(name: &str, input: &[u8], target: &impl Fn(&[u8])) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        eprintln!("fuzz {name}: failed on b\"{}\"", input.escape_ascii());
        resume_unwind(panic);
    }
}

/// The seeds of the repository, sorted by path.
fn seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../fuzz/seeds").join(name);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = files.map(|file| file.expect("a readable folder").path()).collect();
    // The order of a folder depends on the file system, and would change the mutations.
    paths.sort();
    let seeds: Vec<_> = paths.iter().map(|path| fs::read(path).expect("a readable seed")).collect();
    assert!(!seeds.is_empty(), "{} holds no seed", folder.display());
    seeds
}

/// Applies one to eight changes to a seed.
fn mutated(seeds: &[Vec<u8>], words: &[&[u8]], random: &mut Random) -> Vec<u8> {
    let mut input = random.of(seeds).clone();
    for _ in 0..=random.below(8) {
        let at = random.below(input.len() + 1);
        match random.below(8) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = random.number() as u8,
            2 if at < input.len() => input[at] = *random.of(b"\0\x01\x7f\x80\xff \t\r\n/.;%\\:,\""),
            3 => drop(input.drain(at..(at + random.below(16)).min(input.len()))),
            4 => {
                let end = (at + random.below(32)).min(input.len());
                let copy = input[at..end].to_vec();
                let to = random.below(input.len() + 1);
                input.splice(to..to, copy);
            }
            5 => {
                let other = random.of(seeds);
                let tail = other[random.below(other.len() + 1)..].to_vec();
                input.truncate(at);
                input.extend(tail);
            }
            6 => input.insert(at, random.number() as u8),
            _ if !words.is_empty() => {
                let word = random.of(words).to_vec();
                input.splice(at..at, word);
            }
            _ => {}
        }
    }
    input.truncate(LONGEST);
    input
}
