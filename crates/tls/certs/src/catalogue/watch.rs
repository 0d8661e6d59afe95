//! Notifications of changed files from the kernel.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

/// Watches `folder` and sends the name of each changed file, until the watcher is dropped. Sets `lost` if events were
/// lost, so that any file may have changed. Logs a warning and returns `None` if the system provides no notifications.
pub(super) fn start(
    folder: &Path,
    sender: SyncSender<String>,
    lost: &Arc<AtomicBool>,
) -> Option<RecommendedWatcher> {
    let own = Arc::clone(lost);
    let notice = move |event: notify::Result<Event>| {
        let Ok(event) = event else { return own.store(true, Ordering::Relaxed) };
        if event.need_rescan() {
            own.store(true, Ordering::Relaxed);
        }
        let files = event.paths.iter().filter_map(|path| path.file_name()?.to_str());
        for file in files.filter(|_| alters(event.kind)) {
            if let Err(TrySendError::Full(_)) = sender.try_send(file.to_owned()) {
                own.store(true, Ordering::Relaxed);
            }
        }
    };
    let watching = notify::recommended_watcher(notice).and_then(|mut watcher| {
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
        Ok(watcher)
    });
    let failed = |error: &notify::Error| {
        tracing::warn!(folder = %folder.display(), %error, "no notices from here; changes are noticed once a minute");
    };
    watching.inspect_err(failed).ok()
}

/// Excludes reads, which this process does itself. The creation of a file is followed by its close after writing, or is
/// that of a link.
fn alters(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}
