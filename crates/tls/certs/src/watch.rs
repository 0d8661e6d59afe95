//! Detection of changes in a set of files, however they are replaced.
//!
//! Editors write a new file and rename it, Kubernetes swaps a symbolic link to a directory. Therefore the folders are
//! watched, and the contents at the end of each path are compared. A slow poll supplements the kernel's notifications,
//! which network file systems do not provide. Intended for few and small files, since each is read completely.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use brisk_config_file::matching;
use notify::event::{AccessKind, AccessMode, ModifyKind};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use rustix::fs::{Mode, OFlags};
use tokio::sync::mpsc;
use zeroize::Zeroizing;

use crate::error::CertError;

/// Interval of the poll.
const POLL: Duration = Duration::from_secs(15);
/// Limit of the delay by a steady stream of notifications, as a multiple of `quiet`.
const DELAY_LIMIT: u32 = 10;

/// A watch on a set of files. It ends when dropped.
#[derive(Debug)]
pub struct FileWatch {
    wake: SyncSender<()>,
    reports: mpsc::Receiver<()>,
    changed: Changed,
}

/// The paths that have changed since the last report was received.
type Changed = Arc<Mutex<BTreeSet<PathBuf>>>;

/// Names of the watched files without their folders, for which notifications may have another path.
type Names = Arc<Mutex<BTreeSet<OsString>>>;

impl FileWatch {
    /// Watches `paths`, which need not exist. For a folder, the names of its entries are watched but not their contents; for
    /// a path with `*` in its last part, the [`matching`] files. A change is reported once no
    /// further change has occurred for `quiet`.
    ///
    /// Start the watch before reading the files, so that no change is missed. Several changes within `quiet`, or before
    /// a call of [`changed`](Self::changed), yield one report.
    pub fn start(paths: impl IntoIterator<Item = PathBuf>, quiet: Duration) -> Result<Self, CertError> {
        let (wake, woken) = sync_channel(1);
        let (report, reports) = mpsc::channel(1);
        let named = Names::default();
        let watcher = watcher(wake.clone(), Arc::clone(&named));
        let mut folders = Folders { watcher, watched: BTreeSet::new(), named };
        let paths: Vec<PathBuf> = paths.into_iter().collect();
        // Done before the thread starts, so that no change after the return of `start` is missed.
        folders.follow(&paths);
        let mut files = Files::new(paths);
        let changed = Changed::default();
        let reported = Arc::clone(&changed);
        thread::Builder::new()
            .name("file-watch".to_owned())
            .spawn(move || run(&woken, (&report, &reported), &mut files, &mut folders, quiet))
            .map_err(CertError::Watch)?;
        Ok(Self { wake, reports, changed })
    }

    /// Waits for the next change, and returns the paths that have changed. `None` if the watch has failed and
    /// reports no further changes.
    pub async fn changed(&mut self) -> Option<BTreeSet<PathBuf>> {
        self.reports.recv().await?;
        Some(mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Drop for FileWatch {
    fn drop(&mut self) {
        // The thread ends when it wakes and finds the channel closed; if this channel is full, a wake-up is pending
        // already.
        self.reports.close();
        let _ = self.wake.try_send(());
    }
}

/// The watching thread: waits for quiet after a notification and reports if the contents of a file changed.
fn run(
    woken: &Receiver<()>,
    (report, reported): (&mpsc::Sender<()>, &Changed),
    files: &mut Files,
    folders: &mut Folders,
    quiet: Duration,
) {
    while calm(woken, quiet) && !report.is_closed() {
        let changed = files.changed();
        if changed.is_empty() {
            continue;
        }
        reported.lock().unwrap_or_else(PoisonError::into_inner).extend(changed);
        // A changed link may lead to another folder, which must be watched from now on.
        folders.follow(files.paths());
        // A full channel contains a report that has not been received, which covers this change too.
        let _ = report.try_send(());
    }
}

/// Waits for a notification and then for a pause of `quiet`, or for the poll. Returns `false` if the watch has ended.
fn calm(woken: &Receiver<()>, quiet: Duration) -> bool {
    match woken.recv_timeout(POLL) {
        Ok(()) => {}
        Err(RecvTimeoutError::Timeout) => return true,
        Err(RecvTimeoutError::Disconnected) => return false,
    }
    // Without this limit, a file that is written all the time would postpone every report.
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

/// Forwards the kernel's notifications as wake-ups. If there are none, because of system limits, the poll remains.
fn watcher(wake: SyncSender<()>, named: Names) -> Option<RecommendedWatcher> {
    let notice = move |event: notify::Result<Event>| {
        let named = named.lock().unwrap_or_else(PoisonError::into_inner);
        // A full channel contains a wake-up already.
        if event.map_or(true, |event| alters(&event, &named)) {
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

/// Whether an event may change a watched file. Excludes reads, which this process does itself, and writing to files that
/// are not `named`, such as a log beside the watched files. Changes of names count for all files of a folder, because a
/// watched path may lead over several links.
fn alters(event: &Event, named: &BTreeSet<OsString>) -> bool {
    match event.kind {
        EventKind::Modify(ModifyKind::Data(_)) | EventKind::Access(AccessKind::Close(AccessMode::Write)) => {
            event.paths.iter().any(|path| path.file_name().is_some_and(|name| named.contains(name)))
        }
        EventKind::Access(_) => false,
        _ => true,
    }
}

/// The files and the digests of their last known contents.
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

    /// Reads all files. Returns those that have changed since the last call.
    fn changed(&mut self) -> Vec<PathBuf> {
        let mut changed = Vec::new();
        for (path, seen) in &mut self.seen {
            let now = digest(path);
            if now != *seen {
                tracing::debug!(path = %path.display(), "file changed");
                *seen = now;
                changed.push(path.clone());
            }
        }
        changed
    }
}

/// The files that `path` names as a pattern; `None` for other paths, and for an existing file with `*` in its name.
fn files_of_pattern(path: &Path) -> Option<Vec<PathBuf>> {
    let found = matching(path).filter(|_| fs::symlink_metadata(path).is_err())?;
    Some(found.unwrap_or_default().into_iter().filter(|file| !file.is_dir()).collect())
}

/// Digest of the contents of a file, of the names in a folder, or of the files of a pattern; `None` if it cannot be read.
///
/// Modification time and size do not suffice: two writes within one clock tick of the file system have the same.
fn digest(path: &Path) -> Option<u64> {
    let of = |facts: &dyn Fn(&mut DefaultHasher)| {
        let mut hasher = DefaultHasher::new();
        facts(&mut hasher);
        Some(hasher.finish())
    };
    // With their contents: a file that came with a mistake is no file of the configuration in force.
    if let Some(files) = files_of_pattern(path) {
        return of(&|hasher| files.iter().for_each(|file| (file, digest(file)).hash(hasher)));
    }
    if path.is_dir() {
        let names = names(path)?;
        return of(&|hasher| names.hash(hasher));
    }
    // `NONBLOCK`, so that a FIFO at this path does not block. Reads in blocks, so that memory does not depend on the
    // size.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let mut file = fs::File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    // Wiped, because private keys are among the watched files. The digest is not cryptographic: it detects
    // changes by an operator, and an attacker with write access needs no collision.
    let mut contents = Zeroizing::new(vec![0; 64 * 1024]);
    let mut hasher = DefaultHasher::new();
    loop {
        match file.read(&mut contents).ok()? {
            0 => return Some(hasher.finish()),
            count => hasher.write(&contents[..count]),
        }
    }
}

fn names(folder: &Path) -> Option<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).ok()?;
    let mut names: Vec<_> =
        entries.map(|entry| entry.ok().map(|entry| entry.path())).collect::<Option<_>>()?;
    names.sort_unstable();
    Some(names)
}

/// The watched folders: those of the paths, and those of the targets of their symbolic links.
struct Folders {
    watcher: Option<RecommendedWatcher>,
    watched: BTreeSet<PathBuf>,
    named: Names,
}

impl Folders {
    fn follow<'a>(&mut self, paths: impl IntoIterator<Item = &'a PathBuf>) {
        let Some(watcher) = &mut self.watcher else {
            return;
        };
        let paths: Vec<_> = paths.into_iter().collect();
        let wanted: BTreeSet<PathBuf> = paths.iter().flat_map(|path| folders_of(path)).collect();
        let real = paths.iter().filter_map(|path| fs::canonicalize(path).ok());
        let found = paths.iter().filter_map(|path| files_of_pattern(path)).flatten();
        let files = paths.iter().map(|path| (*path).clone()).chain(real).chain(found);
        let names = files.filter_map(|path| path.file_name().map(OsString::from));
        *self.named.lock().unwrap_or_else(PoisonError::into_inner) = names.collect();
        for gone in self.watched.difference(&wanted) {
            // Fails for a folder that was removed together with its watch.
            let _ = watcher.unwatch(gone);
        }
        // Folders that are watched already are added again: they may have been removed and recreated.
        for folder in &wanted {
            if let Err(error) = watcher.watch(folder, RecursiveMode::NonRecursive) {
                tracing::warn!(folder = %folder.display(), %error, "no notices from here; looking every {POLL:?}");
            }
        }
        self.watched = wanted;
    }
}

/// The folder of `path`, the folder of its target, and `path` itself if it is a folder.
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

    use notify::event::{DataChange, RenameMode};
    use tempfile::TempDir;

    use super::*;

    const QUIET: Duration = Duration::from_millis(30);

    /// A watch with a timeout well below the interval of the poll.
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
        assert!(files.changed().is_empty());
        fs::write(&path, "two").unwrap();
        fs::write(&second, "two").unwrap();
        assert_eq!(files.changed(), [path, second]);
        assert!(files.changed().is_empty());
    }

    #[test]
    fn the_contents_of_the_files_of_a_pattern_are_watched() {
        let folder = tempfile::tempdir().unwrap();
        let pattern = folder.path().join("*.toml");
        fs::write(folder.path().join("a.toml"), "one").unwrap();
        let before = digest(&pattern);
        fs::write(folder.path().join("a.toml"), "two").unwrap();
        assert_ne!(digest(&pattern), before);
        // A file with the name of the pattern is a file.
        fs::write(&pattern, "one").unwrap();
        let before = digest(&pattern);
        fs::write(folder.path().join("a.toml"), "three").unwrap();
        assert_eq!(digest(&pattern), before);
        fs::write(&pattern, "two").unwrap();
        assert_ne!(digest(&pattern), before);
    }

    #[test]
    fn writing_to_other_files_of_the_folder_is_ignored() {
        let named = BTreeSet::from([OsString::from("a.pem")]);
        let counts =
            |kind, file: &str| alters(&Event::new(kind).add_path(Path::new("/etc").join(file)), &named);
        let writes = [
            EventKind::Modify(ModifyKind::Data(DataChange::Any)),
            EventKind::Access(AccessKind::Close(AccessMode::Write)),
        ];
        for kind in writes {
            assert!(counts(kind, "a.pem"));
            assert!(!counts(kind, "access.log"));
        }
        // A link of the way to a watched file is replaced under a name of its own.
        assert!(counts(EventKind::Modify(ModifyKind::Name(RenameMode::To)), "..data"));
        assert!(!counts(EventKind::Access(AccessKind::Close(AccessMode::Read)), "a.pem"));
    }

    #[test]
    fn a_dropped_watch_ends_its_thread() {
        let (_folder, path) = folder_with("a.pem");
        let watch = FileWatch::start([path], QUIET).unwrap();
        let wake = watch.wake.clone();
        drop(watch);
        let end = Instant::now() + POLL;
        // The thread owns the receiver, so sending fails once the thread has ended.
        while !matches!(wake.try_send(()), Err(TrySendError::Disconnected(()))) {
            assert!(Instant::now() < end, "the thread is still there");
            thread::yield_now();
        }
    }
}
