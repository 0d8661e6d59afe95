//! The files that settings were read from: a change of one starts a reload.

use std::path::PathBuf;
use std::time::Duration;

use brisk_certs::FileWatch;

/// Time without further changes after which changed files are reloaded: a certificate and its key change together.
const QUIET: Duration = Duration::from_millis(500);

/// Files that are watched. Without a watch (no more inotify instances, say) SIGHUP still reloads.
#[derive(Debug)]
pub struct WatchedFiles(Option<FileWatch>);

impl WatchedFiles {
    /// Watches `files` from now on. A watch that cannot be started is a warning in the log.
    pub fn start(files: &[PathBuf]) -> Self {
        if files.is_empty() {
            return Self(None);
        }
        let watch = FileWatch::start(files.to_vec(), QUIET).inspect_err(
            |error| tracing::warn!(%error, "changed files are not noticed; SIGHUP still reloads"),
        );
        Self(watch.ok())
    }

    /// Goes on with `other` if that has a watch.
    pub(crate) fn replace_with(&mut self, other: Self) {
        if other.0.is_some() {
            *self = other;
        }
    }

    /// Completes when a file has changed; never without a watch, or when the watch has ended.
    pub(crate) async fn changed(&mut self) {
        if let Some(files) = &mut self.0
            && files.changed().await.is_some()
        {
            return;
        }
        std::future::pending::<()>().await;
    }
}
