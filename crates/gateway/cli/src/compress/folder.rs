//! Folders by descriptor. Every operation names one entry of an open folder and follows no link, because another user may
//! own the folder and replace its entries at any time.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Uid};
use rustix::fs::{fchmod, fchown, open, openat, renameat, unlinkat};

/// Attempts to find an unused temporary name.
const ATTEMPTS: u64 = 16;

/// An open folder, and its path for messages.
pub(super) struct Folder {
    descriptor: OwnedFd,
    pub(super) path: PathBuf,
}

/// A name in a [`Folder`], with the type that the folder states for it.
pub(super) struct Entry {
    pub(super) name: OsString,
    pub(super) kind: FileType,
}

impl Folder {
    /// Opens the folder that the operator names. Links in `path` are followed.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let descriptor = open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { descriptor, path: path.to_owned() })
    }

    /// Opens the subfolder `name`; fails for a link (`O_NOFOLLOW`).
    pub(super) fn subfolder(&self, name: &OsStr) -> io::Result<Self> {
        let descriptor = self.open_entry(name, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Self { descriptor, path: self.path.join(name) })
    }

    /// Each [`Entry`], without `.` and `..`.
    pub(super) fn entries(&self) -> io::Result<Vec<Entry>> {
        // Collected first: a folder that is read while copies are added to it may list them.
        let mut entries = Vec::new();
        for entry in Dir::read_from(&self.descriptor)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
            if name == "." || name == ".." {
                continue;
            }
            let kind = match entry.file_type() {
                // Some file systems state no types.
                FileType::Unknown => FileType::from_raw_mode(self.metadata(&name)?.mode()),
                kind => kind,
            };
            entries.push(Entry { name, kind });
        }
        Ok(entries)
    }

    /// Opens the regular file `name` for reading; fails for a link and every other type.
    pub(super) fn file(&self, name: &OsStr) -> io::Result<(File, Metadata)> {
        // A FIFO does not block, and a terminal does not become that of the process.
        let file = File::from(self.open_entry(name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other("no longer a regular file: run brisk compress again"));
        }
        Ok((file, metadata))
    }

    /// The metadata of `name`; those of the link itself if `name` is a link.
    pub(super) fn metadata(&self, name: &OsStr) -> io::Result<Metadata> {
        File::from(self.open_entry(name, OFlags::PATH)?).metadata()
    }

    /// Removes the file or link `name`.
    pub(super) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(unlinkat(&self.descriptor, name, AtFlags::empty())?)
    }

    /// Replaces `name` with a copy of a file with the metadata `source`: owner, group, time, and permissions except
    /// execution. `check` runs last; if it fails, `name` stays unchanged. No other process sees an incomplete copy.
    pub(super) fn replace(
        &self,
        name: &OsStr,
        contents: &[u8],
        source: &Metadata,
        check: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let (temporary, mut file) = self.create()?;
        let replaced = file
            .write_all(contents)
            .and_then(|()| adopt(&file, source))
            .and_then(|()| check())
            .and_then(|()| Ok(renameat(&self.descriptor, &temporary, &self.descriptor, name)?));
        // A failed removal leaves a hidden file, which is not served; the first error
        // is the one that matters.
        if replaced.is_err() {
            let _ = self.remove(&temporary);
        }
        replaced
    }

    /// A new empty file that only its owner may open, with an unpredictable hidden name.
    fn create(&self) -> io::Result<(OsString, File)> {
        let random = RandomState::new();
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut attempt = 0;
        loop {
            let name = OsString::from(format!(".brisk-{:016x}", random.hash_one(attempt)));
            match openat(&self.descriptor, &name, flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => return Ok((name, file.into())),
                Err(rustix::io::Errno::EXIST) if attempt < ATTEMPTS => attempt += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn open_entry(&self, name: &OsStr, flags: OFlags) -> io::Result<OwnedFd> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(openat(&self.descriptor, name, flags, Mode::empty())?)
    }
}

/// Gives `copy` the owner, group, permissions and time of `source`, so that the same users can read both.
///
/// Without the privilege to give files away, the copy keeps the user of the process. If it cannot have the group of
/// `source` either, its group gets the permissions of all users at most.
fn adopt(copy: &File, source: &Metadata) -> io::Result<()> {
    // No setuid and setgid bits: root would grant them to contents that another user can replace.
    let mut mode = source.mode() & 0o666;
    let group = Some(Gid::from_raw(source.gid()));
    if fchown(copy, Some(Uid::from_raw(source.uid())), group).is_err() && fchown(copy, None, group).is_err() {
        mode &= 0o606 | (mode & 0o006) << 3;
    }
    // Owner, time and mode in this order: the mode must not apply to another group, and until it is set the
    // copy is readable by its owner alone.
    copy.set_modified(source.modified()?)?;
    Ok(fchmod(copy, Mode::from_raw_mode(mode))?)
}
