//! The files that settings were read from: a change of one starts a reload.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use brisk_certs::FileWatch;
use tokio::sync::Notify;

/// Time without further changes after which changed files are reloaded: a certificate and its key change together.
const QUIET: Duration = Duration::from_millis(500);

/// Files that are watched. Without a watch (no more inotify instances, say) SIGHUP still reloads.
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

    /// Where to report the change of a file that another process watches. It is as one of these, and kept for a server that does not
    /// run yet.
    pub fn elsewhere(&self) -> Arc<Notify> {
        Arc::clone(&self.elsewhere)
    }

    /// Goes on with `other` if that has a watch, and with the reports of others in any case.
    pub(crate) fn replace_with(&mut self, other: Self) {
        if other.watch.is_some() {
            self.watch = other.watch;
        }
    }

    /// Goes on with the files of `other`, and with the reports of others.
    pub(crate) fn go_on_with(&mut self, other: Self) {
        self.watch = other.watch;
    }

    /// Waits for a change and returns the files that have changed: none of these, by the report of another process. Without a
    /// watch, or when it has ended, only another process reports changes.
    pub(crate) async fn changed(&mut self) -> BTreeSet<PathBuf> {
        let own = async {
            if let Some(files) = &mut self.watch
                && let Some(changed) = files.changed().await
            {
                return changed;
            }
            std::future::pending().await
        };
        tokio::select! {
            changed = own => changed,
            () = self.elsewhere.notified() => BTreeSet::new(),
        }
    }
}
