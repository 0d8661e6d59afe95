//! A plan: an endless row of faults, which a seed determines.

use std::fmt::{self, Display};

use brisk_testkit::random::Random;

use crate::fault::Fault;

/// Steps that [`Display`] shows.
const SHOWN: usize = 26;

/// A fault with its choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The fault.
    pub fault: Fault,
    /// Index of the gateway or server that the fault concerns, of two.
    pub target: usize,
    /// Number of repetitions, or kind of damage: 0 to 2.
    pub variant: usize,
}

/// The steps of a run. Each fault occurs once before any occurs again.
#[derive(Clone, Debug)]
pub struct Plan {
    seed: u64,
    random: Random,
    faults: Vec<Fault>,
    left: Vec<Fault>,
}

impl Plan {
    /// The plan of this seed with these faults, of which there must be at least one.
    pub fn new(seed: u64, faults: &[Fault]) -> Self {
        assert!(!faults.is_empty(), "a plan has faults");
        Self { seed, random: Random::new(seed), faults: faults.to_vec(), left: Vec::new() }
    }

    /// The next step.
    pub fn step(&mut self) -> Step {
        if self.left.is_empty() {
            self.left.clone_from(&self.faults);
            self.random.shuffle(&mut self.left);
        }
        let fault = self.left.pop().expect("a plan has faults");
        Step { fault, target: self.random.below(2), variant: self.random.below(3) }
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}.{}", self.fault, self.target, self.variant)
    }
}

impl Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut own = self.clone();
        let steps: Vec<_> = (0..SHOWN).map(|_| own.step().to_string()).collect();
        write!(f, "seed {}: {}", self.seed, steps.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn steps(seed: u64) -> Vec<Step> {
        let mut plan = Plan::new(seed, &Fault::ALL);
        (0..2 * Fault::ALL.len()).map(|_| plan.step()).collect()
    }

    #[test]
    fn a_seed_determines_all_steps_and_each_fault_occurs_in_turn() {
        assert_eq!(steps(1), steps(1));
        assert_ne!(steps(1), steps(2));
        for round in steps(3).chunks(Fault::ALL.len()) {
            let faults: BTreeSet<_> = round.iter().map(|step| step.fault).collect();
            assert_eq!(faults.len(), Fault::ALL.len());
        }
    }
}
