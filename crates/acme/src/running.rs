//! Tasks of the thread that are cancelled when their handle is dropped and restarted after a panic.

use std::time::Duration;

use tokio::task::{JoinHandle, spawn_local};
use tokio::time::sleep;

/// Pause after a panic.
const AFTER_DEFECT: Duration = Duration::from_mins(1);

/// Handle of a task, which is cancelled when the handle is dropped.
#[derive(Debug)]
pub(crate) struct Running(JoinHandle<()>);

impl Running {
    /// Spawns `task` on this thread.
    pub(crate) fn start(task: impl Future<Output = ()> + 'static) -> Self {
        Self(spawn_local(task))
    }

    /// Runs the endless future from `make`, and restarts it after a pause if it panics. `what` names it in the log.
    pub(crate) fn keeping<F>(what: &str, make: impl Fn() -> F + 'static) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        let what = what.to_owned();
        Self::start(async move {
            loop {
                let mut turns = Self::start(make());
                // The future is endless, so it has panicked; the panic is in the log.
                let _ = (&mut turns.0).await;
                tracing::error!(what, "a defect ended what looks after certificates; it goes on in a minute");
                sleep(AFTER_DEFECT).await;
            }
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}
