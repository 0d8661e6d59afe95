//! CPU affinity.

use std::io;

use rustix::thread::{CpuSet, sched_setaffinity};

/// Restricts the calling thread, and threads that it starts afterwards, to these `cores` (`sched_setaffinity`). An empty
/// list changes nothing; it is an error of the system if none of `cores` exists.
pub fn run_on(cores: &[usize]) -> io::Result<()> {
    if cores.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    // `CpuSet::set` panics beyond its size.
    for core in cores.iter().filter(|core| **core < CpuSet::MAX_CPU) {
        set.set(*core);
    }
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_that_exists_can_be_chosen_and_another_one_cannot() {
        // On a thread of its own, so that the affinity of the others does not change.
        let chosen = std::thread::spawn(|| {
            let there = rustix::thread::sched_getaffinity(None).unwrap();
            let core = (0..CpuSet::MAX_CPU).find(|core| there.is_set(*core)).unwrap();
            run_on(&[core]).unwrap();
            let now = rustix::thread::sched_getaffinity(None).unwrap();
            assert_eq!(now.count(), 1);
            run_on(&[]).unwrap();
            run_on(&[CpuSet::MAX_CPU - 1]).is_err()
        });
        assert!(chosen.join().unwrap());
    }
}
