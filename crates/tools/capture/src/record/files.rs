//! Files of a recording, of which the oldest one is replaced.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use nix::fcntl::OFlag;

/// Number and size of files, written as `10x100MB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ring {
    number: u32,
    bytes: u64,
}

impl FromStr for Ring {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const UNITS: [(&str, u64); 6] = [
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("kB", 1000),
            ("MB", 1_000_000),
            ("GB", 1_000_000_000),
        ];
        let read = || {
            let (number, size) = text.split_once('x')?;
            let (digits, unit) =
                UNITS.iter().find_map(|(name, unit)| Some((size.strip_suffix(name)?, unit)))?;
            let bytes = digits.parse::<u64>().ok()?.checked_mul(*unit).filter(|bytes| *bytes > 0)?;
            Some(Self { number: number.parse().ok().filter(|number| *number > 0)?, bytes })
        };
        read().ok_or_else(|| format!("{text:?} is no number and size of files: write for example 10x100MB"))
    }
}

/// Writer of one file, or of a ring of files: `site.pcap` becomes `site.0.pcap`, `site.1.pcap` and so on. Each is a capture.
#[derive(Debug)]
pub struct RingFiles {
    path: PathBuf,
    ring: Option<Ring>,
    current: Option<BufWriter<File>>,
    number: u32,
    written: u64,
}

impl RingFiles {
    /// Writes to `path`; without a [`Ring`], the size is not limited.
    pub fn new(path: PathBuf, ring: Option<Ring>) -> Self {
        Self { path, ring, current: None, number: 0, written: 0 }
    }

    /// Creates the first file.
    pub(super) fn begin(&mut self, header: &[u8]) -> io::Result<()> {
        let path = self.ring.map_or(self.path.clone(), |_| numbered(&self.path, self.number));
        let mut file = BufWriter::new(create(&path)?);
        file.write_all(header)?;
        (self.current, self.written) = (Some(file), header.len() as u64);
        Ok(())
    }

    /// Adds a packet, to the next file if this one would become too large.
    pub(super) fn add(&mut self, header: &[u8], parts: &[&[u8]]) -> io::Result<()> {
        let bytes: u64 = parts.iter().map(|part| part.len() as u64).sum();
        // A packet that is larger than a whole file is written all the same, or each file would stay empty.
        let is_begin = self.written <= header.len() as u64;
        if let Some(ring) = self.ring.filter(|ring| self.written + bytes > ring.bytes && !is_begin) {
            self.flush()?;
            self.number = (self.number + 1) % ring.number;
            self.begin(header)?;
        }
        self.written += bytes;
        let Some(file) = &mut self.current else { return Ok(()) };
        parts.iter().try_for_each(|part| file.write_all(part))
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.current.as_mut().map_or(Ok(()), Write::flush)
    }
}

/// Creates or empties a file. A new file is readable by its owner only, since it has the contents of connections. Links are not
/// followed (`O_NOFOLLOW`), since another user may have made one.
fn create(path: &Path) -> io::Result<File> {
    // For the message only: `O_NOFOLLOW` refuses a link that appears after this check.
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        return Err(io::Error::other(format!("{} is a symbolic link: write to its target", path.display())));
    }
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(OFlag::O_NOFOLLOW.bits());
    options.open(path)
}

/// The path with a number in front of its extension.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let extension = path.extension().map(|extension| extension.to_string_lossy().into_owned());
    path.with_extension(extension.map_or(number.to_string(), |extension| format!("{number}.{extension}")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn sizes_of_rings_are_read() {
        assert_eq!("10x100MB".parse(), Ok(Ring { number: 10, bytes: 100_000_000 }));
        assert_eq!("1x2GiB".parse(), Ok(Ring { number: 1, bytes: 2 << 30 }));
        for text in ["", "10", "0x1MB", "2x0MB", "2x5", "2x99999999999GB", "x1MB", "2xMB"] {
            let error = text.parse::<Ring>().expect_err(text);
            assert!(error.contains("10x100MB"), "{error}");
        }
    }

    #[test]
    fn recordings_are_of_their_owner_and_links_are_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        RingFiles::new(path("site.pcap"), None).begin(b"header").expect("a file");
        let mode = fs::metadata(path("site.pcap")).expect("a file").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{mode:o}");
        fs::write(path("victim"), "kept").expect("a file");
        std::os::unix::fs::symlink(path("victim"), path("link.pcap")).expect("a link");
        let error = RingFiles::new(path("link.pcap"), None).begin(b"header").expect_err("a link");
        assert!(error.to_string().contains("symbolic link"), "{error}");
        assert_eq!(fs::read(path("victim")).expect("a file"), b"kept");
    }

    #[test]
    fn the_oldest_file_of_a_ring_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let ring = Ring { number: 3, bytes: 100 };
        let mut files = RingFiles::new(folder.path().join("site.pcap"), Some(ring));
        files.begin(b"header").expect("a file");
        for number in 0..10_u8 {
            files.add(b"header", &[&[number; 10], &[number; 30]]).expect("written");
        }
        files.flush().expect("written");
        let read = |number: u8| fs::read(folder.path().join(format!("site.{number}.pcap"))).expect("a file");
        // Two packets each: 0 1, 2 3, 4 5, then 6 7 and 8 9 in place of the oldest ones.
        for (file, packets) in [(0, [6, 7]), (1, [8, 9]), (2, [4, 5])] {
            assert_eq!(read(file), [&b"header"[..], &[packets[0]; 40], &[packets[1]; 40]].concat());
        }
        // A packet beyond the size has a file of its own.
        files.add(b"header", &[&[9; 500]]).expect("written");
        files.flush().expect("written");
        assert_eq!(read(2).len(), 506);
    }
}
