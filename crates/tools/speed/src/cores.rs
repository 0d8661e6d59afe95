//! CPU affinity: the measured core, and the other ones.

use std::io;

use brisk_compare::run_on;
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu};

use crate::SpeedError;

/// The measured core, and the others that this process may use.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    measured: usize,
    others: Vec<usize>,
}

impl Cores {
    /// Chooses `wanted`, or the core on which the caller runs. A core outside of the caller's affinity mask is
    /// [`SpeedError::Core`].
    pub(crate) fn choose(wanted: Option<usize>) -> Result<Self, SpeedError> {
        let usable = sched_getaffinity(None).map_err(io::Error::from)?;
        let usable: Vec<_> = (0..CpuSet::MAX_CPU).filter(|core| usable.is_set(*core)).collect();
        let measured = wanted.unwrap_or_else(sched_getcpu);
        if !usable.contains(&measured) {
            let usable: Vec<_> = usable.iter().map(usize::to_string).collect();
            return Err(SpeedError::Core { core: measured, usable: usable.join(", ") });
        }
        let others = usable.into_iter().filter(|core| *core != measured).collect();
        Ok(Self { measured, others })
    }

    /// Number of the measured core.
    pub(crate) fn measured(&self) -> usize {
        self.measured
    }

    /// Restricts the calling thread to the measured core.
    pub(crate) fn occupy(&self) -> io::Result<()> {
        run_on(&[self.measured])
    }

    /// Moves the calling thread away from the measured core, unless there is no other.
    pub(crate) fn leave(&self) -> io::Result<()> {
        if self.others.is_empty() { Ok(()) } else { run_on(&self.others) }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_thread_occupies_and_leaves_the_core() {
        let cores = Cores::choose(None).unwrap();
        let measured = cores.measured();
        // On a thread of its own, so that the affinity of the others does not change.
        let tried = thread::spawn(move || {
            cores.occupy().unwrap();
            let there = sched_getcpu();
            cores.leave().unwrap();
            let is_free = !sched_getaffinity(None).unwrap().is_set(measured);
            (there, is_free || cores.others.is_empty())
        });
        assert_eq!(tried.join().unwrap(), (measured, true));
    }

    #[test]
    fn a_core_that_is_not_there_is_refused_with_those_that_are() {
        let error = Cores::choose(Some(CpuSet::MAX_CPU)).unwrap_err();
        assert!(error.is_usage());
        let here = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|core| here.is_set(*core)).unwrap();
        assert!(error.to_string().contains(&format!("run on: {first}")), "{error}");
    }
}
