//! The file with the supervisor's process id, for `brisk upgrade` and for operators.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;

use rustix::process::{Pid, getpid};

use crate::control::is_supervisor;

/// A pid file, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    /// The file until [`publish`](Self::publish), in the same folder.
    prepared: PathBuf,
}

impl PidFile {
    /// Writes the id of this process to a file beside `path`. An error if the file of `path` names another supervisor that runs.
    pub(crate) fn prepare(path: &Path) -> io::Result<Self> {
        if let Some(other) = read(path).ok().filter(|id| *id != getpid() && is_supervisor(*id)) {
            return Err(io::Error::other(format!("it is the file of supervisor {other}, which runs")));
        }
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{}", process::id()));
        let prepared = PathBuf::from(name);
        // The name can be foreseen: another user with rights to the folder may have put a link to a file of this user there.
        let _ = fs::remove_file(&prepared);
        writeln!(File::create_new(&prepared)?, "{}", process::id())?;
        Ok(Self { path: path.to_owned(), prepared })
    }

    /// Puts the prepared file in the place of an earlier one, so that no reader finds a part of the id. A further call has no
    /// effect; a failure is logged.
    pub(crate) fn publish(&mut self) {
        match fs::rename(&self.prepared, &self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::error!(%error, "cannot write the pid file {}", self.path.display());
            }
            _ => {}
        }
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.prepared);
        // Another supervisor may have written its id since.
        if read(&self.path).is_ok_and(|id| id == getpid()) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The process id in a pid file.
pub(crate) fn read(path: &Path) -> io::Result<Pid> {
    let id = fs::read_to_string(path)?.trim().parse().ok().and_then(Pid::from_raw);
    id.ok_or_else(|| io::Error::other("it contains no process id"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_with_the_name_of_the_prepared_file_is_replaced_and_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, other) = (folder.path().join("brisk.pid"), folder.path().join("other"));
        fs::write(&other, "text").expect("written");
        symlink(&other, folder.path().join(format!("brisk.pid.{}", process::id()))).expect("a link");
        let mut file = PidFile::prepare(&path).expect("written");
        file.publish();
        assert_eq!(read(&path).expect("an id"), getpid());
        assert_eq!(fs::read_to_string(other).expect("the file"), "text");
    }

    #[test]
    fn a_pid_file_is_read_and_removed_unless_it_is_of_another_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("brisk.pid");
        let mut file = PidFile::prepare(&path).expect("written");
        assert!(!path.exists());
        file.publish();
        assert_eq!(read(&path).expect("an id"), getpid());
        drop(file);
        assert!(!path.exists());
        let mut file = PidFile::prepare(&path).expect("written");
        file.publish();
        file.publish();
        fs::write(&path, "1\n").expect("written");
        drop(file);
        assert_eq!(read(&path).expect("an id"), Pid::INIT);
        fs::write(&path, "brisk\n").expect("written");
        assert_eq!(read(&path).expect_err("no id").to_string(), "it contains no process id");
    }

    #[test]
    fn the_file_of_a_supervisor_stays_if_another_one_does_not_become_ready() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("brisk.pid");
        fs::write(&path, "1\n").expect("written");
        drop(PidFile::prepare(&path).expect("process 1 is no supervisor"));
        assert_eq!(read(&path).expect("an id"), Pid::INIT);
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 1);
    }
}
