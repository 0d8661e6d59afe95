//! The file with the supervisor's process id, for `brisk upgrade` and for operators.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process;

use rustix::process::Pid;

/// A pid file, removed when it is dropped.
#[derive(Debug)]
pub(crate) struct PidFile(PathBuf);

impl PidFile {
    /// Writes the id of this process, in place of the file of an earlier one.
    pub(crate) fn write(path: &Path) -> io::Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(".new");
        // Renamed, so that no reader finds a part of the id.
        fs::write(&name, format!("{}\n", process::id()))?;
        fs::rename(&name, path)?;
        Ok(Self(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        // Another supervisor may have written its id since.
        if read(&self.0).is_ok_and(|id| id == rustix::process::getpid()) {
            let _ = fs::remove_file(&self.0);
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
    use super::*;

    #[test]
    fn a_pid_file_is_read_and_removed_unless_it_is_of_another_process() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("brisk.pid");
        let file = PidFile::write(&path).expect("written");
        assert_eq!(read(&path).expect("an id"), rustix::process::getpid());
        drop(file);
        assert!(!path.exists());
        let file = PidFile::write(&path).expect("written");
        fs::write(&path, "1\n").expect("written");
        drop(file);
        assert_eq!(read(&path).expect("an id"), Pid::INIT);
        fs::write(&path, "brisk\n").expect("written");
        assert_eq!(read(&path).expect_err("no id").to_string(), "it contains no process id");
    }
}
