//! Deterministic simulation of state machines without sockets: seeds, and a network with a clock of its own.
//!
//! A simulation has two phases. In the first, faults happen and invariants are checked after each step (safety). In the second, no
//! fault happens, and everything that was begun must end (liveness).

use std::collections::VecDeque;
use std::env;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::random::Random;

/// Environment variable with the only seed that runs.
pub const SEED: &str = "BRISK_SIMULATION_SEED";

/// Environment variable with the number of seeds of each simulation.
pub const RUNS: &str = "BRISK_SIMULATION_RUNS";

/// Runs a simulation with the seeds below `runs`, or with those of [`SEED`] or [`RUNS`]. Panics if the simulation does, after
/// writing the seed to standard error.
pub fn each_seed(name: &str, runs: u64, simulate: impl Fn(&mut Random)) {
    let number = |variable: &str| env::var(variable).ok().and_then(|number| number.parse::<u64>().ok());
    let seeds = match number(SEED) {
        Some(seed) => seed..seed.saturating_add(1),
        None => 0..number(RUNS).unwrap_or(runs),
    };
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| simulate(&mut Random::new(seed)))) {
            eprintln!("simulation {name}: failed with {SEED}={seed}");
            resume_unwind(panic);
        }
    }
}

/// One direction of a connection: bytes arrive in their order, in pieces of any length, after any delay.
#[derive(Debug, Default)]
pub struct Wire {
    /// Pieces with the times of their arrival, which do not decrease.
    pieces: VecDeque<(u64, Vec<u8>)>,
}

impl Wire {
    /// Longest delay of a piece, in steps of the simulated clock.
    const LONGEST: usize = 8;

    /// Sends `bytes` at the time `now`.
    pub fn send(&mut self, mut bytes: &[u8], now: u64, random: &mut Random) {
        while !bytes.is_empty() {
            // Mostly long pieces, and short ones often enough to split each part of a frame.
            let most = *random.of(&[1, 9, 40, 1_000, 20_000, usize::MAX]);
            let (piece, rest) = bytes.split_at(1 + random.below(bytes.len().min(most)));
            let time = now + random.below(Self::LONGEST) as u64;
            let time = self.pieces.back().map_or(time, |(last, _)| time.max(*last));
            self.pieces.push_back((time, piece.to_vec()));
            bytes = rest;
        }
    }

    /// The bytes that have arrived by `now` since the last call, in pieces.
    pub fn receive(&mut self, now: u64) -> Vec<Vec<u8>> {
        let mut arrived = Vec::new();
        while self.pieces.front().is_some_and(|(time, _)| *time <= now) {
            arrived.extend(self.pieces.pop_front().map(|(_, piece)| piece));
        }
        arrived
    }

    /// Whether all bytes have been received.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn bytes_arrive_whole_and_in_order() {
        each_seed("wire", 20, |random| {
            let mut wire = Wire::default();
            let sent: Vec<u8> = (0..=255).cycle().take(3_000).collect();
            let mut received = Vec::new();
            for (now, part) in (0..).zip(sent.chunks(500)) {
                wire.send(part, now, random);
                received.extend(wire.receive(now).concat());
            }
            received.extend(wire.receive(u64::MAX).concat());
            assert!(wire.is_empty() && received == sent);
        });
    }

    #[test]
    fn each_seed_runs_once_and_a_failure_ends_the_run() {
        let runs = Cell::new(0);
        let failed = catch_unwind(AssertUnwindSafe(|| {
            each_seed("failing", 10, |_| {
                runs.set(runs.get() + 1);
                assert!(runs.get() < 4, "the fourth run fails");
            });
        }));
        assert!(failed.is_err());
        assert_eq!(runs.get(), 4);
    }
}
