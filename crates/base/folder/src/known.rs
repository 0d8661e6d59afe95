//! Files that [`Beneath::is_file`] found a short time ago.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::OFlags;

use crate::{Beneath, find};

/// Time for which a file of [`KnownFiles`] counts as existing.
const KEPT: Duration = Duration::from_secs(1);
/// Maximum number of files in [`KNOWN`].
const MOST: usize = 1_000;
/// Maximum length of a [`key`] in bytes.
const LONGEST: usize = 512;

thread_local! {
    static KNOWN: RefCell<KnownFiles> = RefCell::default();
}

impl Beneath {
    /// Whether `path` is a file below the root. A worker remembers the files in `KNOWN` for a second, which saves the calls of
    /// `openat2` and `fstat`. A missing file is looked up every time, so that `is_file` finds a new one at once.
    pub async fn is_file(&self, path: PathBuf) -> bool {
        let key = key(&self.root, &path);
        if KNOWN.with_borrow(|known| known.contains(&key, Instant::now())) {
            return true;
        }
        let found = find(Arc::clone(&self.root), path, OFlags::PATH).await;
        let is_file = found.is_ok_and(|(_, facts)| !facts.is_dir);
        if is_file {
            KNOWN.with_borrow_mut(|known| known.insert(key, Instant::now()));
        }
        is_file
    }
}

/// Key of `path` below `root`. NUL separates both, because no path contains it.
fn key(root: &Path, path: &Path) -> Vec<u8> {
    [root.as_os_str().as_bytes(), b"\0", path.as_os_str().as_bytes()].concat()
}

/// Results of [`key`], with the `Instant` of their discovery.
#[derive(Debug, Default)]
struct KnownFiles(HashMap<Vec<u8>, Instant>);

impl KnownFiles {
    fn contains(&self, key: &[u8], now: Instant) -> bool {
        self.0.get(key).is_some_and(|found| now.saturating_duration_since(*found) < KEPT)
    }

    fn insert(&mut self, key: Vec<u8>, now: Instant) {
        // With `MOST`, the keys of a worker take about 512 KB at most.
        if key.len() > LONGEST {
            return;
        }
        // All at once: after a second, most of them are useless.
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(key, now);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    #[tokio::test]
    async fn files_below_the_root_exist_and_new_ones_are_found_at_once() {
        let folder = TempDir::new().expect("a folder");
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("folder")).expect("folders");
        fs::write(folder.path().join("secret"), "").expect("a file");
        symlink("../secret", root.join("outside")).expect("a link");
        let beneath = Beneath::new(&root);
        for path in ["new", "folder", "outside", "../secret", "a\0b"] {
            assert!(!beneath.is_file(path.into()).await, "{path:?}");
        }
        fs::write(root.join("new"), "").expect("a file");
        assert!(beneath.is_file("new".into()).await);
        // Another root with the same name of a file.
        assert!(!Beneath::new(folder.path()).is_file("new".into()).await);
    }

    #[test]
    fn a_file_is_known_for_a_second_and_the_number_is_bounded() {
        let (mut known, now) = (KnownFiles::default(), Instant::now());
        known.insert(b"a".to_vec(), now);
        assert!(known.contains(b"a", now + KEPT / 2) && !known.contains(b"a", now + KEPT));
        known.insert(vec![b'x'; LONGEST + 1], now);
        assert_eq!(known.0.len(), 1);
        for number in 0..3 * MOST {
            known.insert(number.to_string().into_bytes(), now);
            assert!(known.0.len() <= MOST);
        }
        assert!(known.contains((3 * MOST - 1).to_string().as_bytes(), now));
    }
}
