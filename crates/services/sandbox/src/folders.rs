//! [`Folders`], the files and folders that a configuration needs.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Kind of access to files.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Reading files and listing folders.
    Read,
    /// Writing and creating files, without reading, shortening or removing any.
    Append,
    /// Reading, writing, creating and removing files and folders.
    Write,
}

impl Access {
    /// Whether access of this kind includes `other`.
    pub(crate) fn includes(self, other: Self) -> bool {
        self == Self::Write || self == other
    }
}

/// The files and folders that a configuration needs. Adding one costs no look at the file system.
#[derive(Clone, Debug, Default)]
pub struct Folders {
    pub(crate) needs: Vec<Need>,
}

/// One file or folder.
#[derive(Clone, Debug)]
pub(crate) struct Need {
    /// Absolute path as in the configuration.
    pub(crate) path: PathBuf,
    pub(crate) access: Access,
    kind: Kind,
}

/// Kind of a path to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    File,
    /// A folder that another folder may replace.
    Site,
    /// A folder with links to files elsewhere.
    Collection,
}

impl Folders {
    /// Adds a file to read, which may be replaced by another one with its name, or be missing.
    pub fn read_file(&mut self, file: &Path) {
        self.add(file, Access::Read, Kind::File);
    }

    /// Adds a folder to read, or a file as by [`read_file`](Self::read_file). Another folder may take its name, as in a
    /// deployment: the folder around it is granted too, unless that contains more than the sites of one service.
    pub fn read_folder(&mut self, folder: &Path) {
        self.add(folder, Access::Read, Kind::Site);
    }

    /// Adds a folder to read whose entries may be links to files elsewhere: the folders of the present targets are granted too.
    pub fn read_linked_files(&mut self, folder: &Path) {
        self.add(folder, Access::Read, Kind::Collection);
    }

    /// Adds a file to append to, which may be renamed or missing.
    pub fn append_to(&mut self, file: &Path) {
        self.add(file, Access::Append, Kind::File);
    }

    /// Adds a folder for files of this program. [`confine`](crate::confine) creates it if it is missing, since the process may not
    /// create it later.
    pub fn write_folder(&mut self, folder: &Path) {
        self.add(folder, Access::Write, Kind::File);
    }

    /// Adds the folders for temporary files of the C library and of libraries.
    pub fn write_temporary_files(&mut self) {
        let variables = ["TMPDIR", "SQLITE_TMPDIR"].into_iter().filter_map(env::var_os).map(PathBuf::from);
        let usual = ["/var/tmp", "/tmp"].into_iter().map(PathBuf::from);
        for folder in variables.chain(usual).filter(|folder| folder.is_dir()) {
            self.write_folder(&folder);
        }
    }

    fn add(&mut self, path: &Path, access: Access, kind: Kind) {
        self.needs.push(Need { path: absolute(path), access, kind });
    }
}

impl Need {
    /// The existing folders to grant: those in which the file and the links on the way to it are replaced.
    pub(crate) fn grants(&self) -> Vec<PathBuf> {
        let (path, found) = (&self.path, real(&self.path));
        let around = path.parent().and_then(real);
        match (self.access, found) {
            (Access::Write, found) => found.into_iter().collect(),
            // A terminal, a pipe or another device: the folder around it is none of logs.
            (Access::Append, Some(special)) if !special.is_file() => vec![special],
            (Access::Read, Some(folder)) if self.kind != Kind::File && folder.is_dir() => {
                let linked = if self.kind == Kind::Collection { targets(&folder) } else { BTreeSet::new() };
                links(path).into_iter().chain([widened(folder)]).chain(linked).collect()
            }
            (_, found) => {
                let folders = links(path).into_iter().chain(around).chain(found.as_deref().and_then(parent));
                let own = |folder: PathBuf| if is_shared(&folder) { found.clone() } else { Some(folder) };
                folders.filter_map(own).collect()
            }
        }
    }
}

/// Whether `folder` has files of all programs: a file in it is granted alone, without a later one in its place.
fn is_shared(folder: &Path) -> bool {
    folder.parent().is_none() || folder == Path::new("/dev") || folder.starts_with("/proc")
}

/// The path from the root. Links and `..` stay.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The path without links; `None` if it does not exist.
pub(crate) fn real(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()
}

fn parent(path: &Path) -> Option<PathBuf> {
    path.parent().map(Path::to_owned)
}

/// For each link on the way to `path`: the folder in which the next target of the link may be, as `releases` for the link
/// `current`.
fn links(path: &Path) -> Vec<PathBuf> {
    let ways = path.ancestors().filter(|way| way.is_symlink());
    let target = |way: &Path| {
        let target = real(way)?;
        if target.is_dir() { Some(widened(target)) } else { parent(&target) }
    };
    ways.filter_map(target).collect()
}

/// The folders of the files to which links in `folder` lead.
fn targets(folder: &Path) -> BTreeSet<PathBuf> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    let links = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink()));
    let folders = links.filter_map(|link| parent(&real(&link.path())?));
    folders.filter(|folder| folder.parent().is_some()).collect()
}

/// Folders that contain far more than the data of one service.
const BROAD: [&str; 9] = [
    "/home",
    "/usr/local",
    "/usr/share",
    "/var/cache",
    "/var/lib",
    "/var/log",
    "/var/run",
    "/var/spool",
    "/var/tmp",
];

/// The folder around `folder`, or `folder` itself where that is [`BROAD`], a folder of the root, or a home folder.
fn widened(folder: PathBuf) -> PathBuf {
    let Some(around) = folder.parent() else { return folder };
    let is_of_root =
        around.parent().is_none_or(|above| above.parent().is_none()) && around != Path::new("/srv");
    let is_home = around.parent() == Some(Path::new("/home"))
        || env::var_os("HOME").is_some_and(|home| OsStr::new(&home) == around.as_os_str());
    let is_broad = is_of_root || is_home || BROAD.iter().any(|broad| around == Path::new(broad));
    if is_broad { folder } else { around.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().canonicalize().expect("a folder");
        (folder, path)
    }

    fn grants(add: impl Fn(&mut Folders)) -> Vec<PathBuf> {
        let mut folders = Folders::default();
        add(&mut folders);
        let mut grants = folders.needs[0].grants();
        grants.sort();
        grants.dedup();
        grants
    }

    #[test]
    fn a_file_needs_its_folder_and_those_of_its_links() {
        let (_kept, root) = folder();
        for made in ["live", "archive", "conf"] {
            fs::create_dir(root.join(made)).expect("a folder");
        }
        fs::write(root.join("archive/chain2.pem"), "").expect("a file");
        symlink("../archive/chain2.pem", root.join("live/chain.pem")).expect("a link");
        let own = grants(|folders| folders.read_file(&root.join("live/chain.pem")));
        assert_eq!(own, [root.join("archive"), root.join("live")]);
        // Missing files come into their folder.
        let own = grants(|folders| folders.read_file(&root.join("conf/missing.toml")));
        assert_eq!(own, [root.join("conf")]);
        assert!(grants(|folders| folders.read_file(&root.join("missing/x"))).is_empty());
    }

    #[test]
    fn a_served_folder_may_be_replaced_by_a_link_or_a_name() {
        let (_kept, root) = folder();
        fs::create_dir_all(root.join("app/releases/42/public")).expect("folders");
        symlink("releases/42", root.join("app/current")).expect("a link");
        let own = grants(|folders| folders.read_folder(&root.join("app/current/public")));
        assert_eq!(own, [root.join("app/releases"), root.join("app/releases/42")]);
    }

    #[test]
    fn folders_of_the_system_are_not_granted_for_a_folder_in_them() {
        let around = |folder: &str| widened(PathBuf::from(folder)).display().to_string();
        for folder in ["/", "/data", "/var/www", "/var/lib/site", "/home/ann", "/home/ann/site", "/etc/x"] {
            assert_eq!(around(folder), folder);
        }
        for (folder, granted) in [
            ("/srv/site", "/srv"),
            ("/var/www/html", "/var/www"),
            ("/home/ann/sites/one", "/home/ann/sites"),
            ("/data/sites/one", "/data/sites"),
        ] {
            assert_eq!(around(folder), granted);
        }
    }

    #[test]
    fn a_log_needs_its_folder_and_a_device_only_itself() {
        let (_kept, root) = folder();
        let own = grants(|folders| folders.append_to(&root.join("access.log")));
        assert_eq!(own, std::slice::from_ref(&root));
        assert_eq!(grants(|folders| folders.append_to(Path::new("/dev/null"))), [Path::new("/dev/null")]);
        assert!(grants(|folders| folders.append_to(Path::new("/dev/missing"))).is_empty());
        assert!(Access::Write.includes(Access::Read) && !Access::Append.includes(Access::Read));
    }
}
