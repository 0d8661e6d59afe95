//! The path of the program that a supervisor starts.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The absolute path by which this process was started. Not the file that runs, so that a file that takes its place is the program
/// of the next generation; links are kept, since an upgrade may change one.
pub fn program_path() -> io::Result<PathBuf> {
    let first = env::args_os().next().unwrap_or_default();
    let found = resolve(&first, &env::current_dir()?, env::var_os("PATH").as_deref());
    // A caller may give any text as the first argument.
    found.map_or_else(env::current_exe, Ok)
}

/// The path that a shell in `folder` means by `word`; `None` if that is no program.
fn resolve(word: &OsStr, folder: &Path, search: Option<&OsStr>) -> Option<PathBuf> {
    let path = Path::new(word);
    if path.components().count() > 1 || path.is_absolute() {
        return Some(folder.join(path)).filter(|path| is_program(path));
    }
    let folders = search.map(env::split_paths).into_iter().flatten();
    let mut paths = folders.map(|searched| folder.join(searched).join(path));
    paths.find(|path| !word.is_empty() && is_program(path))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_word_is_resolved_as_by_a_shell() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = folder.path();
        for name in ["bin/brisk", "other/brisk"] {
            let path = place.join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(&path, "").expect("a file");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a file");
        }
        fs::write(place.join("bin/text"), "").expect("a file");
        let search =
            env::join_paths([place.join("none"), place.join("other"), place.join("bin")]).expect("paths");
        let found = |word: &str| resolve(OsStr::new(word), place, Some(&search));
        assert_eq!(found("brisk"), Some(place.join("other/brisk")));
        assert_eq!(found("./bin/brisk"), Some(place.join("./bin/brisk")));
        assert_eq!(found("bin/brisk"), Some(place.join("bin/brisk")));
        assert_eq!(found(place.join("bin/brisk").to_str().expect("UTF-8")), Some(place.join("bin/brisk")));
        assert_eq!((found("text"), found("bin/text"), found(""), found("bin")), (None, None, None, None));
        assert_eq!(resolve(OsStr::new("brisk"), place, None), None);
    }
}
