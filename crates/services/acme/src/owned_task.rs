//! Tasks of the thread that are cancelled when their handle is dropped and restarted after a panic.

use std::time::Duration;

use tokio::task::{JoinHandle, spawn_local};
use tokio::time::sleep;

/// Pause after a panic.
const AFTER_DEFECT: Duration = Duration::from_mins(1);

/// Handle of a task, which is cancelled when the handle is dropped.
#[derive(Debug)]
pub(crate) struct OwnedTask(JoinHandle<()>);

impl OwnedTask {
    /// Spawns `task` on this thread.
    pub(crate) fn spawn(task: impl Future<Output = ()> + 'static) -> Self {
        Self(spawn_local(task))
    }

    /// Runs the endless future from `make`, and restarts it after a pause if it panics. `what` names it in the log.
    pub(crate) fn supervise<F>(what: &str, make: impl Fn() -> F + 'static) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        let what = what.to_owned();
        Self::spawn(async move {
            loop {
                // A task of its own, whose handle reports the panic. `turns` is dropped with the outer
                // task, which aborts both.
                let mut turns = Self::spawn(make());
                // The future is endless, so it has panicked; the panic is in the log.
                let _ = (&mut turns.0).await;
                tracing::error!(what, "a task of the ACME thread panicked; it restarts in a minute");
                sleep(AFTER_DEFECT).await;
            }
        })
    }
}

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}
