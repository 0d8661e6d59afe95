//! Reports when any of a set of files has changed, regardless of how it was replaced.
//!
//! Editors write a new file and rename it, Kubernetes swaps a symbolic link to a directory: so the folders are watched,
//! and what counts is whether the end of the path holds something else than before. A slow poll backs the kernel's
//! notices up, which network file systems do not give. Meant for few and small files: each is read whole.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use rustix::fs::{Mode, OFlags};
use tokio::sync::mpsc;
use zeroize::Zeroizing;

use crate::error::CertError;

/// How often files are looked at without a notice.
const POLL: Duration = Duration::from_secs(15);
/// Maximum delay of the report by a steady stream of notices, in quiet times.
const DELAY_LIMIT: u32 = 10;

/// Watches files until it is dropped.
#[derive(Debug)]
pub struct FileWatch {
    wake: SyncSender<()>,
    reports: mpsc::Receiver<()>,
}

impl FileWatch {
    /// Watches `paths`, which need not exist. Of a folder the names of what is in it are watched, not their contents. A change is reported after no further change for `quiet`.
    ///
    /// Start it before reading the files, so that no change in between is missed. Several changes within `quiet`, or
    /// before the call of [`changed`](Self::changed), give one report.
    pub fn start(paths: impl IntoIterator<Item = PathBuf>, quiet: Duration) -> Result<Self, CertError> {
        let (wake, woken) = sync_channel(1);
        let (report, reports) = mpsc::channel(1);
        let mut folders = Folders { watcher: watcher(wake.clone()), watched: BTreeSet::new() };
        let paths: Vec<PathBuf> = paths.into_iter().collect();
        // Folders first, and all before the thread runs: no change after `start` has returned is missed.
        folders.follow(&paths);
        let mut files = Files::new(paths);
        thread::Builder::new()
            .name("file-watch".to_owned())
            .spawn(move || run(&woken, &report, &mut files, &mut folders, quiet))
            .map_err(CertError::Watch)?;
        Ok(Self { wake, reports })
    }

    /// Waits for the next change. `None` if the watch has failed; it then reports no further changes.
    pub async fn changed(&mut self) -> Option<()> {
        self.reports.recv().await
    }
}

impl Drop for FileWatch {
    fn drop(&mut self) {
        // The thread ends when it wakes to a closed channel; if this one is full, it is about to wake.
        self.reports.close();
        let _ = self.wake.try_send(());
    }
}

/// The thread: waits for notices, lets them calm down, reports when a file holds something else than before.
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
        folders.follow(files.paths());
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
    let latest = Instant::now() + quiet * DELAY_LIMIT;
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

/// The files and what each held when last looked at.
struct Files {
    seen: Vec<(PathBuf, Option<u64>)>,
}

impl Files {
    fn new(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let mut files = Self { seen: paths.into_iter().map(|path| (path, None)).collect() };
        files.changed();
        files
    }

    fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.seen.iter().map(|(path, _)| path)
    }

    /// Looks at every file; whether any holds something else than at the last look.
    fn changed(&mut self) -> bool {
        let mut changed = false;
        for (path, seen) in &mut self.seen {
            let now = digest(path);
            if now != *seen {
                tracing::debug!(path = %path.display(), "file changed");
                *seen = now;
                changed = true;
            }
        }
        changed
    }
}

/// A digest of what is in the file, or of the names in the folder; `None` when it cannot be read.
///
/// Times and sizes will not do: two writes within one tick of the file system's clock have the same.
fn digest(path: &Path) -> Option<u64> {
    if path.is_dir() {
        let mut hasher = DefaultHasher::new();
        names(path)?.hash(&mut hasher);
        return Some(hasher.finish());
    }
    // A pipe in its place is not waited for, and memory does not depend on how long it is.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mut file = fs::File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut contents = Zeroizing::new(vec![0; 64 * 1024]);
    let mut hasher = DefaultHasher::new();
    loop {
        match file.read(&mut contents).ok()? {
            0 => return Some(hasher.finish()),
            count => hasher.write(&contents[..count]),
        }
    }
}

fn names(folder: &Path) -> Option<BTreeSet<OsString>> {
    let entries = fs::read_dir(folder).ok()?;
    entries.map(|entry| entry.ok().map(|entry| entry.file_name())).collect()
}

/// The folders whose notices matter: where the paths are, and where their symbolic links lead.
struct Folders {
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
}

impl Folders {
    fn follow<'a>(&mut self, paths: impl IntoIterator<Item = &'a PathBuf>) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        let wanted: BTreeSet<PathBuf> = paths.into_iter().flat_map(|path| folders_of(path)).collect();
        for gone in self.watched.difference(&wanted) {
            // Fails for a folder that was removed, and with it its watch.
            let _ = watcher.unwatch(gone);
        }
        // Again for those already watched: one of them may have been removed and made anew.
        for folder in &wanted {
            if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                tracing::warn!(folder = %folder.display(), %error, "no notices from here; looking every {POLL:?}");
            }
        }
        self.watched = wanted;
    }
}

/// The folder a path names, and the one its file is really in; of a folder, itself too.
fn folders_of(path: &Path) -> impl Iterator<Item = PathBuf> {
    let named =
        path.parent().map(|parent| if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
    let real = fs::canonicalize(path).ok();
    let itself = real.clone().filter(|path| path.is_dir());
    let real = real.and_then(|path| path.parent().map(Path::to_owned));
    named.map(Path::to_owned).into_iter().chain(real).chain(itself)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::mpsc::{TrySendError, channel};

    use tempfile::TempDir;

    use super::*;

    const QUIET: Duration = Duration::from_millis(30);

    /// A watch whose reports the test waits for, well below the poll's period.
    struct Reports(Receiver<()>);

    impl Reports {
        fn of(paths: impl IntoIterator<Item = PathBuf>) -> Self {
            let mut watch = FileWatch::start(paths, QUIET).unwrap();
            let (report, reports) = channel();
            thread::spawn(
                move || while watch.reports.blocking_recv().is_some() && report.send(()).is_ok() {},
            );
            Self(reports)
        }

        fn arrives(&self) -> bool {
            self.0.recv_timeout(POLL * 2 / 3).is_ok()
        }

        fn none(&self) -> bool {
            self.0.recv_timeout(QUIET * 8).is_err()
        }
    }

    fn folder_with(file: &str) -> (TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(file);
        fs::write(&path, "one").unwrap();
        (folder, path)
    }

    #[test]
    fn writing_in_place_is_reported() {
        let (_folder, path) = folder_with("a.pem");
        let reports = Reports::of([path.clone()]);
        fs::write(&path, "two").unwrap();
        assert!(reports.arrives());
    }

    #[test]
    fn replacing_is_reported_every_time() {
        let (folder, path) = folder_with("a.pem");
        let reports = Reports::of([path.clone()]);
        for contents in ["two", "three"] {
            let fresh = folder.path().join("a.pem.new");
            fs::write(&fresh, contents).unwrap();
            fs::rename(&fresh, &path).unwrap();
            assert!(reports.arrives());
        }
    }

    #[test]
    fn a_swapped_link_to_a_folder_is_reported_every_time() {
        // As Kubernetes mounts secrets: tls.crt -> ..data/tls.crt, ..data -> ..1
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let version = |number: u32| {
            let inner = at(&format!("..{number}"));
            fs::create_dir(&inner).unwrap();
            fs::write(inner.join("tls.crt"), number.to_string()).unwrap();
            symlink(format!("..{number}"), at("..data_tmp")).unwrap();
            fs::rename(at("..data_tmp"), at("..data")).unwrap();
        };
        version(1);
        symlink("..data/tls.crt", at("tls.crt")).unwrap();
        let reports = Reports::of([at("tls.crt")]);
        for number in 2..4 {
            version(number);
            fs::remove_dir_all(at(&format!("..{}", number - 1))).unwrap();
            assert!(reports.arrives(), "version {number}");
        }
    }

    #[test]
    fn a_change_where_a_link_leads_is_reported() {
        let (_folder, path) = folder_with("real.pem");
        let other = tempfile::tempdir().unwrap();
        let link = other.path().join("link.pem");
        symlink(&path, &link).unwrap();
        let reports = Reports::of([link]);
        fs::write(&path, "two").unwrap();
        assert!(reports.arrives());
    }

    #[test]
    fn coming_and_going_are_reported() {
        let (_folder, path) = folder_with("a.pem");
        fs::remove_file(&path).unwrap();
        let reports = Reports::of([path.clone()]);
        fs::write(&path, "one").unwrap();
        assert!(reports.arrives());
        fs::remove_file(&path).unwrap();
        assert!(reports.arrives());
    }

    #[test]
    fn neighbours_readers_and_rewriting_the_same_are_not_reported() {
        let (folder, path) = folder_with("a.pem");
        let reports = Reports::of([path.clone()]);
        fs::read(&path).unwrap();
        fs::write(folder.path().join("b.pem"), "one").unwrap();
        fs::rename(folder.path().join("b.pem"), &path).unwrap();
        assert!(reports.none());
    }

    #[test]
    fn a_file_that_comes_into_a_watched_folder_is_reported_and_so_is_its_going() {
        let folder = tempfile::tempdir().unwrap();
        let reports = Reports::of([folder.path().to_owned()]);
        let path = folder.path().join("new.key");
        fs::write(&path, "one").unwrap();
        assert!(reports.arrives());
        fs::write(&path, "two").unwrap();
        assert!(reports.none());
        fs::remove_file(&path).unwrap();
        assert!(reports.arrives());
    }

    #[test]
    fn changes_that_come_together_are_one_report() {
        let (folder, path) = folder_with("a.pem");
        let second = folder.path().join("b.pem");
        let mut files = Files::new([path.clone(), second.clone()]);
        assert!(!files.changed());
        fs::write(&path, "two").unwrap();
        fs::write(&second, "two").unwrap();
        assert!(files.changed());
        assert!(!files.changed());
    }

    #[test]
    fn a_dropped_watch_ends_its_thread() {
        let (_folder, path) = folder_with("a.pem");
        let watch = FileWatch::start([path], QUIET).unwrap();
        let wake = watch.wake.clone();
        drop(watch);
        let end = Instant::now() + POLL;
        // The thread owns the receiver: sending fails once it is gone.
        while !matches!(wake.try_send(()), Err(TrySendError::Disconnected(()))) {
            assert!(Instant::now() < end, "the thread is still there");
            thread::yield_now();
        }
    }
}
