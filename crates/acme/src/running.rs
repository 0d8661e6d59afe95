//! Tasks that go on until they are dropped, whatever defect ends them.

use std::time::Duration;

use tokio::task::{JoinHandle, spawn_local};
use tokio::time::sleep;

/// The pause after a defect.
const AFTER_DEFECT: Duration = Duration::from_mins(1);

/// A task that ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Running(JoinHandle<()>);

impl Running {
    /// Runs `task` on this thread.
    pub(crate) fn start(task: impl Future<Output = ()> + 'static) -> Self {
        Self(spawn_local(task))
    }

    /// Runs what `make` makes, which has no end of its own, and again after a defect has ended it. `what` is for the log.
    pub(crate) fn keeping<F>(what: &str, make: impl Fn() -> F + 'static) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        let what = what.to_owned();
        Self::start(async move {
            loop {
                let mut turns = Self::start(make());
                // It ends by a panic alone, which says where it was.
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
