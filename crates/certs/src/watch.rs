//! Tells when any of a set of files has changed, whichever way it was replaced.
//!
//! Editors write a new file and rename it, Kubernetes swaps a symbolic link to a directory: so the folders are watched,
//! and what counts is whether the file at the end of the path is another one than before. A slow poll backs the kernel's
//! notices up, which network file systems do not give.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

use crate::error::CertError;

/// How often files are looked at without a notice.
const POLL: Duration = Duration::from_secs(15);
/// A steady stream of notices delays the report by no more than this many quiet times.
const PATIENCE: u32 = 10;

/// Watches files until it is dropped.
#[derive(Debug)]
pub struct FileWatch {
    wake: SyncSender<()>,
    reports: mpsc::Receiver<()>,
}

impl FileWatch {
    /// Watches `paths`, which need not exist yet. A change is reported once nothing more has happened for `quiet`.
    ///
    /// Changes that come together, or before [`changed`](Self::changed) is asked, are one report.
    pub fn start(paths: impl IntoIterator<Item = PathBuf>, quiet: Duration) -> Result<Self, CertError> {
        let (wake, woken) = sync_channel(1);
        let (report, reports) = mpsc::channel(1);
        let mut files = Files::new(paths);
        let mut folders = Folders { watcher: watcher(wake.clone()), watched: BTreeSet::new() };
        // Before the thread runs, so that no change after `start` has returned is missed.
        folders.follow(&files);
        files.changed();
        thread::Builder::new()
            .name("file-watch".to_owned())
            .spawn(move || run(&woken, &report, &mut files, &mut folders, quiet))
            .map_err(CertError::Watch)?;
        Ok(Self { wake, reports })
    }

    /// Waits for the next change. `None`: the watch has failed and will report nothing more.
    pub async fn changed(&mut self) -> Option<()> {
        self.reports.recv().await
    }

    /// The same for a thread without a runtime.
    pub fn changed_blocking(&mut self) -> Option<()> {
        self.reports.blocking_recv()
    }
}

impl Drop for FileWatch {
    fn drop(&mut self) {
        // The thread ends when it wakes to a closed channel; if this one is full, it is about to wake.
        self.reports.close();
        let _ = self.wake.try_send(());
    }
}

/// The thread: waits for notices, lets them calm down, reports when a file is another one than before.
fn run(
    woken: &Receiver<()>,
    report: &mpsc::Sender<()>,
    files: &mut Files,
    folders: &mut Folders,
    quiet: Duration,
) {
    while calm(woken, quiet) && !report.is_closed() {
        if !files.changed() {
            continue;
        }
        folders.follow(files);
        // Full: the report before this one has not been received yet, and will do for both.
        let _ = report.try_send(());
    }
}

/// Waits for a notice or the poll's turn, then until nothing has come for `quiet`. `false`: stop.
fn calm(woken: &Receiver<()>, quiet: Duration) -> bool {
    match woken.recv_timeout(POLL) {
        Ok(()) => {}
        Err(RecvTimeoutError::Timeout) => return true,
        Err(RecvTimeoutError::Disconnected) => return false,
    }
    let latest = Instant::now() + quiet * PATIENCE;
    while Instant::now() < latest {
        match woken.recv_timeout(quiet) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => return false,
        }
    }
    true
}

/// The kernel's notices as wake-ups; without them (limits of the system) the poll remains.
fn watcher(wake: SyncSender<()>) -> Option<RecommendedWatcher> {
    let notice = move |event: notify::Result<Event>| {
        // A full channel holds a wake-up already.
        if event.map_or(true, |event| alters(event.kind)) {
            let _ = wake.try_send(());
        }
    };
    match notify::recommended_watcher(notice) {
        Ok(watcher) => Some(watcher),
        Err(error) => {
            tracing::warn!(%error, "no notices of changed files from the system; looking every {POLL:?} instead");
            None
        }
    }
}

/// Reading a file is an event too, and our own.
fn alters(kind: EventKind) -> bool {
    !matches!(kind, EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write))
}

/// The files and what each was when last looked at.
#[derive(Debug)]
struct Files {
    seen: Vec<(PathBuf, Option<Identity>)>,
}

/// What tells a replaced or rewritten file from the one before.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    altered: (i64, i64),
}

impl Files {
    fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { seen: paths.into_iter().map(|path| (path, None)).collect() }
    }

    /// Looks at every file; whether any is another one than at the last look.
    fn changed(&mut self) -> bool {
        let mut changed = false;
        for (path, seen) in &mut self.seen {
            let now = identify(path);
            if now != *seen {
                tracing::debug!(path = %path.display(), "file changed");
                *seen = now;
                changed = true;
            }
        }
        changed
    }
}

fn identify(path: &Path) -> Option<Identity> {
    let found = fs::metadata(path).ok()?;
    Some(Identity {
        device: found.dev(),
        inode: found.ino(),
        size: found.size(),
        modified: (found.mtime(), found.mtime_nsec()),
        altered: (found.ctime(), found.ctime_nsec()),
    })
}

/// The folders whose notices matter: where the paths are, and where their symbolic links lead.
struct Folders {
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
}

impl Folders {
    fn follow(&mut self, files: &Files) {
        let Some(watcher) = &mut self.watcher else { return };
        let wanted: BTreeSet<PathBuf> = files.seen.iter().flat_map(|(path, _)| folders_of(path)).collect();
        for gone in self.watched.difference(&wanted) {
            // Fails for a folder that was removed, and with it its watch.
            let _ = watcher.unwatch(gone);
        }
        // Again for those already watched: one of them may have been removed and made anew.
        for folder in &wanted {
            if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                tracing::warn!(folder = %folder.display(), %error, "no notices from this folder; looking every {POLL:?}");
            }
        }
        self.watched = wanted;
    }
}

/// The folder a path names, and the one its file is really in.
fn folders_of(path: &Path) -> impl Iterator<Item = PathBuf> {
    let named = path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
    let real = fs::canonicalize(path).ok().and_then(|path| path.parent().map(Path::to_owned));
    named.map(Path::to_owned).into_iter().chain(real)
}
