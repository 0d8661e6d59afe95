//! [`WatchedFiles`], the files of the settings: a change of one starts a reload.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brisk_certs::FileWatch;
use tokio::sync::Notify;

/// Time without further changes after which changed files are reloaded: a certificate and its key change together.
const QUIET: Duration = Duration::from_millis(500);

/// Watched files. Without a watch, for example because the limit of inotify instances is reached, `SIGHUP` still
/// reloads.
#[derive(Debug)]
pub struct WatchedFiles {
    watch: Option<FileWatch>,
    elsewhere: Arc<Notify>,
}

impl WatchedFiles {
    /// Watches `files` from now on. A watch that cannot be started is a warning in the log.
    pub fn start(files: &[PathBuf]) -> Self {
        let elsewhere = Arc::new(Notify::new());
        if files.is_empty() {
            return Self { watch: None, elsewhere };
        }
        let watch = FileWatch::start(files.to_vec(), QUIET).inspect_err(
            |error| tracing::warn!(%error, "changed files are not noticed; SIGHUP still reloads"),
        );
        Self { watch: watch.ok(), elsewhere }
    }

    /// Receiver of changes that another process detects. They count as changes of watched files, and are kept if the
    /// server does not run yet.
    pub fn elsewhere(&self) -> Arc<Notify> {
        Arc::clone(&self.elsewhere)
    }

    /// Replaces the watch if `other` has one. Reports through [`elsewhere`](Self::elsewhere) are kept in any case.
    pub(crate) fn replace_with(&mut self, other: Self) {
        if other.watch.is_some() {
            self.watch = other.watch;
        }
    }

    /// Replaces the watch by that of `other`, also by `None`, and keeps the reports through
    /// [`elsewhere`](Self::elsewhere).
    pub(crate) fn go_on_with(&mut self, other: Self) {
        self.watch = other.watch;
    }

    /// Waits for a change and returns the files that have changed: an empty set by the report of another process. Without a
    /// watch, or when it has ended, only another process reports changes.
    pub(crate) async fn changed(&mut self) -> BTreeSet<PathBuf> {
        let own = async {
            if let Some(files) = &mut self.watch
                && let Some(changed) = files.changed().await
            {
                return changed;
            }
            // Without a watch this branch never resolves; changes elsewhere still do.
            std::future::pending().await
        };
        tokio::select! {
            changed = own => changed,
            () = self.elsewhere.notified() => BTreeSet::new(),
        }
    }
}
