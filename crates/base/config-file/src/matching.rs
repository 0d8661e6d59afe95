//! The files of a path with `*` in its last part, as in `conf.d/*.toml`.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The present files that `path` names, sorted by name, if its last part contains `*`, which is any text. Names that begin with a
/// dot do not match, unless the pattern begins with one. `None` for any other path.
pub fn matching(path: &Path) -> Option<io::Result<Vec<PathBuf>>> {
    let name = path.file_name()?.as_bytes();
    // `Sources` refuses a second `*`. Here, further ones are ordinary characters of the name.
    let star = name.iter().position(|byte| *byte == b'*')?;
    let (start, end) = (&name[..star], &name[star + 1..]);
    Some(files(path.parent().unwrap_or(Path::new("")), start, end))
}

fn files(folder: &Path, start: &[u8], end: &[u8]) -> io::Result<Vec<PathBuf>> {
    // `read_dir` refuses an empty path, which `join` takes for the working directory.
    let opened = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let mut names = Vec::new();
    for entry in fs::read_dir(opened)? {
        let name = entry?.file_name();
        if is_match(&name, start, end) {
            names.push(name);
        }
    }
    // `read_dir` has no order, but the order of the files is that of hosts, and the first host is the default
    // one.
    names.sort_unstable();
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

fn is_match(name: &OsStr, start: &[u8], end: &[u8]) -> bool {
    let name = name.as_bytes();
    let is_hidden = name.starts_with(b".") && !start.starts_with(b".");
    // The length keeps both parts apart: without it, `ab*b` would match `ab` by using one letter twice.
    !is_hidden && name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_editors_do_not_match() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["b.toml", "a.toml", ".toml", ".a.toml.swp", "a.toml~", "#a.toml#", ".#a.toml", "4913"] {
            fs::write(folder.path().join(name), "").expect("a file");
        }
        let found = matching(&folder.path().join("*.toml")).expect("a pattern").expect("a folder");
        assert_eq!(found, ["a.toml", "b.toml"].map(|name| folder.path().join(name)));
        assert!(matching(&folder.path().join("a.toml")).is_none());
        assert!(matching(&folder.path().join("none/*.toml")).expect("a pattern").is_err());
        assert!(!is_match(OsStr::new("ab"), b"ab", b"b"), "no byte of a name is matched twice");
    }
}
