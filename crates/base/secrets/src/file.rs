//! Contents of files with secrets, each in one buffer that is [`Zeroizing`].

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use zeroize::Zeroizing;

/// Initial size of the buffer for a file without a length, such as a pipe.
const UNKNOWN: usize = 16 * 1024;

/// Reads a file. Blocks on the file system.
///
/// # Errors
///
/// Those of the system.
pub fn read(path: &Path) -> io::Result<Zeroizing<Vec<u8>>> {
    read_at_most(path, usize::MAX)
}

/// Reads at most `most` bytes of a file.
///
/// # Errors
///
/// Those of the system.
pub fn read_at_most(path: &Path, most: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    read_open(&mut File::open(path)?, most)
}

/// Reads at most `most` bytes of an open file.
///
/// # Errors
///
/// Those of the system.
pub fn read_open(file: &mut File, most: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    // An error of `metadata` is ignored: the length is only the first size of the buffer.
    let length = file.metadata().map_or(0, |metadata| usize::try_from(metadata.len()).unwrap_or(usize::MAX));
    let expected = if length == 0 { UNKNOWN } else { length.saturating_add(1) };
    read_from(file, expected, most)
}

/// Reads a text file.
///
/// # Errors
///
/// Those of the system, and [`InvalidData`](io::ErrorKind::InvalidData) for a file that is not UTF-8.
pub fn read_text(path: &Path) -> io::Result<Zeroizing<String>> {
    let mut contents = read(path)?;
    // `from_utf8` takes the buffer without a copy, so the secret has one allocation.
    match String::from_utf8(std::mem::take(&mut *contents)) {
        Ok(text) => Ok(Zeroizing::new(text)),
        Err(error) => {
            // The error owns the contents of the file, which would otherwise be freed without being wiped.
            drop(Zeroizing::new(error.into_bytes()));
            Err(io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8"))
        }
    }
}

/// Reads to the end of `source`, or until `most` bytes. `expected` is a size for all of them and one byte more, with
/// which the end is found. A source that is longer costs one more copy for each doubling; the smaller ones are wiped.
fn read_from(source: &mut impl Read, expected: usize, most: usize) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut contents = Zeroizing::new(vec![0; expected.min(most)]);
    let mut filled = 0;
    while filled < most {
        if filled == contents.len() {
            // `resize` would free the smaller buffer without wiping its contents.
            let mut larger = Zeroizing::new(vec![0; (2 * filled).min(most)]);
            larger[..filled].copy_from_slice(&contents);
            contents = larger;
        }
        match source.read(&mut contents[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    contents.truncate(filled);
    Ok(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_any_length_are_read_to_their_end_or_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        for length in [0, 1, 100, UNKNOWN, UNKNOWN + 1] {
            std::fs::write(&path, vec![7; length]).unwrap();
            assert_eq!(**read(&path).unwrap(), vec![7; length]);
            assert_eq!(read_at_most(&path, 50).unwrap().len(), length.min(50));
        }
        assert_eq!(read(&folder.path().join("b")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    /// One allocation: `contents` is not copied after its first byte has been read.
    #[test]
    fn a_file_of_known_length_has_one_buffer() {
        let text = [7; 1000];
        let contents = read_from(&mut &text[..], 1001, usize::MAX).unwrap();
        assert_eq!((contents.len(), contents.capacity()), (1000, 1001));
    }

    #[test]
    fn sources_without_a_length_are_read_to_their_end_or_limit() {
        let text: Vec<u8> = (0..100_000u32).map(|number| number as u8).collect();
        assert_eq!(**read_from(&mut &text[..], 10, usize::MAX).unwrap(), text);
        assert_eq!(**read_from(&mut &text[..], 10, 5000).unwrap(), text[..5000]);
        assert!(read_from(&mut &text[..], 10, 0).unwrap().is_empty());
        // A file of the kernel, whose length is stated as zero.
        assert!(read_text(Path::new("/proc/self/status")).unwrap().contains("Name:"));
    }

    #[test]
    fn a_file_that_is_not_utf8_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [b'a', 0xff]).unwrap();
        assert_eq!(read_text(file.path()).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
