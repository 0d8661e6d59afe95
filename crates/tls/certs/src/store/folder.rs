//! A [`Store`] in a folder: one file per name, replaced atomically and readable by its owner only.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::OFlags;
use zeroize::Zeroizing;

use super::{Lock, Name, Store, StoreError};

/// Maximum size of a value in bytes.
const LARGEST: u64 = 64 * 1024 * 1024;

/// Names of the lock folder and of temporary files; no [`Name`] begins with a dot.
const LOCKS: &str = ".locks";
const FRESH: &str = ".new-";

/// A store in a folder. Several processes may use it at once, on several machines if the file system supports `flock`
/// across them.
#[derive(Debug)]
pub struct Folder {
    root: PathBuf,
}

impl Folder {
    /// The store in `root`, which is created with the first value, accessible by its owner only.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn path(&self, name: &Name) -> PathBuf {
        self.root.join(name.as_str())
    }
}

impl Store for Folder {
    fn read(&self, name: &Name) -> Result<Option<Zeroizing<Vec<u8>>>, StoreError> {
        let path = self.path(name);
        let read = || -> io::Result<_> {
            let length = fs::metadata(&path)?.len();
            if length > LARGEST {
                return Err(io::Error::other(format!("it is longer than {LARGEST} bytes")));
            }
            brisk_secrets::read(&path)
        };
        found(read()).map_err(|reason| StoreError::new("read", path.display(), reason))
    }

    fn write(&self, name: &Name, value: &[u8]) -> Result<(), StoreError> {
        let path = self.path(name);
        let folder = path.parent().expect("it is below the root");
        let write = || -> io::Result<()> {
            make(folder)?;
            let fresh = Fresh::in_folder(folder);
            let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&fresh.0)?;
            file.write_all(value)?;
            file.sync_all()?;
            fs::rename(&fresh.0, &path)?;
            // Without syncing the folder, the old file could reappear after a crash of the machine.
            File::open(folder)?.sync_all()
        };
        write().map_err(|reason| StoreError::new("write", path.display(), reason))
    }

    fn remove(&self, name: &Name) -> Result<(), StoreError> {
        let path = self.path(name);
        let removed = found(fs::remove_file(&path)).map(|_| ());
        removed.map_err(|reason| StoreError::new("remove", path.display(), reason))
    }

    fn list(&self, parent: &Name) -> Result<Vec<Name>, StoreError> {
        let path = self.path(parent);
        let list = || -> io::Result<_> {
            let mut names = Vec::new();
            for entry in fs::read_dir(&path)? {
                let file = entry?.file_name();
                // Skips temporary files and files of others.
                names.extend(file.to_str().and_then(|written| parent.below(written)));
            }
            Ok(names)
        };
        let listed = found(list()).map(Option::unwrap_or_default);
        listed.map_err(|reason| StoreError::new("list", path.display(), reason))
    }

    fn try_lock(&self, name: &Name) -> Result<Option<Box<dyn Lock>>, StoreError> {
        let path = self.root.join(LOCKS).join(name.as_str());
        let lock = || -> io::Result<_> {
            make(path.parent().expect("it is below the root"))?;
            let mut options = OpenOptions::new();
            options.create(true).truncate(false).write(true).mode(0o600);
            // In a folder that others can write to, the lock file may be a link to another file.
            let file = options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(&path)?;
            // The lock file is never removed: a process that has opened the removed file would hold a lock
            // that no other process sees.
            match file.try_lock() {
                Ok(()) => Ok(Some(Box::new(Held(file)) as Box<dyn Lock>)),
                Err(TryLockError::WouldBlock) => Ok(None),
                Err(TryLockError::Error(error)) => Err(error),
            }
        };
        lock().map_err(|reason| StoreError::new("lock", path.display(), reason))
    }

    fn place(&self) -> String {
        self.root.display().to_string()
    }
}

/// A locked file. The kernel releases the lock when the process ends.
#[derive(Debug)]
struct Held(#[expect(dead_code, reason = "locked until it is closed")] File);

impl Lock for Held {
    fn holds(&mut self) -> bool {
        true
    }
}

/// A temporary file, removed when dropped unless it was renamed.
struct Fresh(PathBuf);

impl Fresh {
    fn in_folder(folder: &Path) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let (process, count) = (process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let fresh = Self(folder.join(format!("{FRESH}{process}-{count}")));
        // Left over from a dead process with the same process ID.
        let _ = fs::remove_file(&fresh.0);
        fresh
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn make(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Maps "not found" to `None`.
fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::thread;

    use super::*;

    fn store() -> (tempfile::TempDir, Folder) {
        let folder = tempfile::tempdir().unwrap();
        let store = Folder::new(folder.path().join("certificates"));
        (folder, store)
    }

    fn name(parts: &[&str]) -> Name {
        Name::of(parts.iter().copied())
    }

    #[test]
    fn values_are_kept_replaced_listed_and_removed() {
        let (_folder, store) = store();
        let (own, other) = (name(&["sites", "*.a.test", "chain"]), name(&["sites", "b.test", "chain"]));
        assert_eq!(store.read(&own).unwrap(), None);
        assert_eq!(store.list(&name(&["sites"])).unwrap(), []);
        store.write(&own, b"one").unwrap();
        store.write(&own, b"two").unwrap();
        store.write(&other, b"three").unwrap();
        assert_eq!(store.read(&own).unwrap().unwrap().as_slice(), b"two");
        let mut sites: Vec<_> = store.list(&name(&["sites"])).unwrap().iter().map(Name::last).collect();
        sites.sort();
        assert_eq!(sites, ["*.a.test", "b.test"]);
        store.remove(&own).unwrap();
        store.remove(&own).unwrap();
        assert_eq!(store.read(&own).unwrap(), None);
        assert_eq!(store.read(&other).unwrap().unwrap().as_slice(), b"three");
    }

    #[test]
    fn others_can_read_neither_files_nor_folders() {
        let (_folder, store) = store();
        let name = name(&["a", "b"]);
        store.write(&name, b"secret").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&store.path(&name)), 0o600);
        assert_eq!(mode(&store.root), 0o700);
        assert_eq!(mode(&store.root.join("a")), 0o700);
    }

    #[test]
    fn a_reader_finds_whole_values_while_they_are_replaced() {
        let (_folder, store) = store();
        let name = name(&["value"]);
        let value = |byte: u8| vec![byte; 50_000];
        store.write(&name, &value(0)).unwrap();
        thread::scope(|scope| {
            let writer = scope.spawn(|| (1..50).for_each(|byte| store.write(&name, &value(byte)).unwrap()));
            while !writer.is_finished() {
                let read = store.read(&name).unwrap().unwrap();
                assert!(read.len() == 50_000 && read.iter().all(|byte| *byte == read[0]));
            }
        });
    }

    #[test]
    fn a_lock_has_one_holder() {
        let (_folder, store) = store();
        let (own, other) = (name(&["order", "a.test"]), name(&["order", "b.test"]));
        let mut held = store.try_lock(&own).unwrap().unwrap();
        assert!(held.holds());
        assert!(store.try_lock(&own).unwrap().is_none());
        assert!(store.try_lock(&other).unwrap().is_some());
        // Values and locks of the same name are independent.
        store.write(&own, b"url").unwrap();
        assert_eq!(store.list(&name(&["order"])).unwrap(), std::slice::from_ref(&own));
        drop(held);
        assert!(store.try_lock(&own).unwrap().is_some());
    }

    #[test]
    fn an_error_names_the_file() {
        let (_folder, store) = store();
        fs::write(&store.root, "a file in the place of the folder").unwrap();
        let error = store.write(&name(&["a"]), b"x").unwrap_err().to_string();
        assert!(error.contains("cannot write") && error.contains(store.root.to_str().unwrap()), "{error}");
    }
}
