//! Health of servers, from the active [`checks`](super::checks) and from the outcomes of clients' requests.
//!
//! Both write atomics that every worker reads when it chooses a server. A server gets requests while the checks
//! consider it up and it is not paused because of failed requests.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::settings::PassiveChecks;

/// Maximum number of times that the pause doubles.
const DOUBLINGS: u32 = 5;

/// Origin of the times in atomics.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The health of one server, shared by all workers.
#[derive(Debug, Default)]
pub(crate) struct ServerHealth {
    checked_down: AtomicBool,
    failures: AtomicU32,
    /// End of the pause in milliseconds since [`START`]; 0 outside of a pause.
    out_until: AtomicU64,
    /// End and length of the last pause. They show whether the next failure follows soon.
    last_out_until: AtomicU64,
    last_pause: AtomicU64,
    doublings: AtomicU32,
}

/// The verdict of the active checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Up,
    Down,
}

/// Whether a server receives requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    Available,
    Unavailable,
    /// Available, and this caller is the first one after a pause.
    BackAgain,
}

impl ServerHealth {
    /// The availability now. Costs two loads while the server is healthy; reads the clock only after a pause began.
    pub(crate) fn availability(&self) -> Availability {
        let until = self.out_until.load(Ordering::Relaxed);
        if until != 0 {
            if until > now() {
                return Availability::Unavailable;
            }
            let first =
                self.out_until.compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if first && !self.is_checked_down() {
                return Availability::BackAgain;
            }
        }
        if self.is_checked_down() { Availability::Unavailable } else { Availability::Available }
    }

    pub(crate) fn set_checked(&self, verdict: Verdict) {
        self.checked_down.store(verdict == Verdict::Down, Ordering::Relaxed);
    }

    /// Records a response. Costs one load while the server is healthy.
    pub(crate) fn request_succeeded(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Records a request without a response. Returns the length of the pause, if one begins.
    pub(crate) fn request_failed(&self, checks: &PassiveChecks) -> Option<Duration> {
        if checks.max_failures == 0 {
            return None;
        }
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        // Only the worker that reaches the limit exactly starts the pause, so that many concurrent failures cause one
        // pause.
        if failures != checks.max_failures || self.out_until.load(Ordering::Relaxed) > now() {
            return None;
        }
        // After the pause one more failure starts the next; a success resets the count to `max_failures`.
        self.failures.store(checks.max_failures - 1, Ordering::Relaxed);
        Some(self.leave_out(checks.pause))
    }

    fn leave_out(&self, pause: Duration) -> Duration {
        let now = now();
        let soon = self.last_out_until.load(Ordering::Relaxed) + self.last_pause.load(Ordering::Relaxed);
        let again = soon != 0 && now <= soon;
        let doublings = if again { (self.doublings.load(Ordering::Relaxed) + 1).min(DOUBLINGS) } else { 0 };
        let pause = pause * (1 << doublings);
        let milliseconds = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX / 4);
        self.doublings.store(doublings, Ordering::Relaxed);
        self.last_pause.store(milliseconds, Ordering::Relaxed);
        self.last_out_until.store(now + milliseconds, Ordering::Relaxed);
        self.out_until.store(now + milliseconds, Ordering::Relaxed);
        pause
    }

    fn is_checked_down(&self) -> bool {
        self.checked_down.load(Ordering::Relaxed)
    }
}

/// Milliseconds since [`START`], at least 1, because 0 means no pause.
fn now() -> u64 {
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX / 2) + 1
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const CHECKS: PassiveChecks = PassiveChecks { max_failures: 3, pause: Duration::from_secs(10) };

    fn fail(health: &ServerHealth, times: usize) -> Option<Duration> {
        (0..times).filter_map(|_| health.request_failed(&CHECKS)).last()
    }

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_leave_a_server_out_until_the_pause_is_over() {
        let health = ServerHealth::default();
        assert_eq!(fail(&health, 2), None);
        health.request_succeeded();
        assert_eq!(fail(&health, 2), None);
        assert_eq!(health.availability(), Availability::Available);
        assert_eq!(fail(&health, 1), Some(CHECKS.pause));
        assert_eq!(health.availability(), Availability::Unavailable);
        advance(Duration::from_secs(11)).await;
        assert_eq!(health.availability(), Availability::BackAgain);
        assert_eq!(health.availability(), Availability::Available);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_doubles_when_the_server_fails_again_soon_after() {
        let health = ServerHealth::default();
        assert_eq!(fail(&health, 3), Some(CHECKS.pause));
        for doublings in [1, 2, 3, 4, 5, 5] {
            advance(CHECKS.pause * (1 << doublings)).await;
            assert_ne!(health.availability(), Availability::Unavailable);
            assert_eq!(fail(&health, 1), Some(CHECKS.pause * (1 << doublings)));
        }
        advance(Duration::from_hours(1)).await;
        assert_eq!(fail(&health, 1), Some(CHECKS.pause), "a long good time is forgiven");
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_of_failures_is_one_pause() {
        let health = ServerHealth::default();
        assert_eq!((0..100).filter_map(|_| health.request_failed(&CHECKS)).count(), 1);
    }

    #[test]
    fn no_limit_means_never() {
        let health = ServerHealth::default();
        let checks = PassiveChecks { max_failures: 0, ..CHECKS };
        assert!((0..100).all(|_| health.request_failed(&checks).is_none()));
    }
}
