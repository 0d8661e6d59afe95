//! Health of servers, from the active [`checks`](super::checks) and from the outcomes of clients' requests.
//!
//! Both write atomics that every worker reads when it chooses a server. A server gets requests while the checks
//! consider it up and it is not paused because of failed requests.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::PassiveChecks;

/// Maximum number of times that [`PassiveChecks::pause`] doubles.
const DOUBLINGS: u32 = 5;

/// Length of a [`Window`] in milliseconds, and the number of requests below which the share of failures does not matter.
const WINDOW: u64 = 10_000;
const LEAST_REQUESTS: u32 = 20;

/// Origin of the times in atomics.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The health of one server, shared by all workers.
#[derive(Debug, Default)]
pub(crate) struct ServerHealth {
    checked_down: AtomicBool,
    failures: AtomicU32,
    /// End of the pause in milliseconds since [`START`]; 0 outside of a pause.
    out_until: AtomicU64,
    /// End and length of the last pause, which show whether the next failure follows soon.
    last_out_until: AtomicU64,
    last_pause: AtomicU64,
    doublings: AtomicU32,
    window: Window,
    /// Time of the return from an exclusion in milliseconds since [`START`]; 0 without one.
    back_since: AtomicU64,
}

/// Requests and failures of a short time.
#[derive(Debug, Default)]
struct Window {
    /// Start in milliseconds since [`START`].
    start: AtomicU64,
    requests: AtomicU32,
    failures: AtomicU32,
}

/// The verdict of the active [`checks`](super::checks).
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
        // Relaxed order throughout: each atomic is a hint for choices, and no memory is published by it.
        let until = self.out_until.load(Ordering::Relaxed);
        if until != 0 {
            if until > now() {
                return Availability::Unavailable;
            }
            let first =
                self.out_until.compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if first {
                self.back_since.store(now(), Ordering::Relaxed);
            }
            if first && !self.is_checked_down() {
                return Availability::BackAgain;
            }
        }
        if self.is_checked_down() { Availability::Unavailable } else { Availability::Available }
    }

    pub(crate) fn set_checked(&self, verdict: Verdict) {
        let was_down = self.checked_down.swap(verdict == Verdict::Down, Ordering::Relaxed);
        if was_down && verdict == Verdict::Up {
            self.back_since.store(now(), Ordering::Relaxed);
        }
    }

    /// Records a response. Costs one load while the server is healthy and no share of failures matters.
    pub(crate) fn request_succeeded(&self, checks: &PassiveChecks) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
        if checks.error_share.is_some() {
            self.window.add(0);
        }
    }

    /// Records a failed request. Returns the length of the pause, if one begins: after [`PassiveChecks::max_failures`] or
    /// from [`PassiveChecks::error_share`] on, if `may_pause` permits it.
    pub(crate) fn request_failed(
        &self,
        checks: &PassiveChecks,
        may_pause: impl FnOnce() -> bool,
    ) -> Option<Duration> {
        // Counted before `is_due` is known: `||` would leave out the failures of a server
        // that exceeds `max_failures`.
        let exceeds_share = checks.error_share.is_some_and(|share| self.window.add(1) >= share);
        let failures = self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let is_due = exceeds_share || (checks.max_failures > 0 && failures >= checks.max_failures);
        let until = self.out_until.load(Ordering::Relaxed);
        if !is_due || until > now() {
            return None;
        }
        // After the pause one more failure starts the next; a success resets the count to `max_failures`.
        self.failures.store(checks.max_failures.saturating_sub(1), Ordering::Relaxed);
        if !may_pause() {
            return None;
        }
        // One worker starts the pause, so that many concurrent failures cause one. `leave_out` may prolong it.
        let end = now() + milliseconds(checks.pause);
        self.out_until.compare_exchange(until, end, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        // Failures from before the pause must not start the next one.
        self.window.start.store(0, Ordering::Relaxed);
        Some(self.leave_out(checks.pause))
    }

    /// Whether the server is in a pause.
    pub(crate) fn is_paused(&self) -> bool {
        self.out_until.load(Ordering::Relaxed) > now()
    }

    /// The part of `weight` that the server gets, which grows within `slow_start` of its return; at least 1. Costs one
    /// load after that time.
    pub(crate) fn ramped(&self, weight: u32, slow_start: Duration) -> u32 {
        let since = self.back_since.load(Ordering::Relaxed);
        if since == 0 {
            return weight;
        }
        let elapsed = Duration::from_millis(now().saturating_sub(since));
        if elapsed >= slow_start {
            self.back_since.store(0, Ordering::Relaxed);
            return weight;
        }
        let part = f64::from(weight) * elapsed.as_secs_f64() / slow_start.as_secs_f64();
        // At least 1: a server without any request could not show that it works.
        (part as u32).clamp(1, weight)
    }

    fn leave_out(&self, pause: Duration) -> Duration {
        let now = now();
        let soon = self.last_out_until.load(Ordering::Relaxed) + self.last_pause.load(Ordering::Relaxed);
        // `soon` is as long after the last pause as the pause was: a server that fails
        // later has worked in between.
        let again = soon != 0 && now <= soon;
        let doublings = if again { (self.doublings.load(Ordering::Relaxed) + 1).min(DOUBLINGS) } else { 0 };
        let pause = pause * (1 << doublings);
        let milliseconds = milliseconds(pause);
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

impl Window {
    /// Records a request, and `failures` of 0 or 1. Returns the percentage of failures; 0 while there are few requests.
    /// Concurrent records at the end of a [`Window`] may be lost.
    fn add(&self, failures: u32) -> u32 {
        let (now, start) = (now(), self.start.load(Ordering::Relaxed));
        if start == 0 || now.saturating_sub(start) > WINDOW {
            self.start.store(now, Ordering::Relaxed);
            self.requests.store(0, Ordering::Relaxed);
            self.failures.store(0, Ordering::Relaxed);
        }
        let requests = self.requests.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let failures = self.failures.fetch_add(failures, Ordering::Relaxed).saturating_add(failures);
        if requests < LEAST_REQUESTS { 0 } else { (u64::from(failures) * 100 / u64::from(requests)) as u32 }
    }
}

/// Milliseconds since [`START`], at least 1, because 0 means no pause.
fn now() -> u64 {
    u64::try_from(START.elapsed().as_millis()).unwrap_or(u64::MAX / 2) + 1
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 4)
}

#[cfg(test)]
mod tests {
    mod simulation;

    use tokio::time::advance;

    use super::*;

    const CHECKS: PassiveChecks = PassiveChecks {
        max_failures: 3,
        counts_server_errors: false,
        error_share: None,
        max_excluded: 100,
        pause: Duration::from_secs(10),
    };

    fn fail(health: &ServerHealth, times: usize) -> Option<Duration> {
        (0..times).filter_map(|_| health.request_failed(&CHECKS, || true)).last()
    }

    #[tokio::test(start_paused = true)]
    async fn failures_in_a_row_leave_a_server_out_until_the_pause_is_over() {
        let health = ServerHealth::default();
        assert_eq!(fail(&health, 2), None);
        health.request_succeeded(&CHECKS);
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
        assert_eq!((0..100).filter_map(|_| health.request_failed(&CHECKS, || true)).count(), 1);
    }

    /// Requests that waited for a silent server fail during its pause.
    #[tokio::test(start_paused = true)]
    async fn failures_within_a_pause_do_not_spare_the_server_after_it() {
        let health = ServerHealth::default();
        assert_eq!(fail(&health, 3), Some(CHECKS.pause));
        assert_eq!(fail(&health, 50), None);
        advance(CHECKS.pause + Duration::from_secs(1)).await;
        assert_eq!(health.availability(), Availability::BackAgain);
        assert_eq!(fail(&health, 1), Some(CHECKS.pause * 2));
    }

    #[test]
    fn no_limit_means_never() {
        let health = ServerHealth::default();
        let checks = PassiveChecks { max_failures: 0, ..CHECKS };
        assert!((0..100).all(|_| health.request_failed(&checks, || true).is_none()));
    }

    #[test]
    fn a_share_of_failures_starts_a_pause_although_some_requests_succeed() {
        let health = ServerHealth::default();
        let checks = PassiveChecks { max_failures: 0, error_share: Some(50), ..CHECKS };
        let mut pauses = 0;
        for _ in 0..9 {
            health.request_succeeded(&checks);
            pauses += usize::from(health.request_failed(&checks, || true).is_some());
        }
        assert_eq!(pauses, 0, "too few requests");
        health.request_succeeded(&checks);
        assert_eq!(health.request_failed(&checks, || true), Some(checks.pause));
        assert_eq!(health.availability(), Availability::Unavailable);
    }

    #[test]
    fn a_pause_needs_permission() {
        let health = ServerHealth::default();
        for _ in 0..10 {
            assert_eq!(health.request_failed(&CHECKS, || false), None);
        }
        assert_eq!(health.request_failed(&CHECKS, || true), Some(CHECKS.pause));
    }

    #[tokio::test(start_paused = true)]
    async fn the_weight_grows_after_an_exclusion() {
        let health = ServerHealth::default();
        let weight = || health.ramped(100, Duration::from_secs(10));
        assert_eq!(weight(), 100, "at the start of the gateway");
        fail(&health, 3);
        advance(CHECKS.pause + Duration::from_secs(1)).await;
        assert_eq!(health.availability(), Availability::BackAgain);
        assert_eq!(weight(), 1);
        advance(Duration::from_secs(5)).await;
        assert_eq!(weight(), 50);
        advance(Duration::from_secs(5)).await;
        assert_eq!(weight(), 100);
        health.set_checked(Verdict::Down);
        health.set_checked(Verdict::Up);
        assert_eq!(weight(), 1);
    }
}
