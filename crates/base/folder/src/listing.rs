//! Lists of the files in a folder.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustix::fs::{AtFlags, Dir, FileType, OFlags, ResolveFlags, statat};
use tokio::task::spawn_blocking;

use crate::{Beneath, find, modified, open_beneath};

/// Maximum number of files in a list, and of those that are examined for it.
const MOST: usize = 5_000;
const MOST_EXAMINED: usize = 20_000;

/// Files and folders in one folder, folders first, each in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The entries.
    pub entries: Vec<Entry>,
    /// Whether further entries were left out: above 5,000, after 20,000 examined ones, or with names that are not UTF-8.
    pub is_cut: bool,
}

/// One file or folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name, without control characters and backslashes, which no path may contain.
    pub name: String,
    /// Whether it is a folder.
    pub is_dir: bool,
    /// Length in bytes.
    pub length: u64,
    /// Time of the last change.
    pub modified: Option<SystemTime>,
}

impl Beneath {
    /// Lists the folder `path`, relative to the root, and passes the list to `form`, both on a blocking thread. Names for which
    /// `is_hidden` is true are left out. Links are listed if they are followed for requests: to files and folders below the root.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is no such folder below the root, and errors of the operating system.
    pub async fn list<T: Send + 'static>(
        &self,
        path: PathBuf,
        is_hidden: fn(&[u8]) -> bool,
        form: impl FnOnce(&Listing) -> T + Send + 'static,
    ) -> io::Result<T> {
        // openat2(2) refuses an empty path; `.` is the root itself.
        let path = if path.as_os_str().is_empty() { PathBuf::from(".") } else { path };
        let root = Arc::clone(&self.root);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        let (folder, facts) = find(Arc::clone(&root), path.clone(), flags).await?;
        if !facts.is_dir {
            return Err(io::ErrorKind::NotFound.into());
        }
        let formed = spawn_blocking(move || Ok(form(&read(&folder, &root, &path, is_hidden)?)));
        formed.await.map_err(io::Error::other)?
    }
}

fn read(folder: &OwnedFd, root: &Path, path: &Path, is_hidden: fn(&[u8]) -> bool) -> io::Result<Listing> {
    let mut listing = Listing::default();
    for (number, entry) in Dir::read_from(folder)?.enumerate() {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        // Before hidden names are left out, which cost the reading of the folder too.
        if number >= MOST_EXAMINED {
            listing.is_cut = true;
            break;
        }
        if is_hidden(name.to_bytes()) {
            continue;
        }
        // After it: hidden names behind a full list are no further entries.
        if listing.entries.len() == MOST {
            listing.is_cut = true;
            break;
        }
        let Ok(name) = name.to_str() else {
            listing.is_cut = true;
            continue;
        };
        if !is_nameable(name) {
            continue;
        }
        let Ok(mut stat) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            // Not by `statat`, which follows a link out of the root and would disclose the
            // length and time of its target.
            let target = open_beneath(root, &path.join(name), OFlags::PATH, ResolveFlags::empty());
            let Ok(target) = target.and_then(rustix::fs::fstat) else { continue };
            stat = target;
        }
        let kind = FileType::from_raw_mode(stat.st_mode);
        if !matches!(kind, FileType::RegularFile | FileType::Directory) {
            continue;
        }
        listing.entries.push(Entry {
            name: name.to_owned(),
            is_dir: kind == FileType::Directory,
            length: u64::try_from(stat.st_size).unwrap_or_default(),
            modified: modified(&stat),
        });
    }
    listing
        .entries
        .sort_by(|one, other| other.is_dir.cmp(&one.is_dir).then_with(|| one.name.cmp(&other.name)));
    Ok(listing)
}

/// Whether a path can contain the name.
fn is_nameable(name: &str) -> bool {
    !name.chars().any(|part| part == '\\' || part.is_control())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use tempfile::TempDir;

    use super::*;

    fn is_hidden(name: &[u8]) -> bool {
        name.starts_with(b".")
    }

    #[tokio::test]
    async fn files_that_can_be_requested_are_listed() {
        let folder = TempDir::new().expect("a folder");
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("b/inner")).expect("folders");
        for name in ["z", "a b", ".hidden", "b\\c", "line\nbreak", "\u{fc}"] {
            fs::write(root.join(name), name).expect(name);
        }
        fs::write(folder.path().join("secret"), "x").expect("a file");
        symlink("../secret", root.join("outside")).expect("a link");
        symlink("/etc/passwd", root.join("absolute")).expect("a link");
        symlink("nothing", root.join("broken")).expect("a link");
        symlink("b", root.join("a-link")).expect("a link");
        let _socket = UnixListener::bind(root.join("socket")).expect("a socket");
        let beneath = Beneath::new(&root);
        let listing = beneath.list(PathBuf::new(), is_hidden, Listing::clone).await.expect("a list");
        let names: Vec<_> = listing.entries.iter().map(|entry| (entry.name.as_str(), entry.is_dir)).collect();
        assert_eq!(names, [("a-link", true), ("b", true), ("a b", false), ("z", false), ("\u{fc}", false)]);
        assert_eq!((listing.entries[2].length, listing.is_cut), (3, false));
        assert_eq!(
            beneath.list("b".into(), is_hidden, Listing::clone).await.expect("a list").entries.len(),
            1
        );
        for path in ["z", "none", "..", "outside"] {
            let error = beneath.list(path.into(), is_hidden, Listing::clone).await.expect_err(path);
            assert!(
                matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory),
                "{path}: {error}"
            );
        }
    }

    #[tokio::test]
    async fn a_list_without_a_name_that_is_not_utf8_is_cut() {
        let folder = TempDir::new().expect("a folder");
        for name in [&b"a"[..], b"\xfc", b".\xff"] {
            fs::write(folder.path().join(OsStr::from_bytes(name)), "").expect("a file");
            let beneath = Beneath::new(folder.path());
            let listing = beneath.list(PathBuf::new(), is_hidden, Listing::clone).await.expect("a list");
            assert_eq!((listing.entries.len(), listing.is_cut), (1, name != b"a"));
        }
    }

    #[tokio::test]
    async fn hidden_names_count_as_examined() {
        let folder = TempDir::new().expect("a folder");
        // One more, because `.` and `..` may be the last entries.
        for number in 0..=MOST_EXAMINED {
            symlink("nothing", folder.path().join(format!(".{number}"))).expect("a link");
        }
        let beneath = Beneath::new(folder.path());
        let listing = beneath.list(PathBuf::new(), is_hidden, Listing::clone).await.expect("a list");
        assert_eq!((listing.entries.len(), listing.is_cut), (0, true));
    }

    #[tokio::test]
    async fn a_long_list_is_cut() {
        let folder = TempDir::new().expect("a folder");
        for number in 0..=MOST {
            fs::write(folder.path().join(number.to_string()), "").expect("a file");
        }
        let listing = Beneath::new(folder.path())
            .list(PathBuf::new(), is_hidden, Listing::clone)
            .await
            .expect("a list");
        assert_eq!((listing.entries.len(), listing.is_cut), (MOST, true));
    }
}
