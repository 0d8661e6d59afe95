//! Which files of a folder change, by the kernel's notices.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

/// Has the name of every file that changes in `folder` sent, until the watcher is dropped. Sets `lost` where any file
/// may have changed. Where the system gives no notices the log says so.
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

/// Reading a file is an event too, and our own. The creation of one is followed by the end of its writing, or is that
/// of a link.
fn alters(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}
