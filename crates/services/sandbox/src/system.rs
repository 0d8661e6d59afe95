//! Files of the system that a server reads at run time, apart from its configuration.

use std::env;
use std::path::{Path, PathBuf};

use crate::folders::{Access, real};

/// Files and folders to read. `/etc` as a whole: programs replace `resolv.conf`, `hosts` and lists of authorities by other files
/// with their names, and access is granted to the present files of a folder or to the folder. `/proc` as a whole for
/// the same reason: its entries are new objects after they were not used for some time. Landlock excludes the memory, the
/// environment and the open files of other processes there.
const READ: &[&str] = &[
    "/etc",
    "/proc",
    "/usr",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/gnu/store",
    "/var/lib/ca-certificates",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/sys/kernel/mm",
    // Looked for by AWS-LC: number of the copy of a virtual machine.
    "/dev/sysgenid",
    "/dev/random",
    "/dev/urandom",
];

/// Devices to write.
const WRITE: &[&str] = &["/dev/null"];

/// Files whose folder is granted too, because they are links to files that other programs replace.
const LINKED: &[&str] = &["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/localtime"];

/// Variables of the environment with lists of files and folders that libraries read: authorities.
const VARIABLES: &[&str] = &["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Granted files of the system, those that exist.
pub(crate) fn grants() -> Vec<(PathBuf, Access)> {
    let read = READ.iter().filter_map(|path| Some((real(Path::new(path))?, Access::Read)));
    let write = WRITE.iter().filter_map(|path| Some((real(Path::new(path))?, Access::Write)));
    let linked = LINKED.iter().filter_map(|path| Some((folder_of(Path::new(path))?, Access::Read)));
    let listed = VARIABLES.iter().filter_map(env::var_os);
    let listed = listed.flat_map(|list| env::split_paths(&list).collect::<Vec<_>>());
    let listed = listed.filter_map(|path| {
        let folder = if path.is_dir() { real(&path) } else { folder_of(&path) };
        Some((folder?, Access::Read))
    });
    // Profiles read the symbols of the program, whose folder another user may be unable to enter.
    let program = (PathBuf::from("/proc/self/exe"), Access::Read);
    read.chain(write).chain(linked).chain(listed).chain([program]).collect()
}

/// The folder of the file at the end of all links; `None` for the root, which contains all files.
fn folder_of(path: &Path) -> Option<PathBuf> {
    let folder = real(path)?.parent()?.to_owned();
    folder.parent().is_some().then_some(folder)
}
