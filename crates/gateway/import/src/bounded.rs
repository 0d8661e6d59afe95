//! Reader of files with a bound for all files of an import together.

use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

/// Size of all files together at most.
pub(crate) const MOST_BYTES: u64 = 16 << 20;

/// Number of files at most.
pub(crate) const MOST_FILES: usize = 1000;

/// Bytes and number of the files that were read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reader {
    pub(crate) bytes: u64,
    pub(crate) opened: usize,
}

impl Reader {
    /// The text of a file; the error is none beyond the bounds. A text in another encoding than UTF-8 is no reason to refuse it.
    pub(crate) fn text(&mut self, path: &Path) -> Result<String, Option<io::Error>> {
        // A pipe could have no end, and its opening could wait for its other side.
        if !fs::metadata(path).map_err(Some)?.is_file() {
            return Err(Some(io::Error::other("this is not a file")));
        }
        let left = MOST_BYTES.saturating_sub(self.bytes);
        let mut bytes = Vec::new();
        // One byte more than the budget shows that the file is too long, without reading all of it.
        fs::File::open(path).map_err(Some)?.take(left + 1).read_to_end(&mut bytes).map_err(Some)?;
        self.bytes += bytes.len() as u64;
        self.opened += 1;
        if self.is_full() {
            return Err(None);
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Whether the files are too large or too many.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes > MOST_BYTES || self.opened > MOST_FILES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_sockets_and_long_files_are_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        fs::write(&path, "text").expect("a file");
        let mut reader = Reader::default();
        assert_eq!(reader.text(&path).expect("a text"), "text");
        assert!(matches!(reader.text(folder.path()), Err(Some(_))));
        let socket = folder.path().join("s");
        let _socket = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        let error = reader.text(&socket).expect_err("no file").expect("a cause");
        assert_eq!(error.to_string(), "this is not a file");
        fs::File::create(&path).and_then(|file| file.set_len(MOST_BYTES + 9)).expect("a file");
        assert!(matches!(reader.text(&path), Err(None)));
    }
}
