//! The report of a run.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::time::Duration;

use crate::fault::{Failure, Fault};

/// Longest list of violations of one kind of check.
pub(crate) const SHOWN: usize = 10;

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Right responses.
    pub requests: u64,
    /// Broken invariants; empty after a good run.
    pub violations: Vec<String>,
    pub(crate) steps: usize,
    /// Permitted failures by fault.
    pub(crate) failures: BTreeMap<(Fault, Failure), usize>,
    /// The longest recovery from each fault.
    pub(crate) recoveries: BTreeMap<Fault, Duration>,
}

impl Report {
    /// Counts a failure that the fault permits.
    pub(crate) fn permitted(&mut self, fault: Fault, failure: Failure) {
        *self.failures.entry((fault, failure)).or_default() += 1;
    }

    /// Notes the time of a recovery.
    pub(crate) fn recovered(&mut self, fault: Fault, time: Duration) {
        let longest = self.recoveries.entry(fault).or_default();
        *longest = time.max(*longest);
    }

    /// Adds violations, of which only the first are kept.
    pub(crate) fn violate(&mut self, found: Vec<String>) {
        let more = found.len().saturating_sub(SHOWN);
        self.violations.extend(found.into_iter().take(SHOWN));
        self.violations.extend((more > 0).then(|| format!("and {more} more")));
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} right responses, {} steps, {} violations",
            self.requests,
            self.steps,
            self.violations.len()
        )?;
        for (fault, time) in &self.recoveries {
            let failures = self.failures.iter().filter(|((own, _), _)| own == fault);
            let failures: Vec<_> =
                failures.map(|((_, failure), count)| format!("{count} {failure:?}")).collect();
            writeln!(f, "  {fault:22} recovery {:5.1} s  {}", time.as_secs_f64(), failures.join(", "))?;
        }
        self.violations.iter().try_for_each(|violation| writeln!(f, "VIOLATION {violation}"))
    }
}
