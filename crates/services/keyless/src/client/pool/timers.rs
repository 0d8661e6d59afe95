//! Timers of operations: hedging and deadlines.

use std::cmp::Reverse;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::Pool;

/// Resolution of timers.
pub(super) const TICK: Duration = Duration::from_millis(5);

/// Maximum time between two passes of the timers that counts. After a longer pause of the thread or of the machine, responses
/// may wait in the sockets, and servers had no opportunity to respond.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Purpose of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Hedge,
    End,
}

/// Runs the timers.
pub(super) async fn run(pool: Rc<Pool>) {
    loop {
        while pool.timers.borrow().is_empty() {
            pool.first_timer.notified().await;
        }
        let before = Instant::now();
        tokio::time::sleep(TICK).await;
        let now = Instant::now();
        let pause = now.duration_since(before).saturating_sub(LONGEST_PAUSE);
        // Before the timers, which would end operations whose responses are not read yet.
        if !pause.is_zero() {
            pool.postpone(now, pause);
        }
        pool.pass(now);
    }
}

impl Pool {
    pub(super) fn set_timer(&self, at: Instant, number: u32, due: Timer) {
        let mut timers = self.timers.borrow_mut();
        timers.push(Reverse((at, number, due)));
        if timers.len() == 1 {
            self.first_timer.notify_one();
        }
    }

    /// Runs all timers up to `now`.
    pub(super) fn pass(&self, now: Instant) {
        loop {
            let mut timers = self.timers.borrow_mut();
            let Some(&Reverse((at, number, due))) = timers.peek() else { return };
            if at > now {
                return;
            }
            timers.pop();
            // Both handlers set timers.
            drop(timers);
            match due {
                Timer::Hedge => self.hedge(number, now),
                Timer::End => self.end(number),
            }
        }
    }

    /// Postpones all timers by `pause`, but none beyond the time of a timer that is set at `now`.
    pub(super) fn postpone(&self, now: Instant, pause: Duration) {
        // The pause may have been before the timer was set, in part or as a whole.
        let later = |at: Instant, longest: Duration| at.max((at + pause).min(now + longest));
        let mut timers = self.timers.borrow_mut();
        let all = timers.drain().map(|Reverse((at, number, due))| {
            let longest = match due {
                Timer::Hedge => self.settings.hedge,
                Timer::End => self.settings.deadline,
            };
            Reverse((later(at, longest), number, due))
        });
        let postponed = all.collect();
        *timers = postponed;
        for operation in self.operations.borrow_mut().values_mut() {
            operation.deadline = later(operation.deadline, self.settings.deadline);
        }
    }
}
