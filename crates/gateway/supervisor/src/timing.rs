//! Times of a supervisor: pauses between restarts, and the watchdog.

use std::time::Duration;

use tokio::time::Instant;

/// The first pause before a restart, after which each is twice as long, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(5)];

/// Time for which a generation has to run, so that the next restart is immediate again.
const GOOD: Duration = Duration::from_secs(10);

/// The pauses before the restarts of generations that end without having been stopped.
#[derive(Debug, Default)]
pub(crate) struct Restarts {
    /// The next pause; `None` for an immediate restart.
    next: Option<Duration>,
}

impl Restarts {
    /// The pause after the end of a generation that ran for this time.
    pub(crate) fn pause_after(&mut self, ran: Duration) -> Duration {
        let pause = self.next.filter(|_| ran < GOOD);
        self.next = Some(pause.map_or(PAUSES[0], |pause| (2 * pause).min(PAUSES[1])));
        pause.unwrap_or_default()
    }
}

/// Shortest limit of a [`Watchdog`]: a generation may be held up for a second by a reload.
const SHORTEST: Duration = Duration::from_secs(3);

/// The watchdog of the serving generation, with the limit that the service manager has set for the whole service, or three seconds
/// if that is shorter.
#[derive(Debug)]
pub(crate) struct Watchdog {
    limit: Duration,
    /// Time between two looks: half of the limit of the service manager, which gets a beat at each.
    interval: Duration,
    due: Instant,
}

impl Watchdog {
    pub(crate) fn new(limit: Duration) -> Self {
        if limit < SHORTEST {
            tracing::warn!(
                "WATCHDOG_USEC is {limit:?}: the gateway is replaced after {SHORTEST:?} without a beat; write WatchdogSec=3 or more"
            );
        }
        Self { limit: limit.max(SHORTEST), interval: limit / 2, due: Instant::now() }
    }

    /// The time of the next [`look`](Self::look).
    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Whether a look is due, and plans the next one, an interval later. `beat` is the last sign of life of the serving
    /// generation, which is renewed if the look is late: the supervisor was held up then, and may have missed beats.
    pub(crate) fn look(&mut self, now: Instant, beat: Option<&mut Instant>) -> Look {
        if now < self.due {
            return Look::TooEarly;
        }
        let is_late = now.duration_since(self.due) > self.interval / 2;
        self.due = now + self.interval;
        match beat {
            Some(beat) if is_late => *beat = now,
            Some(beat) if now.duration_since(*beat) > self.limit => return Look::Silent,
            _ => {}
        }
        Look::Alive
    }
}

/// The result of [`Watchdog::look`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    TooEarly,
    /// The generation has given a sign of life, or none serves now.
    Alive,
    /// The serving generation has given no sign of life within the limit.
    Silent,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_begin_anew_after_a_good_run() {
        let mut restarts = Restarts::default();
        let short = Duration::from_secs(1);
        let pauses: Vec<_> = (0..9).map(|_| restarts.pause_after(short).as_millis()).collect();
        assert_eq!(pauses, [0, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(restarts.pause_after(GOOD), Duration::ZERO);
        assert_eq!(restarts.pause_after(short), PAUSES[0]);
    }

    #[test]
    fn a_generation_is_silent_after_the_limit_unless_the_supervisor_was_held_up() {
        let limit = Duration::from_secs(8);
        let mut watchdog = Watchdog::new(limit);
        let start = Instant::now();
        let mut beat = start;
        let mut look =
            |after: u64, beat: &mut Instant| watchdog.look(start + Duration::from_secs(after), Some(beat));
        assert_eq!(look(0, &mut beat), Look::Alive);
        assert_eq!(look(1, &mut beat), Look::TooEarly);
        assert_eq!((look(4, &mut beat), look(8, &mut beat)), (Look::Alive, Look::Alive));
        assert_eq!(look(12, &mut beat), Look::Silent);
        // The look at 16 comes at 40.
        assert_eq!(look(40, &mut beat), Look::Alive);
        assert_eq!((look(44, &mut beat), look(48, &mut beat)), (Look::Alive, Look::Alive));
        assert_eq!(look(52, &mut beat), Look::Silent);
        assert_eq!(watchdog.look(start + Duration::from_mins(1), None), Look::Alive);
    }

    #[test]
    fn a_short_limit_of_the_service_manager_is_for_the_supervisor_alone() {
        let mut watchdog = Watchdog::new(Duration::from_secs(1));
        let start = watchdog.due();
        let mut beat = start;
        let mut looks =
            (0..8).map(|half| watchdog.look(start + half * Duration::from_millis(500), Some(&mut beat)));
        assert!(looks.by_ref().take(7).all(|look| look == Look::Alive));
        assert_eq!(looks.next(), Some(Look::Silent));
    }
}
