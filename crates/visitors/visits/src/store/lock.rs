//! Locks on the folder: any number of processes may have it open, for example while one replaces another, but only a
//! process that has it alone may move a damaged database.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;

use crate::error::VisitsError;

/// Lock file; empty and never removed.
const FILE: &str = "visits.lock";

/// A process that is being started inherits the locks of its parent for a moment.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(20);

/// Identity of a file independent of its name: device and inode.
pub(crate) type Identity = (u64, u64);

/// Identity of the file at `path`; `None` if there is no file.
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    path.metadata().ok().map(|found| (found.dev(), found.ino()))
}

/// Locks the folder shared with other processes, until the [`File`] is dropped.
pub(super) fn shared(folder: &Path) -> Result<File, VisitsError> {
    lock(folder, File::try_lock_shared, "another process is putting a damaged database out of the way")
}

/// Locks the folder exclusively, until the [`File`] is dropped.
pub(super) fn alone(folder: &Path) -> Result<File, VisitsError> {
    lock(
        folder,
        File::try_lock,
        "the database is damaged, and stays where it is while another process has it open",
    )
}

fn lock(folder: &Path, lock: fn(&File) -> Result<(), TryLockError>, held: &str) -> Result<File, VisitsError> {
    let path = folder.join(FILE);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    // In a folder that others can write to, the lock file may be a link to another file.
    let opened = options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(&path);
    let wrong = |reason: String| VisitsError::File { path: path.clone(), reason };
    let file = opened.map_err(|error| wrong(error.to_string()))?;
    for _ in 0..TRIES {
        match lock(&file) {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
            Err(TryLockError::Error(error)) => return Err(wrong(format!("it cannot be locked: {error}"))),
        }
    }
    Err(wrong(held.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_a_link_is_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let victim = folder.path().join("victim");
        std::os::unix::fs::symlink(&victim, folder.path().join(FILE)).expect("a link");
        assert!(alone(folder.path()).is_err());
        assert!(!victim.exists(), "a file was created in another place");
    }
}
