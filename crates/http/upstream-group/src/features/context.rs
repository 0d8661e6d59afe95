//! State that features share during the resolution of a configuration: findings and files.

use std::collections::HashSet;
use std::fmt::Display;
use std::fs::File;
use std::io::Read;
use std::ops::RangeInclusive;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brisk_config_file::{Findings, KeyPath, Period};
use brisk_keys::encoding_fault;
use zeroize::Zeroizing;

/// Limits of time: deadlines have a granularity of 100 ms, and a day is no limit any more.
pub const TIMEOUTS: RangeInclusive<Period> =
    Period(Duration::from_millis(100))..=Period(Duration::from_hours(24));

/// State that the features of a configuration share while they are resolved.
pub struct Context<'c, 'd> {
    /// Mistakes and warnings.
    pub findings: &'c mut Findings<'d>,
    /// Folder to which relative paths refer.
    pub base: &'d Path,
    /// Files that the settings were made from.
    pub files: &'c mut HashSet<PathBuf>,
    /// Files with secrets, which no route may serve.
    pub secrets: &'c mut Vec<PathBuf>,
}

impl Context<'_, '_> {
    /// The path `path` of the configuration as the file is opened, noted in [`Self::files`] as one to watch.
    pub fn file(&mut self, path: &Path) -> PathBuf {
        let path = self.base.join(path);
        self.files.insert(path.clone());
        path
    }

    /// Reads a file with a secret in it; a warning if other users of this machine can read or change the file.
    pub fn read_privately<T, E: Display>(
        &mut self,
        file: &Path,
        path: &KeyPath,
        read: impl FnOnce(&Path) -> Result<T, E>,
    ) -> Option<T> {
        let value = read(file).map_err(|error| {
            let message = match start(file).and_then(|(bytes, length)| encoding_fault(&bytes[..length])) {
                Some(fault) => format!("{}: {fault}", file.display()),
                None => error.to_string(),
            };
            self.findings.wrong(path, message);
        });
        let value = value.ok()?;
        self.warn_of_access(file);
        Some(value)
    }

    /// Notes a file with a secret in [`Self::secrets`], and warns where others than the owner and the group may read a secret,
    /// or others than the owner may change it.
    pub fn warn_of_access(&mut self, file: &Path) {
        // Before the mode is read, so that the file is protected from routes even if its
        // metadata is not readable.
        self.secrets.push(file.to_owned());
        let mode = file.metadata().map_or(0, |metadata| metadata.permissions().mode());
        let file = file.display();
        if mode & 0o004 != 0 {
            let warning =
                format!("{file}: everyone on this machine may read it; `chmod o= {file}` ends that");
            self.findings.warn(warning);
        }
        if mode & 0o022 != 0 {
            let warning =
                format!("{file}: others than its owner may change it; `chmod go-w {file}` ends that");
            self.findings.warn(warning);
        }
    }
}

/// The first bytes of a regular file, at most 16, and their number: enough to recognize its encoding. A pipe was read to its
/// end before, so opening it again would wait for another writer.
fn start(file: &Path) -> Option<(Zeroizing<[u8; 16]>, usize)> {
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let (mut start, mut length) = (Zeroizing::new([0; 16]), 0);
    let mut file = File::open(file).ok()?;
    while length < start.len() {
        match file.read(&mut start[length..]).ok()? {
            0 => break,
            read => length += read,
        }
    }
    Some((start, length))
}
