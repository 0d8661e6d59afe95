//! Which processes have the folder open: any number at once, as while one takes over from another; but only one that is alone may
//! put a damaged database out of the way.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::error::VisitsError;

/// The file that is locked; it has no content and stays.
const FILE: &str = "visits.lock";

/// A process that is being started has the locks of the one that starts it, for a moment.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(20);

/// Which file it is, whatever its name: device and inode.
pub(crate) type Identity = (u64, u64);

/// Which file `path` is now.
pub(crate) fn identity(path: &Path) -> Option<Identity> {
    path.metadata().ok().map(|found| (found.dev(), found.ino()))
}

/// Has the folder together with others, until the file is dropped.
pub(super) fn shared(folder: &Path) -> Result<File, VisitsError> {
    lock(folder, File::try_lock_shared, "another process is putting a damaged database out of the way")
}

/// Has the folder alone, until the file is dropped.
pub(super) fn alone(folder: &Path) -> Result<File, VisitsError> {
    lock(
        folder,
        File::try_lock,
        "the database is damaged, and stays where it is while another process has it open",
    )
}

fn lock(folder: &Path, lock: fn(&File) -> Result<(), TryLockError>, held: &str) -> Result<File, VisitsError> {
    let path = folder.join(FILE);
    let opened =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
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
