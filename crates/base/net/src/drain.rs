//! Graceful [`Drain`]: signals all connections to finish, then waits for the last one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;

#[derive(Debug, Default)]
struct Shared {
    started: AtomicBool,
    cut: AtomicBool,
    guards: AtomicUsize,
    start: Notify,
    idle: Notify,
}

/// The side that starts the drain.
#[derive(Debug)]
pub struct DrainTrigger {
    shared: Arc<Shared>,
}

/// The receiving side of a [`DrainTrigger`]. Clones share the state.
#[derive(Clone, Debug)]
pub struct Drain {
    shared: Arc<Shared>,
}

/// Keeps [`DrainTrigger::finished`] waiting until it is dropped; usually held by a connection.
#[derive(Debug)]
pub struct DrainGuard {
    shared: Arc<Shared>,
}

/// Creates the two sides of a drain.
pub fn channel() -> (DrainTrigger, Drain) {
    let shared = Arc::<Shared>::default();
    (DrainTrigger { shared: Arc::clone(&shared) }, Drain { shared })
}

impl DrainTrigger {
    /// Starts the drain. Further calls have no effect.
    pub fn start(&self) {
        self.shared.started.store(true, Ordering::Release);
        self.shared.start.notify_waiters();
    }

    /// Waits until each [`DrainGuard`] is dropped, for at most `limit`. Returns the number of remaining guards.
    pub async fn finished(&self, limit: Duration) -> usize {
        let all_gone = async {
            loop {
                let mut idle = std::pin::pin!(self.shared.idle.notified());
                // Registered before the check, so that a notification between the two is not missed.
                idle.as_mut().enable();
                if self.open() == 0 {
                    return;
                }
                idle.await;
            }
        };
        // An elapsed timeout is not an error: the remaining guards are counted below.
        let _ = timeout(limit, all_gone).await;
        self.open()
    }

    /// Marks the remaining work as cut. Call it before that work is dropped, so that it can report the reason.
    pub fn cut(&self) {
        self.shared.cut.store(true, Ordering::Release);
    }

    /// Number of [`DrainGuard`]s that are held now.
    pub fn open(&self) -> usize {
        self.shared.guards.load(Ordering::Acquire)
    }
}

impl Drain {
    /// Whether the drain was started. One atomic load, suitable for every request.
    pub fn started(&self) -> bool {
        self.shared.started.load(Ordering::Acquire)
    }

    /// Whether [`DrainTrigger::cut`] was called: the remaining work is dropped unfinished.
    pub fn is_cut(&self) -> bool {
        self.shared.cut.load(Ordering::Acquire)
    }

    /// Completes when the drain starts; at once if it was started. Each poll takes a lock that all workers share, so
    /// wait in one task per worker, not in one per connection.
    pub async fn wait(&self) {
        let mut start = std::pin::pin!(self.shared.start.notified());
        // Registered before the check, so that a notification between the two is not missed.
        start.as_mut().enable();
        if !self.started() {
            start.await;
        }
    }

    /// Holds the drain open until the guard is dropped.
    pub fn guard(&self) -> DrainGuard {
        self.shared.guards.fetch_add(1, Ordering::AcqRel);
        DrainGuard { shared: Arc::clone(&self.shared) }
    }
}

impl Drop for DrainGuard {
    fn drop(&mut self) {
        // Only the last guard notifies: the lock of `Notify` would be contended if thousands of
        // connections end together.
        if self.shared.guards.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn waiting_tasks_are_woken_once_and_for_all() {
        let (trigger, drain) = channel();
        let waiting = tokio::spawn({
            let drain = drain.clone();
            async move { drain.wait().await }
        });
        assert!(!drain.started());
        trigger.start();
        waiting.await.expect("signalled");
        assert!(drain.started());
        drain.wait().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_drain_is_over_when_the_last_guard_is_gone() {
        let (trigger, drain) = channel();
        let guards = [drain.guard(), drain.guard()];
        trigger.start();
        let release = async {
            for guard in guards {
                tokio::time::sleep(Duration::from_secs(1)).await;
                drop(guard);
            }
        };
        let (left, ()) = tokio::join!(trigger.finished(Duration::from_mins(1)), release);
        assert_eq!(left, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_finish_in_time_is_counted() {
        let (trigger, drain) = channel();
        let _guard = drain.guard();
        trigger.start();
        assert_eq!(trigger.finished(Duration::from_secs(1)).await, 1);
    }
}
