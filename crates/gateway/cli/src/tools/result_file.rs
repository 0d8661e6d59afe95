//! Files for results, opened before a measurement: a wrong path must not cost its result.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::fs::OFlags;
use rustix::io::Errno;

/// An open file for a result.
#[derive(Debug)]
pub(super) struct ResultFile {
    file: File,
    path: PathBuf,
    /// Whether the result is added to the content.
    appends: bool,
}

impl ResultFile {
    /// Opens or makes a file. Its content stays until the result replaces it.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        Self::of(path, OpenOptions::new().write(true).create(true).truncate(false).open(path), false)
    }

    /// Opens or makes a key log, to which secrets are appended, as browsers and curl do. A new file is readable by its owner
    /// only, since it decrypts traffic.
    pub(super) fn open_key_log(path: &Path) -> anyhow::Result<Self> {
        Self::of(path, open_key_log(path), true)
    }

    fn of(path: &Path, opened: io::Result<File>, appends: bool) -> anyhow::Result<Self> {
        let file = opened.with_context(|| cannot_write(path))?;
        Ok(Self { file, path: path.to_owned(), appends })
    }

    /// Writes the result.
    pub(super) fn write(
        self,
        result: impl FnOnce(&mut BufWriter<&File>) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let Self { file, path, appends } = &self;
        let write = || {
            // Pipes and terminals have no content to replace.
            if !*appends && file.metadata()?.is_file() {
                file.set_len(0)?;
            }
            let mut output = BufWriter::new(file);
            result(&mut output)?;
            output.flush()
        };
        write().with_context(|| cannot_write(path))
    }

    /// Writes a result that is a text.
    pub(super) fn write_text(self, text: &str) -> anyhow::Result<()> {
        self.write(|output| output.write_all(text.as_bytes()))
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

fn open_key_log(path: &Path) -> io::Result<File> {
    let no_file = || io::Error::other("it is no regular file");
    // A link of another user of the folder could lead to any file, and a FIFO would wait for a reader. Checked by `open` and of
    // the opened file: a path may have another file after a check.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(flags.bits().cast_signed());
    let opened = options.open(path).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::LOOP | Errno::NXIO) => no_file(),
        _ => error,
    })?;
    if opened.metadata()?.is_file() { Ok(opened) } else { Err(no_file()) }
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
