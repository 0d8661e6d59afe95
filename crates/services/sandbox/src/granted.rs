//! [`Granted`], the file access of a confined process, and [`Rights`], from which other parts of the process learn it.

use std::collections::HashSet;
use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::folders::{Access, Folders, Need, real};
use crate::privileges::Privileges;
use crate::system;

/// The files and folders that a process was granted, by their paths at that time.
#[derive(Clone, Debug, Default)]
pub struct Granted {
    /// Canonical paths.
    pub(crate) all: Vec<(PathBuf, Access)>,
    /// Paths of the configuration for which access was requested, also of those that did not exist.
    requested: HashSet<(PathBuf, Access)>,
}

impl Granted {
    /// The grants for `folders`, and for the files of the system that every program reads. Creates missing folders to write.
    pub(crate) fn of(folders: &Folders) -> Self {
        let own = folders.needs.iter().flat_map(|need| {
            create(need);
            need.grants().into_iter().map(|folder| (folder, need.access))
        });
        let mut all: Vec<_> = own.chain(system::grants()).collect();
        all.sort();
        all.dedup();
        let requested = folders.needs.iter().map(|need| (need.path.clone(), need.access)).collect();
        Self { all, requested }
    }

    /// Whether the process was granted this `access` to `path`. The kernel may refuse it nevertheless, if a folder was
    /// replaced since.
    pub fn permits(&self, path: &Path, access: Access) -> bool {
        // The file itself may be missing: then its folder counts.
        let found = real(path).or_else(|| Some(real(path.parent()?)?.join(path.file_name()?)));
        let Some(found) = found else { return false };
        self.all.iter().any(|(folder, own)| own.includes(access) && found.starts_with(folder))
    }

    /// The first path of `folders` that the process was not granted. A path that was requested at the start is none: where it could
    /// not be granted, its use fails as it did then.
    pub fn first_outside<'f>(&self, folders: &'f Folders) -> Option<&'f Path> {
        let is_new = |need: &&Need| !self.requested.contains(&(need.path.clone(), need.access));
        // A file in a folder that does not exist needs no access yet; its reader reports the folder.
        let is_there = |need: &&Need| need.access == Access::Write || !need.grants().is_empty();
        let mut needs = folders.needs.iter().filter(is_new).filter(is_there);
        needs.find(|need| !self.permits(&need.path, need.access)).map(|need| &*need.path)
    }
}

/// Creates the folder of a need to write, accessible by its owner only, if it is missing.
fn create(need: &Need) {
    if need.access == Access::Write && !need.path.exists() {
        // Without the folder there is no access, and the first write reports the reason.
        let _ = DirBuilder::new().recursive(true).mode(0o700).create(&need.path);
    }
}

/// The rights of the process, set when it has given up others.
#[derive(Debug, Default)]
pub struct Rights {
    /// Set by [`drop_privileges`](crate::drop_privileges).
    pub privileges: OnceLock<Privileges>,
    /// Set by [`confine`](crate::confine). Empty if file access is not limited.
    pub granted: OnceLock<Granted>,
}

impl Rights {
    /// Whether file access is limited.
    pub fn limit_files(&self) -> bool {
        self.granted.get().is_some()
    }

    /// The reason for which this process cannot read an existing regular file, with the correction, if its own rights are the
    /// reason.
    pub fn refusal(&self, file: &Path) -> Option<String> {
        let privileges = self.privileges.get().filter(|privileges| privileges.changed_to.is_some());
        if (privileges.is_none() && !self.limit_files()) || !is_denied(file) {
            return None;
        }
        let shown = file.display();
        // access(2) knows owners and modes, and not Landlock.
        if rustix::fs::access(file, rustix::fs::Access::READ_OK).is_err() {
            let user = privileges?.shown_user();
            return Some(format!(
                "{shown} is not readable for the user {user} of server.user: `chgrp {user} {shown} && chmod g+r {shown}` permits it, \
                 if the user can enter the folders; for private keys, keys.isolate = true reads them in a process of their own"
            ));
        }
        let granted = self.granted.get()?;
        Some(if granted.permits(file, Access::Read) {
            format!(
                "{shown} is in a folder that was replaced since the start, which the sandbox excludes: restart brisk"
            )
        } else {
            outside(file)
        })
    }
}

/// Whether the system refuses to open an existing regular file.
fn is_denied(file: &Path) -> bool {
    // `metadata` first: opening a pipe would wait for a writer.
    let opened = file.metadata().and_then(|facts| facts.is_file().then(|| File::open(file)).transpose());
    opened.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

/// Message about a path outside of the folders of the sandbox, with the correction.
pub fn outside(path: &Path) -> String {
    format!(
        "{} is outside of the folders of the sandbox, which are those of the configuration at the start: restart brisk to use it",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn paths_are_permitted_below_granted_folders_alone() {
        let root = tempfile::tempdir().expect("a folder");
        let path = |name: &str| root.path().join(name);
        for folder in ["conf", "state", "other"] {
            fs::create_dir(path(folder)).expect("a folder");
            fs::write(path(folder).join("file"), "").expect("a file");
        }
        let mut folders = Folders::default();
        folders.read_file(&path("conf/file"));
        folders.write_folder(&path("state"));
        folders.write_folder(&path("new/state"));
        folders.write_folder(Path::new("/dev/null/state"));
        let granted = Granted::of(&folders);
        assert!(granted.permits(&path("new/state/file"), Access::Write) && path("new/state").is_dir());
        assert!(granted.permits(&path("conf/new"), Access::Read));
        assert!(!granted.permits(&path("conf/file"), Access::Write));
        assert!(granted.permits(&path("state/file"), Access::Append));
        assert!(granted.permits(Path::new("/etc/hosts"), Access::Read));
        assert!(!granted.permits(&path("other/file"), Access::Read));
        assert!(granted.first_outside(&folders).is_none(), "as at the start");
        folders.read_file(&path("missing/file"));
        assert!(granted.first_outside(&folders).is_none(), "a missing folder is reported where it is read");
        folders.read_file(&path("other/file"));
        assert_eq!(granted.first_outside(&folders), Some(&*path("other/file")));
        assert!(outside(&path("other/file")).contains("other/file is outside of the folders of the sandbox"));
        let rights = Rights::default();
        rights.granted.set(granted).expect("empty");
        assert_eq!(rights.refusal(&path("conf/file")), None, "it can be read");
    }
}
