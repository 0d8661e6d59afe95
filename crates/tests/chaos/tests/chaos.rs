//! Runs of the chaos tests: three seeds in each test run, longer ones by `make chaos`, and one for each deliberate defect.

use std::env;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use brisk_chaos::{Fault, Options, run};

/// Factor for times of recovery in test runs, which are beside other tests.
const BUSY: u32 = 20;

fn options(seed: u64, time: Duration, faults: &[Fault]) -> Options {
    let upstream = PathBuf::from(env!("CARGO_BIN_EXE_chaos-upstream"));
    Options { seed, time, faults: faults.to_vec(), upstream, slack: BUSY, defect: None }
}

fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok()?.parse().ok()
}

/// Runs of one test program have the machine for themselves, one after the other.
static ALONE: Mutex<()> = Mutex::new(());

#[track_caller]
fn assert_right(options: &Options) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let report = run(options);
    assert!(report.violations.is_empty(), "seed {}:\n{report}", options.seed);
}

// The first seven steps of these three seeds contain 21 of the 26 faults.

#[test]
fn seed_9_breaks_no_invariant() {
    assert_right(&options(9, Duration::from_secs(20), &Fault::ALL));
}

#[test]
fn seed_20_breaks_no_invariant() {
    assert_right(&options(20, Duration::from_secs(20), &Fault::ALL));
}

#[test]
fn seed_48_breaks_no_invariant() {
    assert_right(&options(48, Duration::from_secs(20), &Fault::ALL));
}

/// `BRISK_CHAOS_SECONDS`, `BRISK_CHAOS_SEED`, and `BRISK_CHAOS_FAULTS` (names, all by default) determine the run.
#[test]
#[ignore = "a run of any length, for `make chaos`"]
fn chaos_of_a_seed_breaks_no_invariant() {
    let names = env::var("BRISK_CHAOS_FAULTS").unwrap_or_default();
    let named = |name| Fault::named(name).unwrap_or_else(|| panic!("no fault is called {name:?}"));
    let mut faults: Vec<_> = names.split_whitespace().map(named).collect();
    if faults.is_empty() {
        faults.extend(Fault::ALL);
    }
    let seconds = number("BRISK_CHAOS_SECONDS").unwrap_or(60);
    let seed = number("BRISK_CHAOS_SEED").unwrap_or(1);
    assert_right(&Options { slack: 5, ..options(seed, Duration::from_secs(seconds), &faults) });
}

#[cfg(feature = "defects")]
mod defects {
    use brisk_defects::Defect;

    use super::*;

    /// Faults under which a defect shows, and the words of the violation.
    fn expected(defect: Defect) -> (&'static [Fault], &'static str) {
        match defect {
            Defect::WrongByte => (&[Fault::Reloads], "a wrong byte"),
            Defect::OtherStream => (&[Fault::Aborts, Fault::Delay], "the response of another request"),
            Defect::LeakedDescriptor => (&[Fault::Upgrades], "descriptors"),
            Defect::EndlessRequest => (&[Fault::UpstreamKilled], "did not end within its deadline"),
            Defect::LostCounter => (&[Fault::RedisStopped], "has counted"),
        }
    }

    #[test]
    fn each_deliberate_defect_is_found() {
        for defect in Defect::ALL {
            let (faults, words) = expected(defect);
            let options = Options { defect: Some(defect), ..options(1, Duration::from_mins(3), faults) };
            let report = run(&options);
            let is_found = report.violations.iter().any(|violation| violation.contains(words));
            assert!(is_found, "{} is not found:\n{report}", defect.name());
        }
    }
}
