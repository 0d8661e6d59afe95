//! Counts of requests of one worker to one server: [`CallCounts`].

use std::cell::Cell;
use std::time::Duration;

use brisk_upstream_group::{Concurrency, RequestCounts};

/// Counts of one worker for one server, which [`Self::report`] passes on.
#[derive(Debug, Default)]
pub(crate) struct CallCounts {
    counts: Cell<RequestCounts>,
    /// Tick of the worker's wheel in which the counts were passed on last.
    reported: Cell<Duration>,
}

impl CallCounts {
    /// Changes the counts, and passes them on if it is the first change in the tick `now` of the wheel: all workers write to one
    /// place.
    pub(crate) fn change(
        &self,
        now: Duration,
        concurrency: &Concurrency,
        change: impl FnOnce(&mut RequestCounts),
    ) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
        if self.reported.replace(now) != now {
            self.report(concurrency);
        }
    }

    /// Passes the counts on.
    pub(crate) fn report(&self, concurrency: &Concurrency) {
        concurrency.report(self.counts.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counts_of_a_tick_are_passed_on_together() {
        let counts = CallCounts::default();
        let concurrency = Concurrency::new(1);
        let begin =
            |now| counts.change(Duration::from_millis(now), &concurrency, |counts| counts.in_flight += 1);
        begin(100);
        assert_eq!(counts.counts.get(), RequestCounts::default(), "the first one of a tick");
        begin(100);
        begin(100);
        assert_eq!(counts.counts.get().in_flight, 2);
        begin(200);
        assert_eq!(counts.counts.get(), RequestCounts::default());
        begin(200);
        counts.report(&concurrency);
        assert_eq!(counts.counts.get(), RequestCounts::default());
    }
}
