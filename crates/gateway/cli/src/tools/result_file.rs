//! Files for results, opened before a measurement: a wrong path must not cost its result.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::OFlags;
use rustix::io::Errno;

/// An open file for a result, such as that of `--html`. Dropped without one, it is removed if it was made here.
#[derive(Debug)]
pub(super) struct ResultFile {
    file: File,
    path: PathBuf,
    /// Whether the result is added to the content.
    appends: bool,
    /// Whether the file was made here and has no result yet.
    is_new: bool,
}

impl ResultFile {
    /// Opens or makes a file. Its content stays until the result replaces it.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        Self::of(path, open_or_make(path, OpenOptions::new().write(true).truncate(false)), false)
    }

    /// Opens or makes a key log (`SSLKEYLOGFILE`), to which secrets are appended, as browsers and curl do. A new file is readable by its owner
    /// only, since it decrypts traffic.
    pub(super) fn open_key_log(path: &Path) -> anyhow::Result<Self> {
        Self::of(path, open_key_log(path), true)
    }

    fn of(path: &Path, opened: io::Result<(File, bool)>, appends: bool) -> anyhow::Result<Self> {
        let (file, is_new) = opened.with_context(|| cannot_write(path))?;
        Ok(Self { file, path: path.to_owned(), appends, is_new })
    }

    /// Writes the result.
    pub(super) fn write(
        mut self,
        result: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let Self { file, path, appends, .. } = &self;
        let write = || {
            // Pipes and terminals have no content to replace.
            if !*appends && file.metadata()?.is_file() {
                file.set_len(0)?;
            }
            let mut output = BufWriter::new(file);
            result(&mut output)?;
            output.flush()
        };
        write().with_context(|| cannot_write(path))?;
        self.is_new = false;
        Ok(())
    }

    /// Writes a result that is a text.
    pub(super) fn write_text(self, text: &str) -> anyhow::Result<()> {
        self.write(|output| output.write_all(text.as_bytes()))
    }

    /// Whether the path still has this file, and nothing was written to it.
    fn is_empty(&self) -> io::Result<bool> {
        let (own, found) = (self.file.metadata()?, fs::symlink_metadata(&self.path)?);
        Ok(own.len() == 0 && (own.dev(), own.ino()) == (found.dev(), found.ino()))
    }
}

impl Drop for ResultFile {
    fn drop(&mut self) {
        // An empty file would look like a result.
        if self.is_new && matches!(self.is_empty(), Ok(true)) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// Opens a file and returns whether it was made.
fn open_or_make(path: &Path, options: &mut OpenOptions) -> io::Result<(File, bool)> {
    match options.create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // With `create`, because a link may lead to no file.
            Ok((options.create_new(false).create(true).open(path)?, false))
        }
        opened => Ok((opened?, true)),
    }
}

fn open_key_log(path: &Path) -> io::Result<(File, bool)> {
    let no_file = || io::Error::other("it is no regular file");
    // A link of another user of the folder could lead to any file, and a FIFO would wait for a reader. Checked by `open` and of
    // the opened file: a path may have another file after a check.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.append(true).mode(0o600).custom_flags(flags.bits().cast_signed());
    let (opened, is_new) =
        open_or_make(path, &mut options).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::LOOP | Errno::NXIO) => no_file(),
            _ => error,
        })?;
    if opened.metadata()?.is_file() { Ok((opened, is_new)) } else { Err(no_file()) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn a_key_log_is_a_regular_file_and_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for text in ["a\n", "b\n"] {
            ResultFile::open_key_log(&path("keys")).unwrap().write_text(text).unwrap();
        }
        assert_eq!(fs::read_to_string(path("keys")).unwrap(), "a\nb\n");
        symlink(path("keys"), path("link")).unwrap();
        symlink(path("missing"), path("dangling")).unwrap();
        mknodat(CWD, path("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        mknodat(CWD, path("read"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let _reader = OpenOptions::new().read(true).write(true).open(path("read")).unwrap();
        for name in ["link", "dangling", "fifo", "read"] {
            let error = format!("{:#}", ResultFile::open_key_log(&path(name)).unwrap_err());
            assert!(error.ends_with(": it is no regular file"), "{error}");
        }
        assert!(ResultFile::open_key_log(folder.path()).is_err() && !path("missing").exists());
    }

    /// An empty page was left, which looks like a result.
    #[test]
    fn a_run_without_a_result_leaves_no_new_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.html");
        for open in [ResultFile::open, ResultFile::open_key_log] {
            drop(open(&path).unwrap());
            assert!(!path.exists());
            // An earlier file, also an empty one, another file at the path, and an empty result stay.
            fs::write(&path, "").unwrap();
            drop(open(&path).unwrap());
            fs::remove_file(&path).unwrap();
            let opened = open(&path).unwrap();
            fs::rename(&path, folder.path().join("moved")).unwrap();
            fs::write(&path, "").unwrap();
            drop(opened);
            fs::remove_file(&path).unwrap();
            open(&path).unwrap().write_text("").unwrap();
            fs::remove_file(&path).unwrap();
            let failed = open(&path).unwrap().write(|_| Err(io::Error::other("the disk is full")));
            assert!(failed.is_err() && !path.exists());
        }
    }

    #[test]
    fn a_wrong_path_is_an_error_before_a_run_and_a_result_replaces_an_earlier_one() {
        let folder = tempfile::tempdir().unwrap();
        let error = ResultFile::open(&folder.path().join("missing/x.html")).unwrap_err().to_string();
        assert!(error.starts_with("cannot write ") && error.ends_with("missing/x.html"), "{error}");
        let path = folder.path().join("x.html");
        fs::write(&path, "an earlier result").unwrap();
        let opened = ResultFile::open(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "an earlier result");
        opened.write_text("result").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "result");
        // A device has no content.
        ResultFile::open(Path::new("/dev/null")).unwrap().write_text("result").unwrap();
    }
}
